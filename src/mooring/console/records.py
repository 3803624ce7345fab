"""What users do by the console, recorded as Events of the instances: who, what and when.

They are written with the console's own credential, since few users may create Events. Recording never waits and never
fails a request: what the API server does not take is missing on the page of activity, and still in the console's log.
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Final

import structlog

from mooring.cache import Clock, rfc3339
from mooring.console.upstream import FIELD_MANAGER, Upstream
from mooring.kube import Forbidden, KubeError, Resource
from mooring.kube.objects.core import Event, EventSource, ObjectReference
from mooring.kube.objects.meta import ObjectMeta

__all__ = ["DETAIL", "USER", "Records"]

log = structlog.get_logger("mooring.console")

#: What an Event names a user as, beside the instance.
USER: Final = "User"
#: Annotation of such an Event: what was done, without who and why.
DETAIL: Final = "mooring.dev/detail"
#: Events on their way at once; characters of a text and of a name.
MOST, TEXT, NAME = 200, 900, 200
#: Seconds without another try after the API server refused one.
REFUSED: Final = 600.0


class Records:
    """Writes Events about what users did."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._tasks: set[asyncio.Task[None]] = set()
        self._until = float("-inf")

    def add(
        self,
        *,
        user: str,
        reason: str,
        message: str,
        detail: str,
        resource: Resource,
        namespace: str,
        name: str,
        uid: str = "",
    ) -> None:
        """Record that a user did something with an instance.

        ``message`` goes into the Event, ``detail`` into the log line, which has user and reason already. Neither has secrets.
        """
        if self._clock.monotonic() < self._until:
            return
        if len(self._tasks) >= MOST:
            log.warning("what a user did is not recorded as an event: too many are on their way", user=user)
            return
        now = rfc3339(self._clock.now())
        made = Event(
            metadata=ObjectMeta(
                name=f"{name[:NAME]}.{secrets.token_hex(8)}",
                namespace=namespace,
                annotations={DETAIL: detail[:TEXT]},
            ),
            involved_object=ObjectReference(
                api_version=resource.api_version,
                kind=resource.kind,
                name=name,
                namespace=namespace,
                uid=uid or None,
            ),
            related=ObjectReference(api_version="rbac.authorization.k8s.io/v1", kind=USER, name=user),
            type="Normal",
            reason=reason,
            message=message[:TEXT],
            count=1,
            first_timestamp=now,
            last_timestamp=now,
            source=EventSource(component=FIELD_MANAGER),
            reporting_component=FIELD_MANAGER,
        )
        task = asyncio.create_task(self._send(made))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _send(self, event: Event) -> None:
        try:
            await self._upstream.own.create(event)
        except Forbidden:
            log.info("the console may not create events: who did what is in its log alone")
            self._until = self._clock.monotonic() + REFUSED
        except KubeError as error:
            log.warning("what a user did is not recorded as an event", error=str(error))

    async def close(self) -> None:
        """Wait for what is on its way, for a moment."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2.0)
        for task in tuple(self._tasks):
            task.cancel()
