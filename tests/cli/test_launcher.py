"""The launcher runs the code of its own tree and cache, whatever lies in the working directory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli.program import ROOT

#: Modules that the launcher's own Python programs import.
IMPORTED = ("hashlib", "sysconfig", "ensurepip", "argparse", "mooring", "yaml")


def launch(*arguments: str, at: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """``./mooring`` from a directory, in the environment that these tests run in."""
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MOORING_ROOT")}
    kept |= {"MOORING_LOCK": "dev", "MOORING_CACHE": str(cache())}
    command = [str(ROOT / "mooring"), *arguments]
    merged = {name: value for name, value in (kept | env).items() if value}
    return subprocess.run(command, cwd=at, env=merged, capture_output=True, text=True, timeout=60)


def cache() -> Path:
    """The launcher's cache, from which these tests themselves run."""
    place = Path(sys.prefix)
    if place.parent.name != "env":
        pytest.skip("these tests do not run from the launcher's environment")
    return place.parents[1]


def test_modules_in_the_working_directory_are_not_imported(tmp_path: Path) -> None:
    for name in IMPORTED:
        (tmp_path / f"{name}.py").write_text("open('imported', 'a').write(__name__)\n")
    (tmp_path / "mooring").mkdir()
    (tmp_path / "mooring" / "__init__.py").write_text("open('imported', 'a').write('mooring')\n")

    done = launch("--version", at=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("mooring ")
    assert not (tmp_path / "imported").exists()


def test_a_cache_that_another_user_made_is_refused(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory away")
    os.chown(tmp_path, 61234, 61234)

    done = launch("--version", at=ROOT, MOORING_CACHE=str(tmp_path))

    assert done.returncode == 1
    assert f"{tmp_path} belongs to another user: set MOORING_CACHE" in done.stderr


def test_a_cache_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)

    done = launch("--version", at=ROOT, MOORING_CACHE=str(tmp_path))

    assert done.returncode == 1
    assert f"{tmp_path} can be written by every user" in done.stderr


def test_without_home_the_cache_is_that_of_the_user_database(tmp_path: Path) -> None:
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "mooring").symlink_to(cache())
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "getent").write_text(f"#!/bin/sh\necho u:x:0:0::{tmp_path}:/bin/sh\n")
    (programs / "getent").chmod(0o755)
    which = "import sys; print(sys.prefix)"
    paths = f"{programs}:{os.environ['PATH']}"

    nowhere = {"HOME": "", "MOORING_CACHE": "", "XDG_CACHE_HOME": ""}
    done = launch("exec", "python", "-c", which, at=ROOT, PATH=paths, **nowhere)

    assert done.stdout.startswith(f"{tmp_path}/.cache/mooring/env/"), done.stderr


@pytest.mark.timeout(
    300
)  # pip fetches what builds the package: minutes on a machine that builds something else too
def test_an_installed_package_brings_the_example_of_the_demo(tmp_path: Path) -> None:
    for name in ("src", "examples"):
        shutil.copytree(ROOT / name, tmp_path / "tree" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path / "tree" / name)
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "--target", tmp_path / "site", tmp_path / "tree"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    shutil.rmtree(tmp_path / "tree")
    found = """if True:
        from mooring.cli.demo import example, read_manifest
        for what in ("redis", "mysql", "matrixone"):
            print(read_manifest(example(what), what).path)
    """
    env = {name: value for name, value in os.environ.items() if name != "MOORING_ROOT"}
    env["PYTHONPATH"] = str(tmp_path / "site")

    shown = subprocess.run([sys.executable, "-P", "-c", found], env=env, capture_output=True, text=True)

    assert shown.stdout.count(f"{tmp_path}/site/") == 3, shown.stderr
