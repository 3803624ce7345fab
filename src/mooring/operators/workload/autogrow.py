"""Volumes that grow by themselves: when the claims of a cluster ask for more, and for how much.

Pure. The caller measures (`fill.Levels`) and passes the time in. The size that is decided is in the
status and counts in place of the declared one, which stays the least; the operator never writes a spec. All claims of a
cluster have one size, that of the fullest one.

Storage systems allow a change only every few hours (Amazon EBS: six). So claims grow at a threshold, and earlier where
they would be full before they may grow again, and by as much as that time needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as amended
from datetime import datetime, timedelta
from typing import Annotated, Final

from msgspec.structs import replace

from mooring.kube.part import Part
from mooring.kube.quantity import format_bytes, parse_quantity
from mooring.operators.workload.fill import Fill, Fills
from mooring.operators.workload.volumes import Volume
from mooring.runtime.crd import F

__all__ = [
    "AT_MAXIMUM",
    "AutogrowSpec",
    "AutogrowStatus",
    "FillSample",
    "Filling",
    "autogrow_faults",
    "decide",
    "in_force",
]

THRESHOLD: Final = 80
"""Percent at which claims grow, where nothing is declared."""
GROW_BY: Final = 20
"""Percent of its size that a claim grows by, where nothing is declared."""
COOLDOWN: Final = 6 * 3600
"""Seconds between two growths, where nothing is declared."""
SPAN: Final = timedelta(minutes=30)
"""A forecast needs samples that are so far apart: loading data for some minutes is no trend."""
SAMPLES: Final = 4
"""Samples kept in the status."""
STEP: Final = 5
"""Percent by which a volume's use has to change before the status shows it."""
AT_MAXIMUM: Final = "AtMaximum"
"""Reason in status while the claims should grow and have ``maxSize``."""
_COOLING: Final = "Cooldown"
_GIB: Final = 1024**3
_FAR: Final = 2048
"""Hours beyond which nothing is forecast."""
_TIME: Final = {"type": "string", "format": "date-time"}


class AutogrowSpec(Part, frozen=True, kw_only=True):
    """The claims grow when they fill up; the declared size is the least."""

    max_size: Annotated[str | None, F("The claims never grow beyond it.", required=True, max_length=64)] = (
        None
    )
    threshold_percent: Annotated[
        int | None,
        F("Claims grow when the fullest is so full.", minimum=10, maximum=95, default=THRESHOLD),
    ] = None
    grow_percent: Annotated[
        int | None,
        F("By so much of their size, and at least 1Gi.", minimum=1, maximum=400, default=GROW_BY),
    ] = None
    cooldown_seconds: Annotated[
        int | None,
        F("Between two growths at least; storage systems refuse a change that comes earlier.", minimum=0, maximum=604800, default=COOLDOWN),
    ] = None  # fmt: skip


class FillSample(Part, frozen=True, kw_only=True):
    """How much was in use at a moment."""

    at: Annotated[datetime | None, F("When.", schema=_TIME)] = None
    used: Annotated[int, F("Bytes in use on the fullest volume.")] = 0


class AutogrowStatus(Part, frozen=True, kw_only=True):
    """How full the volumes are, in steps, and the size that was decided; unchanged at rest."""

    size: Annotated[str | None, F("The size in force, in place of a smaller one that is declared.")] = None
    grown_at: Annotated[datetime | None, F("When it was decided.", schema=_TIME)] = None
    used_percent: Annotated[int | None, F("Of the fullest volume, shown in steps of 5.")] = None
    full_in_hours: Annotated[
        int | None, F("When it will be full if it goes on like this: about so many hours, in powers of 2.")
    ] = None
    samples: Annotated[
        list[FillSample] | None, F("What the forecast is made of: one for every 5 percent, oldest first.")
    ] = None
    reason: Annotated[str | None, F("AtMaximum or Cooldown while the claims should grow and may not.")] = None
    message: Annotated[str | None, F("The same in a sentence, with the remedy.")] = None


