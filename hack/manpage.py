"""The manual page ``mooring(1)``, made of the parsers of the command line: ``docs/mooring.1``, which the wheel installs.

    make generated                  # writes it
    python -m hack.manpage --check  # fails where it is out of date

It is made from the parsers, because the output of ``--help`` differs between versions of Python.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from mooring.cli.main import COMMANDS, DEVELOPERS, EXITS, _parser, shown_version

__all__ = ["main", "page"]

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "mooring.1"
_ENVIRONMENT: Final = (
    ("KUBECONFIG", "The kubeconfig of commands that ask an API server, unless \\-\\-kubeconfig is given."),
    (
        "MOORING_DATA_DIR",
        "The data directory of the embedded control plane, unless \\-\\-data\\-dir is given.",
    ),
    ("MOORING_DEBUG", "If set, errors are shown with a traceback."),
    ("NO_COLOR", "If set, nothing is colored."),
    ("EDITOR, VISUAL", "The editor of mooring edit."),
)
_FILES: Final = (
    ("/var/lib/mooring", "The data directory of root."),
    ("~/.local/share/mooring", "The data directory of other users."),
)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="fail when docs/mooring.1 is out of date")
    options = parser.parse_args()
    made = page()
    if not options.check:
        PAGE.write_text(made)
        print(PAGE.relative_to(ROOT))
        return 0
    if not PAGE.exists() or PAGE.read_text() != made:
        print("docs/mooring.1 is out of date: run make generated", file=sys.stderr)
        return 1
    return 0


def page() -> str:
    """The page, as man reads it."""
    lines = [
        f'.TH MOORING 1 "" "mooring {shown_version()}" "User commands"',
        *(
            ".SH NAME",
            r"mooring \- operators for Redis, MySQL, MariaDB and MatrixOne, and a control plane for one machine",
        ),
        *(".SH SYNOPSIS", ".B mooring", r"\fICOMMAND\fR [\fIOPTIONS\fR]", ".br"),
        *(".B kubectl mooring", r"\fICOMMAND\fR [\fIOPTIONS\fR]"),
        *(".SH DESCRIPTION", _text(_parser("").description or "")),
        *(".PP", "Start with: mooring demo"),
        ".SH COMMANDS",
    ]
    for name, (_, what) in COMMANDS.items():
        if name not in DEVELOPERS:
            lines += _command(name, what)
    lines += [".SH EXIT STATUS"]
    for status, what in EXITS:
        lines += [".TP", rf"\fB{status}\fR", _text(what)]
    for heading, rows in (("ENVIRONMENT", _ENVIRONMENT), ("FILES", _FILES)):
        lines.append(f".SH {heading}")
        for name, what in rows:
            lines += [".TP", rf"\fB{_text(name)}\fR", what]
    return "\n".join(lines) + "\n"


def _command(name: str, what: str) -> Iterator[str]:
    parser = next(
        action.choices[name]
        for action in _parser(name)._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    yield f'.SS "mooring {name}"'
    yield _text(parser.description or f"{what[0].upper()}{what[1:]}.")
    yield from _options(parser)


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            said = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, below in action.choices.items():
                yield from (".TP", rf"\fB{_text(name)}\fR", _text(said.get(name, "")))
                if any(not isinstance(one, argparse._HelpAction) for one in below._actions):
                    yield ".RS"
                    yield from _options(below)
                    yield ".RE"
        elif action.help != argparse.SUPPRESS and not isinstance(action, argparse._HelpAction):
            yield from (".TP", _shown(action), _text(_help(parser, action)) or r"\&")


def _shown(action: argparse.Action) -> str:
    """The spellings and the value of an option, or the name of an argument."""
    choices = "|".join(map(str, action.choices)) if action.choices else ""
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    value = metavar or choices or action.dest.upper()
    if not action.option_strings:
        return rf"\fI{_text(value)}\fR"
    names = ", ".join(rf"\fB{_text(one)}\fR" for one in action.option_strings)
    return names if action.nargs == 0 else rf"{names} \fI{_text(value)}\fR"


def _help(parser: argparse.ArgumentParser, action: argparse.Action) -> str:
    text = (action.help or "") % {**vars(action), "prog": parser.prog}
    return f"{text[0].upper()}{text[1:]}." if text else ""


def _text(text: str) -> str:
    """Text that man shows as it is: nothing in it is a request."""
    plain = " ".join(text.split()).replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{plain}" if plain.startswith((".", "'")) else plain


if __name__ == "__main__":
    raise SystemExit(main())
