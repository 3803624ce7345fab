"""The Dockerfile against the image that is made without an engine: its own steps are run, on this machine's Python."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hack.images.recipes import build

ROOT = Path(__file__).resolve().parents[2]
#: MiB of the archive, compressed; 47.6 when this was written, of which drivers, CEL and object stores are a third.
SIZE = 50
#: pip and the compiler write down where and when they ran.
VARIES = (".pyc", "RECORD")
#: Wheels that Debian's 3.11.2 needs and later ones do not.
EARLIER = "async_timeout"

pytestmark = [pytest.mark.full, pytest.mark.timeout(300)]


@dataclass
class Stage:
    """A stage of a Dockerfile: its files, and how a container of it runs."""

    root: Path
    settings: dict[str, str] = field(default_factory=dict)


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Dockerfile, continued lines joined."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, rest = line.partition(" ")
        yield name, rest


def followed(dockerfile: Path, place: Path) -> Stage:
    """Do what a Dockerfile says, with this machine for its base images; the last stage."""
    stages: dict[str, Stage] = {}
    current = Stage(place)
    for name, rest in instructions(dockerfile.read_text()):
        words = rest.split()
        if name == "FROM":
            current = Stage(place / str(len(stages)))
            current.root.mkdir()
            stages[words[-1] if "AS" in words else str(len(stages))] = current
        elif name == "COPY":
            origin = dockerfile.parent
            if words[0].startswith("--from="):
                origin = stages[words.pop(0).removeprefix("--from=")].root
            copy(origin / words[0].lstrip("/"), current.root / words[1].lstrip("/"))
        elif name == "RUN":
            subprocess.run(sandbox(current.root, rest), check=True)
        else:
            current.settings[name] = rest
    return current


def copy(source: Path, target: Path) -> None:
    """Copy a file or a directory's content, but for what .dockerignore leaves out."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        ignored = shutil.ignore_patterns("__pycache__") if source.is_relative_to(ROOT) else None
        shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
    else:
        shutil.copyfile(source, target)


def sandbox(root: Path, command: str) -> list[str]:
    """A shell command with these files for the root, and this machine's programs."""
    seen = {Path("/usr"), Path("/etc"), Path(sys.prefix), Path(sys.base_prefix), Path.home()}
    mounts = [word for path in sorted(seen) for word in ("--ro-bind", str(path), str(path))]
    missing = [name for name in ("bin", "lib", "lib64") if not (root / name).is_symlink()]
    links = [word for name in missing for word in ("--symlink", f"usr/{name}", f"/{name}")]
    search = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    made = ["--bind", str(root), "/", *mounts, *links, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    ours = [word for name in ("PYTHONPATH", "PYTHONPYCACHEPREFIX") for word in ("--unsetenv", name)]
    words = ["--setenv", "PATH", search, *ours, "--die-with-parent"]
    return ["bwrap", *made, *words, "sh", "-c", command]


def contents(archive: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Digests of an image's files below opt/mooring, and how it runs."""
    with tarfile.open(archive) as files:
        read = {member.name: file.read() for member in files if (file := files.extractfile(member))}
    manifest = json.loads(read["manifest.json"])[0]
    layer = gzip.decompress(read[manifest["Layers"][0]])
    with tarfile.open(fileobj=io.BytesIO(layer)) as files:
        kept = {
            member.name.removeprefix("opt/mooring/"): digest(member.name, file.read())
            for member in files
            if member.name.startswith("opt/mooring/") and (file := files.extractfile(member))
        }
    return kept, json.loads(read[manifest["Config"]])["config"]


def digest(name: str, content: bytes) -> str:
    return "" if name.endswith(VARIES) else hashlib.sha256(content).hexdigest()


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image's Python is 3.11")
def test_the_dockerfile_makes_what_is_made_without_an_engine(tmp_path: Path) -> None:
    files, config = contents(build("mooring"))

    stage = followed(ROOT / "Dockerfile", tmp_path)

    top = stage.root / "opt" / "mooring"
    made = {
        str(path.relative_to(top)): digest(path.name, path.read_bytes())
        for path in top.rglob("*")
        if path.is_file() and not path.relative_to(top).parts[0].startswith(EARLIER)
    }
    assert made == {name: content for name, content in files.items() if not name.startswith(EARLIER)}
    assert stage.settings["USER"] == config["User"]
    assert json.loads(stage.settings["CMD"]) == config["Cmd"]
    assert ["/usr/bin/python3", *json.loads(stage.settings["ENTRYPOINT"])[1:]] == config["Entrypoint"]
    assert set(stage.settings["ENV"].split()) <= set(config["Env"])


def test_the_image_is_small() -> None:
    assert build("mooring").stat().st_size < SIZE * 2**20
