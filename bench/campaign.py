"""Every fault plan of the workloads of this tree: `make campaign`, `make campaign PLAN=file`.

    python -m bench.campaign [WORKLOAD ...] [--plan FILE] [--keep DIRECTORY] [--only WORD] [--jobs NUMBER]

For each workload a run without faults is learned, plans are derived from it and all of them are run (see
mooring.testing.campaign). A plan that fails is kept as a file, to be run again by itself. Exit status 1 when one failed.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import functools
import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
from bench.cluster_model import ClusterModel, PairModel, in_virtual_time
from bench.directory_model import Disk, as_declared, fill, newest
from bench.matrixone_workloads import MATRIXONE, matrixone
from bench.memcached_model import InMemory, Servers, by_hand, one_at_a_time, settled
from bench.redis_model import Model, in_memory, monitors, of_servers

from bench import mysql_model
from mooring.actor import run_actor
from mooring.kube import Client, MergePatch
from mooring.kube.objects.core import Pod, Secret
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators import mysql
from mooring.operators.mysql.actor import register as register_mysql
from mooring.operators.mysql.names import SWITCH_TO
from mooring.operators.redis import cluster as cluster_operator
from mooring.operators.redis import sentinel as sentinel_operator
from mooring.operators.redis.cluster import types as clusters
from mooring.operators.redis.sentinel.actor import register
from mooring.operators.redis.sentinel.legacy import LEGACY
from mooring.operators.redis.sentinel.names import ROLE
from mooring.operators.redis.sentinel.types import RedisCluster
from mooring.testing.campaign import replay, run_campaign
from mooring.testing.faults import Plan
from mooring.testing.monitors import owned
from mooring.testing.redis import manifest
from mooring.testing.workload import Step, Workload

__all__ = ["NEW_PASSWORD", "OLD_PASSWORD", "WORKLOADS", "main"]

ROOT = Path(__file__).resolve().parents[1]
KEPT = Path("campaign-failures")


def _example(path: str) -> Any:
    """An example's program, as a module."""
    name = f"mooring_example_{Path(path).stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / path)
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _package(directory: str, name: str) -> Any:
    """An example that is a package."""
    if (path := str(ROOT / "examples" / directory)) not in sys.path:
        sys.path.append(path)
    return importlib.import_module(name)


