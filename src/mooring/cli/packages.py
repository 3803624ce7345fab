"""The system packages a command needs: found, installed with apt, or named in one line to paste."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

__all__ = ["BROWSER", "COMPILER", "NODE", "SBIN", "TESTS", "MissingPackages", "ensure"]

#: Program -> Debian package, for running pods.
NODE: dict[str, str] = {
    "bwrap": "bubblewrap",
    "ip": "iproute2",
    "nft": "nftables",
    "redis-server": "redis-server",
    "redis-cli": "redis-tools",
}

#: For tests: what images of pods are made of, what fills in a sample, and shells that words are completed in.
TESTS: dict[str, str] = {
    "busybox": "busybox",
    "fish": "fish",
    "memcached": "memcached",
    "patch": "patch",
    "zsh": "zsh",
}

#: For tests of the console in a browser.
BROWSER: dict[str, str] = {"chromium": "chromium", "chromedriver": "chromium-driver"}

#: For building old servers in tests.
COMPILER: dict[str, str] = {"gcc": "build-essential", "make": "build-essential"}

#: Where programs live that a plain user's PATH may not show.
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"


class MissingPackages(RuntimeError):
    """Programs are missing and could not be installed; the message holds the line that installs them."""


def ensure(programs: dict[str, str]) -> None:
    """Make sure every program is there; raises :class:`MissingPackages`.

    Services that a package would start are kept from starting: the pods run the programs.
    """
    missing = sorted({package for program, package in programs.items() if shutil.which(program) is None})
    if not missing:
        return
    line = f"apt-get update && apt-get install -y --no-install-recommends {' '.join(missing)}"
    prefix = _root_prefix()
    if shutil.which("apt-get") is None or prefix is None:
        raise MissingPackages(f"missing: {', '.join(missing)}. As root, run:\n  {line}")
    print(f"mooring: installing {', '.join(missing)} with apt", file=sys.stderr, flush=True)
    _install(missing, prefix)
    still = [program for program in programs if shutil.which(program) is None]
    if still:
        raise MissingPackages(f"{', '.join(still)} not found after the installation. As root, run:\n  {line}")


def _root_prefix() -> list[str] | None:
    """What to put before a command to run it as root, ``None`` when there is no way."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and subprocess.run(["sudo", "-n", "true"], capture_output=True).returncode == 0:
        return ["sudo", "-n"]
    return None


def _install(packages: Iterable[str], prefix: list[str]) -> None:
    policy = Path("/usr/sbin/policy-rc.d")
    fenced = not policy.exists()
    if fenced:  # Debian starts a service on installation unless this says no
        script = "#!/bin/sh\nexit 101\n"
        subprocess.run(
            [*prefix, "tee", str(policy)], input=script.encode(), stdout=subprocess.DEVNULL, check=False
        )
        subprocess.run([*prefix, "chmod", "+x", str(policy)], check=False)
    try:
        command = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get"]
        install = [*prefix, *command, "install", "-y", "-q", "--no-install-recommends", *packages]
        done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            subprocess.run([*prefix, *command, "update", "-q"], capture_output=True)
            done = subprocess.run(install, capture_output=True, text=True)
        if done.returncode:
            print(done.stderr[-2000:], file=sys.stderr)
    finally:
        if fenced:
            subprocess.run([*prefix, "rm", "-f", str(policy)], check=False)
