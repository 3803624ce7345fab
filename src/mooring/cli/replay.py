"""``mooring replay FILE``: what the planner decides from what ``mooring why --save`` wrote down."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path

from mooring.actor.verdict import InSync, Verdict, Wait
from mooring.operators.operator import Replayed
from mooring.operators.registry import OPERATORS
from mooring.operators.workload.saved import NotDecided, form_of

__all__ = ["add_parser", "replay_of", "shown"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("replay", help="decide again from what mooring why --save wrote down")
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="written by mooring why KIND/NAME --save FILE"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what was seen and what the planner makes of it; nothing is contacted."""
    content = options.file.read_bytes()
    print("\n".join(shown(replay_of(content)(content))))
    return 0


def replay_of(content: bytes) -> Callable[[bytes], Replayed]:
    """The replay of the operator whose name is in the file's ``form``; raises `NotDecided` when there is none."""
    form = form_of(content)
    parts = form.split("/")
    operator = OPERATORS.get(parts[1]) if len(parts) == 3 and parts[0] == "mooring" else None
    if operator is None or operator.replay is None:
        raise NotDecided(
            f"saved in the form {form!r}, which no operator of this version reads; "
            "make one by mooring why KIND/NAME --save FILE"
        )
    return operator.replay


def shown(replayed: Replayed) -> Iterator[str]:
    """What was seen, one line per server, and the verdict."""
    yield from replayed.seen
    yield from _verdict(replayed.verdict)


def _verdict(verdict: Verdict) -> Iterator[str]:
    if isinstance(verdict, InSync):
        yield "Nothing to do: everything is as declared"
    elif isinstance(verdict, Wait):
        yield f"Waits: {verdict.reason}: {verdict.message}"
    else:
        yield f"Next step: {verdict.name}: {verdict.why}"
        for field in fields(verdict):
            value = getattr(verdict, field.name)
            if field.name != "why" and value not in (None, (), {}, ""):
                yield f"  {field.name}: {value}"
