"""What is wrong with declared users by themselves, each fault with its field and the remedy. Pure.

Whether a server knows a command or a category, it says itself; see `status`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from mooring.operators.redis.users.accounts import owned
from mooring.operators.redis.users.inputs import declares
from mooring.operators.redis.users.types import RESTRICTED, DefaultUserSpec, UserSpec
from mooring.operators.redis.versions import image_version
from mooring.operators.workload.problem import Problem

__all__ = ["OLDEST", "users_faults"]

OLDEST: Final = (6, 0, 0)
"""The first version with users."""
_NAME: Final = re.compile(r"[A-Za-z0-9_.:@-]{1,64}", re.ASCII)
_RULE: Final = re.compile(
    r"[~&+(%-]\S*|\S+\)|allkeys|allchannels|allcommands|nocommands|resetkeys|resetchannels|(skip-)?sanitize-payload"
)


def users_faults(
    users: Sequence[UserSpec] | None, default: DefaultUserSpec | None, *, images: Mapping[str, str]
) -> Iterator[Problem]:
    """Faults of spec.users and spec.defaultUser; ``images`` by their fields."""
    if declares(users, default):
        for where, image in images.items():
            version = image_version(image)
            if version is not None and version < OLDEST:
                field = "spec.users" if users else "spec.defaultUser"
                text = f"users need Redis 6.0 or later, and {where} is {image}; give a later image"
                yield Problem(field, text)
    names: dict[str, int] = {}
    for at, one in enumerate(users or ()):
        where = f"spec.users[{at}]"
        if owned(one.name):
            text = f"{one.name} is a name of the operator's; choose another"
            if one.name == "default":
                text = "the default user is declared in spec.defaultUser; choose another name"
            yield Problem(f"{where}.name", text)
        elif not _NAME.fullmatch(one.name):
            text = f"{one.name!r} is no name of a user; use letters, digits and _ . : @ -, at most 64"
            yield Problem(f"{where}.name", text)
        if one.name in names:
            text = f"{one.name} is declared in spec.users[{names[one.name]}] too; remove one of them"
            yield Problem(f"{where}.name", text)
        names.setdefault(one.name, at)
        if not one.password_secrets:
            yield Problem(f"{where}.passwordSecrets", "is missing; name a Secret with a password")
        yield from _rules(f"{where}.rules", one.rules)
    if default is not None:
        yield from _rules("spec.defaultUser.rules", default.rules)
        if default.rules and default.mode != RESTRICTED:
            text = "are used with mode Restricted alone; give that mode, or remove them"
            yield Problem("spec.defaultUser.rules", text)


def _rules(where: str, rules: Sequence[str] | None) -> Iterator[Problem]:
    for at, rule in enumerate(rules or ()):
        if any(ord(one) < 32 or ord(one) == 127 or one in "\"'" for one in rule):
            yield Problem(f"{where}[{at}]", f"{rule!r} holds a quote or a control character; remove it")
            continue
        for word in rule.split():
            if not _RULE.fullmatch(word):
                text = (
                    f"{word!r} is no rule about keys (~), channels (&), commands or categories (+ -); passwords come "
                    "from passwordSecrets, and enabled turns a user off"
                )
                if word[0] in "><#!":
                    text = "passwords and their hashes do not belong here; name a Secret in passwordSecrets"
                yield Problem(f"{where}[{at}]", text)
                break
