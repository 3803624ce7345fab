"""The webhooks as people meet them: kubectl on ``mooring up``, and the options of ``mooring run``."""

from __future__ import annotations

from pathlib import Path

import aiohttp
import pytest
from tests.cli.program import Program, free_port, needs_kubectl, until

from mooring.kube.objects.admissionregistration import (
    ValidatingWebhook,
    ValidatingWebhookConfiguration,
    WebhookClientConfig,
)
from mooring.kube.objects.meta import ObjectMeta

CLUSTER = """
apiVersion: redis.kun/v1beta1
kind: RedisCluster
metadata: {name: shop}
spec:
  size: 3
  image: "redis:7.0"
  sentinel: {replica: 3}
  storage:
    keepAfterDeletion: false
    persistentVolumeClaim:
      metadata: {name: data, creationTimestamp: null}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
"""

SCHEDULE = """
apiVersion: redis.mooring.dev/v1alpha1
kind: RedisBackupSchedule
metadata: {name: nightly}
spec:
  schedule: "@daily"
  timeZone: Mars/Olympus
  template: {cluster: {name: shop}, target: {claim: {name: backups}}}
"""


@needs_kubectl
@pytest.mark.embedded
async def test_kubectl_shows_what_the_webhook_says_also_after_a_restart(program: Program, home: Path) -> None:
    async with program.up(home / "data", "--scope", "cluster") as running:

        async def dry_run(text: str = CLUSTER) -> str:
            return (await running.kubectl("apply", "--dry-run=server", "-f", "-", text=text)).text

        async def warned() -> bool:
            return "Warning:" in await dry_run()

        await until(warned, "the webhook is asked", within=20)
        shown = await dry_run()
        assert 'Warning: unknown field "spec.sentinel.replica"; did you mean "replicas"?' in shown
        assert (
            "Warning: spec.storage.keepAfterDeletion: false: the claims and their data will be deleted"
            in shown
        )
        assert "Warning: no operator manages it: annotate it redis.kun/scope=cluster-scoped" in shown
        assert "created (server dry run)" in shown
        refused = await dry_run(CLUSTER.replace("size: 3", "exporter: {enabled: true}"))
        assert "spec.exporter.image: the exporter is enabled" in refused, refused
        refused = await dry_run(SCHEDULE)
        assert "spec.timeZone: Mars/Olympus is not a time zone" in refused, refused
        assert "created (server dry run)" in await dry_run(SCHEDULE.replace("Mars/Olympus", "Asia/Shanghai"))

        running.kill()
        await running.start()

        await until(warned, "the webhook is asked after a restart", within=20)


@pytest.mark.embedded
@pytest.mark.nightly
async def test_a_start_without_operators_leaves_no_webhook_configuration_of_the_one_before(
    program: Program, home: Path
) -> None:
    """A Helm release of the operators makes one of the same name, and Helm takes over nothing it did not make."""
    async with program.up(home / "data") as running:
        client = running.client()

        async def names() -> set[str]:
            listed = (await client.list(ValidatingWebhookConfiguration)).items
            return {one.metadata.name or "" for one in listed}

        async def registered() -> bool:
            return {"mooring-redis-sentinel-all", "mooring-redis-cluster-all"} <= await names()

        await until(registered, "both operators register their webhooks", within=30)
        hook = ValidatingWebhook(
            name="a.example.com",
            client_config=WebhookClientConfig(url="https://127.0.0.1:1/"),
            side_effects="None",
            admission_review_versions=["v1"],
        )
        others = ValidatingWebhookConfiguration(metadata=ObjectMeta(name="others"), webhooks=[hook])
        await client.create(others)
        running.kill()
        await running.client_closed()
        running.options = ("--operators", "redis-cluster")
        await running.start()
        client = running.client()

        assert await names() == {"mooring-redis-cluster-all", "others"}

        running.kill()
        await running.client_closed()
        running.options = ("--operators", "none")
        await running.start()
        client = running.client()

        assert await names() == {"others"}


@needs_kubectl
@pytest.mark.kubernetes
async def test_an_operator_outside_a_cluster_serves_its_real_api_server(
    program: Program, home: Path, real_kubernetes: Path
) -> None:
    port = free_port()
    where = ["--bind", "127.0.0.1", "--webhooks", f"https://127.0.0.1:{port}", "--webhook-port", str(port)]
    process = program.start(
        *("run", "--kubeconfig", real_kubernetes, "--scope", "cluster", "--namespace", "webhooks-outside"),
        *(*where, "--metrics-port", str(metrics := free_port()), "--probe-port", "-1"),
        log=home / "log",
    )
    try:

        async def dry_run() -> str:
            command = ("apply", "--dry-run=server", "-n", "default", "-f", "-")
            return (await program.kubectl(real_kubernetes, *command, text=CLUSTER)).text

        async def warned() -> bool:
            return "Warning: unknown field" in await dry_run()

        await until(warned, "the real API server asks the webhook", within=40, every=0.5)
        shown = await dry_run()
        assert 'Warning: unknown field "spec.sentinel.replica"; did you mean "replicas"?' in shown
        assert "Warning: no operator manages it" in shown
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{metrics}/metrics") as answer,
        ):
            text = await answer.text()
        path = "/validate/redis.kun/v1beta1/redisclusters"
        assert f'controller_runtime_webhook_requests_total{{code="200",webhook="{path}"}}' in text
        assert "certwatcher_read_certificate_total 1.0" in text
    finally:
        process.terminate()
        assert process.wait(40) == 0, (home / "log").read_text()
        configuration = "validatingwebhookconfiguration/mooring-redis-sentinel-cluster"
        await program.kubectl(real_kubernetes, "delete", configuration)
        await program.kubectl(real_kubernetes, "delete", "namespace", "webhooks-outside", "--wait=false")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ["--scope", "namespaced", "--namespaces", "a", "--webhooks", "hooks"],
            "leave it out with --scope=namespaced",
        ),
        (["--webhooks", "http://here:9443"], "write https://HOST:PORT"),
    ],
)
async def test_run_refuses_webhooks_that_cannot_work(program: Program, options: list[str], told: str) -> None:
    done = await program.run("run", *options)
    assert done.status != 0
    assert told in done.text
