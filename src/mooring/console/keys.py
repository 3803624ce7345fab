"""The keys that seal sessions: one of this process alone, or those of a file that all replicas read."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Final

import structlog
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from mooring.cache import Clock

__all__ = ["Keys"]

log = structlog.get_logger("mooring.console")

#: Seconds between two looks at the file; bytes of a key and of a nonce.
LOOK_AGAIN, KEY_BYTES, NONCE_BYTES = 10.0, 32, 12
MOST_KEYS: Final = 8


class Keys:
    """AES-GCM under the first key; what any of them sealed can be opened.

    A file has a key per line, 32 bytes in base64. To change keys, put the new one first and take the old one away
    when the sessions that it sealed are over; the file is read again when it changes.
    """

    def __init__(self, clock: Clock, path: Path | None = None) -> None:
        """Raises `OSError`, and `ValueError` for a file that holds something else than keys."""
        self._clock = clock
        self._path = path
        self._looked = clock.monotonic()
        self._stamp = _stamp(path)
        self._keys = [AESGCM(AESGCM.generate_key(256))] if path is None else _read(path)

    def seal(self, plain: bytes, label: bytes) -> bytes:
        """Seal a text; it opens under the same label alone."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._current()[0].encrypt(nonce, plain, label)

    def open(self, sealed: bytes, label: bytes) -> bytes:
        """The text that was sealed; raises `ValueError` for what none of the keys sealed under this label."""
        nonce, rest = sealed[:NONCE_BYTES], sealed[NONCE_BYTES:]
        for key in self._current():
            try:
                return key.decrypt(nonce, rest, label)
            except InvalidTag:
                continue
        raise ValueError("no key opens this")

    def _current(self) -> list[AESGCM]:
        if self._path is None or self._clock.monotonic() - self._looked < LOOK_AGAIN:
            return self._keys
        self._looked = self._clock.monotonic()
        try:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                self._keys, self._stamp = _read(self._path), stamp
                log.info("the session keys were read again", keys=len(self._keys))
        except (OSError, ValueError) as error:
            # Half-way through a rotation: what was known counts until the next look.
            log.warning("the session keys cannot be read", reason=str(error))
        return self._keys


def _stamp(path: Path | None) -> tuple[int, ...]:
    if path is None:
        return ()
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read(path: Path) -> list[AESGCM]:
    keys = []
    for number, line in enumerate(path.read_text().split(), 1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if len(key) != KEY_BYTES:
            # The line itself is a secret, even a wrong one.
            raise ValueError(f"{path}: key {number} is not {KEY_BYTES} bytes in base64")
        keys.append(AESGCM(key))
    if not 1 <= len(keys) <= MOST_KEYS:
        raise ValueError(f"{path}: needs 1 to {MOST_KEYS} keys, has {len(keys)}")
    return keys
