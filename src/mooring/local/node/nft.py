"""Changes to the packet filter, each batch all or nothing."""

from __future__ import annotations

import asyncio
import os
import subprocess

__all__ = ["NftError", "apply", "apply_blocking"]


class NftError(RuntimeError):
    """nft refused a batch; the message holds its own words."""


async def apply(batch: str) -> None:
    """Apply a batch in one transaction; :class:`NftError` if any line of it is refused."""
    await asyncio.to_thread(apply_blocking, batch)


def apply_blocking(batch: str) -> None:
    """:func:`apply` for threads."""
    try:
        # A plain user's PATH may lack /usr/sbin.
        program = "/usr/sbin/nft" if os.path.exists("/usr/sbin/nft") else "nft"
        done = subprocess.run([program, "-f", "-"], input=batch.encode(), capture_output=True, timeout=30)
    except FileNotFoundError:
        raise NftError("nft is missing: install the Debian package nftables") from None
    if done.returncode != 0:
        raise NftError(f"nft: {done.stderr.decode(errors='replace').strip()}")
