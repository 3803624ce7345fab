"""The Job of one run, from what an operator wants done. Pure."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import msgspec

from mooring.actor import digest
from mooring.kube.object import Object, owner_reference
from mooring.kube.objects import batch, core, meta
from mooring.objectstore import Target
from mooring.operators.backup.agent import Draft
from mooring.operators.backup.shell import PRELUDE
from mooring.operators.workload.containers import READ_ONLY, config_volume

__all__ = [
    "AGENT_RESOURCES",
    "BY",
    "DATA",
    "FOR",
    "OF",
    "PURPOSE",
    "STORE",
    "Action",
    "Run",
    "agent_image",
    "job_name",
    "secrets_of",
    "target_mounts",
    "target_volumes",
    "unprivileged",
]

BY: Final = "mooring.dev/run-by"
"""Label of Jobs and pods: the actor whose run it is; informers select by it."""
OF: Final = "mooring.dev/run-of"
"""Label: UID of the object it is for."""
PURPOSE: Final = "mooring.dev/run"
"""Label: backup, restore, verify, delete ..."""
FOR: Final = "mooring.dev/run-for"
"""Annotation: name of the object it is for."""
DATA: Final = "data"
"""The container with the database's image."""
STORE: Final = "store"
"""The container with Mooring's image."""
Action = Literal["put", "get", "check", "delete"]
_GRACE: Final = 20


