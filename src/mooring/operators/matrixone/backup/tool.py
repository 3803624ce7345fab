"""A tool that writes a backup in place of the server's statement, such as upstream's mo_br: its container. Pure.

It runs beside the container of the run, which starts the tool and checks what it wrote. Variables say where the backup
belongs; files hold the keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace

from mooring.kube.objects import core
from mooring.operators.backup.run import DATA, unprivileged
from mooring.operators.backup.shell import PRELUDE
from mooring.operators.matrixone.backup.places import within
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.scratch import STOP
from mooring.operators.matrixone.backup.statement import bucket_options
from mooring.operators.matrixone.specs.pods import overlaid_container
from mooring.operators.matrixone.types import Overlay

__all__ = ["FILES", "container", "variables"]

_CONF: Final = "/mooring/conf"
SCRIPT: Final = f"""
# Runs the tool that the BackupJob names, unless the backup is there already.
[ ! -e "$run/{STOP}" ] || exit 0
"$@" || fail "the tool ended with status $?"
"""
FILES: Final = {"run.sh": PRELUDE, "data.sh": SCRIPT}


def container(request: Request, overlay: Overlay, mounts: Sequence[core.VolumeMount]) -> core.Container:
    """The container; its command is that of the overlay, and ``mounts`` have the Secrets and ``/tmp``."""
    made = core.Container(
        name=DATA,
        image=request.tool,
        command=["sh", f"{_CONF}/run.sh", *(overlay.command or ()), *(overlay.args or ())],
        env=[core.EnvVar(name=name, value=value) for name, value in variables(request).items()],
        termination_message_policy="File",  # the log of a tool may show keys
        resources=core.ResourceRequirements(requests={"cpu": "50m", "memory": "128Mi"}),
        security_context=unprivileged(),
        volume_mounts=[
            core.VolumeMount(name="conf", mount_path=_CONF, read_only=True),
            core.VolumeMount(name="run", mount_path="/mooring/run"),
            *mounts,
        ],
    )
    return overlaid_container(made, replace(overlay, command=None, args=None))


def variables(request: Request) -> dict[str, str]:
    """The environment of the tool: no secrets, only the directories that hold them."""
    place = request.places[-1]
    location = within(request.root, place)
    made = {
        "ID": place.rpartition("/")[2],
        "HOST": request.host,
        "PORT": str(request.port),
        "LOGIN": f"/mooring/secrets/{request.login}",
        "PARALLELISM": str(request.parallelism),
    }
    if location.s3 is not None:
        made |= {name.upper(): value for name, value in bucket_options(location.s3).items()}
        if location.s3.secret_ref is not None:
            made["KEYS"] = f"/mooring/secrets/{location.s3.secret_ref.name}"
    elif location.file_system is not None:
        made["PATH"] = location.file_system.path or "/"
    return {f"BACKUP_{name}": value for name, value in made.items()}
