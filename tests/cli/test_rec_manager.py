"""``mooring run`` with the arguments of HarmonyCloud's operator-manager: one process as their Deployment starts it."""

from __future__ import annotations

import signal
from pathlib import Path

import aiohttp
import msgspec
import pytest
from tests.cli.program import Program, free_port, until

from mooring.kube import NotFound
from mooring.kube.objects.coordination import Lease
from mooring.operators.redis.cluster.types import RedisCluster

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]

CRD = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/redisclusters.redis.middleware.hc.cn"
ARGUMENTS = (
    *("--operators=redisCluster", "--v=2", "--logtostderr=true", "--clusterTimeOut=6", "--resync-period=60"),
    *("--leader-elect=true", "--leader-elect-resource-lock=endpoints", "--leader-elect-lease-duration=15s"),
    *("--kube-api-qps=20", "--kube-api-burst=30", "--operator-start-interval=0", "--address=127.0.0.1"),
)


async def get(port: int, path: str) -> tuple[int, str]:
    """Status and text of an answer; 0 where nobody listens."""
    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as answer,
        ):
            return answer.status, await answer.text()
    except aiohttp.ClientError:
        return 0, ""


async def test_it_installs_its_definition_is_elected_serves_on_their_port_and_works(
    program: Program, home: Path
) -> None:
    port = free_port()

    async with program.up(home / "data", "--operators", "none") as plane:
        client = plane.client()
        with pytest.raises(NotFound):
            await client.request("GET", CRD)
        log = home / "manager.log"
        manager = program.start(
            *("run", "--kubeconfig", plane.kubeconfig, f"--port={port}", *ARGUMENTS), log=log
        )
        try:

            async def ready() -> bool:
                return (await get(port, "/readyz"))[0] == 200

            await until(ready, "it is ready", within=30)
            assert (await get(port, "/healthz"))[0] == 200
            for profiling in ("/debug/pprof/", "/debug/pprof/profile", "/configz"):
                assert (await get(port, profiling))[0] == 404
            await client.request("GET", CRD)
            declared = {
                "apiVersion": "redis.middleware.hc.cn/v1alpha1",
                "kind": "RedisCluster",
                "metadata": {"name": "demo", "namespace": "default"},
                "spec": {"replicas": 6, "repository": "redis", "version": "7.0", "pause": True},
            }
            path = RedisCluster.resource.path(namespace="default")
            await client.request("POST", path, body=msgspec.json.encode(declared))

            async def paused() -> bool:
                found = await client.get(RedisCluster, "demo", namespace="default")
                return found.status is not None and found.status.reason_type == "Paused"

            await until(paused, "it looks after clusters")
            assert (
                'controller_runtime_reconcile_total{controller="redis-cluster"'
                in (await get(port, "/metrics"))[1]
            )
            lease = await client.get(Lease, "mooring-redis-cluster-all", namespace="mooring-system")
            assert lease.spec
            assert lease.spec.holder_identity
            manager.send_signal(signal.SIGTERM)
            await until(lambda: manager.poll() is not None, "it ends")
            assert manager.returncode == 0
        finally:
            if manager.poll() is None:
                manager.kill()
                manager.wait()
        said = log.read_text()
        assert "Traceback" not in said
        for option in ("--leader-elect-resource-lock", "--kube-api-qps", "--operator-start-interval"):
            assert option in said, "that it has no effect is logged"


@pytest.mark.nightly
async def test_an_operator_whose_definition_is_missing_waits_and_holds_up_no_other(
    program: Program, home: Path
) -> None:
    async with program.up(home / "data", "--operators", "none") as plane:
        client = plane.client()
        apply = ("crds", "apply", "--kubeconfig", plane.kubeconfig)
        applied = await program.run(*apply, "--operators", "redis-sentinel")
        assert applied.fine().splitlines() == [
            "applied and served: redisclusters.redis.kun v1beta1",
            "applied and served: redisbackups.redis.mooring.dev v1alpha1",
            "applied and served: redisbackupschedules.redis.mooring.dev v1alpha1",
        ]
        log = home / "manager.log"
        with pytest.raises(NotFound):
            await client.request("GET", CRD)
        removed = await program.run(
            *("remove-clusters", "--scope", "all", "--operators", "*", "--kubeconfig", plane.kubeconfig)
        )
        assert removed.fine() == "0 clusters removed; their volumes stay.\n"
        redis = "--operators=redis-sentinel,redis-cluster"
        run = (
            "run",
            "--kubeconfig",
            plane.kubeconfig,
            "--no-crds",
            "--bind=127.0.0.1",
            "--webhooks=none",
            redis,
        )
        port, alone = free_port(), free_port()
        manager = program.start(*run, f"--port={port}", log=log)
        lone = program.start(*run, f"--port={alone}", "--operators=redis-cluster", log=home / "lone.log")
        try:

            async def leads(operator: str) -> bool:
                try:
                    lease = await client.get(Lease, f"mooring-{operator}-all", namespace="mooring-system")
                except NotFound:
                    return False
                return lease.spec is not None and bool(lease.spec.holder_identity)

            await until(lambda: leads("redis-sentinel"), "the other one leads", within=30)
            missing = "redisclusters.redis.middleware.hc.cn: not defined"
            await until(lambda: missing in log.read_text(), "it says what it waits for")
            assert (await get(port, "/readyz"))[0] == 200
            assert not await leads("redis-cluster")

            async def not_ready() -> bool:
                status, text = await get(alone, "/readyz")
                return status == 503 and missing in text

            await until(not_ready, "one that has nothing else to do is not ready")
            # That a restart would not help, and that somebody sees to its being alive.
            assert (await get(alone, "/healthz"))[0] == 200
            assert "--- loop lag" in (await get(alone, "/debug/tasks"))[1]
            (await program.run(*apply)).fine()
            await until(lambda: leads("redis-cluster"), "it begins when there is one", within=70)
            assert manager.poll() is None
            assert lone.poll() is None

            def began() -> int:
                """How often a process said that it leads; the Lease says so before the log does."""
                said = log.read_text() + (home / "lone.log").read_text()
                return said.count('"event":"leading"')

            await until(lambda: began() >= 2, "both operators say that they lead")
            assert began() == 2, "no operator was restarted"
        finally:
            for process in (manager, lone):
                process.terminate()
                process.wait(20)
