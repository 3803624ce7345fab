"""Claims, claim sets and pools on an API server (in memory), by two operators at once that no lock keeps apart."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
import structlog
from tests.operators.matrixone.builders import declared, typed
from tests.operators.redis.sentinel.test_actor import eventually as soon

from mooring.actor import StepFailed, Wait
from mooring.cache import InformerSet
from mooring.kube import Client, MergePatch, NotFound
from mooring.kube.errors import TransportError
from mooring.kube.object import Key, decode
from mooring.kube.objects.core import Pod
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.api.server import ApiServer
from mooring.operators.host import Operate, apply_crds, operate
from mooring.operators.matrixone import OPERATOR
from mooring.operators.matrixone.cnset.actor import CNSetActor
from mooring.operators.matrixone.cnset.fence import unchanged
from mooring.operators.matrixone.cnset.inputs import Inputs as NodeInputs
from mooring.operators.matrixone.cnset.moves import DeleteStore, SetPhase, SetWorking
from mooring.operators.matrixone.cnset.specs import HANDED_OVER
from mooring.operators.matrixone.pool.claim_actor import ClaimActor, Inputs
from mooring.operators.matrixone.pool.labels import (
    BOUND,
    CLAIM_LABELS,
    CLAIM_SET,
    CLAIM_UID,
    CLAIMED_BY,
    DRAINING,
    IDLE,
    LEAVES,
    PHASE,
    POD_UID,
    POOL,
)
from mooring.operators.matrixone.pool.moves import Bind, Dress, GiveBack, Record
from mooring.operators.matrixone.pool.replicas import CreateClaim
from mooring.operators.matrixone.pool.set_actor import ClaimSetActor
from mooring.operators.matrixone.pool.set_actor import Inputs as SetInputs
from mooring.operators.matrixone.pool.snapshot import Candidate
from mooring.operators.matrixone.types import CNClaim, CNClaimSet, CNPool, CNSet
from mooring.runtime import CachedClient

NOTHING: Final[Any] = None


async def eventually(check: Any) -> Any:
    return await soon(check, within=20)


@asynccontextmanager
async def operating(operators: int = 2) -> AsyncIterator[Client]:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await apply_crds(client, [OPERATOR])
        tasks = [
            asyncio.create_task(
                operate(
                    Client(server.transport(), field_manager="test"),
                    Operate(operators=[OPERATOR], elect=False),
                )
            )
            for _ in range(operators)
        ]
        try:
            yield client
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def warm_pod(client: Client, name: str, **more: str) -> Pod:
    labels = {
        **more,
        "matrixorigin.io/component": "CNSet",
        "matrixorigin.io/instance": "warm",
        "matrixorigin.io/namespace": "default",
        "pool": "default",
        PHASE: IDLE,
    }
    raw = {
        "metadata": {"name": name, "namespace": "default", "labels": labels},
        "spec": {"containers": [{"name": "main", "image": "x"}]},
    }
    return await client.create(decode(raw, Pod))


async def claim(client: Client, name: str, **changes: Any) -> CNClaim:
    raw = declared("CNClaim", name, **changes)
    del raw["metadata"]["uid"]
    return await client.create(decode(raw, CNClaim))


async def bindings(client: Client) -> dict[str, str]:
    """Pod by claim, as claims have it; agreed upon by the pods."""
    found = (await client.list(CNClaim)).items
    pods = {one.metadata.name: one for one in (await client.list(Pod)).items}
    made: dict[str, str] = {}
    for each in found:
        name = (each.spec.pod_name if each.spec is not None else None) or ""
        if not (each.metadata.annotations or {}).get(POD_UID) or each.metadata.deletion_timestamp:
            continue
        pod = pods[name]
        assert (each.metadata.annotations or {})[POD_UID] == pod.metadata.uid
        assert (pod.metadata.labels or {})[CLAIMED_BY] == each.metadata.name
        assert (pod.metadata.labels or {})[PHASE] == BOUND
        made[each.metadata.name or ""] = name
    return made


async def reasons(client: Client, kind: Any, name: str) -> set[str]:
    found = await client.get(kind, name, namespace="default")
    return {one.reason or "" for one in (found.status.conditions if found.status else None) or ()}


async def test_two_operators_bind_many_claims_to_different_pods() -> None:
    async with operating() as client:
        for at in range(6):
            await claim(client, f"c{at}", spec__cnLabels=[{"key": "account", "values": ["a"]}])
        await asyncio.gather(*(warm_pod(client, f"p{at}") for at in range(5)))

        async def all_pods() -> dict[str, str]:
            found = await bindings(client)
            return found if len(found) == 5 else {}

        found = await eventually(all_pods)
        assert len(set(found.values())) == 5
        left = next(f"c{at}" for at in range(6) if f"c{at}" not in found)

        async def waits() -> bool:
            return "NoIdlePod" in await reasons(client, CNClaim, left)

        await eventually(waits)
        taken = await client.get(Pod, next(iter(found.values())), namespace="default")
        notes = taken.metadata.annotations or {}
        assert notes["matrixone.cloud/cn-label"] == '[{"key":"account","values":["a"]}]'


def outside(client: Client, name: str) -> Any:
    """What a step needs of a pass over a claim."""
    return SimpleNamespace(
        client=client, key=Key("default", name), obj=CNClaim(metadata=ObjectMeta(name=name)), now=datetime.now
    )


async def test_a_stale_look_at_a_pod_binds_nothing() -> None:
    async with operating(0) as client:
        pod = await warm_pod(client, "p")
        seen = Bind(pod="p", uid=pod.metadata.uid or "", version=pod.metadata.resource_version or "")
        labels = {"metadata": {"labels": {PHASE: BOUND, CLAIMED_BY: "other"}}}
        await client.patch(Pod, "p", MergePatch(labels), namespace="default")
        inputs = Inputs(claim=CNClaim(metadata=ObjectMeta(name="c", uid="u")), pods=(pod,))
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await ClaimActor(NOTHING).step(outside(client, "c"), inputs, NOTHING, seen)
        now = await client.get(Pod, "p", namespace="default")
        assert (now.metadata.labels or {})[CLAIMED_BY] == "other"


@pytest.mark.parametrize("now", ["another claim's", "gone"])
async def test_hakeeper_is_told_nothing_of_a_pod_that_is_not_what_it_was(now: str) -> None:
    async with operating(0) as client:
        pod = await warm_pod(client, "p")
        store = SetWorking(pod="p", uid=pod.metadata.uid or "", uuid="u", labels={}, why="")
        here = CachedClient(client, InformerSet(client))
        await unchanged(here, "default", [pod], store)
        forget = DeleteStore(uuid="u", pod="p", why="")
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await unchanged(here, "default", [], forget)
        if now == "gone":
            await client.delete(Pod, "p", namespace="default")
        else:
            labels = {"metadata": {"labels": {PHASE: BOUND, CLAIMED_BY: "other"}}}
            await client.patch(Pod, "p", MergePatch(labels), namespace="default")
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await unchanged(here, "default", [pod], store)
        if now == "gone":
            await unchanged(here, "default", [], forget)


@pytest.mark.parametrize("late", ["the claims", "the set"])
async def test_a_set_makes_no_claim_by_a_late_look(late: str) -> None:
    async with operating(0) as client:
        raw = declared("CNClaimSet", "s", spec__replicas=2)
        del raw["metadata"]["uid"]
        owner = await client.create(decode(raw, CNClaimSet))
        labels = {CLAIM_SET: "s"}
        raw = declared("CNClaim", "s-0")
        raw["metadata"] = {"name": "s-0", "namespace": "default", "labels": labels}
        there = await client.create(decode(raw, CNClaim))
        if late == "the set":
            await client.patch(CNClaimSet, "s", MergePatch({"spec": {"replicas": 1}}), namespace="default")
        seen = SetInputs(owner=owner, claims=() if late == "the claims" else (there,))
        actor = ClaimSetActor(cast("Any", SimpleNamespace(live=client)))
        here = outside(cast("Any", CachedClient(client, InformerSet(client))), "s")
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await actor.step(here, seen, NOTHING, CreateClaim(claim="s-1", why="one is missing"))
        found = await client.list(CNClaim, namespace="default")
        assert [one.metadata.name for one in found.items] == ["s-0"]


async def test_a_stale_look_at_a_claim_records_nothing() -> None:
    async with operating(0) as client:
        made = await claim(client, "c")
        other = Candidate(name="q", uid="u-q", version="1", phase=BOUND)
        seen = Record(pod=other, version=made.metadata.resource_version or "")
        await client.patch(CNClaim, "c", MergePatch({"spec": {"podName": "p"}}), namespace="default")
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await ClaimActor(NOTHING).step(outside(client, "c"), NOTHING, NOTHING, seen)
        now = await client.get(CNClaim, "c", namespace="default")
        assert now.spec is not None
        assert now.spec.pod_name == "p"


async def test_a_deleted_claim_gives_its_pod_back_and_a_lost_one_says_so() -> None:
    async with operating() as client:
        await warm_pod(client, "p")
        await claim(client, "c", spec__additionalPodLabels={"mine": "yes"})
        assert await eventually(lambda: bindings(client)) == {"c": "p"}
        assert (await client.get(Pod, "p", namespace="default")).metadata.labels["mine"] == "yes"  # type: ignore[index]
        await client.delete(CNClaim, "c", namespace="default")

        async def gone() -> bool:
            try:
                await client.get(CNClaim, "c", namespace="default")
            except NotFound:
                return True
            return False

        await eventually(gone)
        labels = (await client.get(Pod, "p", namespace="default")).metadata.labels or {}
        assert (labels[PHASE], labels.get(CLAIMED_BY)) == (DRAINING, None)
        await client.patch(Pod, "p", MergePatch({"metadata": {"labels": {PHASE: IDLE}}}), namespace="default")
        await claim(client, "d")
        assert await eventually(lambda: bindings(client)) == {"d": "p"}
        await client.delete(Pod, "p", namespace="default", grace_period=0)

        async def said() -> bool:
            return "Lost" in await reasons(client, CNClaim, "d")

        await eventually(said)
        await warm_pod(client, "p")
        await claim(client, "e")

        async def other() -> bool:
            found = await client.get(CNClaim, "e", namespace="default")
            return bool((found.metadata.annotations or {}).get(POD_UID))

        await eventually(other)
        lost = await client.get(CNClaim, "d", namespace="default")
        assert lost.status is not None
        assert lost.status.phase == "Lost"


class Dying:
    """The way of an operator to the API server that dies right after its n-th write."""

    def __init__(self, inner: Any, left: int) -> None:
        self.inner, self.left, self.dead = inner, left, asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def request(self, method: str, path: str, **how: Any) -> Any:
        if self.dead.is_set():
            raise TransportError("it is dead")
        answer = await self.inner.request(method, path, **how)
        if method == "PATCH" and ("/cnclaims/" in path or "/pods/" in path):
            self.left -= 1
            if self.left == 0:
                self.dead.set()
                raise TransportError("the answer never arrived")
        return answer


@asynccontextmanager
async def operator(transport: Any) -> AsyncIterator[None]:
    how = Operate(operators=[OPERATOR], elect=False)
    task = asyncio.create_task(operate(Client(transport, field_manager="test"), how))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def play(client: Client) -> None:
    """What CNSets do: claimed pods serve and proxies know them, drained pods are idle again and may stay."""
    for pod in (await client.list(Pod)).items:
        phase = (pod.metadata.labels or {}).get(PHASE)
        conditions = (pod.status.conditions if pod.status is not None else None) or ()
        gate = {"type": "matrixorigin.io/cn-store", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        serves = any(one.type == gate["type"] and one.status == "True" for one in conditions)
        name, body = pod.metadata.name or "", {"status": {"conditions": [{**gate, "status": "True"}]}}
        if phase == BOUND and not serves:
            await client.patch(Pod, name, MergePatch(body), namespace="default", subresource="status")
        if phase == DRAINING:
            body["status"]["conditions"][0]["status"] = "False"
            await client.patch(Pod, name, MergePatch(body), namespace="default", subresource="status")
            meta: Any = {"labels": {PHASE: IDLE}, "annotations": {LEAVES: None}}
            await client.patch(Pod, name, MergePatch({"metadata": meta}), namespace="default")


async def moved(client: Client, target: str) -> bool:
    """The claim is bound to a pod, with nothing left of its move; it never is without one."""
    await play(client)
    found = await client.get(CNClaim, "c", namespace="default")
    pods = (await client.list(Pod)).items
    again = await client.get(CNClaim, "c", namespace="default")
    if again.metadata.resource_version != found.metadata.resource_version:
        return False  # the pods may be newer than the claim
    labels = {one.metadata.uid: one.metadata.labels or {} for one in pods}
    mine = labels[(found.metadata.annotations or {}).get(POD_UID)]
    assert (mine[PHASE], mine[CLAIMED_BY]) == (BOUND, "c")
    assert found.status is not None
    assert found.status.phase == "Bound"
    phases = {one.metadata.name: (one.metadata.labels or {})[PHASE] for one in pods}
    others = {phase for name, phase in phases.items() if name != target}
    name = found.spec.pod_name if found.spec is not None else ""
    return name == target and others == {IDLE} and found.status.migrate is None


@pytest.fixture
def quiet() -> Iterator[None]:
    """Hundreds of requests fail on purpose; a pretty traceback of each takes a second."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("quiet")
