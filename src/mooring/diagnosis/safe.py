"""Messages of the cluster without what looks like a secret: they quote what users wrote."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["HIDDEN", "hidden", "safe"]

HIDDEN: Final = "••••••••"
#: Characters of a message.
LIMIT: Final = 600

_URL: Final = re.compile(r"(?<=://)[^/@\s:]*:[^/@\s]+(?=@)")
_WORD: Final = (
    r"(?:pass(?:wd|word|phrase)?|requirepass|masterauth|auth-?pass|secret|token|credentials?|"
    r"(?:private|access|api|secret)[-_]?key)"
)
#: ``password=x``, ``--requirepass x``, ``"token": "x"``, ``Authorization: Bearer x``.
_GIVEN: Final = re.compile(
    rf"(?i)((?:--?[-\w]{{0,64}}{_WORD}[=\s]+)|(?:[-\w.]{{0,64}}{_WORD}[\"']?\s*[=:]\s*)|(?:\bbearer\s+))(\"[^\"]*\"|'[^']*'|[^\s,;\"']+)"
)


def safe(text: object) -> str:
    """The text without passwords in URLs and options, at most `LIMIT` characters."""
    if not isinstance(text, str):
        return ""
    text = hidden(text)
    return text if len(text) <= LIMIT else text[: LIMIT - 1] + "…"


def hidden(text: str) -> str:
    """The text without passwords in URLs and options."""
    return _GIVEN.sub(lambda found: found.group(1) + HIDDEN, _URL.sub(HIDDEN, text))
