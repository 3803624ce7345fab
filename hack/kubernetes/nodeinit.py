"""The first process of a node, inside of its namespaces: prepares them, starts the node's programs, reaps.

    python -m hack.kubernetes.nodeinit PLAN

node.py starts it. It ends when any of the programs does, and everything in the namespaces with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import yaml
from hack.kubernetes.network import UPLINK, ip
from hack.kubernetes.node import NAME, Layout

__all__ = ["main"]

BRIDGE = "pods"
_DEADLINE = 120.0
#: Directories of this machine that a node's programs write to by names that cannot be changed.
_COVERED = ("/run", "/var/log", "/var/lib", "/opt")
_MS_REC, _MS_PRIVATE, _MS_SHARED = 1 << 14, 1 << 18, 1 << 20


class NodeError(RuntimeError):
    """The node cannot go on; the message says what is missing."""


def prepare_mounts(layout: Layout) -> None:
    """Give the namespace its own /proc, and empty directories where the machine's must not be touched.

    Mounts are shared within the namespace, as the kubelet wants it, and with nobody outside.
    """
    place = os.path.realpath(layout.directory)
    if any(place.startswith(f"{covered}/") for covered in _COVERED):
        raise NodeError(
            f"{place} lies in one of {', '.join(_COVERED)}, which a node covers: choose another --dir"
        )
    _mount(None, "/", None, _MS_REC | _MS_PRIVATE)
    _mount("proc", "/proc", "proc", 0)
    for covered in _COVERED:
        _mount("tmpfs", covered, "tmpfs", 0)
    _mount(None, "/", None, _MS_REC | _MS_SHARED)
    for made in ("/run/lock", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers"):
        os.makedirs(made, exist_ok=True)


def _mount(source: str | None, target: str, kind: str | None, flags: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    if libc.mount(*words, flags, None):
        number = ctypes.get_errno()
        raise OSError(number, f"mount {target}: {os.strerror(number)}")


def prepare_network(layout: Layout) -> None:
    """Address the link to the machine once the keeper has put it here, and make the pods' bridge."""
    _wait("the link to the machine", lambda: Path("/proc/self/net/dev").read_text().find(f"{UPLINK}:") >= 0)
    ip("link", "set", "lo", "up")
    ip("address", "add", f"{layout.node}/30", "dev", UPLINK)
    ip("link", "set", UPLINK, "up")
    ip("route", "add", "default", "via", layout.host)
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    # Between pods of one bridge a Service's answers have to pass the rules that rewrote the question.
    for setting in ("bridge-nf-call-iptables", "bridge-nf-call-arptables"):
        path = Path(f"/proc/sys/net/bridge/{setting}")
        if path.exists():
            path.write_text("1" if setting.endswith("iptables") else "0")


def write_files(layout: Layout) -> None:
    """Write the configuration of every program."""
    place = layout.place
    (place / "cni").mkdir()
    (place / "containerd.toml").write_text(_containerd(place))
    (place / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(layout)))
    (place / "resolv.conf").write_text(f"nameserver {layout.node}\n")
    (place / "kubelet.yaml").write_text(yaml.safe_dump(_kubelet(layout)))
    (place / "kube-proxy.yaml").write_text(yaml.safe_dump(_kube_proxy(layout)))
    (place / "Corefile").write_text(_corefile(layout))


