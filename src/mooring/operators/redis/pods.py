"""What the pods of both Redis operators have in common: exporter, probes, mounts, and the Secret with the passwords."""

from __future__ import annotations

from typing import Final

import msgspec

from mooring.kube.objects import core
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.users.accounts import EXPORTER, OPERATOR
from mooring.operators.redis.users.held import ENTRY, Access, start_lines
from mooring.operators.redis.users.template import FILE
from mooring.operators.workload.containers import FROM_LOG, READ_ONLY, encoded, field_value, probe
from mooring.operators.workload.credentials import Kept

__all__ = [
    "AUTH_FILES",
    "DATA",
    "EXPORTER_PORT",
    "MOUNTS",
    "auth_volume",
    "exporter",
    "password_entries",
    "server",
]

DATA: Final = "redis-data"
"""The volume with the data, where the user names none."""
AUTH_FILES: Final = ("password", "exporter.json", FILE, OPERATOR)
"""Entries of the cluster's Secret that pods with servers mount."""
EXPORTER_PORT: Final = 9121
_AUTH: Final = core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True)
MOUNTS: Final = (
    core.VolumeMount(name="conf", mount_path="/mooring/conf", read_only=True),
    _AUTH,
    core.VolumeMount(name="run", mount_path="/mooring/run"),
)
"""Scripts, passwords, and what a start renders in memory."""


def server(
    *,
    image: str | None,
    pull_policy: str | None,
    env: list[core.EnvVar],
    ports: dict[str, int],
    data: core.VolumeMount,
    stop: str,
    ready_period: int,
    resources: core.ResourceRequirements | None,
) -> core.Container:
    """The redis container; ``stop`` is the script that is run before its end, ``ready_period`` is in seconds."""
    before_end = core.ExecAction(command=["sh", f"/mooring/conf/{stop}"])
    return core.Container(
        name="redis",
        image=image,
        image_pull_policy=pull_policy,
        command=["sh", "/mooring/conf/start.sh"],
        termination_message_policy=FROM_LOG,
        env=env,
        ports=[
            core.ContainerPort(name=name, container_port=port, protocol="TCP") for name, port in ports.items()
        ],
        resources=resources,
        startup_probe=probe("live.sh", period=1, failures=600),
        liveness_probe=probe("live.sh", period=10, failures=6),
        readiness_probe=probe("ready.sh", period=ready_period, failures=2),
        lifecycle=core.Lifecycle(pre_stop=core.LifecycleHandler(exec=before_end)),
        volume_mounts=[*MOUNTS, data],
    )


def exporter(
    image: str | None,
    *,
    pull_policy: str,
    resources: core.ResourceRequirements | None = None,
    security_context: core.SecurityContext | None = None,
    tls: bool = False,
    account: bool = False,
) -> core.Container:
    """Prometheus' exporter beside the server; it finds the password in a file, and asks its own pod alone.

    With ``account`` it uses the account `EXPORTER`, else the default user.
    """
    user = [core.EnvVar(name="REDIS_USER", value=EXPORTER)] if account else []
    unchecked = [core.EnvVar(name="REDIS_EXPORTER_SKIP_TLS_VERIFICATION", value="true")] if tls else []
    return core.Container(
        name="redis-exporter",
        image=image,
        image_pull_policy=pull_policy,
        env=[
            core.EnvVar(name="REDIS_ALIAS", value_from=field_value("metadata.name")),
            core.EnvVar(name="REDIS_ADDR", value=_local(tls)),
            core.EnvVar(name="REDIS_PASSWORD_FILE", value="/mooring/auth/exporter.json"),
            *user,
            *unchecked,
        ],
        ports=[core.ContainerPort(name="http-metrics", container_port=EXPORTER_PORT, protocol="TCP")],
        resources=resources,
        volume_mounts=[_AUTH],
        security_context=security_context,
    )


def auth_volume(secret: str, *keys: str) -> core.Volume:
    """Entries of the cluster's Secret as files; all of them where none is named."""
    source = core.SecretVolumeSource(
        secret_name=secret,
        items=[core.KeyToPath(key=key, path=key) for key in keys] or None,
        optional=True,
        default_mode=READ_ONLY,
    )
    return core.Volume(name="auth", secret=source)


def _local(tls: bool) -> str:
    return f"rediss://localhost:{TLS_PORT}" if tls else "redis://localhost:6379"


def password_entries(kept: Kept, access: Access, *, tls: bool = False, **further: str) -> dict[str, str]:
    """The data of the cluster's Secret.

    The passwords, the operator's accounts and what servers accepted of the users, what the exporter reads, and what is
    not empty of ``further``.
    """
    places = [
        _local(False),
        *([_local(True)] if tls else []),
    ]  # both are asked while one port follows the other
    account = kept.accounts.get(EXPORTER)
    users = {one.replace("://", f"://{EXPORTER}@"): account for one in places} if account else {}
    lines = start_lines(access, kept)
    entries = {
        "exporter.json": msgspec.json.encode({**dict.fromkeys(places, kept.password), **users}).decode(),
        **kept.accounts,
        **({FILE: lines, ENTRY: msgspec.json.encode(access.held).decode()} if lines else {}),
        **{str(label): text for label, text in kept.named().items()},
        **{name: text for name, text in further.items() if text},
    }
    return {name: encoded(text) for name, text in entries.items()}
