"""The webhooks as people meet them: kubectl on ``mooring up``, and the options of ``mooring run``."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.program import Program, needs_kubectl, until

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
      metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
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

        running.kill()
        await running.start()

        await until(warned, "the webhook is asked after a restart", within=20)


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
