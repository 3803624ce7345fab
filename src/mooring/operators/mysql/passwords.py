"""Whether what a server stores of a password is that of a given text: no login is needed, so that drift is seen.

MariaDB and old MySQL accounts store SHA-1 of SHA-1; ``caching_sha2_password`` stores SHA-256 of the crypt family with a salt
of 20 characters and thousands of rounds.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

__all__ = ["matches", "ways"]

NATIVE: Final = "mysql_native_password"
CACHING: Final = "caching_sha2_password"
_ALPHABET: Final = "./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_ORDER: Final = (
    *((0, 10, 20), (21, 1, 11), (12, 22, 2), (3, 13, 23), (24, 4, 14)),
    *((15, 25, 5), (6, 16, 26), (27, 7, 17), (18, 28, 8), (9, 19, 29)),
)


def matches(plugin: str, stored: str, text: str) -> bool | None:
    """Whether the stored form is of this text; ``None`` for a plugin that is not known here."""
    if plugin == NATIVE:
        made = "*" + hashlib.sha1(hashlib.sha1(text.encode()).digest()).hexdigest().upper()  # noqa: S324 - the protocol
        return hmac.compare_digest(made, stored.upper())
    if plugin == CACHING:
        return _caching(stored, text)
    return None


def ways(priv: Mapping[str, object]) -> list[tuple[str, str]]:
    """Plugins and stored forms by which MariaDB lets an account in: one, or several joined by OR."""
    several = priv.get("auth_or")
    entries: Sequence[object] = several if isinstance(several, list) else [{}]
    found = []
    for entry in entries:
        one = entry if isinstance(entry, dict) and entry else priv
        found.append((str(one.get("plugin") or ""), str(one.get("authentication_string") or "")))
    return found


@lru_cache(maxsize=2000)
def _caching(stored: str, text: str) -> bool | None:
    parts = stored.split("$", 3)
    if len(parts) != 4 or parts[1] != "A" or len(parts[3]) < 63:
        return None
    salt, digest = parts[3][:20], parts[3][20:63]
    made = _crypt(text.encode(), salt.encode(), int(parts[2], 16) * 1000)
    return hmac.compare_digest(made, digest)


def _crypt(key: bytes, salt: bytes, rounds: int) -> str:
    """SHA-256 as in crypt(3) with ``$5$``, for a salt of any length."""
    sha = hashlib.sha256
    alternate = sha(key + salt + key).digest()
    start = key + salt + alternate * (len(key) // 32) + alternate[: len(key) % 32]
    left = len(key)
    while left:
        start += alternate if left & 1 else key
        left >>= 1
    digest = sha(start).digest()
    repeated = sha(key * len(key)).digest()
    p = repeated * (len(key) // 32) + repeated[: len(key) % 32]
    salted = sha(salt * (16 + digest[0])).digest()
    s = salted * (len(salt) // 32) + salted[: len(salt) % 32]
    for number in range(rounds):
        turn = p if number & 1 else digest
        if number % 3:
            turn += s
        if number % 7:
            turn += p
        digest = sha(turn + (digest if number & 1 else p)).digest()
    text = "".join(_six(digest[a], digest[b], digest[c], 4) for a, b, c in _ORDER)
    return text + _six(0, digest[31], digest[30], 3)


def _six(high: int, middle: int, low: int, count: int) -> str:
    value, text = high << 16 | middle << 8 | low, ""
    for _ in range(count):
        text += _ALPHABET[value & 0x3F]
        value >>= 6
    return text
