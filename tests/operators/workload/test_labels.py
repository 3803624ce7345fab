"""Labels of roles on pods: which pod is labelled first, as an API server sees it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mooring.kube import Client, Conflict, Key, MergePatch
from mooring.kube.objects import core, meta
from mooring.local.api.server import ApiServer
from mooring.operators.workload.effects import label_roles
from mooring.operators.workload.moves import LabelRoles
from mooring.operators.workload.pods import READS, ROLE


async def uids_of(client: Client) -> dict[str, str]:
    pods = (await client.list(core.Pod, namespace="default")).items
    return {one.metadata.name or "": one.metadata.uid or "" for one in pods}


@pytest.mark.parametrize(
    ("leader_first", "order"),
    [(False, ["shop-0", "shop-2", "shop-1"]), (True, ["shop-1", "shop-0", "shop-2"])],
)
async def test_the_leader_is_labelled_last_unless_the_former_one_has_ended(
    leader_first: bool, order: list[str]
) -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="operator"))
        for number in range(3):
            pod = core.PodSpec(containers=[core.Container(name="server", image="busybox:1")])
            made = meta.ObjectMeta(name=f"shop-{number}", namespace="default", labels={ROLE: "other"})
            await client.create(core.Pod(metadata=made, spec=pod))
        context = cast(Any, SimpleNamespace(client=client, key=Key("default", "")))
        roles = {"shop-0": "", "shop-1": "primary", "shop-2": "replica"}

        uids = await uids_of(client)
        await label_roles(
            context, LabelRoles(roles=roles, uids=uids, leader_first=leader_first, why="a test")
        )

        pods = (await client.list(core.Pod, namespace="default")).items
        assert {one.metadata.name: (one.metadata.labels or {})[ROLE] for one in pods} == roles
        assert all(READS not in (one.metadata.labels or {}) for one in pods)
        by_time = sorted(pods, key=lambda one: int(one.metadata.resource_version or "0"))
        assert [one.metadata.name for one in by_time] == order


async def test_a_new_leader_leaves_the_service_for_reading_at_the_very_end() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="operator"))
        for number in range(2):
            pod = core.PodSpec(containers=[core.Container(name="server", image="busybox:1")])
            labels = {ROLE: "replica", READS: "true"} if number else {ROLE: "primary"}
            made = meta.ObjectMeta(name=f"shop-{number}", namespace="default", labels=labels)
            await client.create(core.Pod(metadata=made, spec=pod))
        said: list[tuple[str, dict[str, Any]]] = []

        async def patch(kind: Any, name: str, patch: MergePatch, **where: Any) -> Any:
            said.append((name, patch.body["metadata"]["labels"]))
            return await client.patch(kind, name, patch, **where)

        context = cast(Any, SimpleNamespace(client=SimpleNamespace(patch=patch), key=Key("default", "")))
        roles = {"shop-0": "replica", "shop-1": "primary", "gone": ""}

        uids = {**await uids_of(client), "gone": "u"}
        readers = frozenset({"shop-1"})
        move = LabelRoles(roles=roles, uids=uids, readers=readers, leader_first=True, why="a test")
        await label_roles(context, move, reads=True)

        assert said == [
            ("shop-1", {ROLE: "primary"}),
            ("shop-0", {ROLE: "replica", READS: "true"}),
            ("gone", {ROLE: "", READS: None}),
            ("shop-1", {READS: None}),
        ]
        pods = {one.metadata.name: one.metadata.labels for one in (await client.list(core.Pod)).items}
        assert pods == {"shop-0": {ROLE: "replica", READS: "true"}, "shop-1": {ROLE: "primary"}}


async def test_a_pod_that_was_made_again_is_not_labelled() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(agent="operator"))
        pod = core.PodSpec(containers=[core.Container(name="server", image="busybox:1")])
        await client.create(core.Pod(metadata=meta.ObjectMeta(name="shop-0", namespace="default"), spec=pod))
        context = cast(Any, SimpleNamespace(client=client, key=Key("default", "")))
        move = LabelRoles(roles={"shop-0": "primary"}, uids={"shop-0": "of-the-former"}, why="a test")

        with pytest.raises(Conflict):
            await label_roles(context, move)

        assert (await client.get(core.Pod, "shop-0", namespace="default")).metadata.labels is None
