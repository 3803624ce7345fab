"""catalog, create, get, edit, backup and delete over the embedded API server: the console's schemas, on the command line."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.console.bed import ADMIN, ANN
from tests.console.served import Cluster, cluster

from mooring.catalog import KINDS
from mooring.cli.main import main

REDIS = "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters"
SECRET = "s3cret-word"
ROOT = Path(__file__).resolve().parents[2]
Json = Any


@dataclass(kw_only=True)
class Shell:
    """The command line, as somebody with a kubeconfig."""

    cluster: Cluster
    home: Path
    capsys: pytest.CaptureFixture[str]
    token: str = ADMIN

    async def run(self, *words_: str, status: int = 0) -> str:
        """Run a command; what it printed, on standard error too."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}}],
            "clusters": [{"name": "c", "cluster": {"server": self.cluster.url}}],
            "users": [{"name": "u", "user": {"token": self.token}}],
        }
        file = self.home / "kubeconfig"
        file.write_text(json.dumps(config))
        on = [] if words_[0] in ("catalog", "completion", "complete") else ["--kubeconfig", str(file)]

        def called() -> int:
            try:
                main([*words_, *on])
            except SystemExit as end:
                return int(end.code or 0)
            raise AssertionError("main returned")

        ended = await asyncio.to_thread(called)
        out, err = self.capsys.readouterr()
        assert ended == status, out + err
        return out + err

    async def live(self, name: str) -> Json:
        return json.loads((await self.cluster.admin.request("GET", f"{REDIS}/{name}")).body)


@pytest.fixture
async def shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> AsyncIterator[Shell]:
    async with cluster(tmp_path) as made:
        yield Shell(cluster=made, home=tmp_path, capsys=capsys)


def taken(file: str) -> str:
    """What is in a file, which is taken away."""
    text = Path(file).read_text()
    Path(file).unlink()
    return text


# --- catalog


async def test_the_catalog_is_listed_and_an_entry_shown(shell: Shell) -> None:
    listed = await shell.run("catalog", "list")
    assert "redis-sentinel" in listed
    assert "RedisCluster.redis.kun" in listed
    shown = await shell.run("catalog", "show", "redis-sentinel")
    assert "from 3, to 10" in shown
    assert "(default)" in shown
    assert "it has" in await shell.run("catalog", "show", "redis9", status=1)


async def test_what_is_shown_as_yaml_lints(shell: Shell) -> None:
    for output in ("yaml", "json"):
        file = shell.home / f"entry.{output}"
        file.write_text(await shell.run("catalog", "show", "redis-sentinel", "-o", output))
        assert "1 sound" in await shell.run("catalog", "lint", str(file))


async def test_every_problem_of_a_file_is_told_with_its_path(shell: Shell) -> None:
    text = (resources.files("mooring.catalog") / "entries" / "redis-sentinel.yaml").read_text()
    document = yaml.safe_load(text)
    document["spec"]["parameters"]["properties"]["size"]["default"] = 99
    document["spec"]["parameters"]["properties"]["size"]["x-bind"] = "/spec/sise"
    document["spec"]["display"]["title"]["zh"] = ""
    file, typo = shell.home / "wrong.yaml", shell.home / "typo.yaml"
    file.write_text(yaml.safe_dump(document))
    document["spec"]["colour"] = "red"
    typo.write_text(yaml.safe_dump(document))
    crd = str(ROOT / "crds" / "redisclusters.redis.kun.yaml")
    said = await shell.run("catalog", "lint", str(file), str(typo), "--crd", crd, status=1)
    for wanted in (
        f"{file}: spec.display.title.zh: missing",
        f"{file}: spec.parameters.properties.size.default",
        "the kind has no spec.sise",
        "unknown field `colour`",
    ):
        assert wanted in said


# --- create


async def test_an_instance_is_tried_and_created_as_the_console_would(shell: Shell) -> None:
    create = ("create", "redis-sentinel", "cache", "--plan", "medium", "--set", "size=5")
    tried = await shell.run(*create, "--dry-run")
    assert "would take it" in tried
    assert "size: 5" in tried
    assert await shell.run(*create, "--dry-run", "client") in tried
    assert "created" in await shell.run(*create)
    live = await shell.live("cache")
    assert live["spec"]["size"] == 5
    assert live["spec"]["resources"]["limits"]["memory"] == "2Gi"
    assert "There is one of this name already" in await shell.run(*create, status=1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["size=2"], "size: Must be at least 3."),
        (["size=three"], "'three' is no whole number"),
        (["size"], "write NAME=VALUE"),
        (["sise=3", "size=x"], "there is no such field"),
        (["disablePersistence=maybe"], "neither true nor false"),
        (["memory=lots"], "Must be an amount"),
        (["image=" + "x" * 5000], "image:"),
    ],
)
async def test_a_wrong_value_is_told_at_its_field_before_anything_is_sent(
    shell: Shell, settings: list[str], said: str
) -> None:
    given = [word for setting in settings for word in ("--set", setting)]
    assert said in await shell.run("create", "redis-sentinel", "a", *given, status=1)
    asked = [one["objectRef"]["resource"] for one in await shell.cluster.audited() if one["verb"] == "create"]
    assert "redisclusters" not in asked


