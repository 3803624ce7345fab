"""What words become: read from the commands' own options, and asked of a cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.console.bed import ADMIN
from tests.console.served import Cluster, cluster

from mooring.cli.candidates import candidates
from mooring.cli.complete import kubectl
from mooring.cli.main import COMMANDS, _parser


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [
        ("cre", ["create"]),
        ("completion z", ["zsh"]),
        ("catalog l", ["list", "lint"]),
        ("catalog show redis-s", ["redis-sentinel"]),
        ("catalog list -o ", ["table", "json", "yaml"]),
        ("get -o ", ["table", "values", "yaml", "json"]),
        ("get --output=j", ["--output=json"]),
        ("create redis-s", ["redis-sentinel"]),
        ("create redis-sentinel a --plan ", ["small", "medium", "large"]),
        ("create redis-sentinel a --set si", ["size="]),
        ("create redis-sentinel a --set disablePersistence=t", ["disablePersistence=true"]),
        ("create redis-cluster a --set pass", []),
        ("create redis-cluster a --set-file pass", ["password="]),
        ("delete redis-sentinel a --y", ["--yes"]),
        ("create nothing a --set s", []),
        ("backup mysql shop --in s", ["schedules"]),
        ("backup mysql shop --in schedules --set sch", ["schedule="]),
        ("create mysql shop --from ", ["backups/"]),
        ("create redis-sentinel a --set disablePersistence = f", ["disablePersistence=false"]),
        ("run --sc", ["--scope"]),
        ("run --operators my", ["mysql"]),
        ("demo --what ", ["redis", "mysql", "matrixone"]),
        ("image l", ["load", "list"]),
        ("new o", ["operator"]),
        ("import ", ["redis"]),
        ("why matrixonec", ["matrixonecluster/"]),
        ("why rediscl", ["redisclusters.redis.kun/", "redisclusters.redis.middleware.hc.cn/"]),
        ("why redisclusters.redis.k", ["redisclusters.redis.kun/"]),
        ("switchover mysqlb", []),
        ("replay ./f", []),
        ("nothing a", []),
        ("catalog nothing a", []),
    ],
)
def test_words_are_completed(typed: str, wanted: list[str]) -> None:
    assert candidates(typed.split(" ")) == wanted


def test_every_option_of_every_command_is_completed() -> None:
    for command in COMMANDS:
        top = next(one for one in _parser(command)._actions if isinstance(one, argparse._SubParsersAction))
        shown = [one for one in top.choices[command]._actions if one.help is not argparse.SUPPRESS]
        long = [one.option_strings[-1:] for one in shown if one.option_strings and one.dest != "help"]
        found = candidates([command, "--"])
        if found != ["list", "show", "lint"]:
            assert len(found) == len(long), command


@pytest.fixture
async def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Cluster]:
    """A cluster with Ann's clusters ``cache`` and ``queue``, named by $KUBECONFIG."""
    async with cluster(tmp_path) as made:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "team-a"}},
                {"name": "there", "context": {"cluster": "gone", "user": "u"}},
            ],
            "clusters": [
                {"name": "c", "cluster": {"server": made.url}},
                {"name": "gone", "cluster": {"server": "http://127.0.0.1:1"}},
            ],
            "users": [{"name": "u", "user": {"token": ADMIN}}],
        }
        (tmp_path / "kubeconfig").write_text(json.dumps(config))
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
        path = "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters"
        for name in ("cache", "queue"):
            body = {
                "apiVersion": "redis.kun/v1beta1",
                "kind": "RedisCluster",
                "metadata": {"name": name},
                "spec": {"size": 3},
            }
            await made.admin.request("POST", path, body=json.dumps(body).encode())
        yield made


async def test_names_namespaces_and_contexts_come_from_the_cluster(served: Cluster) -> None:
    for typed, wanted in (
        ("get redis-sentinel ca", ["cache"]),
        ("delete redis-sentinel ", ["cache", "queue"]),
        ("why redisclusters.redis.kun/", ["redisclusters.redis.kun/cache", "redisclusters.redis.kun/queue"]),
        ("switchover rediscluster/q", ["rediscluster/queue"]),
        ("get redis-sentinel -n team-", ["team-a", "team-b", "team-c"]),
        ("get redis-sentinel --namespace team-b ca", []),
        ("get --context ", ["here", "there"]),
        ("get --context there redis-sentinel ", []),
        ("get --kubeconfig /nowhere redis-sentinel ", []),
    ):
        assert await asyncio.to_thread(candidates, typed.split(" ")) == wanted, typed


