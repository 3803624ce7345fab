"""The node of a cluster, as the keeper sees it: started, joined to this machine, told when it may register.

All of it (containerd, the pods, kubelet, kube-proxy, the cluster's DNS) lives in namespaces of its own, for
processes, mounts and network, under one first process (nodeinit.py). When that dies the kernel ends every process and
drops every mount, interface and packet filter rule with it; cgroups and files are all that is left to remove.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from hack.kubernetes import cgroups
from hack.kubernetes.network import Network
from hack.kubernetes.process import spawn_bound

__all__ = ["NAME", "PACKAGES", "Layout", "command", "first_process", "objects", "write_plan"]

NAME = "node-1"
#: Program -> Debian package of what a node takes, beside what the tree's own builds give.
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "conntrack": "conntrack",
    "nft": "nftables",
    "ip": "iproute2",
}
#: Volumes made in advance: claims are bound to them one to one, and a used one is not used again.
VOLUMES = 60
_DEADLINE = 10.0


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What the first process needs to know; paths as strings, so that it can be written as JSON."""

    directory: str
    """The run directory."""
    programs: str
    """Directory of kubelet and kube-proxy."""
    coredns: str
    images: tuple[str, ...]
    host: str
    node: str
    pods: str
    dns: str
    cgroup: str

    @property
    def place(self) -> Path:
        """The node's own directory."""
        return Path(self.directory) / "node"


def write_plan(
    directory: Path, network: Network, *, programs: Path, coredns: Path, images: Sequence[Path]
) -> Layout:
    """Prepare the run directory and the cgroups for a node."""
    layout = Layout(
        directory=str(directory),
        programs=str(programs),
        coredns=str(coredns),
        images=tuple(map(str, images)),
        host=str(network.host),
        node=str(network.node),
        pods=str(network.pods),
        dns=str(network.dns),
        cgroup=cgroups.name_of(directory),
    )
    layout.place.mkdir()
    (layout.place / "plan.json").write_text(json.dumps(asdict(layout)))
    for number in range(VOLUMES):
        (directory / "volumes" / f"{number:02}").mkdir(parents=True)
    cgroups.make(layout.cgroup)
    return layout


def command(directory: Path) -> subprocess.Popen[bytes]:
    """Start the first process in its namespaces; it dies with the calling thread, and takes all else along."""
    unshare = [
        "/usr/bin/unshare",
        "--mount",
        "--net",
        "--pid",
        "--ipc",
        "--uts",
        "--fork",
        "--kill-child=SIGKILL",
    ]
    init = [sys.executable, "-m", "hack.kubernetes.nodeinit", str(directory / "node" / "plan.json")]
    root = Path(__file__).resolve().parents[2]
    return spawn_bound([*unshare, "--", *init], cwd=root, log=directory / "log" / "node.log")


def first_process(unshare: subprocess.Popen[bytes]) -> int:
    """The pid, out here, of the first process in there."""
    until = time.monotonic() + _DEADLINE
    path = Path(f"/proc/{unshare.pid}/task/{unshare.pid}/children")
    while time.monotonic() < until:
        children = path.read_text().split() if path.exists() else []
        if children:
            return int(children[0])
        if unshare.poll() is not None:
            break
        time.sleep(0.01)
    raise OSError("the node's namespaces could not be made: see node.log (root is needed)")


def objects(layout: Layout) -> Iterator[tuple[str, dict[str, Any]]]:
    """What a cluster has beside its node, as paths to create at and objects: DNS, a default class, volumes."""
    rbac, labels = "/apis/rbac.authorization.k8s.io/v1", {"kubernetes.io/service-name": "kube-dns"}
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:coredns"}
    user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "system:coredns"}
    ports = [{"name": f"dns-{kind.lower()}", "port": 53, "protocol": kind} for kind in ("UDP", "TCP")]
    yield f"{rbac}/clusterroles", {"metadata": {"name": "system:coredns"}, "rules": rules}
    yield (
        f"{rbac}/clusterrolebindings",
        {"metadata": {"name": "system:coredns"}, "roleRef": role, "subjects": [user]},
    )
    yield (
        "/api/v1/namespaces/kube-system/services",
        {"metadata": {"name": "kube-dns"}, "spec": {"clusterIP": layout.dns, "ports": ports}},
    )
    yield (
        "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices",
        {
            "metadata": {"name": "kube-dns", "labels": labels},
            "addressType": "IPv4",
            "endpoints": [{"addresses": [layout.node], "conditions": {"ready": True}}],
            "ports": ports,
        },
    )
    default = {"storageclass.kubernetes.io/is-default-class": "true"}
    yield (
        "/apis/storage.k8s.io/v1/storageclasses",
        {
            "metadata": {"name": "local", "annotations": default},
            "provisioner": "kubernetes.io/no-provisioner",
            "volumeBindingMode": "WaitForFirstConsumer",
        },
    )
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NAME]}
    for number in range(VOLUMES):
        yield (
            "/api/v1/persistentvolumes",
            {
                "metadata": {"name": f"local-{number:02}"},
                "spec": {
                    "storageClassName": "local",
                    "capacity": {"storage": "20Gi"},
                    # There is one node: its pods can share a volume.
                    "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
                    "persistentVolumeReclaimPolicy": "Retain",
                    "local": {"path": f"{layout.directory}/volumes/{number:02}"},
                    "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
                },
            },
        )
