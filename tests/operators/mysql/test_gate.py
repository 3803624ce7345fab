"""Orders of the start gate, as the planner writes them and as the shell in a pod reads them."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.operators.mysql.declared import cluster, inputs

from mooring.operators.mysql import gate, scripts
from mooring.operators.mysql.types import TailCut

CUT = TailCut(file="binlog.000007", position=4711)


@pytest.mark.parametrize(
    ("order", "text"),
    [
        (gate.Order(start=1, role="primary", server_id=5), "1 primary 5"),
        (gate.Order(start=3, role="replica", server_id=6, cut=CUT), "3 replica 6 cut binlog.000007 4711"),
        (gate.Order(start=2, role="replica", server_id=9, fresh=True), "2 replica 9 fresh"),
    ],
)
def test_an_order_is_read_as_it_was_written(order: gate.Order, text: str) -> None:
    line = gate.order_line(order.start, order.role, order.server_id, order.cut, fresh=order.fresh)
    assert line == text
    assert gate.parse(line) == order


@pytest.mark.parametrize("text", ["", "1 leader 5", "x primary 5", "1 primary", "1 primary 5 cut binlog.1"])
def test_a_text_that_is_no_order_is_none(text: str) -> None:
    assert gate.parse(text) is None


@pytest.mark.parametrize(("start", "server_id"), [(0, 5), (1, 0), (1, 2**32)])
def test_an_order_that_no_server_could_take_is_not_written(start: int, server_id: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        gate.order_line(start, "primary", server_id)


def test_every_start_gets_a_server_id_of_its_own_even_when_the_clock_goes_back() -> None:
    first = gate.next_server_id(0, gate.EPOCH + 1000)
    assert first == 1000
    assert gate.next_server_id(first, gate.EPOCH + 10) == 1001
    assert gate.next_server_id(first, gate.EPOCH + 5000) == 5000


# --- the script ------------------------------------------------------------------------------------------

SERVER = """#!/bin/sh
case "$*" in
*--bootstrap*) cat >"$HOME_OF/bootstrap.sql"; exit 0 ;;
*--version*) echo mariadbd; exit 0 ;;
esac
echo "$@" >"$HOME_OF/started"
exec sleep 60
"""
DF = """#!/bin/sh
echo "Filesystem 1024-blocks Used Available Capacity Mounted on"
echo "tmpfs 220000 1 $(cat "$HOME_OF/room") 99% /"
"""
INSTALL = """#!/bin/sh
for one in "$@"; do case $one in --datadir=*) mkdir -p "${one#--datadir=}/mysql" ;; esac; done
"""


class Pod:
    """A pod's files, and the start script as a process with a server that only says how it was started."""

    def __init__(self, home: Path) -> None:
        self.home, self.volume = home, home / "volume"
        found = inputs(cluster())
        for name in ("scripts", "live", "auth", "order", "run", "starts", "bin", "volume"):
            (home / name).mkdir()
        for name, text in (found.specs.scripts().data or {}).items():
            (home / "scripts" / name).write_text(text)
        for name, text in (found.specs.live_config().data or {}).items():
            (home / "live" / name).write_text(text)
        for name, text in (found.specs.secret_copy().data or {}).items():
            (home / "auth" / name).write_bytes(base64.b64decode(text))
        for name, text in (("mariadbd", SERVER), ("mariadb-install-db", INSTALL)):
            (home / "bin" / name).write_text(text)
            (home / "bin" / name).chmod(0o755)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def environment(self) -> dict[str, str]:
        path = f"{self.home}/bin:/usr/bin:/bin"
        here = {"MOORING_HOME": str(self.home), "DATA_DIR": str(self.volume), "HOME_OF": str(self.home)}
        return {"PATH": path, "TERMINATION_LOG": str(self.home / "term"), **here}

    def start(self, **environment: str) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["sh", str(self.home / "scripts" / "start.sh")],
                env={**self.environment, **environment},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def stop(self) -> None:
        if self.process is not None:
            if self.process.poll() is None:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        (self.home / "started").unlink(missing_ok=True)

    def order(self, text: str) -> None:
        (self.home / "order" / "order").write_text(text)

    def state(self) -> str:
        path = self.home / "run" / "state"
        return path.read_text().strip() if path.exists() else ""

    def until(self, path: str) -> str:
        """The text of a file, once it has one."""
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            if (self.home / path).exists() and (text := (self.home / path).read_text()):
                return text
            time.sleep(0.02)
        raise AssertionError(f"no {path}: {(self.home / 'log').read_text()}")

    def waits(self) -> None:
        deadline = time.monotonic() + 20
        while self.state() != "waiting":
            assert time.monotonic() < deadline, (self.home / "log").read_text()
            time.sleep(0.02)

    def exit(self) -> int:
        assert self.process is not None
        return self.process.wait(20)

    def looked(self) -> None:
        """Wait until the gate has read the order at least once more."""
        path = self.home / "order" / "order"
        before = time.time_ns()
        os.utime(path, ns=(0, path.stat().st_mtime_ns))
        deadline = time.monotonic() + 20
        while path.stat().st_atime_ns < before // 10**9:
            assert time.monotonic() < deadline
            time.sleep(0.02)


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    one = Pod(tmp_path)
    yield one
    one.stop()


