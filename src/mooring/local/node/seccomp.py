"""System calls that no container may make: those of the kernel's keyrings.

Keyrings belong to users, not to namespaces: root in a container would read and change those of the machine's root.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["forbid_keyrings", "keyring_filter", "passed"]

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050000 | 1  # EPERM, as container engines answer
#: By machine: its name in an audit, and the numbers of add_key, request_key and keyctl.
_CALLS = {
    "x86_64": (
        (0xC000003E, (248, 249, 250, 1073742072, 1073742073, 1073742074)),
        (0x40000003, (286, 287, 288)),
    ),
    "aarch64": ((0xC00000B7, (217, 218, 219)), (0x40000028, (309, 310, 311))),
    "riscv64": ((0xC00000F3, (217, 218, 219)),),
}

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def keyring_filter() -> bytes:
    """The filter as a program of the kernel's; on a machine whose numbers are not known, one that refuses nothing."""
    program = []
    for machine, numbers in _CALLS.get(platform.machine(), ()):
        program += [(_LOAD, 0, 0, 4), (_EQUAL, 0, 2 * len(numbers) + 1, machine), (_LOAD, 0, 0, 0)]
        for number in numbers:
            program += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _REFUSE)]
    program.append((_RETURN, 0, 0, _ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


@contextmanager
def passed(content: bytes) -> Iterator[int]:
    """A descriptor from which a program reads this."""
    descriptor = os.memfd_create("filter", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        os.lseek(descriptor, 0, os.SEEK_SET)
        yield descriptor
    finally:
        os.close(descriptor)


def forbid_keyrings() -> None:
    """Put the filter on the calling thread and what it starts; no program of it gains rights by being set-uid."""
    code = keyring_filter()
    program = _Program(len(code) // 8, code)
    for words in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if _libc.prctl(*words) != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"prctl: {os.strerror(number)}")
