"""Parts of pods and Secrets that operators declare alike."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from mooring.kube.objects import core, meta

__all__ = [
    "FROM_LOG",
    "READ_ONLY",
    "apart",
    "config_volume",
    "encoded",
    "field_value",
    "memory_volume",
    "probe",
]

FROM_LOG = "FallbackToLogsOnError"
"""Termination message policy of our servers: the kubelet keeps the end of the log of one that failed; see `last_words`."""
READ_ONLY = 0o444
"""Mode of files that a pod only reads."""


def apart(labels: Mapping[str, str]) -> core.Affinity:
    """Pods with these labels on different hosts, where possible."""
    term = core.PodAffinityTerm(
        label_selector=meta.LabelSelector(match_labels=dict(labels)), topology_key="kubernetes.io/hostname"
    )
    weighted = core.WeightedPodAffinityTerm(weight=100, pod_affinity_term=term)
    return core.Affinity(
        pod_anti_affinity=core.PodAntiAffinity(
            preferred_during_scheduling_ignored_during_execution=[weighted]
        )
    )


def probe(script: str, *, period: int, failures: int) -> core.Probe:
    """One of our scripts, asked every ``period`` seconds; so many failures in a row count."""
    return core.Probe(
        exec=core.ExecAction(command=["sh", f"/mooring/conf/{script}"]),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def field_value(path: str) -> core.EnvVarSource:
    """A field of the pod itself, as the value of a variable."""
    return core.EnvVarSource(field_ref=core.ObjectFieldSelector(field_path=path))


def config_volume(name: str, config_map: str) -> core.Volume:
    """A ConfigMap as read-only files."""
    return core.Volume(
        name=name, config_map=core.ConfigMapVolumeSource(name=config_map, default_mode=READ_ONLY)
    )


def memory_volume() -> core.Volume:
    """Rendered configuration holds the password: it never touches a disk."""
    return core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="1Mi"))


def encoded(text: str) -> str:
    """As the data of a Secret is sent."""
    made: str = msgspec.to_builtins(text.encode())
    return made
