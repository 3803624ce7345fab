"""``mooring enter``: a command in the network of a running control plane."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from mooring.local.directory import DataDirectory, default_directory

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "enter", help="run a command (default: a shell) where pods and Services can be reached"
    )
    parser.add_argument("--data-dir", type=Path, help="as given to up")
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="for example: redis-cli -h 10.96.0.20 -p 26379"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become the command; as a plain user inside the namespaces of the control plane."""
    directory = DataDirectory((options.data_dir or default_directory()).absolute())
    owner = directory.owner()
    if owner is None:
        raise ValueError(f"nothing runs on {directory.path}; start it with `mooring up`")
    command = options.command or [os.environ.get("SHELL", "/bin/sh")]
    if command[0] == "--":
        command = command[1:]
    if not command or shutil.which(command[0]) is None:
        raise ValueError(f"{' '.join(command[:1]) or '--'}: no such command here")
    os.environ.setdefault("KUBECONFIG", str(directory.kubeconfig))
    if _same_network(owner):
        os.execvp(command[0], command)
    nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
    arguments = ["-t", str(owner), "-U", "-n", "--preserve-credentials", f"--wd={Path.cwd()}"]
    os.execv(nsenter, [nsenter, *arguments, "--", *command])


def _same_network(owner: int) -> bool:
    return os.path.samefile("/proc/self/ns/net", f"/proc/{owner}/ns/net")