async def test_a_claim_moves_to_another_pod_wherever_its_operator_dies() -> None:
    async with ApiServer.in_memory() as server:
        client = Client(server.transport(), field_manager="test")
        await apply_crds(client, [OPERATOR])
        await asyncio.gather(*(warm_pod(client, name) for name in ("p", "q")))
        await claim(client, "c", spec__podName="p")
        async with operator(server.transport()):
            await eventually(lambda: bindings(client))
        at, died = "p", 0
        for writes in range(1, 9):
            leave = {"metadata": {"annotations": {LEAVES: "its node is cordoned"}}}
            await client.patch(Pod, at, MergePatch(leave), namespace="default")
            at = "q" if at == "p" else "p"
            dying = Dying(server.transport(), writes)
            async with operator(dying):

                async def over(dying: Dying = dying, at: str = at) -> bool:
                    return await moved(client, at) or dying.dead.is_set()

                await eventually(over)
            died += dying.dead.is_set()
            async with operator(server.transport()):
                await eventually(lambda at=at: moved(client, at))
        # ChoosePod, Bind, MoveClaim, GiveBack, and what the status shows of them.
        assert died >= 6


async def test_a_move_is_shown_until_the_old_pod_is_drained() -> None:
    async with operating(2) as client:
        await asyncio.gather(*(warm_pod(client, name) for name in ("p", "q")))
        await claim(client, "c", spec__podName="p")
        await eventually(lambda: bindings(client))
        body = {"spec": {"sourcePod": {"podName": "p"}}}
        await client.patch(CNClaim, "c", MergePatch(body), namespace="default")

        async def shown(target: str, phase: str) -> bool:
            found = await client.get(CNClaim, "c", namespace="default")
            assert found.status is not None
            move, old = found.status.migrate, await client.get(Pod, "p", namespace="default")
            now = (found.spec.pod_name if found.spec is not None else "") == target
            parts = (move.from_pod, move.to_pod, move.reason) if move is not None else None
            said = parts == ("p", "q", "spec.sourcePod asks to leave it")
            return said and now and (old.metadata.labels or {})[PHASE] == phase

        await eventually(lambda: shown("p", BOUND))
        gate = {
            "type": "matrixorigin.io/cn-store",
            "status": "True",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        status = MergePatch({"status": {"conditions": [gate]}})
        await client.patch(Pod, "q", status, namespace="default", subresource="status")
        await eventually(lambda: shown("q", DRAINING))
        await eventually(lambda: moved(client, "q"))
        found = await client.get(CNClaim, "c", namespace="default")
        assert found.spec is not None
        assert found.spec.source_pod is None


async def test_a_pod_is_given_back_only_by_a_claim_that_is_as_it_was_seen() -> None:
    async with operating(0) as client:
        seen = await claim(client, "c", spec__podName="p")
        note = {"metadata": {"annotations": {POD_UID: "u-p"}}}
        seen = await client.patch(CNClaim, "c", MergePatch(note), namespace="default")
        held = {
            "metadata": {
                "labels": {PHASE: BOUND, CLAIMED_BY: "c"},
                "annotations": {CLAIM_UID: seen.metadata.uid},
            }
        }
        for name in ("p", "q"):
            await warm_pod(client, name)
            await client.patch(Pod, name, MergePatch(held), namespace="default")
        note["metadata"]["annotations"][POD_UID] = (
            await client.get(Pod, "p", namespace="default")
        ).metadata.uid or ""
        seen = await client.patch(CNClaim, "c", MergePatch(note), namespace="default")
        inputs = Inputs(claim=seen, pods=tuple((await client.list(Pod)).items))
        actor = ClaimActor(SimpleNamespace(live=client))  # type: ignore[arg-type]
        context = outside(client, "c")
        context.now = lambda: datetime.now(UTC)
        first = actor.plan(await actor.snapshot(context, inputs))
        assert isinstance(first, GiveBack)
        assert first.pod == "q"
        await client.patch(
            CNClaim, "c", MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace="default"
        )
        later = actor.plan(await actor.snapshot(context, inputs))
        assert isinstance(later, Wait)


async def labels_of(client: Client, name: str) -> dict[str, str]:
    """The labels of a pod that are not MatrixOne's."""
    found = (await client.get(Pod, name, namespace="default")).metadata.labels or {}
    return {key: value for key, value in found.items() if "matrixorigin.io" not in key}


async def test_labels_of_a_bound_claim_are_added_changed_and_removed_live() -> None:
    async with operating() as client:
        await warm_pod(client, "p")
        await claim(client, "c", spec__additionalPodLabels={"team": "a", "mine": "yes"})
        await eventually(lambda: bindings(client))
        theirs = {"metadata": {"labels": {"theirs": "1"}}}
        await client.patch(Pod, "p", MergePatch(theirs), namespace="default")
        for asked, there in (
            ({"team": "b", "mine": None, "more": "x"}, {"team": "b", "more": "x"}),
            ({"team": None, "more": None}, {}),
            ({"mine": "again"}, {"mine": "again"}),
        ):
            body = {"spec": {"additionalPodLabels": asked}}
            await client.patch(CNClaim, "c", MergePatch(body), namespace="default")
            wanted = {"pool": "default", "theirs": "1", **there}

            async def dressed(wanted: dict[str, str] = wanted) -> bool:
                return await labels_of(client, "p") == wanted

            await eventually(dressed)
        assert await bindings(client) == {"c": "p"}


async def test_a_label_that_the_pod_has_by_itself_is_kept_and_the_claim_says_so() -> None:
    async with operating() as client:
        await warm_pod(client, "p", zone="pool")
        await claim(client, "c", spec__additionalPodLabels={"zone": "mine", "mooring.dev/x": "y", "a": "b"})
        await eventually(lambda: bindings(client))

        async def said() -> bool:
            await play(client)
            found = await client.get(CNClaim, "c", namespace="default")
            texts = {
                one.type: one.message for one in (found.status.conditions if found.status else None) or ()
            }
            wanted = "without spec.additionalPodLabels mooring.dev/x, zone"
            return all(wanted in (texts.get(one) or "") for one in ("Ready", "Synced"))

        await eventually(said)
        assert await labels_of(client, "p") == {"pool": "default", "zone": "pool", "a": "b"}
        pod = await client.get(Pod, "p", namespace="default")
        assert (pod.metadata.annotations or {})[CLAIM_LABELS] == "a"


async def test_a_pod_that_is_idle_again_has_the_labels_of_its_set_and_none_of_its_claim() -> None:
    """Also where a claim of an earlier version changed a label of the pool's."""
    async with operating(0) as client:
        await warm_pod(client, "p", theirs="1", team="a")
        notes = {"annotations": {CLAIM_LABELS: "pool,team"}, "labels": {PHASE: DRAINING, "pool": "claimed"}}
        pod = await client.patch(Pod, "p", MergePatch({"metadata": notes}), namespace="default")
        deps = {"logSet": {"metadata": {"name": "mo"}}}
        cn_set = typed("CNSet", "warm", spec__overlay={"podLabels": {"pool": "default"}}, deps=deps)
        inputs = NodeInputs(cn_set=cn_set, log_set=NOTHING, pods=(pod,))
        around = SimpleNamespace(keeper=NOTHING, pods=lambda kind, key: (), live=client, on_node=NOTHING)
        move = SetPhase(
            pod="p", uid=pod.metadata.uid or "", uuid="u", version=pod.metadata.resource_version or "",
            phase=IDLE, why="",
        )  # fmt: skip
        actor = CNSetActor(cast("Any", around), nodes=False)
        await actor.step(outside(client, "warm"), inputs, NOTHING, move)
        assert await labels_of(client, "p") == {"pool": "default", "theirs": "1"}
        now = await client.get(Pod, "p", namespace="default")
        assert (now.metadata.annotations or {}).get(CLAIM_LABELS) is None


async def test_labels_are_written_only_to_a_pod_that_is_as_it_was_decided_from() -> None:
    """What the claim put there follows from the pod's own note: an older one would leave labels behind for good."""
    async with operating(0) as client:
        pod = await warm_pod(client, "p")
        newer = await client.patch(
            Pod, "p", MergePatch({"metadata": {"labels": {"team": "theirs"}}}), namespace="default"
        )
        version = newer.metadata.resource_version or ""
        seen = Dress(pod="p", uid=pod.metadata.uid or "", version=version, why="")
        owner = typed("CNClaim", "c", spec__additionalPodLabels={"team": "mine"})
        with pytest.raises(StepFailed, match="changed meanwhile"):
            await ClaimActor(NOTHING).step(
                outside(client, "c"), Inputs(claim=owner, pods=(pod,)), NOTHING, seen
            )
        assert (await labels_of(client, "p"))["team"] == "theirs"


async def test_a_claim_set_labels_its_claims_and_pods_live_and_its_selector_selects_those_pods() -> None:
    async with operating() as client:
        await asyncio.gather(*(warm_pod(client, f"p{at}") for at in range(3)))
        spec = {"selector": {"matchLabels": {"pool": "default"}}, "additionalPodLabels": {"team": "a"}}
        raw = declared("CNClaimSet", "s", spec__replicas=2, spec__template__spec=spec)
        del raw["metadata"]["uid"]
        await client.create(decode(raw, CNClaimSet))
        await claim(client, "stranger")

        async def all_bound() -> bool:
            return len(await bindings(client)) == 3

        await eventually(all_bound)
        labels = {
            "cnLabels": [{"key": "account", "values": ["b"]}],
            "additionalPodLabels": {"team": None, "of": "b"},
        }
        body = {"spec": {"template": {"spec": labels}}}
        await client.patch(CNClaimSet, "s", MergePatch(body), namespace="default")

        async def relabelled() -> bool:
            made = await bindings(client)
            for name, pod in made.items():
                found = await client.get(Pod, pod, namespace="default")
                own = await labels_of(client, pod)
                store = (found.metadata.annotations or {})["matrixone.cloud/cn-label"]
                ours = name != "stranger"
                if own != {"pool": "default", **({"of": "b"} if ours else {})}:
                    return False
                if store != ('[{"key":"account","values":["b"]}]' if ours else "[]"):
                    return False
            return True

        await eventually(relabelled)
        owner = await client.get(CNClaimSet, "s", namespace="default")
        assert owner.status is not None
        chosen = await client.list(
            Pod, namespace="default", label_selector=owner.status.label_selector or "x=y"
        )
        mine = {pod for name, pod in (await bindings(client)).items() if name != "stranger"}
        assert {one.metadata.name for one in chosen.items} == mine
        assert len(mine) == 2


async def test_an_idle_pod_that_gave_its_lock_tables_away_gets_no_claim() -> None:
    async with operating(1) as client:
        await warm_pod(client, "p")
        note = {"metadata": {"annotations": {HANDED_OVER: "2026-01-01T00:00:00Z"}}}
        await client.patch(Pod, "p", MergePatch(note), namespace="default")
        await claim(client, "c")

        async def decided() -> bool:
            return bool(await bindings(client)) or "NoIdlePod" in await reasons(client, CNClaim, "c")

        await eventually(decided)
        assert await bindings(client) == {}


async def test_a_claim_set_is_scaled() -> None:
    async with operating() as client:
        await asyncio.gather(*(warm_pod(client, f"p{at}") for at in range(3)))
        raw = declared("CNClaimSet", "s", spec__replicas=2)
        del raw["metadata"]["uid"]
        await client.create(decode(raw, CNClaimSet))

        async def bound(count: int) -> bool:
            left = [one for one in (await client.list(CNClaim)).items if not one.metadata.deletion_timestamp]
            return len(left) == count == len(await bindings(client))

        await eventually(lambda: bound(2))
        body = MergePatch({"spec": {"replicas": 3}})
        await client.patch(CNClaimSet, "s", body, namespace="default", subresource="scale")
        await eventually(lambda: bound(3))
        await client.patch(CNClaimSet, "s", MergePatch({"spec": {"replicas": 1}}), namespace="default")
        await eventually(lambda: bound(1))

        async def shown() -> bool:
            found = await client.get(CNClaimSet, "s", namespace="default")
            return found.status is not None and (found.status.replicas, found.status.label_selector) == (
                1,
                "matrixorigin.io/claimset=s",
            )

        await eventually(shown)


async def test_the_pods_of_a_pool_follow_its_claims() -> None:
    async with operating(1) as client:
        raw = declared("CNPool", "warm", spec__podLabels={"pool": "default"})
        del raw["metadata"]["uid"]
        await client.create(decode(raw, CNPool))

        async def pods(count: int) -> bool:
            try:
                made = await client.get(CNSet, "warm", namespace="default")
            except NotFound:
                return False
            return made.spec is not None and made.spec.replicas == count

        await eventually(lambda: pods(1))
        made = await client.get(CNSet, "warm", namespace="default")
        assert made.spec is not None
        assert made.spec.overlay is not None
        assert made.spec.overlay.pod_labels == {"pool": "default", POOL: "warm"}
        await claim(client, "c")
        await claim(client, "stranger", spec__selector={"matchLabels": {"pool": "other"}})
        await eventually(lambda: pods(2))
        await warm_pod(client, "warm-cn-0")
        await eventually(lambda: bindings(client))
        await client.delete(CNPool, "warm", namespace="default")

        async def waits() -> bool:
            return "PodsInUse" in await reasons(client, CNPool, "warm")

        await eventually(waits)
        await eventually(lambda: pods(1))
