"""Pages whose commands are pasted: what each prints is compared with what the page shows."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.cli.program import temporary
from tests.examples.programs import EXAMPLES

__all__ = ["ROOT", "Command", "blocks", "commands", "paste"]

ROOT = EXAMPLES.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass
class Command:
    """A line somebody would paste, and what the page says it prints ([]: not said)."""

    text: str
    shows: list[str] = field(default_factory=list)


def blocks(page: Path, language: str) -> Iterator[str]:
    """The code of a language."""
    for found in BLOCK.finditer(page.read_text()):
        if found[1] == language:
            yield found[2]


def commands(page: Path) -> list[Command]:
    """The commands of a page, in order."""
    found: list[Command] = []
    for block in blocks(page, "console"):
        for line in block.splitlines():
            if line.startswith("$ "):
                found.append(Command(line[2:]))
            else:
                found[-1].shows.append(line)
    return found


def paste(page: Path, place: str) -> None:
    """Paste every command of a page into one shell; ``place`` is the page's data directory, another one here.

    The plane there is ended whatever happens.
    """
    asked = commands(page)
    with temporary() as home:
        script = "set -e\ntrap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + "".join(
            f"echo '@@ {n}'\n{one.text}\n" for n, one in enumerate(asked)
        )
        done = _run(script.replace(place, str(home / "guide")), home)

    printed = _by_command(done.stdout)
    last = max(printed)
    said = "\n".join([*printed[last][-20:], done.stderr[-3000:]])
    assert done.returncode == 0, f"`{asked[last].text}` ended with status {done.returncode}:\n{said}"
    for number, one in enumerate(asked):
        if one.shows:
            expected = [line.split() for line in one.shows]
            assert [line.split() for line in printed[number] if line] == expected, (
                f"`{one.text}` shows something else: {printed[number]}"
            )


def _run(script: str, home: Path) -> subprocess.CompletedProcess[str]:
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
