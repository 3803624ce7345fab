"""Client-side encryption: AES-256-GCM in frames of a fixed size, streamed both ways.

::

    object  = header, frame 0, frame 1, ... last frame
    header  = "MOORENC1" (8 bytes)
              frame size (4 bytes, big-endian: bytes of plaintext in every frame but the last)
              salt (32 random bytes)
              key check (16 bytes)
              length of the key's id (1 byte), the id (ASCII)
    frame   = ciphertext, tag (16 bytes)
    key     = HKDF-SHA256(key of that id, salt, info "mooring objectstore 1 key")
    check   = HKDF-SHA256(key of that id, salt, info "mooring objectstore 1 check")[:16]
    nonce   = 3 zero bytes, index of the frame (8 bytes, big-endian), 1 for the last frame or 0 (1 byte)
    AAD     = header

Every object has a key of its own, so that a counter is a safe nonce. The index makes a frame that was moved fail, the
salt one of another object, the mark of the last frame what was cut off or appended, the AAD any change of the header.
A frame is given out only after its tag was checked. Not detected: a whole object put in place of another one, or an
older version of it; manifests keep the SHA-256 of what they name for that.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
import re
import struct
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from mooring.objectstore.errors import Corrupt, CredentialsRejected, KeyMissing, KeyWrong
from mooring.objectstore.source import closing

__all__ = [
    "FRAME",
    "KEY_ID",
    "LONGEST_HEADER",
    "TAG",
    "Frames",
    "Header",
    "KeyRing",
    "decrypt",
    "decrypt_range",
    "encrypt",
    "plain_size",
    "stored_size",
]

#: Bytes of plaintext in a frame: small enough for ranges, large enough that tags cost 0.006 %.
FRAME: Final = 256 * 1024
#: What a key's id looks like: the name of an entry of a Secret.
KEY_ID: Final = re.compile(r"[-._a-zA-Z0-9]{1,64}")
#: A header that asks for more is hostile: a reader holds one frame in memory.
_LARGEST_FRAME: Final = 16 * 1024 * 1024
_MAGIC: Final = b"MOORENC1"
_FIXED: Final = struct.Struct(">8sI32s16sB")
#: Bytes of a frame's tag.
TAG: Final = 16


@dataclass(frozen=True)
class KeyRing:
    """Keys to read with, by their ids, and the id of the one to write with. The repr shows only ids."""

    keys: Mapping[str, bytes] = field(repr=False)
    write: str

    @classmethod
    def from_secret(cls, data: Mapping[str, bytes], *, write: str = "") -> Self:
        """The keys of a Secret: every entry is a key, its name the id.

        A value is 32 bytes, as they are or in base64 or hex. ``write`` may be left out where there is one entry.
        Raises `CredentialsRejected` that names the entry.
        """
        keys = {name: _key(name, value) for name, value in data.items()}
        chosen = write or (next(iter(keys)) if len(keys) == 1 else "")
        if chosen not in keys:
            said = (
                f"has no entry {write!r}"
                if write
                else f"has {len(keys)} entries and encryption.keyId is empty"
            )
            raise CredentialsRejected(
                f"the encryption Secret {said}",
                reason="EncryptionKeyMissing",
                remedy="add the key to the Secret, or name one of its entries in encryption.keyId",
            )
        return cls(keys=keys, write=chosen)


@dataclass(frozen=True)
class Header:
    """The head of an encrypted object."""

    frame: int
    salt: bytes
    check: bytes
    key_id: str

    def render(self) -> bytes:
        """The header as it is stored."""
        name = self.key_id.encode("ascii")
        return _FIXED.pack(_MAGIC, self.frame, self.salt, self.check, len(name)) + name

    @property
    def size(self) -> int:
        """Bytes of the header."""
        return _FIXED.size + len(self.key_id)

    @classmethod
    def parse(cls, data: bytes) -> Self | None:
        """The header at the beginning of these bytes; None if more bytes are needed. Raises `Corrupt`."""
        if data[:8] != _MAGIC[: len(data)]:
            raise Corrupt(
                "the object is not encrypted by this format",
                reason="ObjectNotEncrypted",
                remedy="read it from a target without encryption if it was written without",
            )
        if len(data) < _FIXED.size:
            return None
        _, frame, salt, check, length = _FIXED.unpack(data[: _FIXED.size])
        name = data[_FIXED.size : _FIXED.size + length]
        if not 0 < frame <= _LARGEST_FRAME or not length:
            raise Corrupt("the header of the encrypted object is damaged")
        if len(name) < length:
            return None
        if not KEY_ID.fullmatch(text := name.decode("ascii", "replace")):
            raise Corrupt("the header of the encrypted object is damaged")
        return cls(frame=frame, salt=salt, check=check, key_id=text)


#: No header is longer.
LONGEST_HEADER: Final = _FIXED.size + 64


def stored_size(plain: int, *, key_id: str, frame: int = FRAME) -> int:
    """Bytes in the store of that many bytes of plaintext."""
    frames = max(1, -(-plain // frame))
    return _FIXED.size + len(key_id) + plain + frames * TAG


def plain_size(stored: int, header: Header) -> int:
    """Bytes of plaintext of an object with that many bytes in the store. Raises `Corrupt` where none fits."""
    body = stored - header.size
    frames = max(1, -(-body // (header.frame + TAG)))
    if body < frames * TAG:
        raise Corrupt("the encrypted object is truncated")
    return body - frames * TAG


async def encrypt(
    source: AsyncIterable[bytes], ring: KeyRing, *, frame: int = FRAME
) -> AsyncGenerator[bytes, None]:
    """The source encrypted with the ring's key to write with; holds at most one frame and one chunk."""
    salt = os.urandom(32)
    key = ring.keys[ring.write]
    header = Header(frame=frame, salt=salt, check=_derived(key, salt, "check")[:16], key_id=ring.write)
    head = header.render()
    cipher = AESGCM(_derived(key, salt, "key"))
    yield head
    index, pending = 0, bytearray()
    async with closing(source):
        async for chunk in source:
            pending += chunk
            while len(pending) > frame:  # not >=: the last frame is known only when the source has ended
                yield cipher.encrypt(_nonce(index, last=False), bytes(pending[:frame]), head)
                del pending[:frame]
                index += 1
    yield cipher.encrypt(_nonce(index, last=True), bytes(pending), head)


