"""The encrypted format: what was written comes back, and nothing else does."""

from __future__ import annotations

import base64
import os
import tracemalloc
from collections.abc import AsyncGenerator, Callable

import pytest

from mooring.objectstore import (
    Corrupt,
    CredentialsRejected,
    EncryptionError,
    KeyMissing,
    KeyRing,
    KeyWrong,
    decrypt,
    encrypt,
)
from mooring.objectstore.encryption import Header, plain_size, stored_size

FRAME = 64
RING = KeyRing(keys={"a": bytes(32), "b": bytes([1]) * 32}, write="a")
#: Header with a key's id of one byte.
HEAD = 62
WHOLE = FRAME + 16


async def pieces(data: bytes, size: int) -> AsyncGenerator[bytes, None]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


async def sealed(plain: bytes, ring: KeyRing = RING, *, size: int = 10) -> bytes:
    return b"".join([piece async for piece in encrypt(pieces(plain, size), ring, frame=FRAME)])


async def opened(stored: bytes, ring: KeyRing = RING, *, size: int = 33) -> bytes:
    return b"".join([piece async for piece in decrypt(pieces(stored, size), ring)])


@pytest.mark.parametrize("size", [0, 1, FRAME - 1, FRAME, FRAME + 1, 3 * FRAME, 3 * FRAME + 5])
@pytest.mark.parametrize("step", [1, 7, 79, 80, 81, 10_000])
async def test_what_was_encrypted_comes_back(size: int, step: int) -> None:
    plain = os.urandom(size)
    stored = await sealed(plain, size=step)
    assert await opened(stored, size=step) == plain
    assert len(stored) == stored_size(size, key_id="a", frame=FRAME)
    header = Header.parse(stored[:100])
    assert header is not None
    assert plain_size(len(stored), header) == size
    assert not plain or size < 16 or plain not in stored


async def test_equal_plaintexts_are_not_equal_in_the_store() -> None:
    first, second = await sealed(bytes(FRAME)), await sealed(bytes(FRAME))
    assert first[:8] == second[:8] == b"MOORENC1"
    assert first[HEAD:] != second[HEAD:]


def frame(stored: bytes, index: int) -> bytes:
    return stored[HEAD + index * WHOLE : HEAD + (index + 1) * WHOLE]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit of a frame": lambda s: s[: HEAD + 100] + bytes([s[HEAD + 100] ^ 1]) + s[HEAD + 101 :],
    "a bit of the last tag": lambda s: s[:-1] + bytes([s[-1] ^ 128]),
    "the last frame is missing": lambda s: s[: HEAD + 2 * WHOLE],
    "cut within a frame": lambda s: s[:-3],
    "cut to the header": lambda s: s[:HEAD],
    "cut within the header": lambda s: s[:40],
    "empty": lambda s: b"",
    "frames swapped": lambda s: s[:HEAD] + frame(s, 1) + frame(s, 0) + s[HEAD + 2 * WHOLE :],
    "a frame twice": lambda s: s[: HEAD + WHOLE] + frame(s, 0) + s[HEAD + WHOLE :],
    "a frame left out": lambda s: s[:HEAD] + s[HEAD + WHOLE :],
    "bytes appended": lambda s: s + b"x",
    "a frame appended": lambda s: s + frame(s, 2),
    "not encrypted": lambda s: b"plain text",
    "another size of frames": lambda s: s[:8] + (WHOLE).to_bytes(4, "big") + s[12:],
    "frames of 2 GiB": lambda s: s[:8] + (1 << 31).to_bytes(4, "big") + s[12:],
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("last", [1, FRAME])
async def test_damage_is_detected(damage: str, last: int) -> None:
    stored = await sealed(os.urandom(2 * FRAME + last))
    with pytest.raises(Corrupt):
        await opened(DAMAGES[damage](stored))


async def test_a_header_that_asks_for_memory_is_refused() -> None:
    stored = DAMAGES["frames of 2 GiB"](await sealed(b"data"))
    with pytest.raises(Corrupt, match="the header of the encrypted object is damaged"):
        await opened(stored)


async def test_a_frame_of_another_object_is_detected() -> None:
    first, second = await sealed(bytes(3 * FRAME)), await sealed(bytes(3 * FRAME))
    with pytest.raises(Corrupt, match="frame 1 "):
        await opened(first[: HEAD + WHOLE] + frame(second, 1) + first[HEAD + 2 * WHOLE :])


async def test_the_key_of_the_header_cannot_be_exchanged() -> None:
    stored = await sealed(b"data")
    with pytest.raises(KeyWrong):
        await opened(stored[: HEAD - 1] + b"b" + stored[HEAD:])


async def test_old_keys_read_and_the_new_one_writes() -> None:
    old = await sealed(b"old")
    rotated = KeyRing(keys=RING.keys, write="b")
    new = await sealed(b"new", rotated)
    assert (await opened(old, rotated), await opened(new, rotated)) == (b"old", b"new")
    with pytest.raises(KeyMissing, match="'a'"):
        await opened(old, KeyRing(keys={"b": RING.keys["b"]}, write="b"))
    with pytest.raises(EncryptionError) as caught:
        await opened(old, KeyRing(keys={"a": bytes([9]) * 32}, write="a"))
    assert caught.value.reason == "EncryptionKeyWrong"


@pytest.mark.parametrize(
    "value", [bytes(range(32)), base64.b64encode(bytes(range(32))) + b"\n", bytes(range(32)).hex().encode()]
)
def test_a_key_may_be_written_in_three_ways(value: bytes) -> None:
    ring = KeyRing.from_secret({"2026-01": value})
    assert (ring.keys, ring.write) == ({"2026-01": bytes(range(32))}, "2026-01")
    assert "1f" not in repr(ring) + str(ring)
    assert "x1f" not in repr(ring)


@pytest.mark.parametrize(
    ("data", "write", "reason"),
    [
        ({"a": b"short"}, "", "EncryptionKeyInvalid"),
        ({"a": bytes(32), "b": bytes(32)}, "", "EncryptionKeyMissing"),
        ({"a": bytes(32)}, "b", "EncryptionKeyMissing"),
        ({}, "", "EncryptionKeyMissing"),
    ],
)
def test_a_secret_without_a_usable_key_is_refused(data: dict[str, bytes], write: str, reason: str) -> None:
    with pytest.raises(CredentialsRejected) as caught:
        KeyRing.from_secret(data, write=write)
    assert caught.value.reason == reason
    assert "short" not in str(caught.value)


async def test_a_stream_holds_a_few_frames_in_memory() -> None:
    async def large() -> AsyncGenerator[bytes, None]:
        chunk = bytes(1 << 20)
        for _ in range(64):
            yield chunk

    tracemalloc.start()
    try:
        size = 0
        async for piece in decrypt(encrypt(large(), RING), RING):
            size += len(piece)
        assert size == 64 << 20
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
