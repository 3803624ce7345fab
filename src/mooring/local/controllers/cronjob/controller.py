"""The CronJob controller."""

from __future__ import annotations

from mooring.kube.cron import parse_schedule
from mooring.kube.errors import AlreadyExists, ApiError
from mooring.kube.object import Key
from mooring.kube.objects.batch import CronJob, Job
from mooring.local.controllers.context import Context
from mooring.local.controllers.cronjob.plan import plan
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.refusals import namespace_is_going
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["CronJobController"]


class CronJobController:
    """Reconciles CronJobs."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._client = context.client
        self._events = context.recorder("cronjob-controller")
        self._crons = context.informers.of(CronJob)
        self._jobs = context.informers.of(Job)
        self._told: dict[str, str] = {}

    def controller(self) -> Controller:
        """The controller with its watches."""
        made = Controller("cronjob", self.reconcile)
        made.watch(self._crons)
        made.owns(self._jobs, CronJob)
        return made

    async def reconcile(self, key: Key) -> Result:
        """One pass over a CronJob."""
        cron = self._crons.get(key)
        if cron is None or cron.spec is None:
            return Done()
        try:
            schedule = parse_schedule(cron.spec.schedule or "", cron.spec.time_zone or "")
        except ValueError as error:
            self._warn(cron, "UnparseableSchedule", f"unparseable schedule: {cron.spec.schedule}: {error}")
            return Done()
        made = plan(cron, self._jobs.owned_by(cron), schedule, now=self._context.clock.now())
        for reason, message in made.notices:
            self._warn(cron, reason, message)
        for job in (*made.replace, *made.drop):
            await self._delete(cron, job)
        if made.create is not None:
            await self._create(cron, made.create)
        patch = status_patch(cron, made.status)
        if patch is not None:
            await self._client.patch(CronJob, key.name, patch, namespace=key.namespace, subresource="status")
        return After(made.after) if made.after is not None else Done()

    def _warn(self, cron: CronJob, reason: str, message: str) -> None:
        if self._told.get(cron.metadata.uid or "") != message:
            self._told[cron.metadata.uid or ""] = message
            self._events.warning(cron, reason, message)

    async def _create(self, cron: CronJob, job: Job) -> None:
        try:
            await self._client.create(job)
        except AlreadyExists:
            return
        except ApiError as error:
            if namespace_is_going(error):
                return
            self._events.warning(cron, "FailedCreate", f"Error creating job: {error}")
            raise
        self._events.normal(cron, "SuccessfulCreate", f"Created job {job.metadata.name}")

    async def _delete(self, cron: CronJob, job: Job) -> None:
        meta = job.metadata
        await self._client.delete(Job, meta.name or "", namespace=meta.namespace or "", uid=meta.uid)
        self._events.normal(cron, "SuccessfulDelete", f"Deleted job {meta.name}")
