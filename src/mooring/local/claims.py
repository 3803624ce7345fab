"""Names that one process at a time can hold, and loses with its life: no file to clean up after a kill.

They are abstract socket addresses, so they reach as far as the network namespace they are taken in.
"""

from __future__ import annotations

import errno
import socket

__all__ = ["claim"]


def claim(name: str) -> socket.socket | None:
    """Hold ``name`` until the socket is closed; None while another process, or this one, has it.

    Raises `OSError` for anything else, a name of more than 99 bytes for one.
    """
    held = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        held.bind(f"\0mooring-{name}")
    except OSError as error:
        held.close()
        if error.errno != errno.EADDRINUSE:
            raise
        return None
    return held
