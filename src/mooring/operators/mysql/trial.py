"""The trial start of a new image: how its Job stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from mooring.kube.client import Client
from mooring.kube.object import controller_of
from mooring.kube.objects import batch, core
from mooring.operators.mysql.inputs import REMEDIES, Inputs
from mooring.operators.mysql.names import TRIAL, trial_selector
from mooring.operators.mysql.snapshot import Trial
from mooring.operators.workload.pods import pod_of
from mooring.operators.workload.rollout import hopeless

__all__ = ["is_trial", "read_trial", "with_trial"]

_NAME = "app.kubernetes.io/name"


def with_trial(
    inputs: Inputs, jobs: Sequence[batch.Job], pods: Sequence[core.Pod], *, now: datetime
) -> Inputs:
    """The inputs, with how the trial start of the declared image stands where one is needed."""
    if inputs.observed.trial is None:
        return inputs
    name = inputs.specs.trial_name
    job = next((one for one in jobs if one.metadata.name == name), None)
    if job is None:
        return inputs
    trial = _standing(job, [one for one in pods if is_trial(one) and _of(one) == job.metadata.uid], now)
    return replace(inputs, observed=replace(inputs.observed, trial=trial))


async def read_trial(client: Client, inputs: Inputs) -> Inputs:
    """The same, from the API server."""
    namespace, selector = inputs.cluster.metadata.namespace or "", trial_selector(inputs.specs.names.cluster)
    jobs = await client.list(batch.Job, namespace=namespace, label_selector=selector)
    pods = await client.list(core.Pod, namespace=namespace, label_selector=selector)
    return with_trial(inputs, jobs.items, pods.items, now=datetime.now(UTC))


def is_trial(pod: core.Pod) -> bool:
    """Whether it is the pod of a trial start, no server of the cluster's."""
    return (pod.metadata.labels or {}).get(_NAME) == TRIAL


def _of(pod: core.Pod) -> str:
    owner = controller_of(pod)
    return (owner.uid if owner is not None else None) or ""


def _standing(job: batch.Job, pods: Sequence[core.Pod], now: datetime) -> Trial:
    status = job.status or batch.JobStatus()
    if job.metadata.deletion_timestamp:
        return Trial(state="Running", message="an earlier trial start is being deleted")
    if status.succeeded:
        return Trial(state="Passed")
    logs = f"kubectl logs job/{job.metadata.name} says more"
    said = next((text for pod in pods if (text := _said(pod))), "")
    failed = next(
        (one for one in status.conditions or () if one.type == "Failed" and one.status == "True"), None
    )
    if failed is not None:
        return Trial(state="Failed", message=said or f"{failed.reason}: {failed.message}; {logs}")
    for one in pods:
        pod = pod_of(one, component="trial", claims={}, born=None, remedies=REMEDIES)
        if hopeless(pod, now):
            return Trial(state="Failed", message=f"{pod.trouble}: {pod.trouble_message}")
        if pod.trouble:
            return Trial(state="Running", message=f"{pod.name}: {pod.trouble_message}")
    return Trial(state="Running")


def _said(pod: core.Pod) -> str:
    """What the script wrote when it gave up."""
    for one in (pod.status.container_statuses if pod.status else None) or ():
        ended = one.state.terminated if one.state else None
        if ended is not None and ended.exit_code and ended.message:
            return ended.message.strip()
    return ""
