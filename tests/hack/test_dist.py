"""A release: the same commit gives the same bytes, and what is in it works outside any tree."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: A machine that was never used: the launcher's variables are of a tree.
OUTSIDE = {key: value for key, value in os.environ.items() if key not in ("MOORING_ROOT", "PYTHONPATH")}

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]


def run(*command: str, cwd: Path = ROOT, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    return done.stdout


def dist(out: Path, *more: str) -> dict[str, str]:
    command = ("./mooring", "exec", "python", "hack/dist.py", "--output", str(out), *more)
    run(*command, env={**OUTSIDE, "MOORING_LOCK": "dist"})
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("release")
    run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(place / "key"))
    dist(place / "out", "--sign", str(place / "key"))
    return place


def test_the_same_commit_gives_the_same_bytes_and_the_sums_are_signed(release: Path, tmp_path: Path) -> None:
    out = release / "out"
    once = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.iterdir()}
    again = dist(tmp_path / "out")
    assert {name: digest for name, digest in once.items() if name != "SHA256SUMS.sig"} == again
    run("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=out)
    public = (release / "key.pub").read_text()
    (tmp_path / "signers").write_text(f"releases@example.org {public}")
    verify = ("ssh-keygen", "-Y", "verify", "-f", str(tmp_path / "signers"), "-I", "releases@example.org")
    with (out / "SHA256SUMS").open("rb") as sums:
        done = subprocess.run(
            [*verify, "-n", "mooring-release", "-s", str(out / "SHA256SUMS.sig")],
            stdin=sums,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr


def test_the_parts_name_what_they_hold(release: Path) -> None:
    out = release / "out"
    (image,) = out.glob("mooring-image-*.tar")
    with tarfile.open(image) as files:
        names = files.getnames()
    assert {"oci-layout", "index.json", "manifest.json"} <= set(names)
    (bill,) = out.glob("mooring-image-*.cdx.json")
    told = {part["name"]: part["version"] for part in json.loads(bill.read_text())["components"]}
    locked = (ROOT / "requirements" / "operators.txt").read_text()
    assert "aiohttp" in told
    assert all(f"{name}=={version}" in locked for name, version in told.items())
    (source,) = out.glob("mooring-*.tar.gz")
    with tarfile.open(source) as files:
        inside = {name.partition("/")[2] for name in files.getnames()}
    assert {"mooring", "charts/mooring/Chart.yaml", "tests/hack/test_dist.py", "LICENSE"} <= inside
    (chart,) = out.glob("mooring-chart-*.tgz")
    with tarfile.open(chart) as files:
        assert "mooring/values.yaml" in files.getnames()


@pytest.mark.skipif(os.geteuid() != 0, reason="a plain user of the test run is in namespaces already")
def test_the_wheel_alone_runs_the_demo_in_an_empty_directory(release: Path, tmp_path: Path) -> None:
    (wheel,) = (release / "out").glob("*.whl")
    home = tmp_path / "environment"
    run(sys.executable, "-m", "venv", str(home), env=OUTSIDE)
    locked = str(ROOT / "requirements" / "run.txt")
    run(str(home / "bin" / "pip"), "install", "-q", "--require-hashes", "-r", locked, env=OUTSIDE)
    run(str(home / "bin" / "pip"), "install", "-q", "--no-deps", str(wheel), env=OUTSIDE)
    empty = tmp_path / "empty"
    empty.mkdir()
    mooring = str(home / "bin" / "mooring")
    told = run(mooring, "demo", cwd=empty, env=OUTSIDE)
    assert "lost 0 of" in told
    assert "./mooring" not in told
    assert not list(empty.iterdir())
    assert "kind: CustomResourceDefinition" in run(mooring, "crds", cwd=empty, env=OUTSIDE)
    for program in ("kubectl-mooring", "kubectl_complete-mooring"):  # kubectl mooring ..., and its completion
        assert (home / "bin" / program).exists()
    done = subprocess.run(
        [mooring, "test"], cwd=empty, env=OUTSIDE, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "in a checkout" in done.stderr) == (2, True)
