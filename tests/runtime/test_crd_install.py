"""Definitions on a server: several versions of a kind are one definition, and all of them are waited for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated, Any, ClassVar

import msgspec
import pytest

from mooring.kube import Client, Object, Part, Resource, Response
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.runtime import F, crd
from mooring.runtime.crd import render_crds
from mooring.runtime.crd_install import install_crds, unserved
from mooring.testing.clock import VirtualClock


class SailSpec(Part, frozen=True, kw_only=True):
    area: Annotated[int | None, F("Square metres.", minimum=1)] = None


@crd(storage=False, deprecated="use v1")
class OldSail(Object, frozen=True, kw_only=True):
    """A sail as it was."""

    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1alpha1", "Sail", "sails")
    spec: SailSpec | None = None


@crd()
class Sail(Object, frozen=True, kw_only=True):
    """A sail."""

    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1", "Sail", "sails")
    spec: SailSpec | None = None


@crd()
class Mast(Object, frozen=True, kw_only=True):
    """What carries sails."""

    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1", "Mast", "masts")
    spec: SailSpec | None = None


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with ApiServer.in_memory() as server:
        yield server


class Refusing:
    """Takes definitions, and answers lists of these kinds by a status."""

    def __init__(self, server: ApiServer, **kinds: int) -> None:
        self._inner = server.transport()
        self._kinds = kinds
        self.stream = self._inner.stream
        self.close = self._inner.close

    async def request(self, method: str, path: str, **options: Any) -> Response:
        if code := self._kinds.get(path.rpartition("/")[2]):
            body = {"kind": "Status", "status": "Failure", "code": code}
            return Response(code, {}, msgspec.json.encode(body))
        return await self._inner.request(method, path, **options)


def test_versions_of_one_kind_are_one_definition() -> None:
    made = render_crds([Sail, Mast, OldSail, Sail])
    assert [definition["metadata"]["name"] for definition in made] == [
        "sails.test.mooring.dev",
        "masts.test.mooring.dev",
    ]
    versions = made[0]["spec"]["versions"]
    assert [(v["name"], v["storage"], v.get("deprecationWarning")) for v in versions] == [
        ("v1", True, None),
        ("v1alpha1", False, "use v1"),
    ]


async def test_every_version_is_served_afterwards(server: ApiServer) -> None:
    client = Client(server.transport())
    await install_crds(client, [Sail, OldSail, Mast])
    meta = ObjectMeta(name="main", namespace="default")
    await client.create(Sail(metadata=meta, spec=SailSpec(area=40)))
    old = await client.get(OldSail, "main", namespace="default")
    assert old.spec is not None
    assert old.spec.area == 40
    assert (await client.list(Mast)).items == []
    await install_crds(client, [Sail, OldSail, Mast])


async def test_a_definition_that_is_never_served_is_named(server: ApiServer) -> None:
    class Racing(VirtualClock):
        """Time runs as fast as anybody waits."""

        async def sleep(self, seconds: float) -> None:
            self.suspend(seconds)
            await self.advance(0)

    with pytest.raises(TimeoutError, match=r"not served 30 s .*masts\.test\.mooring\.dev/v1"):
        await install_crds(Client(Refusing(server, masts=404)), [Sail, Mast], clock=Racing())


async def test_kinds_that_are_not_defined_or_may_not_be_listed_are_named(server: ApiServer) -> None:
    client = Client(server.transport())
    assert await unserved(client, [Sail, OldSail]) == ["sails.test.mooring.dev: not defined"]
    await install_crds(client, [Sail, OldSail, Mast])
    assert await unserved(client, [Sail, OldSail, Mast], namespace="default") == []
    refusing = Client(Refusing(server, masts=403, sails=500))
    assert await unserved(refusing, [Sail, Mast]) == ["masts.test.mooring.dev: may not be listed"]
