"""Whether pods start with the cluster's users, and what is recorded of a template that was written for that."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from mooring.actor import digest
from mooring.kube.objects import apps, core
from mooring.operators.workload.pods import Pod
from mooring.operators.workload.statefulset import made_from, pending

__all__ = ["FILE", "inputs_of", "ready", "takes_users"]

FILE: Final = "users.conf"
"""The entry of the cluster's Secret with the lines that a start reads."""


def takes_users(template: core.PodTemplateSpec | None) -> bool:
    """Its pods read `FILE` at their start; those of an earlier version of the operator do not."""
    volumes = (template.spec.volumes if template is not None and template.spec is not None else None) or ()
    items = [item for one in volumes if one.secret is not None for item in one.secret.items or ()]
    return any(one.key == FILE for one in items)


def inputs_of(
    plain: Sequence[object], live: apps.StatefulSet | None, annotation: str, *, closes: bool
) -> str:
    """Digest of what the user decided about pods.

    Where the default user is to be closed (``closes``) and the pods' start would open it again, the template has to be
    written once more; what that is recorded as stays until something else changes.
    """
    base, renewed = digest(plain), digest([*plain, "users"])
    if live is None:
        return base
    template = live.spec.template if live.spec is not None else None
    if made_from(live, annotation) == renewed or (closes and not takes_users(template)):
        return renewed
    return base


def ready(live: apps.StatefulSet | None, pods: Iterable[Pod]) -> bool:
    """Every pod starts with the cluster's users; until its controller has seen a template, that is not known of any."""
    if pending(live):
        return False
    template = live.spec.template if live is not None and live.spec is not None else None
    newest = (live.status.update_revision if live is not None and live.status is not None else None) or ""
    return takes_users(template) and all(not newest or one.revision in ("", newest) for one in pods)
