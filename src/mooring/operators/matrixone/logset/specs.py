"""The start gate in the pods of a LogSet, and claims that outlive their pods."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mooring.kube.objects import apps, core
from mooring.operators.matrixone.storage import DATA_PATH
from mooring.operators.workload.containers import FROM_LOG

__all__ = ["DATA", "GATE", "RELEASED", "gated"]

DATA: Final = "mo-data"
"""The volume with a store's data."""
GATE: Final = "start-gate"
RELEASED: Final = "mooring.dev/released"
"""Annotation of a pod: it may start with an empty volume."""
_SCRIPT: Final = f"""\
for one in {DATA_PATH}/* {DATA_PATH}/.[!.]*; do
  case "$one" in
  */lost+found) ;;
  *) [ -e "$one" ] && exit 0 ;;
  esac
done
echo "the volume is empty: waiting until the operator lets this store start" >&2
while ! [ -s /{GATE}/released ]; do sleep 0.2; done
"""


def gated(made: apps.StatefulSet) -> apps.StatefulSet:
    """The set with its gate: a container before all others that ends at once on a volume with data.

    Claims stay at a scale-in: the planner deletes them once no shard needs their data.
    """
    assert made.spec is not None
    assert made.spec.template is not None
    template = made.spec.template
    pod = template.spec
    assert pod is not None
    main = (pod.containers or [])[0]
    gate = core.Container(
        name=GATE,
        image=main.image,
        image_pull_policy=main.image_pull_policy,
        command=["/bin/sh", "-c", _SCRIPT],
        termination_message_policy=FROM_LOG,
        security_context=main.security_context,
        volume_mounts=[
            core.VolumeMount(name=DATA, mount_path=DATA_PATH, read_only=True),
            core.VolumeMount(name=GATE, mount_path=f"/{GATE}"),
        ],
    )
    annotation = core.ObjectFieldSelector(field_path=f"metadata.annotations['{RELEASED}']")
    volume = core.Volume(
        name=GATE,
        downward_api=core.DownwardAPIVolumeSource(
            items=[core.DownwardAPIVolumeFile(path="released", field_ref=annotation)]
        ),
    )
    made_pod = replace(
        pod,
        init_containers=[gate, *(pod.init_containers or ())],
        volumes=[*(pod.volumes or ()), volume],
        termination_grace_period_seconds=max(60, pod.termination_grace_period_seconds or 0),
    )
    keeps = made.spec.persistent_volume_claim_retention_policy
    policy = apps.StatefulSetPersistentVolumeClaimRetentionPolicy(
        when_deleted=(keeps.when_deleted if keeps is not None else None) or "Retain", when_scaled="Retain"
    )
    spec = replace(
        made.spec, template=replace(template, spec=made_pod), persistent_volume_claim_retention_policy=policy
    )
    return replace(made, spec=spec)
