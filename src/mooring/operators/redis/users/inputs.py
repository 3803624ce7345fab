"""The users of a cluster from its declaration, the Secrets that it names, and the cluster's own Secret. Reads only."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence

from mooring.kube.objects import core
from mooring.operators.redis.passwords.seen import unusable
from mooring.operators.redis.users.accounts import DEFAULT, RULES
from mooring.operators.redis.users.held import Access, digest_of, first, held_in
from mooring.operators.redis.users.types import OFF, RESTRICTED, DefaultUserSpec, UserSpec
from mooring.operators.redis.users.wanted import WantedUser
from mooring.operators.workload.credentials import secret_value

__all__ = ["accounts_in", "closes", "declares", "read_access", "secrets_of"]


def declares(users: Sequence[UserSpec] | None, default: DefaultUserSpec | None) -> bool:
    """Users are declared, or the default user is not as ever."""
    return bool(users) or closes(default)


def closes(default: DefaultUserSpec | None) -> bool:
    """The default user may do less than everything."""
    return default is not None and default.mode in (OFF, RESTRICTED)


def secrets_of(users: Sequence[UserSpec] | None) -> list[str]:
    """The Secrets that declared users name."""
    found = [ref.name for one in users or () for ref in one.password_secrets or ()]
    return list(dict.fromkeys(name for name in found if name))


def accounts_in(secret: core.Secret | None, names: Sequence[str], *, declared: bool) -> dict[str, str]:
    """The operator's own accounts with their passwords; new ones where they are needed for the first time.

    What is new is in the cluster's Secret before any server hears of it: applying child objects comes first in a pass.
    """
    known = {name: text for name in names if (text := secret_value(secret, name))}
    if not known and not declared:
        return {}
    return {name: known.get(name) or os.urandom(24).hex() for name in names}


def read_access(
    users: Sequence[UserSpec] | None,
    default: DefaultUserSpec | None,
    *,
    secret: core.Secret | None,
    find: Callable[[str], core.Secret | None],
    accounts: Mapping[str, str],
    fresh: bool,
    sound: bool = True,
) -> Access:
    """Everything about the users; ``fresh``: no server was made yet. Unless ``sound``, what servers have stays."""
    held = held_in(secret)
    own = [WantedUser(name=name, rules=RULES[name], own=True) for name in accounts]
    hashes: dict[str, tuple[str, ...]] = {name: (digest_of(text),) for name, text in accounts.items()}
    if not accounts:
        return Access()
    if not sound:
        kept = [
            WantedUser(name=name, rules=one.rules, enabled=one.enabled)
            for name, one in held.users.items()
            if name not in accounts
        ]
        return Access(managed=True, wanted=(*own, *kept), hashes=hashes, held=held)
    declared = []
    for at, one in enumerate(users or ()):
        texts, missing = _passwords(one, find, where=f"spec.users[{at}]")
        declared.append(
            WantedUser(
                name=one.name,
                rules=_words(one.rules),
                enabled=one.enabled is not False,
                where=f"spec.users[{at}]",
                missing=missing,
            )
        )
        if not missing:
            hashes[one.name] = tuple(dict.fromkeys(map(digest_of, texts)))
    if default is not None and closes(default):
        on = default.mode == RESTRICTED
        declared.append(
            WantedUser(
                name=DEFAULT,
                rules=_words(default.rules) if on else (),
                enabled=on,
                where="spec.defaultUser",
            )
        )
    wanted = (*own, *declared)
    return Access(managed=True, wanted=wanted, hashes=hashes, held=first(wanted) if fresh else held)


def _words(rules: Sequence[str] | None) -> tuple[str, ...]:
    return tuple(word for rule in rules or () for word in rule.split())


def _passwords(
    user: UserSpec, find: Callable[[str], core.Secret | None], *, where: str
) -> tuple[list[str], str]:
    """The declared passwords of a user, or why they cannot be used."""
    texts = []
    for at, ref in enumerate(user.password_secrets or ()):
        name, key = ref.name or "", ref.key or "password"
        text = secret_value(find(name), key).rstrip("\r\n")
        if not text:
            why = f"Secret {name} with a key {key} does not exist; create it"
            return [], f"{where}.passwordSecrets[{at}]: {why}"
        if why := unusable(text):
            return [], f"{where}.passwordSecrets[{at}]: {why}; choose another"
        texts.append(text)
    return texts, ""
