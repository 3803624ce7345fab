"""How commands that list print: a table for people, JSON or YAML for programs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from mooring.runtime.crd import to_yaml

__all__ = ["add_output_option", "as_json", "show", "table"]

_FORMS: Final = ("table", "json", "yaml")


def add_output_option(parser: argparse.ArgumentParser) -> None:
    """Declare ``--output``."""
    parser.add_argument("--output", "-o", choices=_FORMS, default="table", help="default: table")


def show(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str], *, output: str, name: str) -> None:
    """Print rows: all that they have as JSON or YAML, below ``name``; as a table the ``columns``, headings by field."""
    if output == "json":
        print(as_json({name: rows}))
    elif output == "yaml":
        print(to_yaml({name: list(map(dict, rows))}), end="")
    else:
        print(
            "\n".join(
                table([list(columns.values()), *([_text(row.get(key)) for key in columns] for row in rows)])
            )
        )


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines with aligned columns; the last one is not padded."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]


def as_json(value: Any) -> str:
    """Indented JSON."""
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _text(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value)) or "-"
    return "-" if value in (None, "") else str(value)
