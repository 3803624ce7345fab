"""The campaigns of MatrixOne's clusters, claims, backups and restores: a sample of each, and mistakes planted into the operator that they find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from bench.campaign import WORKLOADS, main
from msgspec.structs import replace

from mooring.operators.backup.agent import Result
from mooring.operators.matrixone.backup import job_actor, records, restore_actor, rules, verification
from mooring.operators.matrixone.backup.job_actor import BackupJobActor
from mooring.operators.matrixone.cluster.actor import ClusterActor
from mooring.operators.matrixone.cnset import actor as cnset_actor
from mooring.operators.matrixone.cnset import drain, pooling
from mooring.operators.matrixone.cnset import plan as cnset_plan
from mooring.operators.matrixone.cnset.moves import Drain
from mooring.operators.matrixone.depends import dn_set_of, log_set_of
from mooring.operators.matrixone.logset import plan as logset_plan
from mooring.operators.matrixone.look import Keeper
from mooring.operators.matrixone.pool import claim, claim_actor, moving, pods, warm
from mooring.operators.matrixone.pool.labels import BOUND, IDLE, PHASE
from mooring.operators.matrixone.pool.moves import GiveBack, MoveClaim
from mooring.testing.faults import Plan
from mooring.testing.workload import play

PODS = "/api/v1/namespaces/default/pods"
GROUP = "/apis/core.matrixorigin.io/v1alpha1/namespaces/default"
SAMPLES = {
    "cluster": f"crash-before at PATCH {PODS}/mo-main-cn-0 ",
    "roll": f"crash-after at DELETE {PODS}/mo-log-2",
    "claim": f"crash-after at PATCH {PODS}/warm-cn-0 ",
    "set": f"lost-answer at POST {GROUP}/cnclaims",
    "move": f"crash-before at PATCH {GROUP}/cnclaims/one ",
    "backup": f"crash-after at PATCH {GROUP}/backupjobs/first/status #3",
    "verify": f"crash-after at PATCH {GROUP}/backupjobs/first/status #5",
    "restore": f"crash-after at PATCH {GROUP}/matrixoneclusters/mo/status ",
    "restore-job": "crash-after at POST /apis/batch/v1/namespaces/default/jobs",
}
"""Some plans of each workload: the operator dies around what must not be done twice."""


@pytest.mark.parametrize("name", SAMPLES)
def test_a_sample_of_the_campaign_finds_nothing(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([f"matrixone-{name}", "--only", SAMPLES[name], "--keep", str(tmp_path), "--jobs", "1"])

    said = capsys.readouterr().out
    assert status == 0, said
    assert " 0 failed, 0 whose moment did not come" in said
    assert f"matrixone-{name}: 0 plans" not in said


# --- mistakes


@dataclass(frozen=True, kw_only=True)
class Planted:
    """A mistake, the workload that meets it, and what a monitor says."""

    patch: Callable[[], AbstractContextManager[object]]
    workload: str
    says: str


def takes_what_others_have() -> AbstractContextManager[object]:
    """Does not look whether a pod is claimed, and all claims want the same one."""
    same = mock.patch.object(claim, "_preference", lambda snapshot, pod: pod.name)
    return _both(same, mock.patch.object(claim, "free", lambda pod: not pod.terminating))


def idle_at_once() -> AbstractContextManager[object]:
    """What is given back can be claimed again at once."""
    whole = pods.given_back

    def given_back(owner: Any, now: Any) -> Any:
        labels, notes = whole(owner, now)
        return {**labels, PHASE: IDLE}, notes

    return mock.patch.object(claim_actor, "given_back", given_back)


def sessions_stay() -> AbstractContextManager[object]:
    """Does not ask what still runs on a pod that was given back."""
    whole = pooling._next

    def step(snapshot: Any, member: Any, going: Any) -> Any:
        unasked = changed(member, sessions=0, pipelines=0)
        return whole(changed(snapshot, min_delay=0.0), unasked, going)

    return mock.patch.object(pooling, "_next", step)


def labels_stay() -> AbstractContextManager[object]:
    """Leaves the labels of a claim on its pod."""
    return mock.patch.object(cnset_actor, "CLAIM_LABELS", "mooring.dev/misspelt")


def store_labels_stay() -> AbstractContextManager[object]:
    """Takes no labels from the compute node."""

    async def nothing(self: Any, *of: Any) -> None:
        return None

    def ready(member: Any, why: str) -> Any:
        return pooling._phase(member, IDLE, why) if member.sessions == member.pipelines == 0 else None

    return _both(
        mock.patch.object(Keeper, "clear_labels", nothing), mock.patch.object(pooling, "_ready", ready)
    )


def pods_of_living_claims_go_back() -> AbstractContextManager[object]:
    """Takes every claimed pod for one whose claim is gone."""

    def orphaned(found: Any, claims: Any) -> Any:
        for pod in found:
            if pod.phase == BOUND and pod.serves:
                return GiveBack(pod=pod.name, uid=pod.uid, version=pod.version, why="its claim is gone")
        return None

    return mock.patch.object(warm, "orphaned", orphaned)


def moves_too_early() -> AbstractContextManager[object]:
    """Changes over as soon as it has the new pod, which does not serve yet."""

    def change_over(snapshot: Any, pod: Any, new: Any) -> Any:
        return MoveClaim(pod=new, left=pod.name, version=snapshot.version, why="it has it")

    return mock.patch.object(moving, "_change_over", change_over)


def drains_nothing() -> AbstractContextManager[object]:
    """Notes that a pod drains, and does not tell HAKeeper: the step is taken again and again."""

    async def drain(self: Any, *of: Any) -> None:
        return None

    return mock.patch.object(Keeper, "drain", drain)


def gives_locks_away_at_every_drain() -> AbstractContextManager[object]:
    """Hands over the lock tables of every compute node that drains, also of those that are to be used again."""
    whole = cnset_actor.CNSetActor.step

    async def step(self: Any, ctx: Any, inputs: Any, snapshot: Any, move: Any) -> None:
        await whole(self, ctx, inputs, snapshot, move)
        if isinstance(move, Drain):
            key = log_set_of(inputs.cn_set)
            seen = await self._around.see(key, dn_set_of(inputs.cn_set))
            await self._around.keeper.hand_over(seen, move.uuid)

    return mock.patch.object(cnset_actor.CNSetActor, "step", step)


def log_service_before_the_data() -> AbstractContextManager[object]:
    """Makes the sets of a cluster while its data is still being copied."""
    whole = ClusterActor._restore

    async def restore(self: Any, ctx: Any, log_set: Any, *, has_credential: bool) -> Any:
        status = ctx.obj.status
        if status is not None and status.restore is not None and status.restore.phase == "Restoring":
            return None
        return await whole(self, ctx, log_set, has_credential=has_credential)

    return mock.patch.object(ClusterActor, "_restore", restore)


def over_before_it_is() -> AbstractContextManager[object]:
    """Takes a Job that runs for one that has succeeded."""
    whole = rules.decide

    def decide(snapshot: Any) -> Any:
        run = snapshot.run
        if run is None or run.over:
            return whole(snapshot)
        done = changed(run, state="Succeeded", result=Result(ok=True, size=1, objects=1))
        return rules.Settle(outcome=done, why="it runs well")

    return mock.patch.object(restore_actor, "decide", decide)


def good_although_it_failed() -> AbstractContextManager[object]:
    """Takes a Job of a backup that failed for one that has succeeded."""
    whole = rules.decide

    def decide(snapshot: Any) -> Any:
        run = snapshot.run
        if run is None or run.state != "Failed":
            return whole(snapshot)
        done = changed(run, state="Succeeded", result=Result(ok=True, size=1, objects=1))
        return whole(changed(snapshot, run=done, recorded=False))

    return mock.patch.object(job_actor, "decide", decide)


def good_where_the_last_try_was() -> AbstractContextManager[object]:
    """Takes the place of the last try for that of the backup, which an earlier one has made."""
    whole = records.backup_of

    def backup_of(job: Any, root: Any, outcome: Any, *, now: Any) -> Any:
        facts = {name: value for name, value in outcome.result.facts.items() if name != "prefix"}
        return whole(job, root, changed(outcome, result=replace(outcome.result, facts=facts)), now=now)

    return mock.patch.object(job_actor, "backup_of", backup_of)


def forgets_earlier_tries() -> AbstractContextManager[object]:
    """Does not have a try look for the backup that an earlier one has made."""
    whole = BackupJobActor._run

    def run(self: Any, *of: Any) -> Any:
        made = whole(self, *of)
        return changed(made, request=replace(made.request, places=made.request.places[-1:]))

    return mock.patch.object(BackupJobActor, "_run", run)


def verified_although_it_failed() -> AbstractContextManager[object]:
    """Takes a test restore that failed for one that passed."""
    whole = verification.settled

    def settled(known: Any, outcome: Any, *, now: Any) -> Any:
        done = changed(outcome, state="Succeeded", result=Result(ok=True, size=1, objects=1))
        return whole(known, done, now=now)

    return mock.patch.object(verification, "settled", settled)


def the_copy_stays() -> AbstractContextManager[object]:
    """Records a test restore that was killed, and does not delete the copy that it left."""
    whole = verification.settled

    def settled(known: Any, outcome: Any, *, now: Any) -> Any:
        return whole(known, changed(outcome, again=False), now=now)

    return _both(
        mock.patch.object(verification, "settled", settled),
        mock.patch.object(verification, "_swept", return_value=None),
    )


def restores_once_more() -> AbstractContextManager[object]:
    """Begins another try of a restore after one that succeeded."""
    whole = rules.decide

    def decide(snapshot: Any) -> Any:
        run = snapshot.run
        if run is None or run.state != "Succeeded" or snapshot.tries >= rules.TRIES:
            return whole(snapshot)
        return rules.Begin(attempt=snapshot.tries + 1, why="to be sure")

    return mock.patch.object(restore_actor, "decide", decide)


@contextmanager
def _both(one: AbstractContextManager[object], other: AbstractContextManager[object]) -> Iterator[None]:
    with one, other:
        yield


def stops_what_serves() -> AbstractContextManager[object]:
    """Stops compute nodes at once."""

    def leave(snapshot: Any, member: Any, why: str, *, others: int) -> Any:
        return drain._stop(member, why)

    return mock.patch.object(cnset_plan, "leave", leave)


def rolls_all_log_stores() -> AbstractContextManager[object]:
    """Recreates a log store while another one has not come back."""
    return mock.patch.object(logset_plan, "unsettled", return_value="")


PLANTED = (
    Planted(patch=stops_what_serves, workload="cluster", says="was stopped with a session"),
    Planted(patch=rolls_all_log_stores, workload="roll", says="while another log store is away"),
    Planted(patch=takes_what_others_have, workload="claim", says="went from one claim to another one"),
    Planted(patch=idle_at_once, workload="claim", says="became Idle and was Bound"),
    Planted(patch=sessions_stay, workload="claim", says="is idle with a session of one"),
    Planted(patch=labels_stay, workload="claim", says="is idle and has team"),
    Planted(patch=store_labels_stay, workload="claim", says="its store has labels of its former user"),
    Planted(patch=drains_nothing, workload="claim", says="a step repeats: cnsets"),
    Planted(patch=pods_of_living_claims_go_back, workload="set", says="was taken from a claim that is bound"),
    Planted(patch=gives_locks_away_at_every_drain, workload="claim", says="which refuses work until"),
    Planted(
        patch=gives_locks_away_at_every_drain,
        workload="roll",
        says="gave its lock tables away with a session of all",
    ),
    Planted(
        patch=gives_locks_away_at_every_drain,
        workload="claim",
        says="a compute node that refuses work is to serve",
    ),
    Planted(patch=moves_too_early, workload="move", says="moved to a pod that does not serve"),
    Planted(patch=good_although_it_failed, workload="backup", says="is there, and no whole backup is at"),
    Planted(patch=good_where_the_last_try_was, workload="backup", says="is there, and no whole backup is at"),
    Planted(patch=forgets_earlier_tries, workload="backup", says="done twice: backup of"),
    Planted(patch=verified_although_it_failed, workload="verify", says="was not tried out"),
    Planted(patch=the_copy_stays, workload="verify", says="is over, and its copy is there"),
    Planted(patch=restores_once_more, workload="restore", says="done twice: restore of"),
    Planted(
        patch=log_service_before_the_data, workload="restore", says="the restore is recorded as Restoring"
    ),
    Planted(patch=over_before_it_is, workload="restore-job", says="is called complete and is not"),
)


@pytest.mark.parametrize("planted", PLANTED, ids=lambda one: one.patch.__name__)
async def test_a_mistake_planted_in_the_matrixone_operator_is_found(planted: Planted) -> None:
    with planted.patch():
        trace = await play(
            WORKLOADS[f"matrixone-{planted.workload}"](), Plan(), until=lambda said: planted.says in said
        )

    assert any(planted.says in one for one in trace.violations), trace.violations[:10]
