"""The effects of `moves` on Kubernetes; idempotent, each bound to what was seen when it was decided."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from mooring.actor import Context
from mooring.actor.children import Drift, Named
from mooring.kube.errors import Conflict, Invalid, NotFound
from mooring.kube.object import Object, to_dict
from mooring.kube.objects import apps, core
from mooring.kube.patches import MergePatch
from mooring.operators.workload.adoption import put_template
from mooring.operators.workload.moves import DeletePod, LabelRoles, RestoreTemplate
from mooring.operators.workload.pods import READS, ROLE
from mooring.operators.workload.statefulset import revision_template

__all__ = ["apply", "delete_pod", "label_roles", "restore_template", "write_template"]


async def apply(
    ctx: Context[Any],
    objects: Iterable[Object],
    *,
    keep: Collection[Named] = (),
    unowned: Collection[Named] = (),
    but: type[Object] | None = None,
) -> None:
    """Apply what differs of these child objects and delete what is no longer among them nor in ``keep``.

    Objects of the kind ``but`` are left as they are.
    """
    every = list(objects)
    names = [(type(one), one.metadata.name or "") for one in every]
    wanted = [one for one in every if but is None or not isinstance(one, but)]
    drift: Drift = ctx.children.diff(wanted, keep=[*names, *keep], unowned=unowned)
    await ctx.children.apply(drift)


async def delete_pod(ctx: Context[Any], move: DeletePod) -> None:
    """Delete the pod if it is still the one that was seen, as it was then."""
    await ctx.client.delete(
        core.Pod,
        move.pod,
        namespace=ctx.key.namespace,
        uid=move.uid,
        resource_version=move.version or None,
        grace_period=move.grace,
    )


_LEADS: Final = ("master", "primary")


async def label_roles(ctx: Context[Any], move: LabelRoles, *, reads: bool = False) -> None:
    """Label the pods, the leader last or first; ``reads``: replicas bear the label `READS` too.

    Proxies apply one change of Services' endpoints at once, and the next up to a second later. So a new leader leaves the
    Service for reading at the very end. Raises `Conflict` where a pod was made again.
    """
    for pod, role in sorted(move.roles.items(), key=lambda one: (one[1] in _LEADS) is not move.leader_first):
        labels: dict[str, str | None] = {ROLE: role}
        if reads and role not in _LEADS:
            labels[READS] = "true" if role == "replica" else None
        await _label(ctx, move, pod, labels)
    for pod in sorted(move.readers & move.roles.keys()):
        if move.roles[pod] in _LEADS:
            await _label(ctx, move, pod, {READS: None})


async def _label(ctx: Context[Any], move: LabelRoles, pod: str, labels: Mapping[str, str | None]) -> None:
    body = MergePatch({"metadata": {"uid": move.uids[pod], "labels": dict(labels)}})
    try:
        await ctx.client.patch(core.Pod, pod, body, namespace=ctx.key.namespace)
    except NotFound:  # it was being deleted
        return
    except Invalid as error:  # the UID is another one's
        raise Conflict(f"the pod {pod} was made again", status=409, reason="Conflict") from error


async def write_template(
    ctx: Context[Any], made: apps.StatefulSet, *, annotations: Mapping[str, str]
) -> None:
    """Replace the whole template of a StatefulSet by the rendered one, fields of other managers included."""
    assert made.spec is not None
    template = to_dict(made.spec.template or core.PodTemplateSpec())
    await put_template(ctx, made, template, annotations=annotations)


async def restore_template(
    ctx: Context[Any], move: RestoreTemplate, live: apps.StatefulSet, *, annotations: Mapping[str, str]
) -> bool:
    """Put a template back as its revision kept it; ``False`` when that revision is gone."""
    try:
        template = await revision_template(ctx.client.live, move.revision, namespace=ctx.key.namespace)
    except NotFound:
        return False
    await put_template(ctx, live, template, annotations=annotations)
    return True
