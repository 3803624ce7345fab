"""``mooring new operator NAME``: a project of an operator of one's own, which passes its own checks."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from mooring.cli.program import checkout, program

__all__ = ["add_parser"]

#: Longest name of an operator: the longest lines of its code are then still short enough.
_LONGEST: Final = 24
#: The project that new ones are copies of, below ``examples/`` and in the package.
_PATTERN: Final = "widget-operator"
_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_KIND: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_GROUP: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+")
_LABEL: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
#: Directories that running the pattern's own tests leaves in it.
_LEFT_OUT: Final = frozenset(
    {"__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".cache", ".venv"}
)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("new", help="begin a project: an operator of your own")
    what = parser.add_subparsers(dest="what", required=True, metavar="WHAT")
    operator = what.add_parser(
        "operator", help="types, planner, tests with faults, chart and CI; it works as it is"
    )
    operator.add_argument("name", metavar="NAME", help="such as billing or paper-mill")
    operator.add_argument(
        "--kind", help="the kind of its objects (default: the name, as PaperMill of paper-mill)"
    )
    operator.add_argument("--plural", help="the kind's plural in the API (default: the kind with an s)")
    operator.add_argument(
        "--group", default="example.com", help="the API group, a domain of yours (default: example.com)"
    )
    operator.add_argument(
        "--directory", type=Path, help="where to make it; must not exist (default: ./NAME-operator)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the project; raises :class:`ValueError` that names what is wrong, before anything is written."""
    words = _words(options.name, kind=options.kind, plural=options.plural, group=options.group)
    target = options.directory or Path(f"{options.name}-operator")
    if target.exists():
        raise ValueError(f"{target} exists: remove it, or choose another place with --directory")
    pattern = _pattern()
    target.mkdir(parents=True)
    for source in _files(pattern):
        place = target / _replaced(str(source.relative_to(pattern)), words)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(_replaced(source.read_text(), words))
    _format(target)
    print(f"{target}: an operator of {words['Widget']} ({words['widgets']}.{words['apps.example.org']})")
    print("next:")
    print(f"  cd {target}")
    inside = os.path.relpath(checkout() or ".", target) if checkout() is not None else ""
    launcher = f"MOORING_LOCK=dev {inside}/mooring exec " if inside else ""
    print(f"  {launcher}make check test      # {_needs(inside)}")
    print(f"  {program() if not inside else f'{inside}/mooring'} up --detach --operators none")
    print("README.md says how to run and install it; plan.py is where your rules go.")
    return 0


def _needs(inside: str) -> str:
    return "in Mooring's environment" if inside else "after: pip install --find-links wheels -e '.[dev]'"


def _words(name: str, *, kind: str | None, plural: str | None, group: str) -> Mapping[str, str]:
    """What stands in the pattern, longest first, and what replaces it."""
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise ValueError(
            f"NAME {name!r}: lower case letters, digits and hyphens, at most {_LONGEST}, beginning with a letter"
        )
    if name.endswith("-operator"):
        raise ValueError(f"NAME {name!r}: leave -operator out, it is added")
    if name in {"mooring", "tests"}:
        raise ValueError(f"NAME {name!r} is a package's that the project uses: choose another")
    kind = kind or "".join(word.capitalize() for word in name.split("-"))
    if not _KIND.fullmatch(kind) or len(kind) > _LONGEST:
        raise ValueError(f"--kind {kind!r}: letters and digits, beginning with a capital, at most {_LONGEST}")
    singular = kind.lower()
    plural = plural or f"{singular}s"
    if not _LABEL.fullmatch(plural) or len(plural) > 63:
        raise ValueError(f"--plural {plural!r}: lower case letters, digits and hyphens")
    if not _GROUP.fullmatch(group) or len(group) > 200:
        raise ValueError(f"--group {group!r}: a domain in lower case with a dot, such as apps.example.com")
    if group.endswith((".k8s.io", ".kubernetes.io")):
        raise ValueError(f"--group {group!r} is Kubernetes' own: use a domain of yours")
    package = f"{name.replace('-', '_')}_operator"
    return {
        "apps.example.org": group,
        "widget_operator": package,
        "widget-operator": f"{name}-operator",
        "WidgetActor": f"{kind}Actor",
        "Widget": kind,
        "widgets": plural,
        "widget": singular,
    }


def _replaced(text: str, words: Mapping[str, str]) -> str:
    pattern = re.compile("|".join(map(re.escape, words)))
    return pattern.sub(lambda found: words[found[0]], text)


def _pattern() -> Path:
    """The project to copy: in an installed package beside this module, in a clone below examples/."""
    packaged = Path(__file__).with_name(_PATTERN)
    root = checkout() or Path(__file__).resolve().parents[3]
    return packaged if packaged.is_dir() else root / "examples" / _PATTERN


def _files(pattern: Path) -> Iterator[Path]:
    for path in sorted(pattern.rglob("*")):
        if path.is_file() and not _LEFT_OUT & {*path.relative_to(pattern).parts}:
            yield path


def _format(target: Path) -> None:
    """Other names have other lengths and another order: let ruff set them right, where it is installed."""
    beside = Path(sys.executable).with_name("ruff")
    ruff = str(beside) if beside.exists() else shutil.which("ruff")
    if ruff is None:
        print(f"mooring: no ruff here; run make format in {target} once it is installed", file=sys.stderr)
        return
    for command in (["check", "--fix", "--quiet"], ["format", "--quiet"]):
        # What it cannot set right is not the user's to see now: make check says it.
        subprocess.run([ruff, *command, "."], cwd=target, check=False, capture_output=True)
    shutil.rmtree(target / ".ruff_cache", ignore_errors=True)