@dataclass(frozen=True, kw_only=True)
class Filling:
    """What a pass decided about the size of a cluster's claims."""

    status: AutogrowStatus | None = None
    """For the status; ``None`` where volumes do not grow by themselves."""
    due: bool = False
    """The status is to be written now: a size was decided, or what is in the way changed."""
    news: str = ""
    """For an event."""
    warns: bool = False
    """The event is a warning."""
    problem: str = ""
    """Why nothing is measured."""
    where: str = ""
    used: float | None = None
    """Share of the fullest volume that is in use, 0 to 1, for metrics."""
    hours: float | None = None
    """Until it is full, as far as a forecast is possible."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """How full each volume with a file system of its own is, 0 to 1, by claim."""

    def unmet(self) -> list[str]:
        """What needs a person, with field and remedy."""
        if self.problem:
            return [f"{self.where}: {self.problem}"]
        found = self.status
        at_maximum = found is not None and found.reason == AT_MAXIMUM
        return [f"{self.where}: {found.message}"] if found is not None and at_maximum else []


def autogrow_faults(spec: AutogrowSpec | None, *, declared: str, claimed: bool) -> Iterator[tuple[str, str]]:
    """What is wrong with a declaration: path below ``autogrow``, and a message with the remedy."""
    if spec is None:
        return
    if not claimed:
        yield "", "only claims can grow, and the data is on none; remove it"
        return
    try:
        most = parse_quantity(spec.max_size or "")
    except ValueError as error:
        yield ".maxSize", f"{error}; write it as 100Gi"
        return
    try:
        least = parse_quantity(declared)
    except ValueError:
        return
    if most < least:
        yield ".maxSize", f"{spec.max_size} is less than the declared size {declared}; raise it"


def in_force(spec: AutogrowSpec | None, status: AutogrowStatus | None, declared: str) -> str:
    """The size that counts: the one decided, within ``maxSize``, unless a larger one is declared. Texts as written."""
    decided = status.size if status is not None else None
    if spec is None or not decided:
        return declared
    if not (_is_size(spec.max_size) and _is_size(declared) and _is_size(decided)):
        return declared
    chosen = _smaller(decided, spec.max_size or decided)
    return chosen if parse_quantity(chosen) > parse_quantity(declared) else declared


def decide(
    spec: AutogrowSpec | None,
    status: AutogrowStatus | None,
    *,
    where: str,
    volumes: Sequence[Volume],
    fills: Fills,
    now: datetime,
) -> Filling:
    """What to do about the size of these claims; their ``wanted`` is the size in force."""
    if spec is None:
        return Filling()
    shares = {one.claim: one.share for one in _of_now(fills.found, volumes) if one.own}
    return amended(_decided(spec, status, where=where, volumes=volumes, fills=fills, now=now), shares=shares)


def _decided(
    spec: AutogrowSpec,
    status: AutogrowStatus | None,
    *,
    where: str,
    volumes: Sequence[Volume],
    fills: Fills,
    now: datetime,
) -> Filling:
    if not volumes or not _is_size(spec.max_size):
        return Filling(status=status)
    before = status or AutogrowStatus()
    if (larger := _larger(spec, volumes)) is not None:
        return Filling(where=where, status=replace(before, size=larger), due=True)
    fullest = max(_of_now(fills.found, volumes), key=lambda one: one.share, default=None)
    if fullest is None:
        return Filling(where=where, status=status, problem=fills.problem)
    hours = _hours(before.samples or (), fullest, now)
    shown = replace(
        before,
        used_percent=_in_steps(before.used_percent, fullest),
        full_in_hours=_coarse(before.full_in_hours, hours),
        samples=_sampled(before.samples or (), fullest, now),
        reason=None,
        message=None,
    )
    made = Filling(where=where, status=shown, used=fullest.share, hours=hours)
    if not _calls(spec, fullest, hours, held=before.reason is not None) or any(one.state for one in volumes):
        return _with_news(made, before, "")
    return _grown(made, before, spec, fullest, size=volumes[0].wanted, now=now)


def _of_now(found: Sequence[Fill], volumes: Sequence[Volume]) -> list[Fill]:
    """Of a volume that has grown since it was measured, nothing is known."""
    sizes = {one.claim: parse_quantity(one.capacity or "0") for one in volumes}
    return [one for one in found if sizes.get(one.claim) == one.capacity]


def _grown(
    made: Filling, before: AutogrowStatus, spec: AutogrowSpec, fullest: Fill, *, size: str, now: datetime
) -> Filling:
    """The claims should grow: the new size, or why they may not."""
    assert made.status is not None
    most, text = spec.max_size or size, _in_words(fullest, made.hours)
    if parse_quantity(size) >= parse_quantity(most):
        message = f"{text}, and the claims have maxSize {most}; raise maxSize, or delete data"
        stopped = _with(made, replace(made.status, reason=AT_MAXIMUM, message=message))
        return _with_news(stopped, before, message, warns=True)
    cooldown = timedelta(seconds=COOLDOWN if spec.cooldown_seconds is None else spec.cooldown_seconds)
    if before.grown_at is not None and now < before.grown_at + cooldown:
        until = (before.grown_at + cooldown).isoformat(timespec="minutes").replace("+00:00", "Z")
        message = f"the claims grew to {size} lately and may grow again at {until}"
        return _with_news(_with(made, replace(made.status, reason=_COOLING, message=message)), before, "")
    new = _smaller(_next(spec, fullest, made.hours, size=size, cooldown=cooldown), most)
    stamp = now.replace(microsecond=0)
    status = replace(made.status, size=new, grown_at=stamp)
    news = f"{text}; the claims grow from {size} to {new}, maxSize is {most}"
    return Filling(where=made.where, status=status, due=True, news=news, used=made.used, hours=made.hours)


def _with(made: Filling, status: AutogrowStatus) -> Filling:
    return Filling(where=made.where, status=status, used=made.used, hours=made.hours)


def _with_news(made: Filling, before: AutogrowStatus, news: str, *, warns: bool = False) -> Filling:
    """Written now if what is in the way changed; else with whatever is written next. Numbers in it move by steps."""
    assert made.status is not None
    same = made.status.reason == before.reason
    if same and made.status.reason is not None and made.status.used_percent == before.used_percent:
        made = _with(made, replace(made.status, message=before.message))
    return Filling(
        where=made.where,
        status=made.status,
        due=not same,
        news="" if same else news,
        warns=warns,
        used=made.used,
        hours=made.hours,
    )


def _larger(spec: AutogrowSpec, volumes: Sequence[Volume]) -> str | None:
    """A claim asks for more than the size in force, within ``maxSize``: that is the size, such as after a lost status."""
    largest = max(volumes, key=lambda one: parse_quantity(one.requested))
    size = parse_quantity(largest.requested)
    over = parse_quantity(largest.wanted) < size <= parse_quantity(spec.max_size or "0")
    return largest.requested if over else None


def _threshold(spec: AutogrowSpec) -> int:
    return THRESHOLD if spec.threshold_percent is None else spec.threshold_percent


def _calls(spec: AutogrowSpec, fullest: Fill, hours: float | None, *, held: bool) -> bool:
    """The fullest volume is beyond the threshold, or would be full before it may grow a second time.

    ``held``: that was so, and ends only clearly below, since a write, and at the maximum an event, hang on it.
    """
    cooldown = (COOLDOWN if spec.cooldown_seconds is None else spec.cooldown_seconds) * (2 if held else 1)
    threshold = _threshold(spec) - (STEP if held else 0)
    return 100 * fullest.share >= threshold or (hours is not None and hours * 3600 <= cooldown)


def _next(spec: AutogrowSpec, fullest: Fill, hours: float | None, *, size: str, cooldown: timedelta) -> str:
    """A whole number of Gi: by ``growPercent``, by 1Gi, or what the cooldown will need; the most of them."""
    have = int(parse_quantity(size))
    percent = GROW_BY if spec.grow_percent is None else spec.grow_percent
    needed = 0.0
    if hours:
        rate = (fullest.size - fullest.used) / hours
        needed = (fullest.used + rate * cooldown.total_seconds() / 3600) * 100 / _threshold(spec)
    most = max(have + have * percent // 100, have + _GIB, math.ceil(needed))
    return format_bytes(math.ceil(most / _GIB) * _GIB)


def _is_size(text: str | None) -> bool:
    try:
        return parse_quantity(text or "0") > 0
    except ValueError:
        return False


def _smaller(one: str, other: str) -> str:
    return one if parse_quantity(one) <= parse_quantity(other) else other


# --- the forecast ----------------------------------------------------------------------------------------


def _hours(samples: Sequence[FillSample], fullest: Fill, now: datetime) -> float | None:
    """Until it is full by the fastest growth since one of the samples; ``None`` where it does not grow.

    Only growth by a step counts, and what was reached once counts until a step of it is gone: the use of a database
    that rewrites its files goes up and down.
    """
    used = max([fullest.used, *(one.used for one in samples[-1:])])
    if not samples or fullest.used <= samples[-1].used - _step(fullest):
        return None
    rates = [
        (used - one.used) / ((now - one.at).total_seconds() / 3600)
        for one in samples
        if one.at is not None and now - one.at >= SPAN and used - one.used >= _step(fullest)
    ]
    if not rates:
        return None
    hours = (fullest.size - used) / max(rates)
    return hours if hours <= _FAR else None


def _step(fullest: Fill) -> int:
    return fullest.size * STEP // 100


def _coarse(before: int | None, hours: float | None) -> int | None:
    """A power of two that is not less; it stays while the forecast is near it."""
    if hours is None:
        return None
    if before is not None and before / 2 <= hours <= before * 2:
        return before
    return int(2 ** math.ceil(math.log2(max(hours, 1.0))))


def _in_steps(before: int | None, fullest: Fill) -> int:
    percent = int(100 * fullest.share)
    return percent if before is None or abs(percent - before) >= STEP else before


def _sampled(samples: Sequence[FillSample], fullest: Fill, now: datetime) -> list[FillSample]:
    """The samples with the newest one, where it differs by a step; those of before a loss of data count no more."""
    step, one = _step(fullest), FillSample(at=now.replace(microsecond=0), used=fullest.used)
    if not samples or fullest.used <= samples[-1].used - step:
        return [one]
    if fullest.used < samples[-1].used + step:
        return list(samples)
    return [*samples, one][-SAMPLES:]


def _in_words(fullest: Fill, hours: float | None) -> str:
    text = f"{fullest.claim} is {100 * fullest.share:.0f} % full ({_gib(fullest.used)} of {_gib(fullest.size)} GiB"
    return f"{text}, full in about {hours:.0f} h)" if hours is not None else f"{text})"


def _gib(value: int) -> str:
    return f"{value / _GIB:.2f}"
