"""From a bare machine to a healthy Redis on a real node: seconds of every step, and the size of the image.

    python -m bench.bare [--cold]

Installs what a node takes, builds what is not in the cache, starts a cluster with a node, installs the chart and
applies examples/redis-sentinel.yaml: what a user does, in that order, and nothing beside it. With `--cold` the cache is
an empty one that is thrown away afterwards, Go's module and build caches too, as on a machine that has never seen the
tree: minutes of two processors, and 6 GB below /var/tmp. Packages of apt that are installed already are not installed
again; the line says so. Needs root.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from hack.build import helm
from hack.images.debian import DebianError
from hack.images.recipes import build as build_image
from hack.kubernetes.binaries import (
    KUBECTL,
    NODE,
    NODE_MODULE,
    SERVERS,
    BuildError,
    build,
    build_module,
)
from hack.kubernetes.controlplane import ControlPlane, StartError
from hack.kubernetes.node import PACKAGES
from hack.released import NAMESPACE

from mooring.cli.packages import MissingPackages, ensure

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ("mooring", "redis", "exporter")
T = TypeVar("T")
_HEALTHY = "jsonpath={.status.conditions[0].type}=Healthy"


class Steps:
    """Steps one after the other, each told with its seconds as it ends."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def take(self, what: str, step: Callable[[], T]) -> T:
        """Do one, and give what it gives; what it raises goes on."""
        began = time.monotonic()
        made = step()
        now = time.monotonic()
        print(f"{now - began:7.1f} s  {what} (+{now - self._began:.1f} s)", flush=True)
        return made


@contextmanager
def _empty_cache() -> Iterator[None]:
    """Caches of our own and of Go's that begin with nothing, and go."""
    place = Path(tempfile.mkdtemp(prefix="mooring-bare-", dir="/var/tmp"))
    names = {"MOORING_CACHE": "mooring", "GOCACHE": "go-build", "GOMODCACHE": "go-mod"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update({name: str(place / below) for name, below in names.items()})
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        subprocess.run(["chmod", "-R", "u+w", place], check=False)  # Go's modules are read-only
        shutil.rmtree(place, ignore_errors=True)


def _measure() -> None:
    steps = Steps()
    absent = sorted({package for program, package in PACKAGES.items() if shutil.which(program) is None})
    steps.take(f"packages: {', '.join(absent) or 'all were there'}", lambda: ensure(PACKAGES))
    steps.take("Python's environment, from the locked wheels", _environment)
    dns = ROOT / "hack" / "kubernetes" / "dns"
    steps.take("etcd, kube-apiserver, kube-controller-manager", lambda: build(SERVERS))
    steps.take("kubelet, kube-proxy, kube-scheduler", lambda: build(NODE, module=NODE_MODULE))
    steps.take("CoreDNS", lambda: build_module(dns, "coredns"))
    steps.take("kubectl", lambda: build(KUBECTL))
    steps.take("helm", lambda: helm(3))
    images = {name: steps.take(f"image {name}", partial(build_image, name)) for name in IMAGES}
    plane = ControlPlane(images=list(images.values()))
    try:
        steps.take("the node is Ready", plane.__enter__)
        _run_a_redis(steps, plane.kubeconfig)
    finally:
        steps.take("nothing is left", lambda: plane.__exit__(None, None, None))
    size = images["mooring"].stat().st_size / 2**20
    print(f"{size:7.1f} MiB  Mooring's image, compressed")


def _environment() -> None:
    """What the launcher makes on first use; empty caches are pip's as well."""
    environment = {**os.environ, "MOORING_LOCK": "dev", "PIP_NO_CACHE_DIR": "1"}
    subprocess.run([ROOT / "mooring", "exec", "true"], env=environment, check=True)


def _run_a_redis(steps: Steps, kubeconfig: Path) -> None:
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    kubectl = build(KUBECTL) / "kubectl"

    def told(*words: str | Path) -> None:
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, cwd=ROOT)
        if done.returncode:
            raise StartError(f"{' '.join(map(str, words))}: {done.stdout}{done.stderr}")

    install = ("install", "mooring", "charts/mooring", "-n", NAMESPACE, "--create-namespace", "--wait")
    steps.take("helm install --wait", lambda: told(helm(3), *install))

    def healthy() -> None:
        told(kubectl, "apply", "-f", "examples/redis-sentinel.yaml")
        told(kubectl, "wait", "rediscluster", "demo", f"--for={_HEALTHY}", "--timeout=180s")

    steps.take("kubectl apply to Healthy, 3 servers and 3 sentinels", healthy)


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="bare.py", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--cold", action="store_true", help="with empty caches of its own: everything is built"
    )
    options = parser.parse_args(arguments)
    try:
        if options.cold:
            with _empty_cache():
                _measure()
        else:
            _measure()
    except (BuildError, DebianError, MissingPackages, StartError, subprocess.CalledProcessError) as failed:
        print(f"bare: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