@dataclass(frozen=True, kw_only=True)
class Run:
    """One Job: what moves, from where to where, and by which script.

    ``action`` is what ``mooring objects`` does. ``check`` and ``delete`` need no script and no image of the database.
    """

    purpose: str
    """backup, restore, verify, delete ...: part of the Job's name, and the label `PURPOSE`."""
    action: Action
    target: Target
    prefixes: Sequence[str]
    """Where the backup is; of a deletion those of every try."""
    agent_image: str
    attempt: int = 1
    parts: Sequence[str] = ("data",)
    draft: Draft | None = None
    """Of a backup: the manifest, as far as it is known."""
    image: str = ""
    """The database's; "" for runs without a script."""
    script: str = ""
    """See `shell` for what it can rely on."""
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files beside the script, in ``$conf``; no secrets."""
    env: Mapping[str, str] = field(default_factory=dict)
    """No secrets: mount these."""
    volumes: Sequence[core.Volume] = ()
    mounts: Sequence[core.VolumeMount] = ()
    """Of the container `DATA`."""
    before: Sequence[core.Container] = ()
    """Run to their end before these two; their termination message is an `agent.Result` where they fail."""
    resources: core.ResourceRequirements | None = None
    security: core.PodSecurityContext | None = None
    """Both containers run as its user: they share FIFOs. Default: 65532."""
    bandwidth: str = ""
    timeout: int = 86400
    """Seconds."""
    node_selector: Mapping[str, str] | None = None
    node: str = ""
    """The node it must run on, where it mounts a claim that a pod there holds; ``affinity`` does not count then."""
    tolerations: Sequence[core.Toleration] | None = None
    affinity: core.Affinity | None = None
    priority_class: str | None = None
    pull_policy: str | None = None
    pull_secrets: Sequence[core.LocalObjectReference] | None = None
    agent_resources: core.ResourceRequirements | None = None

    def objects(self, owner: Object, *, by: str) -> tuple[core.ConfigMap, batch.Job]:
        """The ConfigMap with script and request, named by content, and the Job; both go with ``owner``."""
        settings = self._settings(owner, by)
        return settings, self._job(owner, by, settings.metadata.name or "")

    def job_name(self, owner: Object) -> str:
        """The Job's name."""
        return job_name(owner, self.purpose, self.attempt)

    def _settings(self, owner: Object, by: str) -> core.ConfigMap:
        data = {"target.json": msgspec.json.encode(self.target).decode(), **self.files}
        if self.script:
            data |= {"run.sh": PRELUDE, "data.sh": self.script}
        if self.draft is not None:
            data["manifest.json"] = msgspec.json.encode(self.draft).decode()
        name = f"{self.job_name(owner)[:-9]}-{digest(data)[:8]}"
        return core.ConfigMap(metadata=_meta(owner, name, self._labels(owner, by)), data=data, immutable=True)

    def _job(self, owner: Object, by: str, settings: str) -> batch.Job:
        labels = self._labels(owner, by)
        template = core.PodTemplateSpec(
            metadata=meta.ObjectMeta(labels=labels, annotations={FOR: owner.metadata.name or ""}),
            spec=self._pod(settings),
        )
        return batch.Job(
            metadata=_meta(owner, self.job_name(owner), labels),
            spec=batch.JobSpec(
                backoff_limit=0,
                active_deadline_seconds=self.timeout,
                template=template,
            ),
        )

    def _labels(self, owner: Object, by: str) -> dict[str, str]:
        return {
            "app.kubernetes.io/managed-by": "mooring",
            BY: by,
            OF: owner.metadata.uid or "",
            PURPOSE: self.purpose,
        }

    def _pod(self, settings: str) -> core.PodSpec:
        containers = [self._store()]
        if self.script:
            containers.insert(0, self._data())
        selector = dict(self.node_selector or {})
        return core.PodSpec(
            restart_policy="Never",
            automount_service_account_token=False,
            termination_grace_period_seconds=_GRACE,
            init_containers=list(self.before) or None,
            containers=containers,
            volumes=[*self._volumes(settings), *self.volumes],
            security_context=self.security or _security(),
            node_selector=selector or None,
            tolerations=list(self.tolerations) if self.tolerations else None,
            affinity=_on_node(self.node) if self.node else self.affinity,
            priority_class_name=self.priority_class,
            image_pull_secrets=list(self.pull_secrets) if self.pull_secrets else None,
        )

    def _volumes(self, settings: str) -> list[core.Volume]:
        volumes = [
            config_volume("conf", settings),
            core.Volume(name="shared", empty_dir=core.EmptyDirVolumeSource(size_limit="64Mi")),
            core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource(size_limit="64Mi")),
        ]
        return [*volumes, *target_volumes(self.target)]

    def _data(self) -> core.Container:
        return core.Container(
            name=DATA,
            image=self.image,
            image_pull_policy=self.pull_policy,
            command=["sh", "/mooring/conf/run.sh"],
            env=[core.EnvVar(name=name, value=value) for name, value in self.env.items()] or None,
            resources=self.resources,
            termination_message_policy="FallbackToLogsOnError",
            security_context=unprivileged(),
            volume_mounts=[*_shared(), *self.mounts],
        )

    def _store(self) -> core.Container:
        command = [
            "objects",
            self.action,
            "--target=/mooring/conf/target.json",
            "--report=/dev/termination-log",
        ]
        command += [f"--prefix={prefix}" for prefix in self.prefixes]
        if self.action in ("put", "get"):
            command += [f"--part={part}" for part in self.parts]
        if self.draft is not None:
            command.append("--manifest=/mooring/conf/manifest.json")
        if self.bandwidth:
            command.append(f"--bandwidth={self.bandwidth}")
        mounts = [*_shared(), core.VolumeMount(name="tmp", mount_path="/tmp")]  # noqa: S108 - of the container
        mounts += target_mounts(self.target)
        return core.Container(
            name=STORE,
            image=self.agent_image,
            args=command,
            resources=self.agent_resources or AGENT_RESOURCES,
            termination_message_policy="FallbackToLogsOnError",
            security_context=unprivileged(),
            volume_mounts=mounts,
        )


AGENT_RESOURCES: Final = core.ResourceRequirements(
    requests={"cpu": "50m", "memory": "96Mi"}, limits={"memory": "384Mi"}
)


