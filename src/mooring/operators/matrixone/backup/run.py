"""The Job of a run. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from mooring.kube.object import Object, owner_reference
from mooring.kube.objects import batch, core, meta
from mooring.operators.backup.run import BY, FOR, OF, PURPOSE, STORE, job_name
from mooring.operators.matrixone.backup import scratch, tool
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.specs.pods import overlaid, overlaid_container
from mooring.operators.matrixone.types import Overlay
from mooring.operators.workload.containers import READ_ONLY, config_volume

__all__ = ["MatrixOneRun"]

_USER: Final = 65532
_GRACE: Final = 30
_RESOURCES: Final = core.ResourceRequirements(
    requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "512Mi"}
)


@dataclass(frozen=True, kw_only=True)
class MatrixOneRun:
    """One Job of Mooring's image."""

    purpose: str
    request: Request
    image: str
    secrets: Sequence[str] = ()
    attempt: int = 1
    overlay: Overlay = field(default_factory=Overlay)
    timeout: int = 86400
    """Seconds."""
    namespace: str = ""
    """Of a run for an object that has none."""
    server: str = ""
    """Of a test restore: the image of the throw-away server."""

    def objects(self, owner: Object, *, by: str) -> tuple[Object, ...]:
        """The Job, and before it the files of the container beside; they go with ``owner``."""
        job = self.job(owner, by=by)
        settings = self._settings(job)
        return (job,) if settings is None else (settings, job)

    def _settings(self, job: batch.Job) -> core.ConfigMap | None:
        if self.request.tool:
            data = tool.FILES
        elif self.server and self.request.target is not None:
            data = scratch.files(self.request.target)
        else:
            return None
        return core.ConfigMap(metadata=replace(job.metadata), data=data, immutable=True)

    def job(self, owner: Object, *, by: str) -> batch.Job:
        """The Job."""
        labels = {
            "app.kubernetes.io/managed-by": "mooring",
            BY: by,
            OF: owner.metadata.uid or "",
            PURPOSE: self.purpose,
        }
        notes = {FOR: owner.metadata.name or ""}
        overlay = self.overlay
        return batch.Job(
            metadata=meta.ObjectMeta(
                name=job_name(owner, self.purpose, self.attempt),
                namespace=owner.metadata.namespace or self.namespace,
                labels=labels,
                annotations=notes,
                owner_references=[owner_reference(owner)],
            ),
            spec=batch.JobSpec(
                backoff_limit=0,
                active_deadline_seconds=self.timeout,
                template=core.PodTemplateSpec(
                    metadata=meta.ObjectMeta(
                        labels={**(overlay.pod_labels or {}), **labels},
                        annotations={**(overlay.pod_annotations or {}), **notes},
                    ),
                    spec=self._pod(job_name(owner, self.purpose, self.attempt)),
                ),
            ),
        )

    def _pod(self, settings: str) -> core.PodSpec:
        volumes = [core.Volume(name="tmp", empty_dir=core.EmptyDirVolumeSource(size_limit="64Mi"))]
        mounts = [core.VolumeMount(name="tmp", mount_path="/tmp")]  # noqa: S108 - of the container
        for at, name in enumerate(dict.fromkeys(self.secrets)):
            source = core.SecretVolumeSource(secret_name=name, default_mode=READ_ONLY)
            volumes.append(core.Volume(name=f"secret-{at}", secret=source))
            path = f"/mooring/secrets/{name}"
            mounts.append(core.VolumeMount(name=f"secret-{at}", mount_path=path, read_only=True))
        container = core.Container(
            name=STORE,
            image=self.image,
            args=["agent", "matrixone", "--report=/dev/termination-log"],
            env=[core.EnvVar(name="REQUEST", value=msgspec.json.encode(self.request).decode())],
            resources=_RESOURCES,
            termination_message_policy="FallbackToLogsOnError",
            security_context=core.SecurityContext(
                allow_privilege_escalation=False, capabilities=core.Capabilities(drop=["ALL"])
            ),
            volume_mounts=mounts,
        )
        overlay = replace(self.overlay, command=None, args=None)
        if self.request.tool:  # what is about the main container is about the tool's
            overlay = replace(
                overlay,
                env_from=None,
                lifecycle=None,
                liveness_probe=None,
                readiness_probe=None,
                startup_probe=None,
            )
        pod = core.PodSpec(
            restart_policy="Never",
            automount_service_account_token=False,
            termination_grace_period_seconds=_GRACE,
            containers=[overlaid_container(container, overlay)],
            volumes=volumes,
            security_context=self._security(),
        )
        made = overlaid(pod, replace(overlay, init_containers=None, sidecar_containers=None))
        return self._with_beside(made, settings, mounts)

    def _with_beside(
        self, pod: core.PodSpec, settings: str, mounts: Sequence[core.VolumeMount]
    ) -> core.PodSpec:
        """The tool, or the throw-away server, beside the container of the run; ``settings`` is the ConfigMap with its files."""
        target = self.request.target
        more = [
            config_volume("conf", settings),
            core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(size_limit="64Mi")),
        ]
        if self.request.tool:
            beside = tool.container(self.request, self.overlay, mounts)
        elif self.server and target is not None:
            beside = scratch.server(self.server, target, self.overlay)
            more += scratch.volumes(target)
        else:
            return pod
        store, *rest = pod.containers or []
        shared = core.VolumeMount(name="run", mount_path="/mooring/run")
        store = replace(store, volume_mounts=[*(store.volume_mounts or ()), shared])
        return replace(pod, containers=[beside, store, *rest], volumes=[*(pod.volumes or ()), *more])

    def _security(self) -> core.PodSecurityContext:
        """A directory belongs to the user of the server's image, which is root unless an overlay says otherwise."""
        shared = any(
            one is not None and one.file_system is not None
            for one in (self.request.root, self.request.target)
        )
        user = 0 if shared else _USER
        return core.PodSecurityContext(
            run_as_non_root=not shared,
            run_as_user=user,
            run_as_group=user,
            fs_group=user,
            seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
        )
