"""The TLS of a served console: certificate and key from files, read again when they are renewed."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Final

import structlog

from mooring.cache import Clock
from mooring.console.settings import Tls

__all__ = ["Certificate"]

log = structlog.get_logger("mooring.console")

#: Seconds between two looks at the files.
LOOK_AGAIN: Final = 30.0


class Certificate:
    """A server's TLS context; new connections get the newest certificate."""

    def __init__(self, settings: Tls, clock: Clock) -> None:
        """Raises `OSError` (`ssl.SSLError` too) for files that cannot be used."""
        self._files = (Path(settings.certificate), Path(settings.key))
        self._clock = clock
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if settings.client_ca:
            self.context.load_verify_locations(cafile=settings.client_ca)
            # Optional, since probes have none; a request that needs one is refused where it is handled.
            self.context.verify_mode = ssl.CERT_OPTIONAL
        self._stamp: tuple[int, ...] = ()
        self.refresh()

    def refresh(self) -> None:
        """Read the files if they have changed."""
        stamp = tuple(part for file in self._files for part in _stamp(file))
        if stamp != self._stamp:
            self.context.load_cert_chain(*self._files)
            self._stamp = stamp

    async def follow(self) -> None:
        """Refresh now and then, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_AGAIN)
            try:
                await asyncio.to_thread(self.refresh)
            except OSError as error:
                # Half-way through a renewal: the former one serves on.
                log.warning("the certificate cannot be read", reason=str(error))


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_mtime_ns, found.st_ino
