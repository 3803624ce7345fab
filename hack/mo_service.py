"""Builds MatrixOne's server, ``mo-service``, once, into a cache outside of the tree.

    python -m hack.mo_service        prints the program's path

It is built from its Go module, pinned in `matrixone/go.mod`; besides Go that needs gcc. The last build is also found
as ``<cache>/mo-service/current/mo-service``, where the embedded node looks for it.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hack.kubernetes.binaries import BuildError, Linked, build_module, cache_root

__all__ = ["VERSION", "build"]

MODULE = Path(__file__).with_name("matrixone")
_NAME = "github.com/matrixorigin/matrixone"
_SOURCES = ("mo", "arith", "compare", "logic")
_CFLAGS = ("-std=c99", "-O3", "-w")


def _version() -> str:
    found = re.search(rf"^\s*{re.escape(_NAME)} v(\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{MODULE / 'go.mod'} pins no {_NAME}")
    return found[1]


#: The pinned version, such as ``1.2.4``.
VERSION = _version()


def build() -> Path:
    """The program; built on first use, in about seven minutes of two cores."""
    stamp = f"-X {_NAME}/pkg/version.Version=v{VERSION}"
    linked = Linked(
        # Its dependencies reach into the runtime, which Go refuses since 1.23 unless told otherwise.
        ldflags=f"-s -w -checklinkname=0 {stamp}",
        library=_library,
        inputs=" ".join([*_SOURCES, *_CFLAGS]),
        takes="about seven minutes of two cores, 1.3 GB of modules and 1.5 GB of Go's build cache",
    )
    program = build_module(MODULE, "mo-service", package=f"{_NAME}/cmd/mo-service", linked=linked)
    _publish(program, cache_root() / "mo-service" / "current")
    return program


def _library(go: Path, module: Path, scratch: Path) -> Mapping[str, str]:
    """Compile its C library; returns the environment that finds it."""
    environment = {**os.environ, "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly", "GOWORK": "off"}
    _run([str(go), "mod", "download", _NAME], module, environment)
    source = Path(_run([str(go), "list", "-m", "-f", "{{.Dir}}", _NAME], module, environment).strip()) / "cgo"
    for name in _SOURCES:
        _run(["gcc", *_CFLAGS, "-c", str(source / f"{name}.c"), "-o", f"{name}.o"], scratch, environment)
    _run(["ar", "-rcs", "libmo.a", *(f"{name}.o" for name in _SOURCES)], scratch, environment)
    return {
        "CGO_ENABLED": "1",
        "CGO_CFLAGS": f"-I{source}",
        "CGO_LDFLAGS": f"-L{scratch} -lmo -lm",
    }


def _publish(program: Path, link: Path) -> None:
    """Point the link to the program's directory by one rename, so that readers always find one."""
    if link.is_symlink() and os.readlink(link) == program.parent.name:
        return
    with tempfile.TemporaryDirectory(prefix=f".{link.name}.", dir=link.parent) as place:
        fresh = Path(place) / link.name
        fresh.symlink_to(program.parent.name)
        fresh.rename(link)


def _run(command: list[str], place: Path, environment: Mapping[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=900,
        )
    except OSError as error:
        raise BuildError(f"{command[0]}: {error.strerror}; install gcc and libc6-dev") from error
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{' '.join(command[:3])} did not end within {late.timeout:g} s") from late
    if done.returncode:
        raise BuildError(f"{' '.join(command[:3])} failed:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def main() -> int:
    """Build it and print its path; a failure is one message and status 1."""
    try:
        print(build())
    except BuildError as failed:
        print(f"mo-service: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
