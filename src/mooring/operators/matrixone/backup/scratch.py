"""The throw-away server of a test restore: all of MatrixOne in one process, on the loopback address of the run's pod. Pure.

It starts on a copy of the backup as a restored cluster does, and takes no connection from outside of its pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mooring.kube.objects import core
from mooring.operators.backup.run import DATA, unprivileged
from mooring.operators.backup.shell import PRELUDE
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.storage import (
    BACKUP_SERVICE,
    DATA_PATH,
    file_services,
    restore_services,
    storage_env,
    storage_mounts,
    storage_volumes,
)
from mooring.operators.matrixone.types import Overlay, SharedStorageCache, SharedStorageProvider

__all__ = ["GO", "HOST", "SQL_PORT", "STOP", "files", "server", "volumes"]

HOST: Final = "127.0.0.1"
SQL_PORT: Final = 6001
GO, STOP = "go", "stop"
"""Files in the directory of the run: the copy is there; the server is of no use any more."""
_CONF: Final = "/mooring/conf"
_SCRATCH: Final = "scratch"
_STORE: Final = "00000000-0000-0000-0000-000000000000"
_REPLICA: Final = 131072
_MEMORY: Final = "128Mi"
SCRIPT: Final = rf"""
# Runs the server on the copy until the run says stop. Runs in the cluster's image.
set -eu
until [ -e "$run/{GO}" ]; do
  [ ! -e "$run/{STOP}" ] || exit 0
  sleep 0.2
done
scratch={DATA_PATH}
cd "$scratch"
"${{MO_SERVICE:-/mo-service}}" -launch "$conf/launch.toml" 2>"$scratch/errors" &
server=$!
until [ -e "$run/{STOP}" ]; do
  kill -0 "$server" 2>/dev/null || {{
    tail -n 50 "$scratch/errors" >&2
    fail "the server ended on the restored data: $(grep -m 1 -i -e '^panic' -e '^fatal' "$scratch/errors" | cut -c1-300)"
  }}
  sleep 0.2
done
# Its data is deleted: nothing of it is to be saved.
kill -9 "$server" 2>/dev/null || true
wait "$server" 2>/dev/null || true
"""


def files(storage: SharedStorageProvider) -> dict[str, str]:
    """The configuration, and the script beside it; ``storage`` is where the copy is."""
    shared = file_services(storage, SharedStorageCache(memory_cache_size=_MEMORY))
    launch = {f"{name}services": [f"{_CONF}/{name}.toml"] for name in ("log", "tn", "cn")}
    tables = {"launch": launch, "log": _log(storage), "tn": {**shared, **_tn()}, "cn": {**shared, **_cn()}}
    made = {f"{name}.toml": toml.render(table) for name, table in tables.items()}
    return {**made, "run.sh": PRELUDE, "data.sh": SCRIPT}


def server(image: str, storage: SharedStorageProvider, overlay: Overlay) -> core.Container:
    """The container."""
    mounts = [
        core.VolumeMount(name="conf", mount_path=_CONF, read_only=True),
        core.VolumeMount(name="run", mount_path="/mooring/run"),
        core.VolumeMount(name=_SCRATCH, mount_path=DATA_PATH),
        core.VolumeMount(name="tmp", mount_path="/tmp"),  # noqa: S108 - of the container
        *storage_mounts(storage),
    ]
    if storage.file_system is not None:
        mounts += overlay.volume_mounts or ()
    return core.Container(
        name=DATA,
        image=image,
        image_pull_policy=overlay.image_pull_policy or None,
        command=["sh", f"{_CONF}/run.sh"],
        env=storage_env(storage) or None,
        resources=core.ResourceRequirements(requests={"cpu": "250m", "memory": "1Gi"}),
        termination_message_policy="FallbackToLogsOnError",
        security_context=unprivileged(),
        volume_mounts=mounts,
    )


def volumes(storage: SharedStorageProvider) -> list[core.Volume]:
    """What the container mounts beside its configuration and the directory of the run."""
    return [
        core.Volume(name=_SCRATCH, empty_dir=core.EmptyDirVolumeSource()),
        *storage_volumes(storage),
    ]


def _log(storage: SharedStorageProvider) -> dict[str, Any]:
    return {
        "service-type": "LOG",
        **restore_services(storage),
        "logservice": {
            "deployment-id": 1,
            "uuid": _STORE,
            "raft-address": f"{HOST}:32000",
            "logservice-address": f"{HOST}:32001",
            "gossip-address": f"{HOST}:32002",
            "gossip-seed-addresses": [f"{HOST}:32002"],
            "gossip-allow-self-as-seed": True,
            "BootstrapConfig": {
                "bootstrap-cluster": True,
                "num-of-log-shards": 1,
                "num-of-dn-shards": 1,
                "num-of-log-shard-replicas": 1,
                "init-hakeeper-members": [f"{_REPLICA}:{_STORE}"],
                "restore": {"file-path": f"{BACKUP_SERVICE}://hk_data"},
            },
        },
        **_QUIET,
    }


def _tn() -> dict[str, Any]:
    return {
        "service-type": "DN",
        "hakeeper-client": {"service-addresses": [f"{HOST}:32001"]},
        "dn": {
            "uuid": "00000000-0000-0000-0000-100000000000",
            **_at(31010),
            "LogtailServer": _at(32003),
            "lockservice": _at(31012),
            "shardservice": _at(31014),
        },
        **_QUIET,
    }


def _cn() -> dict[str, Any]:
    return {
        "service-type": "CN",
        "hakeeper-client": {"service-addresses": [f"{HOST}:32001"]},
        "cn": {
            "uuid": "00000000-0000-0000-0000-200000000000",
            "role": "TP",
            **_at(6002),
            "sql-address": f"{HOST}:{SQL_PORT}",
            "lockservice": _at(6003),
            # Three s: that is the server's key.
            "query-service": {
                "address": {"listen-address": f"{HOST}:6004", "service-addresss": f"{HOST}:6004"}
            },
            "shardservice": _at(6006),
            "frontend": {"host": HOST, "port": SQL_PORT, "unix-socket": f"{DATA_PATH}/mysql.sock"},
        },
        **_QUIET,
    }


_QUIET: Final[Mapping[str, Any]] = {"observability": {"disableTrace": True, "disableMetric": True}}


def _at(port: int) -> dict[str, Any]:
    """Below 32768: above, connections of the server itself may have the port."""
    return {"listen-address": f"{HOST}:{port}", "service-address": f"{HOST}:{port}"}
