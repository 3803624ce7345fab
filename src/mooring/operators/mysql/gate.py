"""The start gate's orders: which start of a server's container may become a server, and as what.

An order is one line ``N ROLE ID [cut FILE POSITION] [fresh] [seed HOST]`` in the annotation `names.ORDER` of the pod, which
`scripts.START` reads through the downward API. ``N`` is the number of the container start that it is meant for
(restarts + 1), ``ROLE`` is ``primary`` or ``replica``, ``ID`` the server_id of this start. ``fresh`` sets the data directory
aside and initialises an empty one; ``seed`` copies the data of another server into a new directory before. An order for another start opens nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

from mooring.operators.mysql.names import PRIMARY, REPLICA
from mooring.operators.mysql.types import TailCut

__all__ = ["EPOCH", "LARGEST_ID", "Order", "Role", "next_server_id", "order_line", "parse"]

Role = Literal["primary", "replica"]
EPOCH: Final = 1704067200
"""2024-01-01 in seconds since 1970: server ids are seconds since then, at least."""
LARGEST_ID: Final = 2**32 - 1
_ORDER: Final = re.compile(
    rf"(\d+) ({PRIMARY}|{REPLICA}) (\d+)(?: cut ([\w.-]+) (\d+))?( fresh)?(?: seed ([\w.-]+))?", re.ASCII
)


@dataclass(frozen=True, kw_only=True)
class Order:
    """One order."""

    start: int
    """Number of the container start, from 1."""
    role: Role
    server_id: int
    cut: TailCut | None = None
    """MySQL: where the binary log is cut before the server starts, since no replica acknowledged what comes after."""
    fresh: bool = False
    """The data directory is set aside, and an empty one is initialised."""
    seed: str = ""
    """Host of the server whose data is copied before the start, "" for none."""


def order_line(
    start: int,
    role: Role,
    server_id: int,
    cut: TailCut | None = None,
    *,
    fresh: bool = False,
    seed: str = "",
) -> str:
    """The order as the annotation holds it."""
    if start < 1 or not 0 < server_id <= LARGEST_ID:
        raise ValueError(f"start {start} or server_id {server_id} out of range")
    tail = f" cut {cut.file} {cut.position}" if cut is not None else ""
    return f"{start} {role} {server_id}{tail}{' fresh' if fresh else ''}{f' seed {seed}' if seed else ''}"


def parse(text: str) -> Order | None:
    """The order in an annotation; ``None`` where it holds none."""
    found = _ORDER.fullmatch(text.strip())
    if found is None:
        return None
    start, role, server_id, file, position, fresh, seed = found.groups()
    return Order(
        start=int(start),
        role="primary" if role == PRIMARY else "replica",
        server_id=int(server_id),
        cut=TailCut(file=file, position=int(position)) if file else None,
        fresh=bool(fresh),
        seed=seed or "",
    )


def next_server_id(last: int, now: float) -> int:
    """The server_id of a new start, never given before: ``last`` is the newest one given, ``now`` in seconds since 1970."""
    return max(last + 1, int(now) - EPOCH)
