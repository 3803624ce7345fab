"""Known vulnerabilities of the locked dependencies, as PyPI tells them for each release.

    make audit

Reads requirements/*.txt and asks https://pypi.org/pypi/NAME/VERSION/json for each, one after the other. What does not
concern Mooring is listed in `ACCEPTED` with the reason. Exit status 1: something is vulnerable; 2: PyPI
tells nothing of some release, which is named.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["ACCEPTED", "concerns", "locked", "main"]

ROOT: Final = Path(__file__).resolve().parents[1]
#: What does not concern Mooring: the id of the advisory, and why not.
ACCEPTED: Final[Mapping[str, str]] = {}
_PIN: Final = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_SECONDS: Final = 30.0


def locked(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Names and versions of lock files, each pair once, in order."""
    return sorted({(name.lower(), version) for text in texts for name, version in _PIN.findall(text)})


def concerns(name: str, version: str, answer: Mapping[str, Any]) -> Iterator[str]:
    """A line for each vulnerability of a release that was neither withdrawn nor accepted."""
    for one in answer.get("vulnerabilities") or ():
        names = {one["id"], *(one.get("aliases") or ())}
        if one.get("withdrawn") or names & ACCEPTED.keys():
            continue
        fixed = ", ".join(one.get("fixed_in") or ()) or "no release"
        said = " ".join((one.get("summary") or one.get("details") or "").split())[:150]
        yield f"{name} {version}: {', '.join(sorted(names))}; fixed in {fixed}: {said}"


def _ask(name: str, version: str) -> Mapping[str, Any]:
    """What PyPI tells of a release; raises `LookupError` where it does not.

    A mirror may serve the newest release of a project alone, on the page of the project.
    """
    try:
        return _page(f"{name}/{version}")
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
    found = _page(name)
    if found["info"]["version"] != version:
        raise LookupError("the release has no page, and a newer one is out")
    return found


def _page(path: str) -> Mapping[str, Any]:
    request = urllib.request.Request(
        f"https://pypi.org/pypi/{path}/json", headers={"Accept": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        found: Mapping[str, Any] = json.load(answer)
    return found


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="lock files (default: all of requirements/)")
    options = parser.parse_args()
    files = options.files or sorted((ROOT / "requirements").glob("*.txt"))
    pins = locked(file.read_text() for file in files)
    found: list[str] = []
    untold: list[str] = []
    for number, (name, version) in enumerate(pins, 1):
        if sys.stderr.isatty():
            print(f"\r{number} of {len(pins)}", end="", file=sys.stderr, flush=True)
        try:
            found += concerns(name, version, _ask(name, version))
        except (urllib.error.URLError, TimeoutError, ValueError, LookupError) as error:
            untold.append(f"{name} {version}: PyPI does not tell: {error}")
    told = len(pins) - len(untold)
    print(
        "\n".join(
            [*found, *untold, f"{told} of {len(pins)} locked releases, {len(found)} known vulnerabilities"]
        )
    )
    return 1 if found else 2 if untold else 0


if __name__ == "__main__":
    raise SystemExit(main())