def test_a_server_starts_with_the_id_and_the_role_of_its_order(pod: Pod) -> None:
    pod.order("")
    pod.start(HOST="demo-0.demo.shop.svc")
    pod.waits()
    pod.order("1 replica 77")
    assert "--init-rpl-role=SLAVE" in pod.until("started")
    config = (pod.home / "run" / "my.cnf").read_text()
    assert "server_id=77\n" in config
    assert "report_host=demo-0.demo.shop.svc\n" in config
    assert config.index("loose_max_connections") < config.index("sync_binlog=1")


def test_an_order_for_an_earlier_start_opens_nothing(pod: Pod) -> None:
    pod.order("1 primary 5")
    pod.start()
    pod.until("started")
    pod.stop()
    pod.start()
    pod.waits()
    pod.looked()
    assert not (pod.home / "started").exists()
    pod.order("2 primary 6")
    assert "--init-rpl-role=MASTER" in pod.until("started")


def test_a_node_that_lost_the_count_takes_only_an_order_that_came_after_its_start(pod: Pod) -> None:
    pod.order("3 primary 5")
    pod.start()
    pod.waits()
    pod.looked()
    assert not (pod.home / "started").exists()
    pod.order("4 replica 6")
    assert "--init-rpl-role=SLAVE" in pod.until("started")


def test_a_pod_that_is_stopped_at_its_gate_ends_at_once(pod: Pod) -> None:
    pod.order("")
    pod.start()
    pod.waits()
    assert pod.process is not None
    pod.process.terminate()
    assert pod.exit() == 0


def test_a_server_waits_for_room_on_its_volume_instead_of_ending(pod: Pod) -> None:  # trap 22
    room = pod.home / "room"
    room.write_text("3000")
    (pod.home / "bin" / "df").write_text(DF)
    (pod.home / "bin" / "df").chmod(0o755)
    pod.order("1 primary 5")
    pod.start()
    assert "has only 3000 KiB left" in pod.until("log")
    assert pod.state() == "waiting"  # for the probes: neither ready nor dead
    assert not (pod.volume / "data").exists()

    room.write_text("50000")
    assert "--init-rpl-role=MASTER" in pod.until("started")
    assert (pod.home / "log").read_text().count("KiB left") == 1


def test_a_directory_whose_initialisation_was_cut_off_is_made_again(pod: Pod) -> None:
    (pod.volume / "data.new" / "half").mkdir(parents=True)
    pod.order("1 primary 5")
    pod.start()
    pod.until("started")
    assert (pod.volume / "data" / "mysql").is_dir()
    assert not (pod.volume / "data.new").exists()


