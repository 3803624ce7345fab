"""Wrong usage and a machine that is in the way: one clear line, never a traceback."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.program import Program

from mooring.cli import packages, run, up
from mooring.cli.failure import explain
from mooring.cli.main import main
from mooring.local.directory import DataDirectory, DirectoryInUse
from mooring.operators.registry import OPERATORS

Mooring = Callable[..., tuple[int, str]]


@pytest.fixture
def mooring(home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Mooring:
    """The command line within this process: its status and what it said on standard error."""
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    for module in (up, run):
        monkeypatch.setattr(module, "configure_logging", lambda **_: None)

    def call(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert isinstance(ended.value.code, int)
        return ended.value.code, capsys.readouterr().err

    return call


@pytest.fixture
def program_help(capsys: pytest.CaptureFixture[str]) -> str:
    """What ``mooring --help`` prints."""
    with pytest.raises(SystemExit):
        main(["--help"])
    return capsys.readouterr().out


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("up --nodes 51", "--nodes 51: must be between 0 and 50"),
        ("up --controllers none", "--controllers none: nodes need the controllers; add --nodes 0"),
        ("up --nodes left,left", "'left' must be there once"),
        ("up --zones A", "'A' must be there once"),
        (
            "up --operators redis",
            "there is no 'redis'; known are redis-sentinel, redis-cluster, mysql, matrixone, * and none",
        ),
        ("up --workers 0", "--workers 0: must be at least 1"),
        ("up --scope namespaced", "--scope=namespaced needs --namespaces"),
        ("up --data-dir {home}/new --listen 127.0.0.1:99999", "expected ADDRESS:PORT"),
        ("up --data-dir {home}/new --listen nonsense", "expected ADDRESS:PORT"),
        ("up --data-dir {home}/new --listen 192.0.2.1:7443", "choose another with --listen"),
        ("up --data-dir /proc/mooring", "cannot write the data directory /proc/mooring"),
        ("up --data-dir /dev/null", "/dev/null is not a directory: give another --data-dir"),
        ("up --data-dir {home}/full", "holds other files: give an empty or a new directory with --data-dir"),
        ("up --data-dir {home}/new --kubeconfig {home}/full/other", "give another file with --kubeconfig"),
        ("up --data-dir {home}/new --images {home}/none.yaml", "image catalog {home}/none.yaml"),
        ("run --operators none", "there is nothing to run"),
        ("run --kubeconfig {home}/none", "cannot read kubeconfig {home}/none: No such file or directory"),
        ("run --kubeconfig {home}/full/other", "no entry"),
        ("run", "no kubeconfig: give --kubeconfig FILE"),
        ("crds apply --kubeconfig {home}/none", "cannot read kubeconfig {home}/none"),
        ("crds --operators oracle", "there is no 'oracle'"),
        ("enter --data-dir {home}/new", "nothing runs on {home}/new; start it with `mooring up`"),
        ("demo --file {home}/none.yaml", "cannot read the manifest {home}/none.yaml: No such file"),
        ("demo --file {home}/full/other", "document 1 lacks apiVersion, kind or metadata.name"),
        ("demo --file {home}/full/broken", "is not YAML"),
        ("demo --file {home}/full/map", "holds 0 objects of kind RedisCluster"),
        ("demo --what matrixone --file {home}/full/map", "holds 0 objects of kind MatrixOneCluster"),
        (
            "demo --what matrixone",
            "build it in a checkout of Mooring: ./mooring exec python -m hack.mo_service",
        ),
    ],
)
def test_a_refusal_is_one_line_with_the_reason(
    mooring: Mooring, home: Path, arguments: str, words: str
) -> None:
    full = home / "full"
    full.mkdir()
    (full / "other").write_text("clusters: [{name: somebody-elses}]\n")
    (full / "broken").write_text("a: b: c\n")
    (full / "map").write_text("{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n")
    mode = full.stat().st_mode

    status, err = mooring(*arguments.format(home=home).split())

    assert status == 1
    assert len(lines(err)) == 1, err
    assert words.format(home=home) in err
    assert (full / "other").read_text() == "clusters: [{name: somebody-elses}]\n"
    assert full.stat().st_mode == mode


@pytest.mark.parametrize("arguments", ["", "nonsense", "crds explode", "up --scope half"])
def test_wrong_usage_ends_with_status_2(mooring: Mooring, arguments: str) -> None:
    status, err = mooring(*arguments.split())

    assert status == 2
    assert "usage: mooring" in err


def test_the_help_names_every_command(program_help: str) -> None:
    for command in ("demo", "up", "down", "run", "enter", "why", "replay", "crds", "ledger", "exec", "test"):
        assert f"\n    {command} " in program_help


def test_the_help_promises_only_operators_that_are_there(program_help: str) -> None:
    there = {name.partition("-")[0] for name in OPERATORS}
    promised = {word for word in ("redis", "mysql", "matrixone") if word in program_help.lower()}
    assert promised == there


async def test_a_port_in_use_is_named_with_the_remedy(program: Program, home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"

        done = await program.run("up", "--data-dir", home / "data", "--listen", address)
        log = home / "data" / "mooring.log"
        log.touch(0o644)
        detached = await program.run("up", "--detach", "--data-dir", home / "data", "--listen", address)

    assert log.stat().st_mode & 0o777 == 0o600, "nobody else reads it, not even one made before"
    assert done.status == detached.status == 1
    assert f"cannot listen on {address}: Address already in use; choose another with --listen" in done.err
    assert f"cannot listen on {address}" in detached.err
    # On a slow machine it says first that it starts.
    assert len(lines(done.err)) == 1
    assert [line for line in lines(detached.err) if "starting; what it does" not in line] == lines(
        detached.err
    )[-1:]


@pytest.mark.parametrize(
    "command",
    [
        *("run", "crds apply", "why rediscluster/demo", "plan-upgrade"),
        "remove-clusters --scope all --operators *",
    ],
)
async def test_an_unreachable_cluster_is_named(program: Program, home: Path, command: str) -> None:
    kubeconfig = home / "kubeconfig"
    kubeconfig.write_text(
        "{current-context: c, contexts: [{name: c, context: {cluster: c}}], "
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]}"
    )

    done = await program.run(*command.split(), "--kubeconfig", kubeconfig)

    assert done.status == 1
    assert "cannot connect to 127.0.0.1:1: Connection refused. Start it (mooring up)" in lines(done.err)[-1]
    assert "object at 0x" not in done.text
    assert "Traceback" not in done.text


async def test_a_reader_that_goes_away_is_no_error(program: Program) -> None:
    done = await program.other("sh", "-c", f"'{sys.executable}' -m mooring crds | head -1; echo end")

    assert "Error" not in done.err
    assert "Broken" not in done.err


async def test_crds_are_shown_for_all_operators(program: Program) -> None:
    done = await program.run("crds")

    assert "redisclusters.redis.kun" in done.fine()


async def test_down_on_nothing_says_so_and_succeeds(program: Program, home: Path) -> None:
    done = await program.run("down", "--data-dir", home / "none")

    assert done.fine() == f"mooring: nothing runs on {home}/none\n"
    assert not (home / "none").exists()


async def test_the_environment_names_the_data_directory(program: Program, home: Path) -> None:
    done = await program.run("down", MOORING_DATA_DIR=str(home / "mine"))

    assert done.fine() == f"mooring: nothing runs on {home}/mine\n"


def test_a_directory_has_one_owner(home: Path) -> None:
    directory = DataDirectory(home / "data")
    directory.make()
    assert directory.owner() is None

    lock = directory.take()
    try:
        assert directory.owner() == os.getpid()
        with pytest.raises(
            DirectoryInUse, match=f"in use by process {os.getpid()}: end it with `mooring down"
        ):
            directory.take()
    finally:
        os.close(lock)

    assert directory.owner() is None


def test_a_stale_number_in_the_lock_is_not_taken_for_the_owner(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that has just locked has not yet written who it is: the file names the one before it."""
    directory = DataDirectory(home / "data")
    directory.make()
    lock = directory.take()
    os.pwrite(lock, b"1      \n", 0)  # process 1 lives, and has nothing to do with it

    def write_at_last(seconds: float) -> None:
        os.pwrite(lock, f"{os.getpid()}".ljust(7).encode(), 0)

    monkeypatch.setattr("mooring.local.directory.time.sleep", write_at_last)
    try:
        assert directory.owner() == os.getpid()
    finally:
        os.close(lock)


def test_missing_packages_are_named_in_one_line_to_paste(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mooring.cli.packages.os.geteuid", lambda: 1000)
    monkeypatch.setattr("mooring.cli.packages.shutil.which", lambda name: None)

    with pytest.raises(packages.MissingPackages) as missing:
        packages.ensure({"redis-server": "redis-server", "bwrap": "bubblewrap"})

    message = explain(missing.value)
    assert "missing: bubblewrap, redis-server. As root, run:" in message
    assert "apt-get install -y --no-install-recommends bubblewrap redis-server" in message


def test_a_failure_in_a_group_is_told_as_itself() -> None:
    group = BaseExceptionGroup("unhandled", [OSError(98, "Address already in use", "0.0.0.0:8080")])

    assert explain(group) == "0.0.0.0:8080: Address already in use"
    assert "MOORING_DEBUG=1 shows where" in explain(KeyError("x"))


def test_another_number_of_nodes_leaves_the_first_its_volumes() -> None:
    assert up.node_names("box", "0") == ()
    assert up.node_names("box", "1") == ("box",)
    assert up.node_names("box", "3") == ("box", "box-2", "box-3")
    assert up.node_names("box", "left, right") == ("left", "right")
