"""``mooring down``: end a control plane of this machine; objects and data stay."""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
from pathlib import Path

from mooring.local.directory import DataDirectory, default_directory
from mooring.local.node.cleanup import clean, plane_id
from mooring.local.node.network import NetworkConfig

__all__ = ["add_parser", "end"]

#: Seconds for pods to end gracefully, before the control plane is killed.
GRACE_SECONDS = 45.0


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("down", help="stop the embedded control plane; data is kept")
    parser.add_argument(
        "--data-dir", type=Path, help="as given to up (default: $MOORING_DATA_DIR, or up's default)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Stop it, if it runs, and remove what a killed one left."""
    directory = DataDirectory((options.data_dir or default_directory()).absolute())
    owner = directory.owner()
    if owner is None:
        print(f"mooring: nothing runs on {directory.path}")
    else:
        print(f"mooring: stopping; pods may take {GRACE_SECONDS:.0f} s to end", file=sys.stderr, flush=True)
        end(owner)
        print(f"mooring: stopped; data is kept in {directory.path}")
    if directory.exists():
        # Held meanwhile: what another `up` has just made must not be taken for a leftover.
        lock = directory.take()
        try:
            for what in _clean(directory):
                print(f"mooring: removed {what}")
        finally:
            os.close(lock)
    return 0


def _clean(directory: DataDirectory) -> list[str]:
    node = directory.path / "node"
    return clean(node, NetworkConfig(plane=plane_id(node)))


def end(pid: int) -> None:
    """Send SIGTERM and wait; after the grace period SIGKILL (the pods end with it)."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, 10.0)):
            signal.pidfd_send_signal(descriptor, number)
            if select.select([descriptor], [], [], seconds)[0]:
                return
        raise OSError(f"process {pid} does not end")
    except ProcessLookupError:
        return
    finally:
        os.close(descriptor)
