"""The runs of an actor's objects: their Jobs and pods from the caches, and the effects on them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from mooring.actor import Context, Related
from mooring.kube.errors import AlreadyExists, KubeError, NotFound
from mooring.kube.object import Key, Object
from mooring.kube.objects import batch, core
from mooring.operators.backup.agent import moved_in
from mooring.operators.backup.outcome import Outcome, outcome_of
from mooring.operators.backup.run import BY, FOR, OF, STORE
from mooring.runtime import Manager

__all__ = ["Begun", "Runs"]

_JOB = "batch.kubernetes.io/job-name"


class Begun(Protocol):
    """What a run consists of, such as `run.Run`."""

    def objects(self, owner: Object, *, by: str) -> Sequence[Object]:
        """Its Job, and before it what that mounts."""


class Runs:
    """The runs that bear the label `run.BY` of one actor.

    Give `related` to the actor's ``related``: a change of a Job or its pod brings the object back.
    """

    def __init__(self, manager: Manager, by: str, *, namespaces: Sequence[str] = ()) -> None:
        self.by = by
        self._client = manager.client
        self._selector = f"{BY}={by}"
        self._index = f"runs of {by}"
        self._jobs = [
            manager.informers.of(batch.Job, namespace=one, label_selector=self._selector)
            for one in namespaces or ("",)
        ]
        self._pods = [
            manager.informers.of(core.Pod, namespace=one, label_selector=self._selector)
            for one in namespaces or ("",)
        ]
        for jobs, pods in zip(self._jobs, self._pods, strict=True):
            jobs.ensure_index(self._index, lambda one: [(one.metadata.labels or {}).get(OF, "")])
            pods.ensure_index(self._index, lambda one: [(one.metadata.labels or {}).get(_JOB, "")])

    @property
    def related(self) -> list[Related[Any]]:
        """What the actor watches."""
        return [Related(kind, _keys, label_selector=self._selector) for kind in (batch.Job, core.Pod)]

    def of(self, owner: Object, *, now: datetime, purpose: str = "") -> list[Outcome]:
        """The runs of an object that the caches know, oldest first; of one purpose, or all."""
        uid = owner.metadata.uid or ""
        jobs = [one for informer in self._jobs for one in informer.by_index(self._index, uid)]
        jobs.sort(key=lambda one: (one.metadata.creation_timestamp or "", one.metadata.name or ""))
        outcomes = [
            outcome_of(one, self._pods_of(one), now=now)
            for one in jobs
            if not one.metadata.deletion_timestamp
        ]
        return [one for one in outcomes if not purpose or one.purpose == purpose]

    def _pods_of(self, job: batch.Job) -> list[core.Pod]:
        name, namespace = job.metadata.name or "", job.metadata.namespace
        found = [one for informer in self._pods for one in informer.by_index(self._index, name)]
        return [
            one
            for one in found
            if one.metadata.namespace == namespace
            and any(ref.uid == job.metadata.uid for ref in one.metadata.owner_references or ())
        ]

    async def find(
        self, ctx: Context[Any], name: str, *, now: datetime, purpose: str = "", namespace: str = ""
    ) -> Outcome | None:
        """The run of that Job; asked of the API server where the caches do not know it (yet).

        ``namespace`` is that of an object without one.
        """
        if not name:
            return None
        for one in self.of(ctx.obj, now=now, purpose=purpose):
            if one.job == name:
                return one
        job = await ctx.client.refresh(batch.Job, name, namespace=namespace or ctx.key.namespace)
        if job is None:
            return None
        if (job.metadata.labels or {}).get(OF) != ctx.obj.metadata.uid or job.metadata.deletion_timestamp:
            return None
        return outcome_of(job, self._pods_of(job), now=now)

    def alive(self, job: str, *, namespace: str) -> bool:
        """Whether a pod of that Job has not ended, as the cache has it; also where the Job itself is deleted."""
        pods = [one for informer in self._pods for one in informer.by_index(self._index, job)]
        return any(
            one.metadata.namespace == namespace
            and (one.status is None or one.status.phase not in ("Succeeded", "Failed"))
            for one in pods
        )

    async def moved(self, ctx: Context[Any], job: str) -> int | None:
        """Bytes that a backup has stored so far, as the log of its pod says; ``None`` where that cannot be told."""
        pods = [one for informer in self._pods for one in informer.by_index(self._index, job)]
        pods = [one for one in pods if one.metadata.namespace == ctx.key.namespace]
        if not pods:
            return None
        name = max(pods, key=lambda one: one.metadata.creation_timestamp or "").metadata.name
        path = f"/api/v1/namespaces/{ctx.key.namespace}/pods/{name}/log"
        query = {"container": STORE, "tailLines": "1"}
        try:
            answer = await self._client.live.request("GET", path, query=query, accept="*/*", timeout=5.0)
        except KubeError:
            return None
        return moved_in(answer.body.decode(errors="replace"))

    async def begin(self, ctx: Context[Any], run: Begun) -> None:
        """Make the Job and what it mounts; one that is there already stays as it is."""
        for one in run.objects(ctx.obj, by=self.by):
            try:
                await ctx.client.create(one)
            except AlreadyExists:
                continue

    async def drop(self, ctx: Context[Any], job: str, *, namespace: str = "") -> None:
        """Delete a Job with its pod; ``namespace`` is that of an object without one."""
        try:
            await ctx.client.delete(batch.Job, job, namespace=namespace or ctx.key.namespace)
        except NotFound:
            return


def _keys(one: Object) -> list[Key]:
    name = (one.metadata.annotations or {}).get(FOR, "")
    return [Key(one.metadata.namespace or "", name)] if name else []
