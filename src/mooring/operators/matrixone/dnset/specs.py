"""A directory of a transaction node's pod that outlives its container."""

from __future__ import annotations

from msgspec.structs import replace

from mooring.kube.objects import apps, core
from mooring.operators.matrixone.logset.specs import DATA
from mooring.operators.matrixone.storage import DATA_PATH

__all__ = ["lasting"]


def lasting(made: apps.StatefulSet) -> apps.StatefulSet:
    """The set with a directory for its pods' data, where no claim is declared for it.

    It holds which shard the node runs. Measured on 1.2.4: a node that was killed and restarted within seconds without that
    directory acknowledged writes that were lost for good; with it none was.
    """
    assert made.spec is not None
    assert made.spec.template is not None
    if any(one.metadata.name == DATA for one in made.spec.volume_claim_templates or ()):
        return made
    pod = made.spec.template.spec
    assert pod is not None
    main, *rest = pod.containers or []
    if any(one.mount_path == DATA_PATH for one in main.volume_mounts or ()):
        return made  # an overlay brings one
    mounts = [*(main.volume_mounts or ()), core.VolumeMount(name=DATA, mount_path=DATA_PATH)]
    volume = core.Volume(name=DATA, empty_dir=core.EmptyDirVolumeSource())
    changed = replace(
        pod,
        containers=[replace(main, volume_mounts=mounts), *rest],
        volumes=[*(pod.volumes or ()), volume],
    )
    return replace(made, spec=replace(made.spec, template=replace(made.spec.template, spec=changed)))