COPIER = """#!/bin/sh
case "$*" in
*--bootstrap*) cat >"$HOME_OF/bootstrap.sql"; exit 0 ;;
*--version*) echo mariadbd; exit 0 ;;
*seed.sock*) trap 'exit 0' TERM; : >"$HOME_OF/listens"; while :; do sleep 0.02; done ;;
esac
echo "$@" >"$HOME_OF/started"
exec sleep 60
"""
CLIENT = """#!/bin/sh
case "$*" in
*gtid_slave_pos*) echo 0-1-7 ;;
*'SELECT 1'*) [ -e "$HOME_OF/listens" ] ;;
*) cat >/dev/null ;;
esac
"""


def copies(pod: Pod, *, works: bool) -> None:
    """Programs that copy from a donor, or fail to."""
    texts = {"mariadbd": COPIER, "mariadb": CLIENT, "mariadb-dump": f"#!/bin/sh\nexit {0 if works else 1}\n"}
    for name, text in texts.items():
        (pod.home / "bin" / name).write_text(text)
        (pod.home / "bin" / name).chmod(0o755)


def ran(pod: Pod, start: int, order: str, holds: str = "") -> None:
    """A container start with its order; its server leaves ``holds`` in the data directory."""
    pod.order(f"{start} {order}")
    pod.start()
    pod.until("started")
    if holds:
        (pod.volume / "data" / "rows").write_text(holds)
    pod.stop()


def kept(pod: Pod) -> dict[str, str]:
    """What stands in the directories on the volume."""
    return {path.parent.name: path.read_text() for path in pod.volume.glob("*/rows")}


def test_data_that_a_server_ran_on_is_kept_whatever_the_order_for_its_copy_was(pod: Pod) -> None:
    ran(pod, 1, "replica 5", holds="first")
    ran(pod, 2, "replica 6 fresh", holds="second")
    assert kept(pod) == {"data.old": "first", "data": "second"}
    copies(pod, works=False)
    pod.order("3 replica 7 fresh seed demo-0")
    pod.start()
    assert pod.exit() == 1
    copies(pod, works=True)
    ran(pod, 4, "replica 8 seed demo-0", holds="copy")
    assert kept(pod) == {"data.old": "first", "data.old.2": "second", "data": "copy"}


def test_a_whole_copy_stands_for_what_was_set_aside_before_it(pod: Pod) -> None:
    copies(pod, works=True)
    ran(pod, 1, "replica 5", holds="first")
    ran(pod, 2, "replica 6 fresh seed demo-0", holds="copy")
    ran(pod, 3, "replica 7 fresh", holds="second")
    assert kept(pod) == {"data.old": "copy", "data": "second"}
    ran(pod, 4, "replica 8 fresh", holds="third")
    assert kept(pod) == {"data.old": "copy", "data.old.2": "second", "data": "third"}


def test_a_directory_that_no_server_ran_on_is_not_kept(pod: Pod) -> None:
    copies(pod, works=False)
    pod.order("1 replica 5 seed demo-0")
    pod.start()
    assert pod.exit() == 1
    copies(pod, works=True)
    ran(pod, 2, "replica 6 seed demo-0")
    assert sorted(path.name for path in pod.volume.iterdir() if path.is_dir()) == ["data"]
    assert not (pod.volume / "data" / ".mooring-unused").exists()


def test_a_copy_from_a_donor_that_sends_nothing_any_more_is_given_up(pod: Pod) -> None:
    copies(pod, works=True)
    (pod.home / "bin" / "mariadb-dump").write_text("#!/bin/sh\nexec sleep 600\n")
    pod.order("1 replica 5 seed demo-0")
    pod.start(COPY_PATIENCE="1")
    assert pod.exit() == 1
    assert "the data of demo-0 could not be copied" in pod.until("term")
    assert "no file of the copy changed for 1 s" in pod.until("log")


def test_a_slow_copy_goes_on(pod: Pod) -> None:
    copies(pod, works=True)
    slow = 'for n in 1 2 3 4 5 6 7 8 9; do sleep 0.5; : >"$HOME_OF/volume/data.new/$n"; done'
    (pod.home / "bin" / "mariadb-dump").write_text(f"#!/bin/sh\n{slow}\n")
    pod.order("1 replica 5 seed demo-0")
    pod.start(COPY_PATIENCE="3")
    pod.until("started")
    assert (pod.volume / "data" / "9").exists()


