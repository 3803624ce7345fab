"""Everything that the suite builds, each once into the cache, in the order in which its tiers need it.

    python hack/build.py [TIER ...]

`mooring test` starts it beside the first tiers: they build nothing and mostly wait for timers, and on a cold machine
all of this takes two processors for more than ten minutes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(ROOT))

from hack.images import pods, recipes  # noqa: E402
from hack.images.debian import DebianError  # noqa: E402
from hack.kubernetes.binaries import (  # noqa: E402
    KUBECTL,
    NODE,
    NODE_MODULE,
    SERVERS,
    SPECS,
    BuildError,
    build,
    build_module,
)

from hack import mo_service, old_redis, redis_servers  # noqa: E402
from mooring.local.node.packages import PackageImages  # noqa: E402
from mooring.local.node.references import ImageError  # noqa: E402

__all__ = ["helm", "main", "mariadb_operator", "prepare", "prometheus", "promtool", "versitygw"]

#: Images of servers that tests run beside those of the machine.
SERVER_IMAGES = ("redis:8.0", "valkey:8.1", "valkey:9.1")
HELM = {3: ("helm", "helm.sh/helm/v3/cmd/helm"), 4: ("helm4", "helm.sh/helm/v4/cmd/helm")}


def helm(version: int) -> Path:
    """The program of Helm 3 or 4."""
    name, package = HELM[version]
    return build_module(ROOT / "hack" / name, name, package=package)


def versitygw() -> Path:
    """The S3 server of the object storage tests."""
    package = "github.com/versity/versitygw/cmd/versitygw"
    return build_module(ROOT / "hack" / "versitygw", "versitygw", package=package)


def mariadb_operator() -> Path:
    """The operator that bench/peer_mysql.py puts beside Mooring's; no tier needs it."""
    package = "github.com/mariadb-operator/mariadb-operator/cmd/controller"
    return build_module(ROOT / "hack" / "mariadb_operator", "mariadb-operator", package=package)


def prometheus() -> Path:
    """Prometheus, without its page and without the discovery of clouds: the tests name their targets."""
    return _of_prometheus("prometheus")


def promtool() -> Path:
    """What checks and tests rules."""
    return _of_prometheus("promtool")


def _of_prometheus(name: str) -> Path:
    package = f"github.com/prometheus/prometheus/cmd/{name}"
    return build_module(ROOT / "hack" / "prometheus", name, package=package, tags="remove_all_sd")


def _of_kubernetes() -> dict[str, Callable[[], object]]:
    return {
        "servers": lambda: build(SERVERS),
        "kubectl": lambda: build(KUBECTL),
        "helm": lambda: helm(3),
        "helm4": lambda: helm(4),
        "clientgo": lambda: build_module(ROOT / "hack" / "clientgo", "clientgo"),
    }


def _of_packages() -> dict[str, Callable[[], object]]:
    """Images that the catalog makes of Debian's packages."""
    images = PackageImages()
    known = {name: images.recipe(name.partition(":")[0], name) for name in SERVER_IMAGES}
    return {f"image {name}": partial(images.make, recipe) for name, recipe in known.items()}


def _of_full() -> dict[str, Callable[[], object]]:
    return {
        **{f"redis {version}": partial(old_redis.build, version) for version in old_redis.VERSIONS},
        **{f"redis {version}": partial(redis_servers.build, version) for version in redis_servers.VERSIONS},
        **_of_packages(),
        "versitygw": versitygw,
        "kubectl": lambda: build(KUBECTL),
    }


def _of_cluster() -> dict[str, Callable[[], object]]:
    return {
        "servers": lambda: build(SERVERS),
        "kubectl": lambda: build(KUBECTL),
        "helm": lambda: helm(3),
        "node": lambda: build(NODE, module=NODE_MODULE),
        "coredns": lambda: build_module(NODE_MODULE.parent / "dns", "coredns"),
        **{f"image {name}": partial(recipes.build, name) for name in recipes.IMAGES},
    }


#: What the tests of a tier need, by what it is called here.
TIERS: dict[str, dict[str, Callable[[], object]]] = {
    "kubernetes": _of_kubernetes(),
    "full": _of_full(),
    "cluster": _of_cluster(),
    "matrixone": {"mo-service": mo_service.build},
    "clusters": {"mo-service": mo_service.build, "versitygw": versitygw},
    # Minutes of two processors; its tests are not among those of CI.
    "nightly": {
        "prometheus": prometheus,
        "promtool": promtool,
        "image matrixone": lambda: recipes.build("matrixone"),
        "specs": lambda: build(SPECS),
        **{f"image {name}": partial(pods.build, name) for name in pods.IMAGES},
        **{f"redis {version}": partial(redis_servers.build, version) for version in redis_servers.VERSIONS},
        **_of_packages(),
    },
}


def prepare(tiers: Iterable[str]) -> None:
    """Build what these tiers need, and tell what took more than a moment; raises what a build raises."""
    wanted = {what: how for tier in tiers for what, how in TIERS[tier].items()}
    for what, how in wanted.items():
        began = time.monotonic()
        how()
        if (took := time.monotonic() - began) > 5:
            print(f"build: {what} took {took:.0f} s", file=sys.stderr, flush=True)


def main(arguments: list[str] | None = None) -> int:
    """Build for the named tiers, all by default; a failure is one message and status 1."""
    parser = argparse.ArgumentParser(prog="build.py", description=__doc__.partition("\n")[0])
    parser.add_argument("tiers", nargs="*", metavar="TIER", help=f"of {', '.join(TIERS)}")
    options = parser.parse_args(arguments)
    try:
        prepare(options.tiers or TIERS)
    except (BuildError, DebianError, ImageError, old_redis.RedisBuildError) as failed:
        print(f"build: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
