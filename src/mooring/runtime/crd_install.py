"""Definitions on an API server: applied, and waited for until their kinds are served."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mooring.cache.clock import Clock, SystemClock
from mooring.kube.client import Client
from mooring.kube.errors import Forbidden, KubeError, NotFound, TooManyRequests
from mooring.kube.object import Object
from mooring.kube.patches import ApplyPatch
from mooring.runtime.crd import render_crds
from mooring.runtime.crd_markers import crd_of

__all__ = ["install_crds", "served", "unserved"]

CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FIELD_MANAGER: Final = "mooring-crds"
#: Seconds for a definition to be served after it was applied.
SERVE_SECONDS: Final = 30.0


async def install_crds(
    client: Client,
    kinds: Iterable[type[Object]],
    *,
    clock: Clock | None = None,
    timeout: float = SERVE_SECONDS,
) -> None:
    """Server-side apply the definitions of kinds, all versions of a kind together, and wait until every served version is there.

    Raises TimeoutError after ``timeout`` seconds, naming what is missing, and `ApiError` for what is refused.
    """
    kinds, clock = list(kinds), clock or SystemClock()
    for definition in render_crds(kinds):
        await client.request(
            "PATCH",
            f"{CRDS}/{definition['metadata']['name']}",
            query={"fieldManager": FIELD_MANAGER, "force": "true"},
            body=ApplyPatch(definition).encode(),
            content_type=ApplyPatch.content_type,
        )
    waiting = [kind.resource for kind in kinds if crd_of(kind).served]
    try:
        async with clock.deadline(timeout):
            while waiting:
                await _served(client, waiting[0].path(), clock)
                waiting.pop(0)
    except TimeoutError:
        names = ", ".join(f"{resource.plural}.{resource.api_version}" for resource in waiting)
        raise TimeoutError(
            f"not served {timeout:.0f} s after their definitions were applied: {names}; "
            "see the conditions of the CustomResourceDefinitions"
        ) from None


async def unserved(client: Client, kinds: Iterable[type[Object]], *, namespace: str = "") -> list[str]:
    """Which kinds cannot be listed in ``namespace`` ("": everywhere) for want of a definition or a right, and why.

    Whatever else is wrong is no reason: who lists them next says it.
    """
    found = set()
    for resource in {kind.resource for kind in kinds if crd_of(kind).served}:
        name = f"{resource.plural}.{resource.group}"
        try:
            await client.request("GET", resource.path(namespace=namespace), query={"limit": "1"})
        except NotFound:
            found.add(f"{name}: not defined")
        except Forbidden:
            found.add(f"{name}: may not be listed")
        except KubeError:
            continue
    return sorted(found)


async def served(client: Client, kinds: Iterable[type[Object]], *, namespace: str = "") -> bool:
    """Whether all these kinds can be listed now; an error of any sort means no."""
    try:
        for kind in kinds:
            await client.request("GET", kind.resource.path(namespace=namespace), query={"limit": "1"})
    except KubeError:
        return False
    return True


async def _served(client: Client, path: str, clock: Clock) -> None:
    delay = 0.01
    while True:
        try:
            await client.request("GET", path, query={"limit": "1"})
            return
        except (NotFound, TooManyRequests) as error:
            wait = error.retry_after
        await clock.sleep(wait or delay)
        delay = min(0.5, delay * 2)