def test_an_initialisation_that_fails_leaves_no_password_behind(pod: Pod) -> None:
    (pod.home / "bin" / "mariadbd").unlink()
    (pod.home / "bin" / "mysqld").write_text(
        "#!/bin/sh\ncase $* in *--version*) echo 9.7; exit 0 ;; esac\nexit 1\n"
    )
    (pod.home / "bin" / "mysqld").chmod(0o755)
    pod.start()
    assert pod.exit() == 1
    assert "could not be initialised" in pod.until("term")
    assert not (pod.home / "run" / "accounts.sql").exists()


UPGRADED = """#!/bin/sh
case "$*" in
*--bootstrap*) cat >"$HOME_OF/bootstrap.sql"; exit 0 ;;
*--version*) echo "mariadbd  Ver 11.8.9-MariaDB-deb13 for linux"; exit 0 ;;
*--skip-networking*) trap 'exit 0' TERM; echo "$@" >"$HOME_OF/apart"; while :; do sleep 0.05; done ;;
esac
echo "$@" >"$HOME_OF/started"
exec sleep 60
"""

ONCE_APART = """#!/bin/sh
[ -s "$HOME_OF/apart" ]
"""
"""It is answered once that server has begun, and can be ended in order."""


def programs(pod: Pod, **texts: str) -> None:
    for name, text in texts.items():
        path = pod.home / "bin" / name.replace("_", "-")
        path.write_text(text)
        path.chmod(0o755)


def written_by(pod: Pod, version: str, *, name: str = "mysql_upgrade_info") -> None:
    (pod.volume / "data" / "mysql").mkdir(parents=True)
    (pod.volume / "data" / name).write_text(version)


def test_system_tables_are_brought_to_a_later_series_before_anyone_connects(pod: Pod) -> None:
    written_by(pod, "10.11.19-MariaDB")
    upgrade = """#!/bin/sh
[ ! -e "$HOME_OF/started" ] && echo "$@" >"$HOME_OF/upgrade"
"""
    programs(pod, mariadbd=UPGRADED, mariadb=ONCE_APART, mariadb_upgrade=upgrade)
    pod.order("1 replica 7")
    pod.start()
    assert "--init-rpl-role=SLAVE" in pod.until("started")
    assert "--init-rpl-role=SLAVE" in pod.until("apart")  # what it recovers, it recovers as a replica
    assert "--socket=" in pod.until("upgrade")
    assert not (pod.home / "run" / "copy.cnf").exists()


def test_system_tables_of_the_same_series_are_left_alone(pod: Pod) -> None:
    written_by(pod, "11.8.2-MariaDB", name="mariadb_upgrade_info")
    programs(pod, mariadbd=UPGRADED, mariadb_upgrade="#!/bin/sh\nexit 1\n")
    pod.order("1 replica 7")
    pod.start()
    pod.until("started")
    assert not (pod.home / "apart").exists()


def test_an_upgrade_that_fails_starts_no_server_and_leaves_no_password_behind(pod: Pod) -> None:
    written_by(pod, "10.11.19-MariaDB")
    programs(pod, mariadbd=UPGRADED, mariadb=ONCE_APART, mariadb_upgrade="#!/bin/sh\nexit 1\n")
    pod.order("1 replica 7")
    pod.start()
    assert pod.exit() == 1
    assert "could not be brought to 11.8" in (pod.home / "term").read_text()
    assert not (pod.home / "started").exists()
    assert not (pod.home / "run" / "copy.cnf").exists()


def test_data_of_a_later_series_is_not_touched_by_an_earlier_one(pod: Pod) -> None:
    written_by(pod, "12.3.1-MariaDB", name="mariadb_upgrade_info")
    programs(pod, mariadbd=UPGRADED)
    pod.order("1 primary 7")
    pod.start()
    assert pod.exit() == 1
    assert "spec.image" in (pod.home / "term").read_text()
    assert not (pod.home / "started").exists()


