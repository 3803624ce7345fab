"""The page speaks both languages: each text is there in English and in Chinese, and is used."""

from __future__ import annotations

import json
import re
from pathlib import Path

SOURCES = Path(__file__).parents[2] / "web" / "src"
EN, ZH = (json.loads((SOURCES / "locales" / f"{name}.json").read_text()) for name in ("en", "zh"))


def test_both_languages_have_the_same_texts_with_the_same_places() -> None:
    assert EN.keys() == ZH.keys()
    assert all(text.strip() for texts in (EN, ZH) for text in texts.values())
    for key, text in EN.items():
        assert set(re.findall(r"\{\w+\}", text)) == set(re.findall(r"\{\w+\}", ZH[key])), key


def test_every_text_is_used_and_no_other_is_asked_for() -> None:
    code = "\n".join(path.read_text() for path in sorted(SOURCES.glob("*.ts*")))
    used = set(re.findall(r'\bt\(\s*"([\w.]+)"', code)) | set(re.findall(r'\? t\("([\w.]+)"\)', code))
    assert used - EN.keys() == set()
    assert {
        key
        for key in EN.keys() - used
        if not key.startswith(
            ("phase.", "effect.", "theme.", "problem.", "ending.", "outcome.", "show.", "source.", "did.")
        )
    } == set()


def test_no_text_of_the_page_is_outside_the_locales() -> None:
    for path in SOURCES.glob("*.tsx"):
        assert not re.search(r">\s*[A-Z][a-z]+ [a-z]+", path.read_text()), path


def test_every_known_problem_has_a_text() -> None:
    code = (SOURCES / "parts.tsx").read_text()
    [known] = re.findall(r"const KNOWN = new Set\(\[(.*?)\]\)", code, re.DOTALL)
    assert {f"problem.{name}" for name in re.findall(r'"(\w+)"', known)} == {
        key for key in EN if key.startswith("problem.")
    }
