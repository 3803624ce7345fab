"""docs/write-an-operator.md: its programs are the ones in the tree, its commands work when pasted."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.cli.program import needs_kubectl, temporary
from tests.examples.programs import EXAMPLES

ROOT = EXAMPLES.parent
PAGE = ROOT / "docs" / "write-an-operator.md"
PLACE = "/tmp/mooring-guide"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Command:
    """A line somebody would paste, and what the page says it prints ([]: not said)."""

    text: str
    shows: list[str] = field(default_factory=list)


def blocks(language: str) -> Iterator[str]:
    for found in BLOCK.finditer(PAGE.read_text()):
        if found[1] == language:
            yield found[2]


def commands() -> list[Command]:
    found: list[Command] = []
    for block in blocks("console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:]))
            else:
                found[-1].shows.append(line)
    return found


@pytest.mark.parametrize(
    "block", list(blocks("python")), ids=lambda block: block.splitlines()[1].strip()[:40]
)
def test_what_the_page_shows_is_what_runs(block: str) -> None:
    name, _, code = block.partition("\n")
    assert code.rstrip() in (ROOT / name.removeprefix("# ")).read_text()


@needs_kubectl
@pytest.mark.embedded
@pytest.mark.timeout(500)
def test_every_command_works_when_pasted() -> None:
    asked = commands()
    with temporary() as home:
        script = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(
            f"echo '@@ {n}'\n{one.text}\n" for n, one in enumerate(asked)
        )
        done = _paste(script.replace(PLACE, str(home / "guide")), home)

    printed = _by_command(done.stdout)
    last = max(printed)
    said = "\n".join([*printed[last][-20:], done.stderr[-3000:]])
    assert done.returncode == 0, f"`{asked[last].text}` ended with status {done.returncode}:\n{said}"
    for number, one in enumerate(asked):
        if one.shows:
            expected = [line.split() for line in one.shows]
            assert [line.split() for line in printed[number]] == expected, (
                f"`{one.text}` shows something else"
            )


def _paste(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run it as a shell would; the plane is ended whatever happens."""
    environment = {**os.environ, "HOME": str(home), "MOORING_CACHE": _cache()}
    try:
        return subprocess.run(
            ["bash", "-c", script],
            cwd=ROOT,
            env=environment,
            timeout=420,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
    finally:
        down = ["./mooring", "down", "--data-dir", str(home / "guide")]
        subprocess.run(down, cwd=ROOT, env=environment, timeout=60, check=False, capture_output=True)


def _cache() -> str:
    """The environments that are there already: HOME is another one here."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return os.environ.get("MOORING_CACHE") or f"{base}/mooring"


def _by_command(text: str) -> dict[int, list[str]]:
    printed: dict[int, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("@@ "):
            printed[int(line[3:])] = []
        elif printed:
            printed[max(printed)].append(line)
    return printed
