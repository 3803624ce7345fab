"""What a Node object says of this machine."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from ipaddress import IPv4Address
from pathlib import Path
from uuid import UUID, uuid5

from mooring.cache.clock import rfc3339
from mooring.kube.objects.core import (
    ContainerImage,
    Node,
    NodeAddress,
    NodeCondition,
    NodeStatus,
    NodeSystemInfo,
)
from mooring.kube.objects.meta import ObjectMeta
from mooring.local.node.imagestore import LoadedImage

__all__ = ["OWN_LABEL", "capacity", "images_shown", "node_object", "node_status"]

OWN_LABEL = "mooring.dev/node-agent"
"""Marks the nodes of this agent, so that it knows its own from a time when they had other names."""

_NAMES = UUID("4f2c8f3e-8d0b-4c0f-9d3e-6a1f0c9b7d21")
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}
_KUBERNETES = "v1.36.0"
_IMAGES_SHOWN = 50


def capacity(data_dir: Path, *, pods: int) -> dict[str, int | float | str]:
    """CPU, memory, disk and pods of the machine, as the API writes quantities."""
    disk = shutil.disk_usage(data_dir)
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{_memory_kib()}Ki",
        "ephemeral-storage": f"{disk.total // 1024}Ki",
        "pods": str(pods),
    }


def node_object(name: str, *, annotations: Mapping[str, str], zone: str = "") -> Node:
    """The part of a Node that its agent owns; the labels every node has."""
    architecture = _ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {
        OWN_LABEL: "true",
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": architecture,
    }
    if zone:
        labels["topology.kubernetes.io/zone"] = zone
    return Node(metadata=ObjectMeta(name=name, labels=labels, annotations=dict(annotations)))


def node_status(
    name: str, address: IPv4Address, resources: dict[str, int | float | str], *, now: datetime, version: str
) -> NodeStatus:
    """Addresses, capacity, conditions and system information."""
    time = rfc3339(now)
    facts = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "the node agent of mooring is ready"),
    )
    conditions = [
        NodeCondition(
            type=kind,
            status=status,
            reason=reason,
            message=message,
            last_heartbeat_time=time,
            last_transition_time=time,
        )
        for kind, status, reason, message in facts
    ]
    return NodeStatus(
        addresses=[
            NodeAddress(type="InternalIP", address=str(address)),
            NodeAddress(type="Hostname", address=name),
        ],
        capacity=resources,
        allocatable=resources,
        conditions=conditions,
        node_info=_system(name, version),
    )


def images_shown(images: Iterable[LoadedImage]) -> list[ContainerImage]:
    """The loaded images as a node's status lists them: the largest first, at most fifty."""
    shown = [
        ContainerImage(
            names=[
                *dict.fromkeys(image.reference(name) for name in image.names if image.digest),
                *image.names,
            ],
            size_bytes=image.size,
        )
        for image in images
        if image.names
    ]
    return sorted(shown, key=lambda image: -(image.size_bytes or 0))[:_IMAGES_SHOWN]


def _system(name: str, version: str) -> NodeSystemInfo:
    machine = _read("/etc/machine-id") or platform.node()
    return NodeSystemInfo(
        machine_id=uuid5(_NAMES, f"{machine}/{name}").hex,
        system_uuid=str(uuid5(_NAMES, machine)),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        kernel_version=platform.release(),
        os_image=_os_image(),
        container_runtime_version=f"mooring://{version}",
        kubelet_version=f"{_KUBERNETES}+mooring",
        kube_proxy_version="",
        operating_system="linux",
        architecture=_ARCHITECTURES.get(platform.machine(), platform.machine()),
    )


def _os_image() -> str:
    with suppress(OSError):
        return platform.freedesktop_os_release().get("PRETTY_NAME", "Linux")
    return "Linux"


def _memory_kib() -> int:
    for line in _read("/proc/meminfo").splitlines():
        if line.startswith("MemTotal:"):
            return int(line.split()[1])
    return 0


def _read(path: str) -> str:
    with suppress(OSError):
        return Path(path).read_text().strip()
    return ""
