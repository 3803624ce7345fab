"""The Job controller, and the end of finished Jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from mooring.kube.errors import ApiError, NotFound
from mooring.kube.object import Key, controller_of
from mooring.kube.objects.batch import Job
from mooring.kube.objects.core import (
    Container,
    EnvVar,
    EnvVarSource,
    ObjectFieldSelector,
    Pod,
    PodSpec,
    PodTemplateSpec,
)
from mooring.kube.selectors import selector_of
from mooring.local.controllers.batches import slow_start
from mooring.local.controllers.claiming import Claimer
from mooring.local.controllers.context import Context
from mooring.local.controllers.job.plan import INDEX, TRACKING, Plan, finished, plan
from mooring.local.controllers.job.policies import FAILURES
from mooring.local.controllers.moments import seconds_since
from mooring.local.controllers.patching import metadata_patch, status_patch
from mooring.local.controllers.pods import from_template
from mooring.local.controllers.refusals import namespace_is_going
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["JobController"]

OURS = (None, "", "kubernetes.io/job-controller")


class JobController:
    """Reconciles Jobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("job-controller")
        self._jobs = context.informers.of(Job)
        self._pods = Claimer(context, Pod)

    def controller(self) -> Controller:
        """The controller with its watches."""
        pods = self._context.informers.of(Pod)
        made = Controller("job", self.reconcile)
        made.watch(self._jobs)
        made.owns(pods, Job)
        made.watch(pods, map=self._orphan_to_jobs)
        return made

    def _orphan_to_jobs(self, pod: Pod) -> Iterable[Key]:
        if controller_of(pod) is not None:
            return
        namespace = pod.metadata.namespace or ""
        for job in self._jobs.list(namespace):
            if selector_of(job.spec.selector if job.spec else None).matches(pod.metadata.labels):
                yield Key(namespace, job.metadata.name or "")

    async def reconcile(self, key: Key) -> Result:
        """One pass over a Job."""
        job = self._jobs.get(key)
        if job is None or job.spec is None:
            await self._untrack_left_behind(key)
            return Done()
        if job.spec.managed_by not in OURS:
            return Done()
        pods = await self._pods.claim(job, selector_of(job.spec.selector))
        if (end := finished(job)) is not None:
            await self._untrack(pods)
            return await self._expire(job, end.last_transition_time)
        made = plan(job, pods, now=self._context.clock.now())
        try:
            await slow_start(made.create, lambda index: self._create(job, index, made.failures))
            if made.forget:
                await self._untrack(made.delete)
            await slow_start(made.delete, lambda pod: self._delete(job, pod))
        except ApiError as error:
            if not namespace_is_going(error):
                raise
        await self._write_status(job, made)
        await self._untrack(made.untrack)
        return After(made.after) if made.after is not None else Done()

    async def _write_status(self, job: Job, made: Plan) -> None:
        patch = status_patch(job, made.status) if made.status is not None else None
        if patch is None:
            return
        await self._client.patch(
            Job,
            job.metadata.name or "",
            patch,
            namespace=job.metadata.namespace or "",
            subresource="status",
        )
        for warning, reason, message in made.notices:
            (self._events.warning if warning else self._events.normal)(job, reason, message)

    async def _create(self, job: Job, index: int | None, failures: Mapping[int, int] | None) -> None:
        try:
            pod = await self._client.create(_pod(job, index, failures))
        except ApiError as error:
            if not namespace_is_going(error):
                self._events.warning(job, "FailedCreate", f"Error creating: {error}")
            raise
        self._events.normal(job, "SuccessfulCreate", f"Created pod: {pod.metadata.name}")

    async def _delete(self, job: Job, pod: Pod) -> None:
        meta = pod.metadata
        try:
            await self._client.delete(
                Pod, meta.name or "", namespace=meta.namespace or "", uid=meta.uid, propagation=None
            )
        except ApiError as error:
            self._events.warning(job, "FailedDelete", f"Error deleting: {error}")
            raise
        self._events.normal(job, "SuccessfulDelete", f"Deleted pod: {meta.name}")

    async def _untrack(self, pods: Iterable[Pod]) -> None:
        for pod in pods:
            finalizers = [f for f in pod.metadata.finalizers or () if f != TRACKING]
            if len(finalizers) == len(pod.metadata.finalizers or ()):
                continue
            try:
                await self._client.patch(
                    Pod,
                    pod.metadata.name or "",
                    metadata_patch(pod, finalizers=finalizers or None),
                    namespace=pod.metadata.namespace or "",
                )
            except NotFound:
                continue

    async def _untrack_left_behind(self, key: Key) -> None:
        """Pods of a Job that is no more need not be counted; the finalizer would keep them for ever."""
        left = [
            pod
            for pod in self._context.informers.of(Pod).list(key.namespace)
            if TRACKING in (pod.metadata.finalizers or ()) and _job_of(pod) == key.name
        ]
        await self._untrack(left)

    async def _expire(self, job: Job, ended: str | None) -> Result:
        """A finished Job with a time to live goes when that has passed."""
        ttl = job.spec.ttl_seconds_after_finished if job.spec else None
        if ttl is None or job.metadata.deletion_timestamp:
            return Done()
        left = ttl - seconds_since(ended, self._context.clock.now())
        if left > 0:
            return After(left)
        meta = job.metadata
        await self._client.delete(
            Job,
            meta.name or "",
            namespace=meta.namespace or "",
            uid=meta.uid,
            resource_version=meta.resource_version,
            propagation="Foreground",
        )
        return Done()


def _job_of(pod: Pod) -> str:
    owner = controller_of(pod)
    return (owner.name or "") if owner is not None and owner.kind == "Job" else ""


def _pod(job: Job, index: int | None, failures: Mapping[int, int] | None) -> Pod:
    """A pod of the Job; with an index, one that knows it by label, annotation, host name and environment.

    Where the failures of each index are counted, it also knows how many there were before it.
    """
    template = (job.spec.template if job.spec else None) or PodTemplateSpec()
    pod = from_template(template, job)
    replace = msgspec.structs.replace
    meta = replace(pod.metadata, finalizers=[*(pod.metadata.finalizers or ()), TRACKING])
    if index is None:
        return replace(pod, metadata=meta)
    meta = replace(
        meta,
        generate_name=f"{job.metadata.name}-{index}-",
        labels={**(meta.labels or {}), INDEX: str(index)},
        annotations={
            **(meta.annotations or {}),
            INDEX: str(index),
            **({} if failures is None else {FAILURES: str(failures.get(index, 0))}),
        },
    )
    spec = pod.spec or PodSpec()
    spec = replace(
        spec,
        hostname=f"{job.metadata.name}-{index}",
        containers=[_with_index(c) for c in spec.containers or ()] or None,
        init_containers=[_with_index(c) for c in spec.init_containers or ()] or None,
    )
    return replace(pod, metadata=meta, spec=spec)


def _with_index(container: Container) -> Container:
    if any(variable.name == "JOB_COMPLETION_INDEX" for variable in container.env or ()):
        return container
    path = f"metadata.labels['{INDEX}']"
    variable = EnvVar(
        name="JOB_COMPLETION_INDEX",
        value_from=EnvVarSource(field_ref=ObjectFieldSelector(field_path=path)),
    )
    return msgspec.structs.replace(container, env=[*(container.env or ()), variable])
