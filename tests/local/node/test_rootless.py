"""A plain user's plane: the same tests, in namespaces of the user's own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from mooring.local.node import rootless

pytestmark = pytest.mark.embedded

ROOT = Path(__file__).parents[3]

ENTER = """
import os, socket, sys
from mooring.local.node import rootless
if not rootless.inside():
    listening = socket.create_server(("127.0.0.1", 0))
    os.environ["PORT"] = str(listening.getsockname()[1])
    rootless.reexec([sys.executable, "-c", sys.argv[1]], keep=[listening.fileno()])
"""


def run_as_user(*argv: str, timeout: float = 110) -> subprocess.CompletedProcess[str]:
    """Run Python as a plain user: this one, or one that root becomes."""
    command = [sys.executable, *argv]
    if os.geteuid() == 0:
        become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--"]
        needed = [Path(sys.executable), Path(sys.executable).resolve(), ROOT / "src"]
        if closed := [p for path in needed for p in path.parents if not p.stat().st_mode & 0o001]:
            pytest.skip(f"another user cannot reach the interpreter or the tree: {closed[-1]} is closed")
        command = [*become, *command]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout)


def not_allowed() -> str | None:
    return rootless.trouble() if os.geteuid() != 0 else None


@pytest.mark.skipif(rootless.inside(), reason="no other user exists in here")
def test_the_command_is_root_in_its_own_network_and_keeps_its_sockets() -> None:
    if why := not_allowed():
        pytest.skip(why)
    program = """
import os, socket
from mooring.local.node import rootless
assert os.geteuid() == 0 and rootless.inside() and rootless.outer_uid() != 0
kept = [socket.socket(fileno=int(n)) for n in os.listdir("/proc/self/fd") if int(n) > 2
        and os.path.exists(f"/proc/self/fd/{n}") and "socket" in os.readlink(f"/proc/self/fd/{n}")]
assert [s.getsockname()[1] for s in kept] == [int(os.environ["PORT"])]
assert [name for _, name in socket.if_nameindex()] == ["lo"]
socket.create_server(("127.0.0.1", 53)).close()
print("fine")
os._exit(0)
"""
    script = f"PROGRAM = {program!r}\n" + ENTER.replace("sys.argv[1]", "PROGRAM")
    done = run_as_user("-c", script)
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.skipif(os.geteuid() == 0 or rootless.inside(), reason="for a plain user's test run")
def test_the_whole_suite_of_the_node_passes_in_a_plain_users_namespaces(tmp_path: Path) -> None:
    if why := not_allowed():
        pytest.skip(why)
    program = (
        "import sys, pytest; sys.exit(pytest.main(['tests/local/node', '-q', '-p', 'no:cacheprovider', "
        f"'--basetemp', {str(tmp_path / 'inner')!r}]))"
    )
    script = f"PROGRAM = {program!r}\n" + ENTER.replace("sys.argv[1]", "PROGRAM")
    done = run_as_user("-c", script)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]


def test_a_machine_that_forbids_it_is_told_how_to_allow_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(flags: int) -> None:
        raise PermissionError

    monkeypatch.setattr("mooring.local.node.namespaces.unshare", refuse)
    with pytest.raises(rootless.RootlessError, match="user namespaces are not allowed"):
        rootless.reexec([sys.executable])


def test_sockets_are_unaffected_by_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rootless, "trouble", lambda: "no")
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        pytest.raises(rootless.RootlessError),
    ):
        rootless.reexec([sys.executable], keep=[listening.fileno()])
    assert not os.get_inheritable(listening.fileno()) if listening.fileno() >= 0 else True