async def test_wrong_names_plans_and_entries_are_told(shell: Shell) -> None:
    assert "name: " in await shell.run("create", "redis-sentinel", "A_b", status=1)
    assert "small, medium, large" in await shell.run(
        "create", "redis-sentinel", "a", "--plan", "huge", status=1
    )
    assert "no entry 'redis9'" in await shell.run("create", "redis9", "a", status=1)


async def test_a_secret_is_given_by_a_file_alone_and_shown_nowhere(shell: Shell) -> None:
    create = ("create", "redis-cluster", "shop", "--set", "replicas=6", "--set", "image=redis:7.0")
    said = await shell.run(*create, "--set", f"password={SECRET}", status=1)
    assert "--set-file password=FILE" in said
    assert SECRET not in said
    file = shell.home / "password"
    file.write_text(SECRET + "\n")
    for more in (["--dry-run"], [], []):
        status = 1 if not more and "created" in said else 0
        said = await shell.run(*create, "--set-file", f"password={file}", *more, status=status)
        assert SECRET not in said
    place = REDIS.replace("redis.kun/v1beta1", "redis.middleware.hc.cn/v1alpha1")
    stored = (await shell.cluster.admin.request("GET", f"{place}/shop")).body
    assert stored.count(SECRET.encode()) == 1
    for output in ("values", "yaml", "json"):
        assert SECRET not in await shell.run("get", "redis-cluster", "shop", "-o", output)


async def test_who_may_not_is_told_by_the_api_server(shell: Shell) -> None:
    shell.token = ANN
    said = await shell.run("create", "redis-sentinel", "a", status=1)
    assert 'User "ann" cannot create' in said
    assert 'User "ann" cannot list' in await shell.run("get", "redis-sentinel", status=1)


# --- get, edit, delete


async def test_services_are_listed_and_one_is_shown_as_it_was_asked_for(shell: Shell) -> None:
    await shell.run("create", "redis-sentinel", "one")
    await shell.cluster.redis("team-b", "elsewhere", size=3)
    listed = await shell.run("get")
    assert "one" in listed
    assert "elsewhere" not in listed
    assert "elsewhere" in await shell.run("get", "-n", "team-b")
    values = (await shell.run("get", "redis-sentinel", "one")).splitlines()
    again = [word for value in values for word in ("--set", value)]
    await shell.run("create", "redis-sentinel", "two", *again)
    first, second = await shell.live("one"), await shell.live("two")
    assert first["spec"] == second["spec"]
    assert "there is no RedisCluster 'three'" in await shell.run("get", "redis-sentinel", "three", status=1)


async def test_an_edit_sends_what_was_changed_and_nothing_else(shell: Shell) -> None:
    await shell.cluster.redis("team-a", "a", size=3, image="redis:7.0", config={"hz": "20"})
    assert "-  size: 3" in await shell.run("edit", "redis-sentinel", "a", "--set", "size=5", "--dry-run")
    assert (await shell.live("a"))["spec"]["size"] == 3
    assert "changed" in await shell.run("edit", "redis-sentinel", "a", "--set", "size=5")
    spec = (await shell.live("a"))["spec"]
    assert (spec["size"], spec["config"]) == (5, {"hz": "20"})
    assert "nothing was changed" in await shell.run("edit", "redis-sentinel", "a", "--set", "size=5")
    said = await shell.run("edit", "redis-sentinel", "a", "--set", "storageClass=fast", status=1)
    assert "storageClass: This cannot be changed any more." in said


async def test_an_edit_in_an_editor_is_kept_when_it_is_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shell.cluster.redis("team-a", "a", size=3, image="redis:7.0")
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.delenv("EDITOR", raising=False)
    assert "$EDITOR" in await shell.run("edit", "redis-sentinel", "a", status=1)
    monkeypatch.setenv("EDITOR", "sed -i s/size:.3/size:4/")
    said = await shell.run("edit", "redis-sentinel", "a", status=1)
    assert "size:4" in taken(said.rpartition("what you wrote is in ")[2].splitlines()[0])
    monkeypatch.setenv("EDITOR", "sed -i 's/size: 3/size: 4/'")
    await shell.run("edit", "redis-sentinel", "a")
    assert (await shell.live("a"))["spec"]["size"] == 4
    monkeypatch.setenv("EDITOR", "false")
    assert "status 1" in await shell.run("edit", "redis-sentinel", "a", status=1)


