"""Which backups a retention lets go. Pure.

Never the newest good one, nor the newest verified one, nor one that a kept one builds on; what cannot be told stays. Failed ones do not count as backups:
they go once a later one succeeded, since their reason is of no use then.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

__all__ = ["Kept", "Policy", "outdated"]


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Backups to keep: those that any of these keeps. All ``None``: every one is kept."""

    last: int | None = None
    """The newest so many good ones."""
    days: float | None = None
    """Good ones of the last so many days."""
    verified: int | None = None
    """The newest so many that were verified."""
    failed: int = 3
    """The newest so many failed ones, until then."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """One backup as retention sees it."""

    name: str
    at: datetime
    """When the data was as it is in the backup."""
    good: bool
    """It succeeded."""
    failed: bool = False
    verified: bool = False
    held: bool = False
    """Something else needs it: a restore that runs, a point in time that is kept, or a person."""
    base: str = ""
    """The backup that this one builds on; it stays as long as this one."""


def outdated(backups: Collection[Kept], policy: Policy, *, now: datetime) -> list[str]:
    """Names of the backups to delete, oldest first."""
    newest = sorted(backups, key=lambda one: (one.at, one.name), reverse=True)
    good = [one for one in newest if one.good]
    keep = {one.name for one in newest if one.held or not (one.good or one.failed)}
    keep |= _first(good, 1) | _first([one for one in good if one.verified], 1)
    if policy.last is None and policy.days is None:
        keep |= _first(good, len(good))
    keep |= _first(good, policy.last or 0)
    keep |= _first([one for one in good if one.verified], policy.verified or 0)
    if policy.days is not None:
        since = now - timedelta(days=policy.days)
        keep |= {one.name for one in good if one.at >= since}
    failed = [one for one in newest if one.failed]
    keep |= _first(failed, policy.failed)
    keep |= _below(keep, {one.name: one.base for one in newest if one.base})
    return [one.name for one in reversed(newest) if one.name not in keep]


def _below(names: Iterable[str], bases: Mapping[str, str]) -> set[str]:
    """All that these build on, by the base of each."""
    found: set[str] = set()
    for name in names:
        while (name := bases.get(name, "")) and name not in found:
            found.add(name)
    return found


def _first(ordered: Sequence[Kept], count: int) -> set[str]:
    return {one.name for one in ordered[:count]}