class Frames:
    """Opens the frames of one object, given in any order."""

    def __init__(self, header: Header, ring: KeyRing) -> None:
        key = ring.keys.get(header.key_id)
        if key is None:
            raise KeyMissing(f"the object was encrypted with the key {header.key_id!r}, which is not there")
        if not hmac.compare_digest(_derived(key, header.salt, "check")[:16], header.check):
            raise KeyWrong(f"the key {header.key_id!r} is not the one the object was encrypted with")
        self._head = header.render()
        self._cipher = AESGCM(_derived(key, header.salt, "key"))

    def open(self, index: int, frame: bytes, *, last: bool) -> bytes:
        """The plaintext of a frame; raises `Corrupt`."""
        if len(frame) < TAG:
            raise Corrupt(f"the encrypted object is truncated in frame {index}")
        try:
            return self._cipher.decrypt(_nonce(index, last=last), frame, self._head)
        except InvalidTag:
            end = " or the object does not end there" if last else ""
        raise Corrupt(f"frame {index} of the encrypted object was changed or moved{end}")


async def decrypt(source: AsyncIterable[bytes], ring: KeyRing) -> AsyncGenerator[bytes, None]:
    """The plaintext of an encrypted stream, frame by frame.

    Raises `KeyMissing` and `KeyWrong` before the first frame, and `Corrupt` at the first frame that is not what was
    written where it was written; what came before is genuine, but is not the whole.
    """
    pending = bytearray()
    header: Header | None = None
    frames: Frames | None = None
    index = 0
    async for chunk in source:
        pending += chunk
        if header is None or frames is None:
            header = Header.parse(bytes(pending[:LONGEST_HEADER]))
            if header is None:
                continue
            frames = Frames(header, ring)
            del pending[: header.size]
        whole = header.frame + TAG
        while len(pending) > whole:  # a full frame may be the last one: wait for a byte after it
            yield frames.open(index, bytes(pending[:whole]), last=False)
            del pending[:whole]
            index += 1
    if frames is None:
        raise Corrupt("the encrypted object is truncated in its header")
    yield frames.open(index, bytes(pending), last=True)


async def decrypt_range(
    source: AsyncIterable[bytes], frames: Frames, header: Header, *, first: int, last: int
) -> AsyncGenerator[bytes, None]:
    """The plaintext of whole frames from ``first`` on, where the object's last frame is ``last``."""
    whole = header.frame + TAG
    pending = bytearray()
    index = first
    async for chunk in source:
        pending += chunk
        while len(pending) >= whole and index < last:
            yield frames.open(index, bytes(pending[:whole]), last=False)
            del pending[:whole]
            index += 1
    if pending:
        yield frames.open(index, bytes(pending), last=index == last)


def _nonce(index: int, *, last: bool) -> bytes:
    return bytes(3) + index.to_bytes(8, "big") + bytes([last])


def _derived(key: bytes, salt: bytes, purpose: str) -> bytes:
    info = f"mooring objectstore 1 {purpose}".encode()
    return HKDF(algorithm=SHA256(), length=32, salt=salt, info=info).derive(key)


def _key(name: str, value: bytes) -> bytes:
    if not KEY_ID.fullmatch(name):
        raise CredentialsRejected(
            f"{name[:80]!r} cannot be the id of a key", remedy="use up to 64 of [-._a-zA-Z0-9]"
        )
    if len(value) == 32:
        return bytes(value)
    text = bytes(value).strip()
    for decode in (binascii.unhexlify, lambda text: base64.b64decode(text, validate=True)):
        try:
            key = decode(text)
        except ValueError:
            continue
        if len(key) == 32:
            return key
    raise CredentialsRejected(
        f"the entry {name!r} of the encryption Secret is not a key of 32 bytes",
        reason="EncryptionKeyInvalid",
        remedy="make one with: openssl rand -base64 32",
    )
