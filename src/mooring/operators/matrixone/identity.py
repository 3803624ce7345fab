"""Identities in MatrixOne, derived from names as upstream's operator derives them.

A changed one would be a stranger to the data: raft knows log stores by UUID, HAKeeper knows compute nodes by it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import msgspec

__all__ = [
    "FIRST_REPLICA",
    "BootstrapReplica",
    "bootstrap_members",
    "bootstrap_replicas",
    "bucket_id",
    "deployment_id",
    "hash64",
    "host_uuid",
    "log_uuid",
    "read_bootstrap",
    "tn_uuid",
    "write_bootstrap",
]

FIRST_REPLICA: Final = 131072
"""Replica id of HAKeeper's first member; the range ends at 262144."""
_MASK: Final = (1 << 64) - 1
_P1: Final = 0x9E3779B185EBCA87
_P2: Final = 0xC2B2AE3D27D4EB4F
_P3: Final = 0x165667B19E3779F9
_P4: Final = 0x85EBCA77C2B2AE63
_P5: Final = 0x27D4EB2F165667C5


class BootstrapReplica(msgspec.Struct, frozen=True, rename="camel"):
    """One member that HAKeeper was bootstrapped with, as the annotation of a LogSet holds it."""

    ordinal: int
    replica_id: int


def bootstrap_replicas(count: int) -> list[BootstrapReplica]:
    """The members of a new log service: its first pods."""
    return [BootstrapReplica(ordinal, FIRST_REPLICA + ordinal) for ordinal in range(count)]


def read_bootstrap(annotation: str) -> list[BootstrapReplica]:
    """The members that an annotation records; raises `ValueError` where it cannot be read."""
    try:
        return msgspec.json.decode(annotation, type=list[BootstrapReplica])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the recorded bootstrap is malformed: {error}") from error


def write_bootstrap(replicas: Sequence[BootstrapReplica]) -> str:
    """The annotation that records members."""
    return msgspec.json.encode(list(replicas)).decode()


def bootstrap_members(replicas: Sequence[BootstrapReplica]) -> list[str]:
    """The members as MatrixOne's configuration names them."""
    return [f"{one.replica_id}:{log_uuid(one.ordinal)}" for one in replicas]


def log_uuid(ordinal: int) -> str:
    """UUID of a log store."""
    return f"00000000-0000-0000-0000-0{ordinal:011x}"


def tn_uuid(ordinal: int) -> str:
    """UUID of a transaction node."""
    return f"00000000-0000-0000-0000-1{ordinal:011x}"


def host_uuid(host: str) -> str:
    """UUID of a compute node, from its pod's name in DNS.

    The first 16 characters of a SHA-256 sum in hexadecimal, read as eight little-endian 16-bit words.
    """
    digest = hashlib.sha256(f"{host}\n".encode()).hexdigest()[:16].encode()
    words = [f"{digest[at + 1]:x}{digest[at]:02x}" for at in range(0, 16, 2)]
    return f"{words[0]}{words[1]}-{words[2]}-{words[3]}-{words[4]}-{''.join(words[5:])}"


def deployment_id(log_set: str) -> int:
    """The deployment id of a log service; from the name alone, so that retained claims fit a new one."""
    return hash64(log_set.encode()) >> 1


def bucket_id(*, kind: str | None, endpoint: str | None, path: str | None) -> str:
    """The label that tells whether two claims mean the same path of an object store."""
    text = f"{kind or ''}-{endpoint or ''}-{path or ''}"
    return hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()


def hash64(data: bytes) -> int:
    """xxHash64 with seed 0."""
    at, size = 0, len(data)
    if size >= 32:
        lanes = [(_P1 + _P2) & _MASK, _P2, 0, -_P1 & _MASK]
        while at + 32 <= size:
            for lane in range(4):
                word = int.from_bytes(data[at + 8 * lane : at + 8 * lane + 8], "little")
                lanes[lane] = _round(lanes[lane], word)
            at += 32
        one, two, three, four = lanes
        total = (_left(one, 1) + _left(two, 7) + _left(three, 12) + _left(four, 18)) & _MASK
        for lane in lanes:
            total = ((total ^ _round(0, lane)) * _P1 + _P4) & _MASK
    else:
        total = _P5
    total = (total + size) & _MASK
    while at + 8 <= size:
        word = int.from_bytes(data[at : at + 8], "little")
        total = (_left(total ^ _round(0, word), 27) * _P1 + _P4) & _MASK
        at += 8
    if at + 4 <= size:
        total = (
            _left(total ^ (int.from_bytes(data[at : at + 4], "little") * _P1 & _MASK), 23) * _P2 + _P3
        ) & _MASK
        at += 4
    for byte in data[at:]:
        total = _left(total ^ (byte * _P5 & _MASK), 11) * _P1 & _MASK
    total = (total ^ total >> 33) * _P2 & _MASK
    total = (total ^ total >> 29) * _P3 & _MASK
    return total ^ total >> 32


def _left(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK


def _round(total: int, word: int) -> int:
    return _left((total + word * _P2) & _MASK, 31) * _P1 & _MASK