async def test_a_deletion_says_what_stays_and_is_not_done_unasked(shell: Shell) -> None:
    await shell.run("create", "redis-sentinel", "a")
    assert "Stays:" in await shell.run("delete", "redis-sentinel", "a", "--dry-run")
    assert "--yes" in await shell.run("delete", "redis-sentinel", "a", status=1)
    await shell.live("a")
    assert "deleted" in await shell.run("delete", "redis-sentinel", "a", "--yes")
    assert "there is no" in await shell.run("delete", "redis-sentinel", "a", "--yes", status=1)


async def test_entries_of_the_cluster_are_offered_too(shell: Shell) -> None:
    from mooring.runtime.crd_install import install_crds

    await install_crds(shell.cluster.admin, KINDS)
    text = (resources.files("mooring.catalog") / "entries" / "redis-sentinel.yaml").read_text()
    document = yaml.safe_load(text) | {"kind": "ServiceTemplate", "metadata": {"name": "own"}}
    place = "/apis/catalog.mooring.dev/v1alpha1/namespaces/{}/servicetemplates"
    await shell.cluster.post(place.format("team-a"), document)
    await shell.run("create", "own", "a")
    assert (await shell.live("a"))["spec"]["size"] == 3
    said = await shell.run("create", "own", "a", "-n", "team-b", status=1)
    assert "no entry 'own'" in said
    document["spec"]["display"]["title"]["zh"] = ""
    document["metadata"]["name"] = "wrong"
    await shell.cluster.post(place.format("team-a"), document)
    assert "ServiceTemplate wrong: spec.display.title.zh: missing" in await shell.run("get")


# --- switchover


async def test_a_switchover_finds_the_one_cluster_of_a_name(shell: Shell) -> None:
    nothing = await shell.run("switchover", "cache", status=1)
    assert "there is no cache in team-a; these kinds have a switchover: redisclusters.redis.kun," in nothing
    assert "backups" not in nothing
    assert "backups" not in await shell.run("switchover", "pod/cache", status=1)
    await shell.run("create", "redis-sentinel", "cache")
    assert "no server leads at present" in await shell.run("switchover", "cache", status=1)
    await shell.run("create", "redis-cluster", "cache")
    several = await shell.run("switchover", "cache", status=1)
    assert "redisclusters.redis.kun/cache, redisclusters.redis.middleware.hc.cn/cache" in several
    named = await shell.run("switchover", "redisclusters.redis.kun/cache", status=1)
    assert "no server leads at present" in named


# --- backup


BACKUPS = "/apis/redis.mooring.dev/v1alpha1/namespaces/team-a/redisbackups"


async def test_a_service_is_backed_up_and_a_new_one_made_of_the_backup(shell: Shell) -> None:
    await shell.run("create", "redis-sentinel", "cache", "--set", "size=5", "--set", "memory=1Gi")
    listed = await shell.run("backup", "redis-sentinel", "cache", "--list")
    assert listed.count("none yet") == 2
    backup = ("backup", "redis-sentinel", "cache", "--as", "first")
    assert "Give a claim or a bucket" in await shell.run(*backup, status=1)
    assert "there is no RedisCluster 'nothing'" in await shell.run(
        "backup", "redis-sentinel", "nothing", status=1
    )
    tried = await shell.run(*backup, "--set", "claim=kept", "--dry-run")
    assert "would take it" in tried
    assert "group: redis.kun" in tried
    await shell.run(*backup, "--set", "claim=kept", "--set", "verify=true")
    # Where it goes is as it was for the newest one.
    await shell.run("backup", "redis-sentinel", "cache", "--as", "second", "--set", "verify=false")
    made = json.loads((await shell.cluster.admin.request("GET", f"{BACKUPS}/second")).body)["spec"]
    assert made["target"] == {"claim": {"name": "kept"}}
    said = await shell.run("backup", "redis-sentinel", "cache", "--in", "schedules", "--set", "claim=kept")
    assert "created: RedisBackupSchedule cache-2" in said
    again = ("create", "redis-sentinel", "again", "--from", "first")
    assert "is not complete" in await shell.run(*again, status=1)
    body = json.dumps({"status": {"phase": "Succeeded", "sizeBytes": 12345}}).encode()
    kind = "application/merge-patch+json"
    await shell.cluster.admin.request("PATCH", f"{BACKUPS}/first/status", body=body, content_type=kind)
    assert "12345" in await shell.run("backup", "redis-sentinel", "cache", "--list")
    assert "there is no 'third'" in await shell.run(*again[:-1], "third", status=1)
    await shell.run(*again, "--set", "memory=2Gi")
    spec = (await shell.live("again"))["spec"]
    assert spec["restoreFrom"] == {"backup": "first"}
    assert (spec["size"], spec["resources"]["limits"]["memory"]) == (5, "2Gi")
    assert "has no backups" in await shell.run("backup", "rabbitmq", "cache", status=1)