def _deployment(name: str) -> Workload:
    """The tutorial's operator: MySQLCluster -> Deployment."""
    example = _example("deployment-operator/mooring_operator.py")
    kind = example.MySQLCluster

    async def create(client: Client) -> None:
        meta = ObjectMeta(name="shop", namespace="default")
        await client.create(kind(metadata=meta, spec=example.Spec(size=2, image="mysql:8.0")))

    def edit(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            await client.patch(kind, "shop", MergePatch({"spec": spec}), namespace="default")

        return step

    async def delete(client: Client) -> None:
        await client.delete(kind, "shop", namespace="default")

    first = (create,)
    given, steps = {
        "create": ((), first),
        "resize": (first, (edit(size=3), edit(size=0), edit(size=1))),
        "roll": (first, (edit(image="mysql:8.4"), edit(image="mysql:8.0"))),
        "delete": (first, (delete, create, delete)),
    }[name]
    return Workload(
        name=f"deployment-{name}",
        kinds=(kind,),
        operator=lambda manager: run_actor(example.MySQLActor(), manager),
        given=given,
        steps=steps,
        endpoints=False,
    )


def _directory(name: str) -> Workload:
    """The example with a finalizer: Directory -> a directory outside Kubernetes."""
    example = _example("directory-operator/directory_operator.py")
    kind = example.Directory

    async def create(client: Client) -> None:
        meta = ObjectMeta(name="shop", namespace="default")
        await client.create(kind(metadata=meta, spec=example.Spec(deletion="Delete")))

    async def close(client: Client) -> None:
        await client.patch(kind, "shop", MergePatch({"spec": {"mode": "0700"}}), namespace="default")

    async def delete(client: Client) -> None:
        await client.delete(kind, "shop", namespace="default")

    given, steps = {
        "create": ((), (create,)),
        "mode": ((create,), (close,)),
        "delete": ((create, fill), (delete, create)),
    }[name]
    return Workload(
        name=f"directory-{name}",
        kinds=(kind,),
        operator=lambda manager: run_actor(example.DirectoryActor(newest()), manager),
        given=given,
        steps=steps,
        model=Disk,
        endpoints=False,
        monitors=(as_declared,),
    )


def _memcached(name: str) -> Workload:
    """The example on workload and the planned actor: Memcached -> servers that are configured, rolled and adopted."""
    example = _package("memcached-operator", "memcached_operator")
    kind = example.Memcached

    async def create(client: Client) -> None:
        document = {"metadata": {"name": "shop", "namespace": "default"}, "spec": {"replicas": 3}}
        await client.request(
            "POST",
            kind.resource.path(namespace="default"),
            body=msgspec.json.encode(
                {"apiVersion": kind.resource.api_version, "kind": "Memcached", **document}
            ),
        )

    def edit(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            await client.patch(kind, "shop", MergePatch({"spec": spec}), namespace="default")

        return step

    async def delete(client: Client) -> None:
        await client.delete(kind, "shop", namespace="default")

    given, steps = {
        "create": ((), (create,)),
        "resize": ((create,), (edit(replicas=5), edit(replicas=2))),
        "roll": ((create,), (edit(threads=8, image="memcached:1.6.18"),)),
        "configure": ((create,), (edit(memoryMegabytes=128, verbosity=1), edit(memoryMegabytes=64))),
        "adopt": ((by_hand,), (create,)),
        "delete": ((create,), (delete, create)),
    }[name]
    return Workload(
        name=f"memcached-{name}",
        kinds=(kind,),
        operator=functools.partial(example.register, dial=InMemory()),
        given=given,
        steps=steps,
        model=Servers,
        endpoints=False,
        monitors=(owned(), one_at_a_time, settled),
    )


Document = dict[str, Any]


def _without_past(resource: str, obj: Document) -> Document:
    """A RedisCluster without what once was: the legacy conditions below the newest, the last fail-over."""
    status = obj.get("status") or {}
    if resource != "redisclusters.redis.kun" or not status.get("conditions"):
        return obj
    newest, *others = status["conditions"]
    kept = [newest, *(one for one in others if one["type"] not in LEGACY)]
    return {**obj, "status": {**_but(status, "lastFailover"), "conditions": kept}}


def _whoever_leads(resource: str, obj: Document) -> Document:
    """After a roll any of the servers may lead, as long as one does: who it is is left out."""
    if resource == "pods":
        meta = obj["metadata"]
        return {**obj, "metadata": {**meta, "labels": _but(meta.get("labels") or {}, ROLE)}}
    status = obj.get("status") or {}
    if resource == "redisclusters.redis.kun" and status:
        shown = _but(_without_past(resource, obj)["status"], "master", "masterIP", "lineage")
        ready = [{**one, "message": ""} for one in shown["conditions"]]
        nodes = [_but(one, "role") for one in shown["nodes"]]
        roles = sorted(one["role"] for one in shown["nodes"])
        others = len(shown["replicas"])
        return {
            **obj,
            "status": {**shown, "conditions": ready, "nodes": nodes, "roles": roles, "replicas": others},
        }
    if resource == "redisclusters.redis.middleware.hc.cn" and status:
        hidden = ("type", "slots", "masterNodeId")
        nodes = [_but(one, *hidden) for one in status["conditions"]]
        parts = sorted([one.get(key, "") for key in hidden[:2]] for one in status["conditions"])
        return {**obj, "status": {**status, "conditions": nodes, "parts": parts}}
    return obj


def _but(obj: Document, *names: str) -> Document:
    return {name: value for name, value in obj.items() if name not in names}


async def _secret(client: Client) -> None:
    """The password of a declared user."""
    data = {"app": base64.b64encode(NEW_PASSWORD.encode()).decode()}
    await client.create(Secret(metadata=ObjectMeta(name="users", namespace="default"), data=data))


USERS: dict[str, Any] = {
    "users": [
        {"name": "app", "rules": ["~*", "+@read"], "passwordSecrets": [{"name": "users", "key": "app"}]}
    ],
    "defaultUser": {"mode": "Off"},
}


def _sentinel(name: str) -> Workload:
    """The Redis sentinel operator on the servers of bench/redis_model.py."""

    def create(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            body = msgspec.json.encode(manifest("demo", **{"persistence": False, **spec}))
            await client.request("POST", RedisCluster.resource.path(namespace="default"), body=body)

        return step

    def edit(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            await client.patch(RedisCluster, "demo", MergePatch({"spec": spec}), namespace="default")

        return step

    async def delete(client: Client) -> None:
        await client.delete(RedisCluster, "demo", namespace="default")

    more = {"requests": {"cpu": "20m", "memory": "32Mi"}}
    small = (create(),)
    given, steps = {
        "create": ((), (create(persistence=True),)),
        "grow": (small, (edit(size=5),)),
        "shrink": ((create(size=5),), (edit(size=3),)),
        "watchers": (small, (edit(sentinel={"replicas": 5}), edit(sentinel={"replicas": 3}))),
        "configure": (small, (edit(config={"maxmemory-policy": "allkeys-lru"}), edit(config=None))),
        "restart": (small, (edit(config={"tcp-backlog": "64"}, configPolicy="roll"),)),
        "password": ((create(password=OLD_PASSWORD),), (edit(password=NEW_PASSWORD),)),
        "protect": (small, (edit(password=NEW_PASSWORD), edit(password=None))),
        "users": (
            (_secret, create(password=OLD_PASSWORD)),
            (edit(**USERS), edit(users=None), edit(defaultUser=None)),
        ),
        "roll": (small, (edit(resources=more),)),
        "roll-watchers": (small, (edit(sentinel={"resources": more}),)),
        "delete": ((create(persistence=True),), (delete, create(persistence=True))),
    }[name]
    return Workload(
        name=f"sentinel-{name}",
        kinds=sentinel_operator.KINDS,
        operator=register,
        given=given,
        steps=steps,
        model=Model,
        endpoints=False,
        secrets=(OLD_PASSWORD, NEW_PASSWORD),
        monitors=monitors(),
        compared=_whoever_leads if name in ("restart", "roll") else _without_past,
    )


def _cluster(name: str, *, nodes: int = 6) -> Workload:
    """The Redis Cluster operator on the servers of bench/cluster_model.py; of two nodes it makes a pair."""

    def create(replicas: int = nodes, **pod: Any) -> Step:
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {
            "replicas": replicas,
            "pod": [{"middlewareImage": "redis:7.0", **pod}],
            "volumeClaimTemplates": [{"metadata": {"name": "redis-data"}, "spec": claim}],
        }

        async def step(client: Client) -> None:
            document = {
                "apiVersion": clusters.RedisCluster.resource.api_version,
                "kind": "RedisCluster",
                "metadata": {"name": "demo", "namespace": "default"},
                "spec": spec,
            }
            body = msgspec.json.encode(document)
            await client.request("POST", clusters.RedisCluster.resource.path(namespace="default"), body=body)

        return step

    def edit(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            await client.patch(clusters.RedisCluster, "demo", MergePatch({"spec": spec}), namespace="default")

        return step

    def pods(**pod: Any) -> Step:
        return edit(pod=[{"middlewareImage": "redis:7.0", **pod}])

    async def delete(client: Client) -> None:
        await client.delete(clusters.RedisCluster, "demo", namespace="default")

    more = {"requests": {"cpu": "20m", "memory": "32Mi"}}
    given, steps = {
        "create": ((), (create(),)),
        "grow": ((create(),), (edit(replicas=8),)),
        "shrink": ((create(8),), (edit(replicas=6),)),
        "password": ((create(requirepass=OLD_PASSWORD),), (pods(requirepass=NEW_PASSWORD),)),
        "users": ((_secret, create(requirepass=OLD_PASSWORD)), (edit(**USERS), edit(users=None))),
        "roll": ((create(),), (pods(resources=more),)),
        "delete": ((create(),), (delete, create())),
    }[name]
    pair = nodes == 2
    return Workload(
        name=f"{'pair' if pair else 'cluster'}-{name}",
        kinds=cluster_operator.KINDS,
        operator=cluster_operator.register,
        given=given,
        steps=steps,
        model=PairModel if pair else ClusterModel,
        endpoints=False,
        secrets=(OLD_PASSWORD, NEW_PASSWORD),
        monitors=of_servers(),
        compared=_whoever_leads,
    )


def _mysql(name: str, *, of: str = "mysql", image: str = "mariadb:10.11") -> Workload:
    """The MySQL operator on the servers of bench/mysql_model.py; ``of`` begins the workload's name."""
    kind = mysql.MySQLCluster

    async def create(client: Client) -> None:
        document = {
            "apiVersion": kind.resource.api_version,
            "kind": "MySQLCluster",
            "metadata": {"name": "demo", "namespace": "default"},
            "spec": {"size": 3, "image": image},
        }
        path = kind.resource.path(namespace="default")
        await client.request("POST", path, body=msgspec.json.encode(document))

    def edit(**spec: Any) -> Step:
        async def step(client: Client) -> None:
            await client.patch(kind, "demo", MergePatch({"spec": spec}), namespace="default")

        return step

    def switch(pod: str) -> Step:
        async def step(client: Client) -> None:
            body = MergePatch({"metadata": {"annotations": {SWITCH_TO: pod}}})
            await client.patch(kind, "demo", body, namespace="default")

        return step

    async def lose_primary(client: Client) -> None:
        cluster = await client.get(kind, "demo", namespace="default")
        primary = (cluster.status.primary if cluster.status else None) or "demo-0"
        await client.delete(Pod, primary, namespace="default", grace_period=0)

    async def stick(client: Client) -> None:
        mysql_model.stick()
        body = MergePatch({"metadata": {"annotations": {"team": "blue"}}})
        await client.patch(kind, "demo", body, namespace="default")  # somebody looks at it

    given, steps = {
        "create": ((), (create,)),
        "applier": ((create,), (stick,)),
        "switch": ((create,), (switch("demo-2"),)),
        "failover": ((create,), (lose_primary,)),
        "scale": ((create,), (edit(size=5), edit(size=3))),
        "roll": ((create,), (edit(pod={"labels": {"team": "blue"}}),)),
    }[name]
    return Workload(
        name=f"{of}-{name}",
        kinds=mysql.KINDS,
        operator=functools.partial(register_mysql, databases=mysql_model.InMemory()),
        given=given,
        steps=steps,
        model=mysql_model.World,
        endpoints=False,
        monitors=mysql_model.monitors(),
        compared=_whatever_led,
    )


def _whatever_led(resource: str, obj: Document) -> Document:
    """Who leads, under which number and after how many terms tells of a run's past; that somebody does is compared."""
    meta = obj["metadata"]
    if resource == "pods":
        labels = _but(meta.get("labels") or {}, ROLE)
        return {**obj, "metadata": {**_but(meta, "annotations"), "labels": labels}}
    status = obj.get("status") or {}
    if not resource.startswith("mysqlclusters") or not status:
        return obj
    hidden = ("primary", "term", "promotions", "members", "lastServerId", "ackSet", "instances", "conditions")
    states = sorted((one.get("role", ""), one.get("state", "")) for one in status.get("instances") or ())
    conditions = [(one["type"], one["status"], one["reason"]) for one in status.get("conditions") or ()]
    shown = {**_but(status, *hidden), "states": states, "said": conditions}
    return {**obj, "status": {**shown, "acking": len(status.get("ackSet") or ())}}


OLD_PASSWORD, NEW_PASSWORD = "correct-horse-battery", "staple-of-another-year"
_DEPLOYMENT = ("create", "resize", "roll", "delete")
_DIRECTORY = ("create", "mode", "delete")
_MEMCACHED = ("create", "resize", "roll", "configure", "adopt", "delete")
_SENTINEL = (
    *("create", "grow", "shrink", "watchers", "configure", "restart", "password", "protect", "users"),
    *("roll", "roll-watchers", "delete"),
)
_CLUSTER = ("create", "grow", "shrink", "password", "users", "roll", "delete")
_MYSQL = ("create", "switch", "failover", "scale", "roll", "applier")
_PAIR = ("create", "password", "roll")
WORKLOADS: dict[str, Callable[[], Workload]] = {
    **{f"deployment-{name}": functools.partial(_deployment, name) for name in _DEPLOYMENT},
    **{f"directory-{name}": functools.partial(_directory, name) for name in _DIRECTORY},
    **{f"memcached-{name}": functools.partial(_memcached, name) for name in _MEMCACHED},
    **{f"sentinel-{name}": functools.partial(_sentinel, name) for name in _SENTINEL},
    **{f"cluster-{name}": functools.partial(_cluster, name) for name in _CLUSTER},
    **{f"matrixone-{name}": functools.partial(matrixone, name) for name in MATRIXONE},
    **{f"mysql-{name}": functools.partial(_mysql, name) for name in _MYSQL},
    **{
        f"mysql97-{name}": functools.partial(_mysql, name, of="mysql97", image="mysql:9.7") for name in _MYSQL
    },
    **{f"pair-{name}": functools.partial(_cluster, name, nodes=2) for name in _PAIR},
}


async def _all(names: Sequence[str], only: str, keep: Path, jobs: int) -> int:
    failed = 0
    for name in names:
        workload = WORKLOADS[name]()

        def told(plan: Plan, complaints: Sequence[str]) -> None:
            if complaints:
                file = _keep(plan, keep)
                print(
                    f"FAILED  {plan}\n        {file}\n        " + "\n        ".join(complaints[:5]),
                    flush=True,
                )

        result = await run_campaign(workload, only=lambda plan: only in str(plan), told=told, jobs=jobs)
        failed += len(result.failures)
        each = 1000 * result.cpu_seconds / max(1, result.plans)
        print(
            f"{name}: {result.plans} plans in {result.seconds:.1f} s ({each:.0f} ms of a processor each), "
            f"{len(result.failures)} failed, {result.missed} whose moment did not come",
            flush=True,
        )
    return 1 if failed else 0


def _keep(plan: Plan, directory: Path) -> Path:
    text = plan.dump()
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{plan.workload}-{hashlib.sha256(text).hexdigest()[:10]}.json"
    file.write_bytes(text)
    return file


async def _again(plan: Plan) -> int:
    complaints = await replay(WORKLOADS[plan.workload](), plan)
    print("\n".join([str(plan), *(complaints or ["nothing went wrong"])]))
    return 1 if complaints else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="campaign", description=__doc__.partition("\n")[0])
    parser.add_argument("workloads", nargs="*", help=f"of {', '.join(WORKLOADS)} (all)")
    parser.add_argument("--plan", type=Path, help="run this file's plan alone")
    parser.add_argument("--only", default="", help="plans whose description holds this")
    parser.add_argument("--keep", type=Path, default=KEPT, help=f"where failing plans are kept ({KEPT})")
    cores = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=cores, help=f"plans at a time (the processors: {cores})")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    options = _parser().parse_args(arguments)
    if unknown := sorted(set(options.workloads) - set(WORKLOADS)):
        print(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    with in_memory(), in_virtual_time():
        if options.plan:
            return asyncio.run(_again(Plan.load(options.plan.read_bytes())))
        return asyncio.run(
            _all(options.workloads or list(WORKLOADS), options.only, options.keep, options.jobs)
        )


if __name__ == "__main__":
    sys.exit(main())
