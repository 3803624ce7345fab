"""Which kinds the controllers of all objects know."""

from __future__ import annotations

import msgspec
from tests.operators.matrixone.upstream import DEFINITIONS
from tests.operators.redis.sentinel.test_actor import eventually

from mooring.kube import Client
from mooring.local.api.server import ApiServer
from mooring.local.controllers.kinds import discover


async def test_a_kind_is_found_though_the_version_that_its_group_prefers_lacks_it() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        for one in DEFINITIONS:
            path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
            await client.request("POST", path, body=msgspec.json.encode(one))

        async def known() -> dict[str, str]:
            served = await discover(client)
            found = {
                one.resource.plural: one.resource.version
                for one in served
                if one.resource.group == "apps.kruise.io"
            }
            return found if len(found) == 2 else {}

        assert await eventually(known) == {"statefulsets": "v1beta1", "clonesets": "v1alpha1"}
        names = [(one.resource.group, one.resource.plural) for one in await discover(client)]
        assert len(names) == len(set(names))
