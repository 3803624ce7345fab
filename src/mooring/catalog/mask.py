"""Objects without their secrets, for people to read.

What an entry calls sensitive is masked, and so is what looks it by its name, in objects of any kind: too much masked is
a nuisance, too little a leak. Field ownership and the copy that ``kubectl apply`` keeps of what it sent are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from mooring.catalog import pointer

__all__ = ["MASKED", "is_secret_name", "mask"]

MASKED: Final = "••••••••"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_WORD = r"pass|passwd|password|passphrase|requirepass|masterauth|auth-?pass|secret|token|credentials?|(?:private|access|api|secret)[-_]?key"
_NAME = re.compile(rf"(?i)(?:^|.*[-_./a-z0-9])(?:{_WORD})$")
_IN_TEXT = re.compile(rf"(?i)^-{{0,2}}[-\w.]*(?:{_WORD})(?:[=:\s]|$)")
#: userinfo in a URL: scheme://user:password@host
_URL = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)")


def mask(obj: dict[str, Any], sensitive: Sequence[str] = ()) -> dict[str, Any]:
    """A copy of an object that may be shown."""
    shown: Any = _plain(obj)
    for path in sensitive:
        shown = _at(shown, pointer.parts(path))
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if (
            isinstance(annotations, dict)
            and annotations.pop(LAST_APPLIED, None) is not None
            and not annotations
        ):
            del metadata["annotations"]
    return dict(shown)


def is_secret_name(name: str) -> bool:
    """Whether a field of that name is one whose text is not shown."""
    return _NAME.match(name) is not None


def _plain(value: Any, name: str = "") -> Any:
    if isinstance(value, dict):
        said = value.get("name")
        if isinstance(said, str) and isinstance(value.get("value"), str) and _NAME.match(said):
            value = {**value, "value": MASKED}
        return {key: _plain(below, str(key)) for key, below in value.items()}
    if isinstance(value, list):
        return _plain_list(value)
    if isinstance(value, str) and value:
        return MASKED if _NAME.match(name) else _URL.sub(MASKED, value)
    return value


def _plain_list(values: list[Any]) -> list[Any]:
    shown, hide = [], False
    for value in values:
        if not isinstance(value, str):
            shown.append(_plain(value))
            hide = False
            continue
        if hide:
            shown.append(MASKED)
            hide = False
            continue
        found = _IN_TEXT.match(value)
        # "--requirepass" alone: the next word is the secret. "requirepass x": the rest is.
        hide = found is not None and found.end() == len(value) and value.startswith("-")
        shown.append(
            f"{found.group().rstrip()} {MASKED}" if found and found.end() < len(value) else _plain(value)
        )
    return shown


def _at(value: Any, steps: tuple[str, ...]) -> Any:
    if not steps:
        return MASKED if value not in (None, "") else value
    first, rest = steps[0], steps[1:]
    if isinstance(value, dict):
        return {key: _at(below, rest) if first in ("*", key) else below for key, below in value.items()}
    if isinstance(value, list):
        return [
            _at(below, rest) if first in ("*", str(index)) else below for index, below in enumerate(value)
        ]
    return value
