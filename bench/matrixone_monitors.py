"""What the MatrixOne operator may never do, whatever goes wrong: looked for at every change of a campaign's run.

    Workload(..., model=World, monitors=monitors())

Of clusters: no log store is stopped while another one is away, and no compute node with a session.

Of claims: a pod has one claim at a time, from the pool's hand and back into it; a claim keeps its pod until its end, or moves to
one that serves already, and is bound to no pod whose process refuses work; what the pool takes back serves nobody before it is
idle, and keeps nothing of its former user. Of backups: none is called good that is not whole in the very place that is named, or
verified that was not tried out. Of restores: each is done once, recorded before its log service is made, and never over live data.
"""

from __future__ import annotations

from typing import Any, Final

from bench.matrixone_model import World, newest

from mooring.operators.matrixone.names import CN_LABELS, CN_UUID, COMPONENT
from mooring.operators.matrixone.pool.labels import (
    BOUND,
    CLAIM_LABELS,
    CLAIM_UID,
    CLAIMED_BY,
    DRAINING,
    IDLE,
    MOVE,
    OWNER,
    PHASE,
    POD_UID,
    TERMINATING,
    UNKNOWN,
)
from mooring.operators.matrixone.rpc.messages import WorkState
from mooring.testing.changes import Change
from mooring.testing.monitors import Monitor, owned

__all__ = ["TEAM", "monitors", "rest_from_now_on"]

TEAM: Final = "team"
"""Label that the claims of these workloads give their pods."""
_GROUP: Final = ".core.matrixorigin.io"
_FROM: Final = {
    IDLE: {UNKNOWN, DRAINING},
    BOUND: {IDLE},
    DRAINING: {BOUND},
    TERMINATING: {UNKNOWN, IDLE, DRAINING},
}
"""What a pod of a pool may have been before."""
_USERS: Final = (CLAIMED_BY, OWNER, TEAM, CLAIM_UID, CLAIM_LABELS, MOVE)

Document = dict[str, Any]


def monitors() -> tuple[Monitor, ...]:
    """For a workload with the model of bench/matrixone_model.py."""
    return (
        owned(but=("backups.core.matrixorigin.io", "bucketclaims.core.matrixorigin.io")),
        _processes,
        _quorum,
        _pods_of_pools,
        _claims,
        _done_once,
        _good_once_done,
        _good_once_tried_out,
        _recorded_first,
        _at_rest,
    )


def rest_from_now_on() -> None:
    """From here on the operator makes, deletes and redeclares nothing; what it says in a status it may change."""
    newest().known["rest"] = True


def _processes(change: Change) -> str:
    """What the model's processes complain of."""
    wrong = newest().wrong
    return wrong.pop(0) if wrong else ""


# --- log stores


def _quorum(change: Change) -> str:
    """No log store is stopped while another one of its set is away, but at the end of the set."""
    meta, known = change.object["metadata"], newest().known
    if change.resource == f"logsets{_GROUP}" and meta.get("deletionTimestamp"):
        known["log set ends"] = True
    if change.resource != "pods" or (meta.get("labels") or {}).get(COMPONENT) != "LogSet":
        return ""
    began = meta.get("deletionTimestamp") and not (change.previous or change.object)["metadata"].get(
        "deletionTimestamp"
    )
    away = [uuid for uuid in newest().keeper.logs if uuid in newest().keeper.away]
    if not began or not away or known.get("log set ends"):
        return ""
    return f"{meta['name']} is stopped while another log store is away"


# --- claims


def _pods_of_pools(change: Change) -> str:
    """A pod of a pool goes from phase to phase as it may, and from one claim to none."""
    meta = change.object["metadata"]
    if change.resource != "pods" or (meta.get("labels") or {}).get(COMPONENT) != "CNSet":
        return ""
    world, said = newest(), ""
    pods: dict[str, Document] = world.known.setdefault("pods", {})
    before, now = pods.get(meta["uid"], {}), _marks(meta)
    pods[meta["uid"]] = now
    if change.type == "DELETED":
        del pods[meta["uid"]]
        return f"{meta['name']} went while it was claimed" if now["phase"] == BOUND else ""
    was, phase = before.get("phase", UNKNOWN), now["phase"]
    if phase != was:
        said = _changed(world, meta, was, phase)
    holder = before.get(CLAIM_UID)
    if holder and now[CLAIM_UID] not in ("", holder):
        said = f"{meta['name']} went from one claim to another one"
    return said