def test_passwords_go_to_the_server_by_its_input_alone(pod: Pod) -> None:
    password = "it's a \\ secret"
    (pod.home / "auth" / "root-password").write_text(password)
    pod.order("1 primary 5")
    pod.start()
    pod.until("started")
    assert "IDENTIFIED BY 'it\\'s a \\\\ secret'" in pod.until("bootstrap.sql")
    for path in (pod.home / "run").iterdir():
        assert path.is_dir() or password not in path.read_text(errors="replace")


def test_an_image_of_the_other_flavour_says_which_field_to_correct(pod: Pod) -> None:
    pod.start(FLAVOR="mysql")
    assert pod.exit() == 1
    assert "the image holds mariadb, not mysql; correct spec.flavor or spec.image" in pod.until("term")


def test_two_servers_never_share_a_volume(pod: Pod) -> None:
    pod.order("1 primary 5")
    pod.start()
    pod.until("started")
    taken = subprocess.run(
        ["flock", "-n", str(pod.volume / ".mooring-lock"), "true"], check=False, env=pod.environment
    )
    assert taken.returncode == 1


@pytest.mark.parametrize(("state", "code"), [("initialising", 0), ("waiting", 0), ("starting", 0), ("up", 1)])
def test_only_a_server_that_has_answered_before_may_count_as_dead(pod: Pod, state: str, code: int) -> None:
    client = pod.home / "bin" / "mariadb"
    client.write_text("#!/bin/sh\necho 'ERROR 2002 (HY000): no connection'\nexit 1\n")
    client.chmod(0o755)
    (pod.home / "run" / "state").write_text(f"{state}\n")
    live = subprocess.run(
        ["sh", str(pod.home / "scripts" / "live.sh")], env=pod.environment, check=False
    ).returncode
    assert live == code


@pytest.mark.parametrize("error", ["1040 (08004): Too many connections", "1045 (28000): Access denied"])
def test_a_server_that_refuses_is_alive(pod: Pod, error: str) -> None:
    client = pod.home / "bin" / "mariadb"
    client.write_text(f"#!/bin/sh\necho 'ERROR {error}'\nexit 1\n")
    client.chmod(0o755)
    (pod.home / "run" / "state").write_text("up\n")
    done = subprocess.run(["sh", str(pod.home / "scripts" / "live.sh")], env=pod.environment, check=False)
    assert done.returncode == 0


def cut(volume: Path, text: str) -> None:
    """Run the tail cut of the start script alone."""
    script = scripts.START
    body = script[script.index("cut_tail() {") : script.index('[ -z "$file" ]')]
    order = gate.parse(text)
    assert order is not None
    assert order.cut is not None
    head = (
        f"set -eu\nvolume={volume}\ndata=$volume/data\nfile={order.cut.file}\nposition={order.cut.position}\n"
    )
    subprocess.run(["sh", "-c", f"{head}{body}\ncut_tail"], check=True)


def test_the_tail_of_a_binary_log_is_cut_with_all_later_files(pod: Pod) -> None:
    data = pod.volume / "data"
    data.mkdir()
    names = [f"binlog.{number:06}" for number in (1, 2, 3, 4)]
    for name in names:
        (data / name).write_bytes(b"x" * 100)
    (data / "binlog.index").write_text("".join(f"./{name}\n" for name in names))
    (data / "auto.cnf").write_text("[auto]\n")
    cut(pod.volume, "1 replica 5 cut binlog.000002 60")
    assert not (data / "auto.cnf").exists()
    assert [path.stat().st_size for path in sorted(data.glob("binlog.0*"))] == [100, 60]
    assert (data / "binlog.index").read_text() == "./binlog.000001\n./binlog.000002\n"
    cut(pod.volume, "1 replica 5 cut binlog.000002 80")
    assert (data / "binlog.000002").stat().st_size == 60
    cut(pod.volume, "1 replica 5 cut binlog.000009 4")
    assert len(list(data.glob("binlog.0*"))) == 2