def agent_image() -> str:
    """Mooring's own image, from the environment variable MOORING_IMAGE that the chart sets; ``mooring`` without it.

    The embedded control plane's catalog resolves that name to this very installation.
    """
    return os.environ.get("MOORING_IMAGE") or "mooring:latest"


def job_name(owner: Object, purpose: str, attempt: int) -> str:
    """Name of a Job: the object's, as far as it fits, the purpose, and a digest of its UID and of the try.

    57 characters at most, so that its pods' names fit a label.
    """
    text = hashlib.sha256(f"{owner.metadata.uid}/{purpose}/{attempt}".encode()).hexdigest()[:8]
    return f"{(owner.metadata.name or '')[:38].rstrip('-.').replace('.', '-')}-{purpose[:9]}-{text}"


def secrets_of(target: Target) -> list[str]:
    """Names of the Secrets that a target needs: credentials, keys."""
    found = [one.credentials_secret for one in (target.s3, target.gcs, target.azure) if one is not None]
    if target.encryption is not None:
        found.append(target.encryption.secret)
    return list(dict.fromkeys(name for name in found if name))


def target_volumes(target: Target) -> list[core.Volume]:
    """What a pod that reads or writes a target mounts: its Secrets, its claim or directory."""
    volumes = []
    for at, name in enumerate(secrets_of(target)):
        secret = core.SecretVolumeSource(secret_name=name, default_mode=READ_ONLY)
        volumes.append(core.Volume(name=f"secret-{at}", secret=secret))
    if (claim := target.claim) is not None:
        source = core.PersistentVolumeClaimVolumeSource(claim_name=claim.name)
        volumes.append(core.Volume(name="target", persistent_volume_claim=source))
    if (directory := target.directory) is not None:
        path = core.HostPathVolumeSource(path=directory.path, type="Directory")
        volumes.append(core.Volume(name="target", host_path=path))
    return volumes


def target_mounts(target: Target) -> list[core.VolumeMount]:
    """Where Mooring's programs look for these volumes."""
    mounts = []
    for at, name in enumerate(secrets_of(target)):
        path = f"/mooring/secrets/{name}"
        mounts.append(core.VolumeMount(name=f"secret-{at}", mount_path=path, read_only=True))
    if target.claim is not None:
        mounts.append(core.VolumeMount(name="target", mount_path="/mooring/target"))
    if target.directory is not None:
        mounts.append(core.VolumeMount(name="target", mount_path=target.directory.path))
    return mounts


def _meta(owner: Object, name: str, labels: Mapping[str, str]) -> meta.ObjectMeta:
    return meta.ObjectMeta(
        name=name,
        namespace=owner.metadata.namespace,
        labels=dict(labels),
        annotations={FOR: owner.metadata.name or ""},
        owner_references=[owner_reference(owner)],
    )


def _shared() -> list[core.VolumeMount]:
    return [
        core.VolumeMount(name="conf", mount_path="/mooring/conf", read_only=True),
        core.VolumeMount(name="shared", mount_path="/mooring/run"),
    ]


def _on_node(name: str) -> core.Affinity:
    """Through the scheduler: a claim of the target that waits for its first consumer is bound by it alone."""
    field = core.NodeSelectorRequirement(key="metadata.name", operator="In", values=[name])
    nodes = core.NodeSelector(node_selector_terms=[core.NodeSelectorTerm(match_fields=[field])])
    return core.Affinity(
        node_affinity=core.NodeAffinity(required_during_scheduling_ignored_during_execution=nodes)
    )


def _security() -> core.PodSecurityContext:
    user = 65532
    return core.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=user,
        run_as_group=user,
        fs_group=user,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
    )


def unprivileged() -> core.SecurityContext:
    """Of a container that may gain nothing."""
    return core.SecurityContext(
        allow_privilege_escalation=False, capabilities=core.Capabilities(drop=["ALL"])
    )
