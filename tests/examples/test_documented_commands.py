"""Every command of the documentation can be pasted in a clone: its program, module, file and target exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.examples.programs import EXAMPLES

from mooring.cli.main import COMMANDS

ROOT = EXAMPLES.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
#: Programs that are not of this tree.
OTHERS = frozenset(
    {"kubectl", "helm", "docker", "tar", "touch", "ls", "kill", "export", "make", "curl", "go", "cd"}
    | {"sha256sum", "ssh-keygen"}
)


def commands(page: Path) -> Iterator[str]:
    for block in BLOCK.findall(page.read_text()):
        for line in block.splitlines():
            if line.startswith("$ "):
                yield line[2:].partition(" #")[0].strip()


def targets() -> set[str]:
    return set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def wrong(command: str) -> str:
    """What of a command is not there; empty if all of it is."""
    words = command.split()
    while "=" in words[0] and not words[0].startswith("-"):
        words.pop(0)
    if words[0] == "make":
        return "" if words[1] in targets() else f"no target {words[1]}"
    if words[0] != "./mooring":
        return "" if words[0] in OTHERS else f"{words[0]}: not a program of this tree; begin with ./mooring"
    if not words[1].startswith("-") and words[1] not in COMMANDS:
        return f"no command {words[1]}"
    if words[1:3] == ["exec", "python"]:
        named = words[4].replace(".", "/") if words[3] == "-m" else words[3].removesuffix(".py")
        if words[3:5] == ["-m", "pytest"]:
            return ""
        places = [ROOT / f"{named}.py", ROOT / named / "__main__.py", ROOT / "src" / f"{named}.py"]
        places += ROOT.glob(f"examples/*/{named}/__main__.py")  # with PYTHONPATH
        return "" if any(place.exists() for place in places) else f"no program {named}"
    return ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_names_what_there_is(page: Path) -> None:
    assert [f"{one}: {wrong(one)}" for one in commands(page) if wrong(one)] == []


@pytest.mark.parametrize(
    "command",
    [
        *("python bench/faults.py", "mooring why a/b", "./mooring nonsense", "make nonsense"),
        *("./mooring exec python -m bench.nonsense", "./mooring exec python bench/nonsense.py"),
    ],
)
def test_what_there_is_not_is_found(command: str) -> None:
    assert wrong(command)


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/zh-CN/*.md")), ids=lambda page: str(page.name))
def test_a_chinese_page_has_the_commands_of_the_english_one(page: Path) -> None:
    assert list(commands(page)) == list(commands(ROOT / "docs" / page.name))
