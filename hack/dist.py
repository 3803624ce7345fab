"""Everything that a release consists of, in one directory.

    make dist OUT=dist [SIGN=~/.ssh/release_key] [URL=https://example.org/charts]

The wheel and the source archive, the container image (one file: OCI layout and docker archive), the packaged chart
with its index, a bill of materials (CycloneDX) of what the image and the wheel's extras hold, and `SHA256SUMS`. The same
commit gives the same bytes. With a key, `SHA256SUMS.sig` is made by ``ssh-keygen -Y sign``.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(ROOT))

from hack.images import recipes  # noqa: E402
from hack.images.debian import DebianError  # noqa: E402
from hack.kubernetes.binaries import BuildError, build_module  # noqa: E402

__all__ = ["DistError", "build", "main"]

#: Whose signature it is: `ssh-keygen -Y verify -n` takes the same word.
NAMESPACE = "mooring-release"
SUMS = "SHA256SUMS"
#: The parts whose dependencies are told, and the locked list of each.
LOCKED = {"mooring-image": "operators", "mooring-local": "run"}


class DistError(Exception):
    """A part could not be made; the message holds what the tool printed."""


def build(out: Path, *, sign: Path | None = None, url: str = "") -> list[Path]:
    """Make every part of a release in ``out``, which is emptied of an earlier one; returns the files, SHA256SUMS last.

    ``sign`` is a private key that `ssh-keygen` can read; ``url`` is where the chart will be served. Raises `DistError`.
    """
    out.mkdir(parents=True, exist_ok=True)
    if strange := [path.name for path in out.iterdir() if not _ours(path.name)]:
        raise DistError(f"{out} holds files that are no release of Mooring: {', '.join(sorted(strange)[:5])}")
    for path in out.iterdir():
        path.unlink()
    moment = _moment()
    with tempfile.TemporaryDirectory(prefix="mooring-dist-") as place:
        tree = Path(place) / "tree"
        _export(tree)
        _packages(tree, out, moment)
        _chart(tree, out, moment, url)
    _image(out)
    for name, lock in LOCKED.items():
        _materials(
            out / f"{name}-{recipes.mooring_version()}.cdx.json", ROOT / "requirements" / f"{lock}.txt"
        )
    made = sorted(out.iterdir())
    sums = out / SUMS
    sums.write_text("".join(f"{_sha256(path)}  {path.name}\n" for path in made))
    if sign is not None:
        _run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(sign), "-n", NAMESPACE, str(sums)])
        made.append(out / f"{SUMS}.sig")
    return [*made, sums]


def _ours(name: str) -> bool:
    return name.startswith(("mooring-", SUMS)) or name == "index.yaml"


def _moment() -> int:
    """Seconds since 1970 of the commit: the time of every file in every part."""
    return int(_run(["git", "-C", str(ROOT), "log", "-1", "--format=%ct"]).strip())


def _export(tree: Path) -> None:
    """The files that git knows, as they are in the working tree: what lies about beside them is in no release."""
    for name in _run(["git", "-C", str(ROOT), "ls-files", "-z"]).split("\0"):
        source = ROOT / name
        if name and source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
            target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _packages(tree: Path, out: Path, moment: int) -> None:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(tree)]
    _run(command, environment={"SOURCE_DATE_EPOCH": str(moment)})
    (out / ".gitignore").unlink(missing_ok=True)


def _chart(tree: Path, out: Path, moment: int, url: str) -> None:
    """The chart as `helm package` makes it, its times set to the commit's, and the index of a repository with it alone."""
    program = str(build_module(ROOT / "hack" / "helm", "helm", package="helm.sh/helm/v3/cmd/helm"))
    with tempfile.TemporaryDirectory(prefix="mooring-chart-") as place:
        _run([program, "package", str(tree / "charts" / "mooring"), "--destination", place])
        (packed,) = Path(place).glob("mooring-*.tgz")
        target = out / packed.name.replace("mooring-", "mooring-chart-", 1)
        target.write_bytes(_same_times(packed.read_bytes(), moment))
    _run([program, "repo", "index", str(out), *(("--url", url) if url else ())])
    index = out / "index.yaml"
    when = _run(["date", "-u", "-d", f"@{moment}", "+%Y-%m-%dT%H:%M:%SZ"]).strip()
    text = re.sub(r"^( *(?:created|generated): ).*$", rf'\1"{when}"', index.read_text(), flags=re.MULTILINE)
    index.write_text(text)


def _same_times(packed: bytes, moment: int) -> bytes:
    plain = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(packed)) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(
            old.getmembers(), key=lambda one: (not one.name.endswith("/Chart.yaml"), one.name)
        ):
            member.mtime = moment
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member))
    return gzip.compress(plain.getvalue(), compresslevel=9, mtime=moment)


def _image(out: Path) -> None:
    shutil.copyfile(recipes.build("mooring"), out / f"mooring-image-{recipes.mooring_version()}-amd64.tar")


def _materials(target: Path, lock: Path) -> None:
    _run(
        [
            *(sys.executable, "-m", "cyclonedx_py", "requirements", str(lock)),
            *("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application"),
            *("--output-reproducible", "--output-format", "JSON", "--output-file", str(target)),
        ]
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _run(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(
        command, env={**os.environ, **(environment or {})}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise DistError(f"{command[0]} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a release and print its files with their sizes."""
    parser = argparse.ArgumentParser(prog="dist.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--output", type=Path, default=Path("dist"), metavar="DIR", help="default: dist")
    parser.add_argument(
        "--sign", type=Path, metavar="KEY", help="a private key of ssh: SHA256SUMS gets a signature"
    )
    parser.add_argument("--url", default="", help="where the chart will be served; default: beside its index")
    options = parser.parse_args(arguments)
    try:
        for path in build(options.output, sign=options.sign, url=options.url):
            print(f"{path.stat().st_size / 2**20:8.2f} MiB  {path}")
    except (DistError, BuildError, DebianError, OSError) as failed:
        print(f"dist: {failed}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