def test_kubectl_is_told_the_words_and_what_follows_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for typed, wanted in (
        ("switch", "switchover\n:4\n"),
        ("why matrixonec", "matrixonecluster/\n:6\n"),
        ("replay f", ":0\n"),
    ):
        monkeypatch.setattr(sys, "argv", ["kubectl_complete-mooring", *typed.split(" ")])
        kubectl()
        assert capsys.readouterr().out == wanted


# --- in the shells themselves

#: What is typed before the tab key, and the words that the command then gets.
TYPED = {
    "mooring switcho": ["switchover"],
    "./mooring why matrixonec": ["why", "matrixonecluster/"],
    "mooring switchover rediscluster/q": ["switchover", "rediscluster/queue"],
    "mooring get -n kube-s": ["get", "-n", "kube-system"],
    "mooring get -o va": ["get", "-o", "values"],
    "mooring create redis-sentinel a --set disablePersistence=t": [
        *("create", "redis-sentinel", "a", "--set"),
        "disablePersistence=true",
    ],
}
SHELLS = {
    "bash": (["bash", "--noprofile", "--rcfile", "{home}/rc", "-i"], "source <(mooring completion bash)"),
    "zsh": (
        ["zsh", "-i"],
        "autoload -Uz compinit; compinit -u -d {home}/dump; source <(mooring completion zsh)",
    ),
    "fish": (
        ["fish", "--no-config", "--init-command", "source {home}/rc"],
        "mooring completion fish | source",
    ),
}


def program(home: Path) -> Path:
    """``mooring`` that answers for its own completion, and otherwise writes down the words it is given."""
    made = home / "mooring"
    made.write_text(
        "#!/bin/sh\n"
        f'case "$1" in complete|completion) exec {sys.executable} -m mooring "$@";; esac\n'
        f'printf "%s\\n" "$@" end >>{home}/given\n'
    )
    made.chmod(0o755)
    return home / "given"


@contextmanager
def terminal(command: list[str], environment: Mapping[str, str], place: Path) -> Iterator[int]:
    """A shell with a terminal of its own; gives the end that people type at."""
    ours, theirs = os.openpty()
    shell = subprocess.Popen(
        ["setsid", "--ctty", *command], stdin=theirs, stdout=theirs, stderr=theirs, env=environment, cwd=place
    )
    os.close(theirs)
    os.set_blocking(ours, False)
    try:
        yield ours
    finally:
        shell.kill()
        shell.wait()
        os.close(ours)


def shown(screen: int) -> bytes:
    """What the shell has printed since the last look; it would wait for a reader."""
    try:
        return os.read(screen, 1 << 16)
    except OSError:
        return b""


@pytest.mark.full
@pytest.mark.timeout(360)
@pytest.mark.parametrize("name", SHELLS)
async def test_a_shell_completes_what_is_typed(served: Cluster, tmp_path: Path, name: str) -> None:
    command, setup = SHELLS[name]
    given = program(tmp_path)
    for file in ("rc", ".zshrc"):
        (tmp_path / file).write_text(setup.format(home=tmp_path) + "\n")
    places = ("HOME", "ZDOTDIR", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME")
    environment = {
        **os.environ,
        **dict.fromkeys(places, str(tmp_path)),
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "TERM": "xterm",
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }
    arguments = [word.format(home=tmp_path) for word in command]
    screen, expected = b"", ""
    with terminal(arguments, environment, tmp_path) as keys:
        ends = time.monotonic() + 300
        for typed, wanted in TYPED.items():
            os.write(keys, typed.encode() + b"\t\r")
            expected += "".join(f"{word}\n" for word in (*wanted, "end"))
            while not given.exists() or given.read_text().count("end\n") < expected.count("end\n"):
                assert time.monotonic() < ends, screen.decode(errors="replace")[-2000:]
                screen += shown(keys)
                await asyncio.sleep(0.02)
            assert given.read_text() == expected, screen.decode(errors="replace")[-2000:]