def _marks(meta: Document) -> Document:
    both = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    return {"phase": both.get(PHASE) or UNKNOWN, CLAIM_UID: both.get(CLAIM_UID, "")}


def _changed(world: World, meta: Document, was: str, phase: str) -> str:
    if was not in _FROM.get(phase, {was}):
        return f"{meta['name']} became {phase} and was {was}"
    if phase == DRAINING and any(one["pod"] == meta["uid"] for one in _living(world)):
        return f"{meta['name']} was taken from a claim that is bound to it"
    if phase == BOUND and (meta.get("labels") or {}).get(CN_UUID, "") in world.keeper.restarting:
        return f"a claim got {meta['name']}, which refuses work until it is restarted"
    if phase != IDLE:
        return ""
    both = {**(meta.get("annotations") or {}), **(meta.get("labels") or {})}
    if left := [one for one in _USERS if both.get(one)]:
        return f"{meta['name']} is idle and has {', '.join(left)} of its former user"
    if both.get(CN_LABELS, "null") != "null":
        return f"{meta['name']} is idle, and its store is to have {both[CN_LABELS]}"
    uuid = both.get(CN_UUID, "")
    store = world.keeper.cns.get(uuid)
    if (account := world.session(uuid)) is not None:
        return f"{meta['name']} is idle with a session of {account}"
    if store is not None and store.work_state is WorkState.WORKING:
        return f"{meta['name']} is idle and serves"
    if store is not None and store.labels:
        return f"{meta['name']} is idle, and its store has labels of its former user"
    return ""


def _living(world: World) -> list[Document]:
    claims: dict[str, Document] = world.known.setdefault("claims", {})
    return [one for one in claims.values() if not one["ending"]]


def _claims(change: Change) -> str:
    """A claim is bound once: to a pod that it has, and that no other claim has; and moves to one that serves."""
    if change.resource != f"cnclaims{_GROUP}":
        return ""
    world, meta = newest(), change.object["metadata"]
    claims: dict[str, Document] = world.known.setdefault("claims", {})
    before, notes = claims.pop(meta["uid"], {}), meta.get("annotations") or {}
    if change.type == "DELETED":
        return ""
    ending = bool(meta.get("deletionTimestamp"))
    now = {"pod": notes.get(POD_UID, ""), "move": notes.get(MOVE, ""), "ending": ending}
    claims[meta["uid"]] = now
    was = before.get("pod", "")
    if now["pod"] == was:
        return ""
    if was and (said := _moved(world, meta, before, now)):
        return said
    if any(one["pod"] == now["pod"] for one in _living(world) if one is not now):
        return f"two claims have one pod; the second is {meta['name']}"
    pods: dict[str, Document] = world.known.setdefault("pods", {})
    if pods.get(now["pod"], {}).get(CLAIM_UID) != meta["uid"]:
        return f"{meta['name']} is bound to a pod that it does not have"
    return ""


def _moved(world: World, meta: Document, before: Document, now: Document) -> str:
    """Why a claim may not have another pod now."""
    if not now["pod"] or before["move"].partition("/")[0] != now["pod"]:
        return f"{meta['name']} lost its pod, or got another one without a move"
    uuid = next((cn for cn, pod in world.pods.items() if pod == now["pod"]), "")
    store = world.keeper.cns.get(uuid)
    if store is None or store.work_state is not WorkState.WORKING:
        return f"{meta['name']} moved to a pod that does not serve"
    return ""


# --- backups and restores


def _done_once(change: Change) -> str:
    """What was backed up or restored is never done again, nor begun again."""
    twice = sorted(f"{action} of {whose}" for (action, whose), times in newest().done.items() if times > 1)
    return f"done twice: {', '.join(twice)}" if twice else ""


