"""``mooring replay FILE``: what the planner decides from what ``mooring why --save`` wrote down."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

from mooring.operators.redis.sentinel.moves import InSync, Verdict, Wait
from mooring.operators.redis.sentinel.saved import load, replay
from mooring.operators.redis.sentinel.snapshot import Snapshot

__all__ = ["add_parser", "told"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("replay", help="decide again from what mooring why --save wrote down")
    parser.add_argument(
        "file", type=Path, metavar="FILE", help="written by mooring why KIND/NAME --save FILE"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what was seen and what the planner makes of it; nothing is contacted."""
    saved = load(options.file.read_bytes())
    print("\n".join(told(saved)))
    return 0


def told(saved: Snapshot) -> Iterator[str]:
    """What was seen, one line a server, and the verdict."""
    yield f"At {saved.now.isoformat()}"
    for member in saved.observed.topology.members:
        server = member.server
        if server is None:
            yield f"  {member.name}: no answer ({member.error})"
            continue
        what = (
            "master"
            if server.is_master
            else f"follows {server.master}, link {'up' if server.link_up else 'down'}"
        )
        yield f"  {member.name}: {what}, {server.keys} keys, offset {server.offset}, priority {server.priority}"
    for watcher in saved.observed.topology.watchers:
        sentinel = watcher.sentinel
        seen = (
            f"watches {sentinel.master}, epoch {sentinel.epoch}"
            if sentinel
            else f"no answer ({watcher.error})"
        )
        yield f"  {watcher.name}: {seen}"
    yield from _verdict(replay(saved))


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
