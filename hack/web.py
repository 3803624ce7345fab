"""Build the console's page, or with ``--check`` fail when the committed bundle is not what ``web/`` builds.

    python hack/web.py            # npm ci, then vite build into src/mooring/console/static
    python hack/web.py --check    # the same into a directory of its own, and compare

Needs node and npm, which whoever only uses the console does not.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "mooring" / "console" / "static"

__all__ = ["difference", "main"]


def main() -> int:
    """Build or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if shutil.which("npm") is None:
        print("web: npm is not there" + (": not checked" if options.check else ""), file=sys.stderr)
        return 0 if options.check else 1
    if not options.check:
        _build(WEB, STATIC)
        return 0
    with tempfile.TemporaryDirectory(prefix="mooring-web-") as place:
        copy, built = Path(place) / "web", Path(place) / "static"
        shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules"))
        _build(copy, built)
        if wrong := difference(built, STATIC):
            print("\n".join(wrong), file=sys.stderr)
            print("the committed page is not what web/ builds: run python hack/web.py", file=sys.stderr)
            return 1
    return 0


def difference(built: Path, committed: Path) -> list[str]:
    """What two directories differ in, a line per file."""
    ours, theirs = _files(built), _files(committed)
    names = sorted(ours.keys() | theirs.keys())
    return [f"{name}: differs" for name in names if ours.get(name) != theirs.get(name)]


def _files(directory: Path) -> dict[str, bytes]:
    found = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


def _build(web: Path, out: Path) -> None:
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error"]
    subprocess.run(["npm", "ci", *quiet], cwd=web, check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["npx", "--no-install", "tsc", "--noEmit"], cwd=web, check=True)
    build = [
        "npx",
        "--no-install",
        "vite",
        "build",
        "--emptyOutDir",
        "--outDir",
        str(out),
        "--logLevel",
        "warn",
    ]
    subprocess.run(build, cwd=web, check=True)


if __name__ == "__main__":
    sys.exit(main())