def _containerd(place: Path) -> str:
    needless = (
        "snapshotter.v1.btrfs",
        "snapshotter.v1.zfs",
        "snapshotter.v1.aufs",
        "snapshotter.v1.devmapper",
    )
    names = [f"io.containerd.{name}" for name in (*needless, "tracing.processor.v1.otlp", "internal.v1.opt")]
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{place}/containerd"
state = "/run/containerd/state"
disabled_plugins = {json.dumps(names)}
[grpc]
address = "/run/containerd/containerd.sock"
[{cri}]
sandbox_image = "localhost/pause:1"
# What a machine without the right to lower scores, without AppArmor or these pages needs.
restrict_oom_score_adj = true
disable_apparmor = true
disable_hugetlb_controller = true
tolerate_missing_hugetlb_controller = true
stream_server_address = "127.0.0.1"
[{cri}.containerd]
snapshotter = "overlayfs"
[{cri}.containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
SystemdCgroup = false
[{cri}.cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{place}/cni"
"""


def _cni(layout: Layout) -> object:
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": layout.pods}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    bridge = {"type": "bridge", "bridge": BRIDGE, "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(layout: Layout) -> object:
    pki = f"{layout.directory}/pki"
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": layout.node,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/kubelet.crt",
        "tlsPrivateKeyFile": f"{pki}/kubelet.key",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.cgroup}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "clusterDNS": [layout.dns],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{layout.place}/resolv.conf",
        "nodeStatusUpdateFrequency": "5s",
        # Changes of ConfigMaps and Secrets reach pods soon enough for tests.
        "syncFrequency": "10s",
        # Images are imported; one that a pod once asked to be pulled must not count as in need of credentials.
        "imagePullCredentialsVerificationPolicy": "NeverVerify",
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        "maxPods": 200,
    }


def _kube_proxy(layout: Layout) -> object:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "nftables",
        "clientConnection": {"kubeconfig": f"{layout.directory}/pki/kube-proxy.kubeconfig"},
        "clusterCIDR": layout.pods,
        "bindAddress": layout.node,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Zero leaves the machine's settings as they are.
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def _corefile(layout: Layout) -> str:
    return f"""\
.:53 {{
    bind {layout.node}
    errors
    ready 127.0.0.1:8181
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {layout.directory}/pki/coredns.kubeconfig
        pods insecure
        ttl 1
    }}
}}
"""


class Programs:
    """The node's programs, and how they are."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._running: dict[int, tuple[str, subprocess.Popen[bytes]]] = {}

    def start(self, name: str, *words: str | Path) -> None:
        """Start one; its output goes to the run directory's log."""
        path = Path(self._layout.directory) / "log" / f"{name}.log"
        with path.open("ab") as log:
            child = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/")
        self._running[child.pid] = (name, child)

    def hold(self) -> None:
        """Reap whatever ends in the namespace; raise when it was one of ours."""
        while True:
            pid, status = os.wait()
            if pid in self._running:
                code = os.waitstatus_to_exitcode(status)
                raise NodeError(f"{self._running[pid][0]} ended with {code}: see its log")


def run(layout: Layout) -> None:
    """Prepare the namespaces, start everything, then reap."""
    place, directory = layout.place, Path(layout.directory)
    prepare_mounts(layout)
    write_files(layout)
    programs = Programs(layout)
    programs.start("containerd", "/usr/bin/containerd", "-c", place / "containerd.toml")
    prepare_network(layout)
    _wait("containerd", lambda: _ctr("version"))
    for image in layout.images:
        if not _ctr("images", "import", image):
            raise NodeError(f"containerd does not take the image {image}")
    # The API server listens on the link, so it cannot be there much earlier.
    _wait("the API server", (place / "go").exists)
    programs.start("coredns", layout.coredns, "-conf", place / "Corefile")
    kubeconfig = f"--kubeconfig={directory}/pki/kubelet.kubeconfig"
    where = (f"--hostname-override={NAME}", f"--node-ip={layout.node}", f"--cert-dir={directory}/pki")
    kubelet = Path(layout.programs) / "kubelet"
    programs.start("kubelet", kubelet, f"--config={place}/kubelet.yaml", kubeconfig, *where)
    proxy = Path(layout.programs) / "kube-proxy"
    programs.start("kube-proxy", proxy, f"--config={place}/kube-proxy.yaml", f"--hostname-override={NAME}")
    _wait("the cluster's DNS", _dns_ready)
    (place / "ready").touch()
    programs.hold()


def _ctr(*words: str) -> bool:
    command = ["ctr", "-a", "/run/containerd/containerd.sock", "-n", "k8s.io", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and words[0] != "version":
        print(done.stderr, file=sys.stderr, flush=True)
    return done.returncode == 0


def _dns_ready() -> bool:
    try:
        with urllib.request.urlopen("http://127.0.0.1:8181/ready", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _wait(what: str, check: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE
    while not check():
        if time.monotonic() > deadline:
            raise NodeError(f"no {what} within {_DEADLINE:g} s")
        time.sleep(0.05)


def main() -> None:
    """Run one node until it cannot go on."""
    raw = json.loads(Path(sys.argv[1]).read_text())
    try:
        run(Layout(**{**raw, "images": tuple(raw["images"])}))
    except (NodeError, OSError) as failed:
        print(f"node: {failed}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
