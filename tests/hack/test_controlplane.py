"""The control plane tool: what it starts, it ends, whoever dies in between."""

from __future__ import annotations

import base64
import json
import signal
import socket
import ssl
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml
from hack.kubernetes import keeper as keeper_module
from hack.kubernetes.binaries import SERVERS, build
from hack.kubernetes.controlplane import ControlPlane, StartError
from hack.kubernetes.process import Process
from hack.kubernetes.rundir import State, stop

ROOT = Path(__file__).resolve().parents[2]
TOOL = [sys.executable, str(ROOT / "hack" / "kubernetes" / "controlplane.py")]

kubernetes = pytest.mark.kubernetes


def until(condition: Callable[[], bool], *, what: str, deadline: float = 15.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, f"not within {deadline} s: {what}"
        time.sleep(0.02)


def get(kubeconfig: Path, path: str) -> bytes:
    """Ask the server as the kubeconfig's user, trusting only the kubeconfig's authority."""
    config = yaml.safe_load(kubeconfig.read_text())
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(
        cadata=base64.b64decode(cluster["certificate-authority-data"]).decode()
    )
    pair = kubeconfig.parent / "pair.pem"
    pair.write_bytes(
        base64.b64decode(user["client-certificate-data"]) + base64.b64decode(user["client-key-data"])
    )
    try:
        context.load_cert_chain(pair)
    finally:
        pair.unlink()
    with urllib.request.urlopen(cluster["server"] + path, context=context, timeout=10) as answer:
        content: bytes = answer.read()
        return content


def processes(state: State) -> list[Process]:
    return [state.keeper, *state.processes.values()]


def run(*arguments: str, expect: int = 0) -> str:
    done = subprocess.run([*TOOL, *arguments], capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == expect, done.stdout + done.stderr
    return done.stdout + done.stderr


@kubernetes
def test_up_gives_a_ready_server_and_down_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    try:
        assert "ready after" in run("up", "--dir", str(directory), "--audit")
        state = State.read(directory)
        assert state is not None
        assert set(state.processes) == {"etcd", "kube-apiserver", "kube-controller-manager"}
        assert state.ready_seconds < 60
        assert stat.S_IMODE((directory / "kubeconfig").stat().st_mode) == 0o600
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700

        # A ServiceAccount in every namespace: pods can be created, the controllers run.
        accounts = json.loads(get(directory / "kubeconfig", "/api/v1/serviceaccounts"))["items"]
        assert "default" in {account["metadata"]["name"] for account in accounts}
        assert json.loads(get(directory / "kubeconfig", "/version"))["gitVersion"] == "v1.36.3"
        audit = (directory / "log" / "audit.jsonl").read_text()
        events = [json.loads(line) for line in audit.splitlines()]
        assert "/version" in {event["requestURI"] for event in events}

        assert json.loads(run("status", "--dir", str(directory)))["phase"] == "ready"
        assert "already running" in run("up", "--dir", str(directory))
        assert State.read(directory) == state
    finally:
        ended = run("down", "--dir", str(directory))
    assert "ended" in ended
    assert not any(process.alive() for process in processes(state))
    assert not directory.exists()
    assert "nothing runs" in run("down", "--dir", str(directory))
    assert json.loads(run("status", "--dir", str(directory), expect=1))["phase"] == "absent"


@kubernetes
def test_two_control_planes_side_by_side_share_nothing(real_kubernetes: Path) -> None:
    with ControlPlane() as other:
        first = {item["metadata"]["uid"] for item in _namespaces(real_kubernetes)}
        second = {item["metadata"]["uid"] for item in _namespaces(other.kubeconfig)}
        ended = processes(other.state)
    assert first
    assert second
    assert not first & second
    assert not any(process.alive() for process in ended)
    assert not other.directory.exists()
    assert _namespaces(real_kubernetes), "the other one still serves"


@kubernetes
def test_nothing_is_left_when_the_test_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from hack.kubernetes.controlplane import ControlPlane\n"
        "with ControlPlane(directory=Path(sys.argv[1])): print('ready', flush=True); time.sleep(100)\n"
    )
    directory = tmp_path / "run"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(directory)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as holder:
        try:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "ready\n"
            state = State.read(directory)
        finally:
            holder.kill()
    assert state is not None
    until(lambda: not any(process.alive() for process in processes(state)), what="all processes gone")
    until(lambda: not directory.exists(), what="the run directory removed")


@kubernetes
def test_servers_die_with_a_killed_keeper_and_down_clears_the_rest(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run("up", "--dir", str(directory))
    state = State.read(directory)
    assert state is not None
    try:
        state.keeper.end(signal.SIGKILL)
        until(lambda: not any(process.alive() for process in processes(state)), what="servers gone")
        assert json.loads(run("status", "--dir", str(directory), expect=1))["phase"] == "dead"
    finally:
        run("down", "--dir", str(directory))
    assert not directory.exists()


@kubernetes
def test_a_dead_server_is_reported_with_its_log_and_ends_the_others(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    run("up", "--dir", str(directory))
    state = State.read(directory)
    assert state is not None
    try:
        state.processes["etcd"].end(signal.SIGTERM)
        until(lambda: not any(process.alive() for process in processes(state)), what="the others ended")
        report = json.loads(run("status", "--dir", str(directory), expect=1))
        assert report["phase"] == "failed"
        assert "etcd ended with" in report["step"]
    finally:
        run("down", "--dir", str(directory))


@kubernetes
def test_a_port_taken_meanwhile_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose = keeper_module._free_port
    with ExitStack() as cleanup:
        taken = cleanup.enter_context(socket.socket())
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(
            keeper_module, "_free_port", lambda address: ports.pop() if ports else choose(address)
        )
        for name in ("pki", "log"):
            (tmp_path / name).mkdir()
        keeper = keeper_module.Keeper(tmp_path, programs=build(SERVERS), audit=None, bound=False)
        cleanup.callback(keeper.end)
        keeper.start()
        state = State.read(tmp_path)
        assert state is not None
        assert state.phase == "ready"
        assert not ports
        assert state.server != f"https://127.0.0.1:{taken.getsockname()[1]}"


@kubernetes
def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with.*audit"), ControlPlane(audit="All"):
        pass


def test_a_directory_with_other_things_is_neither_used_nor_cleared(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "state.json").write_text("{}")
    assert not stop(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log", "state.json"]


def test_a_pid_that_now_belongs_to_another_is_left_alone() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as stranger:
        real = Process.of(stranger.pid)
        Process(pid=real.pid, started=real.started - 1).end(signal.SIGKILL)
        assert real.alive()
        real.end(signal.SIGKILL)
    assert not real.alive()


def test_a_bound_process_dies_with_its_parent(tmp_path: Path) -> None:
    script = (
        "import os, sys; from pathlib import Path\n"
        "from hack.kubernetes.process import spawn_bound\n"
        "child = spawn_bound(['/bin/sleep', '100'], cwd=Path('/'), log=Path(sys.argv[1]))\n"
        "print(child.pid, flush=True); input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        child = Process.of(int(parent.stdout.readline()))
        command = Path(f"/proc/{child.pid}/cmdline")
        until(lambda: command.read_bytes().startswith(b"/bin/sleep"), what="the program runs")
        parent.kill()
    until(lambda: not child.alive(), what="the child is gone")


def _namespaces(kubeconfig: Path) -> list[dict[str, dict[str, str]]]:
    items: list[dict[str, dict[str, str]]] = json.loads(get(kubeconfig, "/api/v1/namespaces"))["items"]
    return items
