"""``mooring enter``: a command in the network of a running control plane."""

from __future__ import annotations

import argparse
import os
import shutil
from pathlib import Path

from mooring.local.directory import DataDirectory, default_directory, write_private
from mooring.local.ranges import Ranges

__all__ = ["add_parser"]

#: Puts the cluster's resolv.conf in the place of the machine's, for the command alone.
_WITH_NAMES = """
mount --bind "$1" /etc/resolv.conf || echo 'mooring: Services cannot be reached by name, only by address' >&2
shift
exec "$@"
"""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "enter", help="run a command (default: a shell) where pods and Services can be reached"
    )
    parser.add_argument(
        "--data-dir", type=Path, help="as given to up (default: $MOORING_DATA_DIR, or up's default)"
    )
    parser.add_argument(
        "command", nargs=argparse.REMAINDER, help="for example: redis-cli -h redis-sentinel-demo -p 26379"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Become the command; as a plain user inside the namespaces of the control plane.

    It has a mount namespace of its own, in which /etc/resolv.conf names the cluster's DNS server.
    """
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
    if ranges := Ranges.known(directory):
        named = ["sh", "-c", _WITH_NAMES, "sh", str(_resolver(directory, ranges)), *command]
        command = [shutil.which("unshare") or "/usr/bin/unshare", "-m", "--", *named]
    if _same_network(owner):
        os.execvp(command[0], command)
    nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
    arguments = ["-t", str(owner), "-U", "-n", "--preserve-credentials", f"--wd={Path.cwd()}"]
    os.execv(nsenter, [nsenter, *arguments, "--", *command])


def _resolver(directory: DataDirectory, ranges: Ranges) -> Path:
    """A resolv.conf as in a pod of the namespace default."""
    path, domain = directory.path / "resolv.conf", "cluster.local"
    search = f"default.svc.{domain} svc.{domain} {domain}"
    write_private(path, f"nameserver {ranges.dns}\nsearch {search}\noptions ndots:5\n".encode())
    path.chmod(0o644)
    return path


def _same_network(owner: int) -> bool:
    return os.path.samefile("/proc/self/ns/net", f"/proc/{owner}/ns/net")
