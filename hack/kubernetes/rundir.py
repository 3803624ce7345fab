"""The run directory of one control plane: what is in it, what it says, how it is cleared."""

from __future__ import annotations

import contextlib
import json
import shutil
import signal
from dataclasses import asdict, dataclass, field
from pathlib import Path

from hack.kubernetes import cgroups
from hack.kubernetes.process import Process

__all__ = ["ETCD_PEER_SOCKET", "ETCD_SOCKET", "StartError", "State", "clear", "stop", "tail"]

ETCD_SOCKET = "etcd.sock:0"  # etcd insists on something like host:port
ETCD_PEER_SOCKET = "etcd-peer.sock:0"
_ENTRIES = (
    *("etcd", "pki", "log", "audit.yaml", "kubeconfig", "state.json", "state.json.new"),
    *(ETCD_SOCKET, ETCD_PEER_SOCKET),
    *("node", "volumes"),
)
"""All that a control plane makes in its directory; nothing else in it is ever removed."""


class StartError(RuntimeError):
    """The control plane did not come up; the message holds the last log lines."""


@dataclass
class State:
    """What the keeper says of itself in state.json; `phase` is starting, ready or failed."""

    phase: str
    step: str
    keeper: Process
    server: str = ""
    ready_seconds: float = 0.0
    processes: dict[str, Process] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path) -> State | None:
        """The state of a run directory, or None when there is none."""
        try:
            raw = json.loads((directory / "state.json").read_text())
            raw["keeper"] = Process(**raw["keeper"])
            raw["processes"] = {name: Process(**process) for name, process in raw["processes"].items()}
            return cls(**raw)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (KeyError, TypeError, ValueError):  # a file of this name, but not of ours
            return None

    def write(self, directory: Path) -> None:
        """Replace the state of a run directory; a reader sees the old or the new one."""
        staging = directory / "state.json.new"
        staging.write_text(json.dumps(asdict(self), indent=2) + "\n")
        staging.rename(directory / "state.json")


def stop(directory: Path) -> bool:
    """End exactly the processes of a run directory and remove it; False when nothing was there.

    Processes are named by PID and start time: a PID that now belongs to another is left alone.
    A directory without a state file is not one of ours, and is not touched.
    """
    state = State.read(directory)
    if state is None:
        return False
    with contextlib.suppress(TimeoutError):
        state.keeper.end(signal.SIGTERM)
    state.keeper.end()
    for process in state.processes.values():
        process.end()
    clear(directory)
    return True


def clear(directory: Path) -> None:
    """Remove what a control plane made, and the directory unless it holds anything else."""
    if (directory / "node").exists():
        cgroups.remove(cgroups.name_of(directory))
    for name in _ENTRIES:
        path = directory / name
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                path.unlink()
    with contextlib.suppress(OSError):  # not empty: somebody else's files stay
        directory.rmdir()


def tail(directory: Path, name: str, *, lines: int = 12) -> str:
    """The last lines of one server's log, indented, for a message."""
    path = directory / "log" / f"{name}.log"
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return f"  ({path} does not exist)"
    return "\n".join(f"  {line[:500]}" for line in text.splitlines()[-lines:])