def _good_once_done(change: Change) -> str:
    """Nothing is called complete that is not."""
    status, spec = change.object.get("status") or {}, change.object.get("spec") or {}
    name, path = change.object["metadata"]["name"], _s3_path(spec.get("target"))
    good = status.get("phase") == "Completed" or _is_true(status, "Ready")
    if change.resource == f"restorejobs{_GROUP}" and good:
        whole = path in newest().restored
        return "" if whole else f"the restore {name} is called complete and is not"
    if change.resource == f"backupjobs{_GROUP}" and good:
        prefix = status.get("prefix") or ""
        if prefix.rpartition("/")[2] != status.get("id"):
            return f"the backup {name} is {status.get('id')} and is said to be at {prefix}"
        return _whole(f"{path}/{prefix}", f"the backup {name} is called complete")
    if change.resource == f"backups{_GROUP}" and change.type != "DELETED":
        made = change.object.get("meta") or {}
        place = _s3_path(made.get("location"))
        if place.rpartition("/")[2] != made.get("id"):
            return f"the Backup {name} is {made.get('id')} and is said to be at {place}"
        return _whole(place, f"the Backup {name} is there")
    return ""


def _good_once_tried_out(change: Change) -> str:
    """No test restore is said to have passed that did not, nor to be over while its copy of the data is there."""
    status, world = change.object.get("status") or {}, newest()
    if change.resource == f"backupjobs{_GROUP}":
        place = f"{_s3_path((change.object.get('spec') or {}).get('target'))}/{status.get('prefix')}"
    elif change.resource == f"backups{_GROUP}":
        place = _s3_path((change.object.get("meta") or {}).get("location"))
    else:
        return ""
    known, name = status.get("verified") or {}, change.object["metadata"]["name"]
    if (known.get("passed") or _is_true(status, "BackupVerified")) and place not in world.tried_out:
        return f"{name} is called verified, and what is at {place} was not tried out"
    cluster, _, identity = place.rpartition("/backups/")
    copy = f"{cluster}/verify/{identity}/"
    if known.get("at") and any(one.startswith(copy) for one in world.stored):
        return f"the test restore of {name} is over, and its copy is there"
    return ""


def _whole(place: str, said: str) -> str:
    return "" if newest().stored.get(place) else f"{said}, and no whole backup is at {place}"


def _s3_path(provider: Document | None) -> str:
    return str(((provider or {}).get("s3") or {}).get("path", ""))


def _is_true(status: Document, condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in status.get("conditions") or ())


def _recorded_first(change: Change) -> str:
    """The restore is recorded as done before the log service of its cluster is made; its data is there then."""
    meta, world = change.object["metadata"], newest()
    clusters: dict[str, Document] = world.known.setdefault("clusters", {})
    if change.resource == f"matrixoneclusters{_GROUP}":
        clusters[meta["name"]] = change.object
    if change.resource != f"logsets{_GROUP}" or change.type != "ADDED":
        return ""
    spec = change.object.get("spec") or {}
    path = ((spec.get("sharedStorage") or {}).get("s3") or {}).get("path", "")
    world.paths[meta["name"]] = path
    cluster = clusters.get(meta["name"], {})
    recorded = (cluster.get("status") or {}).get("restore") or {}
    asked = (cluster.get("spec") or {}).get("restoreFrom")
    if not asked and not recorded:
        return ""
    if recorded.get("phase") != "Restored":
        return f"the log service is made while the restore is recorded as {recorded.get('phase')}"
    if not (spec.get("initialConfig") or {}).get("restoreFrom"):
        return "the log service of a restored cluster begins without the backup"
    return "" if path in world.restored else "the log service is made before the data is there"


def _at_rest(change: Change) -> str:
    """See `rest_from_now_on`."""
    if not change.by or not newest().known.get("rest"):
        return ""
    before = change.previous or {}
    if change.type != "MODIFIED" or before.get("spec") != change.object.get("spec"):
        return f"not left at rest: {change.at}"
    return ""
