"""The commands of docs/operations.md, as they stand there, one after the other, and what they show."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hack.build import helm
from hack.kubernetes.binaries import KUBECTL, build
from tests.charts.helm import CHART, ROOT, Provided

pytestmark = [
    pytest.mark.embedded_alone,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(600),
]

TEXT = ROOT / "docs" / "operations.md"
SECTION = "## The operator as a Helm release"
#: What differs from run to run, and what is put in its place before comparing.
VARIES = (
    (re.compile(r"-[0-9a-f]{8,10}-[a-z0-9]{5}(_[0-9a-f]+)?\b"), "-POD"),
    (re.compile(r"\b(\d+m)?\d+m?s\b|\b\d+m\b"), "AGE"),
)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Every command of the section, and the lines that are shown below it."""
    section = TEXT.read_text().split(SECTION)[1].split("\n## ")[0]
    for block in re.findall(r"```console\n(.*?)```", section, re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, *shown = part.splitlines()
            yield command, shown


def shows(line: str, output: str) -> bool:
    """Whether a line of the page is among those of the output; `...` stands for anything."""
    wanted = r"\s+".join(re.escape(word).replace(r"\.\.\.", ".*") for word in _normal(line).split())
    return any(re.match(rf"\s*{wanted}", one) for one in map(_normal, output.splitlines()))


def _normal(line: str) -> str:
    for pattern, shown in VARIES:
        line = pattern.sub(shown, line)
    return line


async def test_every_command_on_the_page_does_what_the_page_shows(provided: Provided, tmp_path: Path) -> None:
    environment = at_hand(tmp_path, provided.kubeconfig)
    ran = 0
    for command, shown in commands():
        process = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            cwd=tmp_path,
            env=environment,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output = (await process.communicate())[0].decode()
        fails = any(line.startswith("Error") for line in shown)
        assert (process.returncode != 0) is fails, f"{command}\n{output}"
        missing = [line for line in shown if not shows(line, output)]
        assert missing == [], f"{command}\n{output}"
        ran += 1
    assert ran > 15


def at_hand(place: Path, kubeconfig: Path) -> dict[str, str]:
    """A directory with what the commands name, and an environment with the programs they call."""
    shutil.copytree(CHART, place / "charts" / "mooring")
    shutil.copytree(ROOT / "examples", place / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    programs = place / "bin"
    programs.mkdir()
    (programs / "helm").symlink_to(helm(3))
    (programs / "kubectl").symlink_to(build(KUBECTL) / "kubectl")
    (programs / "mooring").write_text(f'#!/bin/sh\nexec {sys.executable} -m mooring "$@"\n')
    (programs / "mooring").chmod(0o755)
    return {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "HOME": str(place),
        "KUBECONFIG": str(kubeconfig),
    }
