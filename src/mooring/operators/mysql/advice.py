"""What the counters of a server ask for, and whether its memory allows it. Pure rules; names of variables are the dialects'.

Every rule speaks of one setting: the share of its events that went wrong within a window (a temporary table that went to
disk, a page that had to be read), and the next value to try. Shares are thousandths; a smaller one is better.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mooring.operators.mysql.topology import Load, Server
from mooring.operators.mysql.types import TuningRecommendation, TuningSample

__all__ = [
    "ENOUGH",
    "LESS",
    "Window",
    "allowed",
    "footprint",
    "gained",
    "permille",
    "recommend",
    "says",
    "window_of",
    "worth",
]

MI: Final = 1 << 20
GAUGES: Final = frozenset({"free", "pages", "age", "max_age", "peak"})
ENOUGH: Final = 20
"""Reads of pages a second from which on a server has work; a server at rest has a few."""
LESS: Final = 0.8
"""A change helps where the share falls to so much of what it was."""
GUARD: Final = 0.95
"""Part of the memory limit that a server may come to need."""
IDLE: Final = MI // 2
"""Bytes of a session that does nothing."""
TABLE: Final = 20_000
"""Bytes of an open table."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """What one server did since a sample."""

    pod: str
    seconds: float
    counted: Mapping[str, int]
    """Differences; of gauges the present value."""
    load: Load
    lag: float | None = None

    def of(self, name: str) -> int:
        """One of `counted`."""
        return self.counted.get(name, 0)

    @property
    def works(self) -> bool:
        """There was enough work to speak of."""
        return self.of("reads") >= max(1000.0, ENOUGH * self.seconds)


def window_of(pod: str, server: Server, sample: TuningSample | None, now: datetime) -> Window | None:
    """What a server did since the sample; ``None`` where that was taken of another start of it, or there is none."""
    if server.load is None or sample is None or sample.at is None or sample.server_id != server.server_id:
        return None
    before = sample.counters or {}
    counted = {
        name: value if name in GAUGES else value - before.get(name, 0)
        for name, value in server.load.counters.items()
    }
    if any(value < 0 for value in counted.values()):  # somebody set the counters back
        return None
    lag = server.replication.lag if server.replication is not None else None
    seconds = (now - sample.at).total_seconds()
    return Window(pod=pod, seconds=seconds, counted=counted, load=server.load, lag=lag)


# --- the rules -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One setting."""

    setting: str
    bad: Callable[[Window], int]
    """Events that went wrong."""
    all: Callable[[Window], int]
    """All of them."""
    share: int
    """Thousandths from which on there is something to gain."""
    few: Callable[[Window], float] = lambda window: max(20.0, window.seconds / 10)
    """With fewer bad events nothing is proposed."""
    known: Callable[[Window], float] = lambda window: 50.0
    """With fewer events the share says nothing."""
    floor: int = 0
    cap: int = 0
    memory: bool = True
    """It takes memory of the server."""
    text: str
    """The evidence: ``share``, ``bad``, ``all`` and ``seconds`` are filled in."""


_RULES: Final = (
    Rule(
        setting="tmp",
        bad=lambda one: one.of("disk_tables"),
        all=lambda one: one.of("tables"),
        share=250,
        floor=16 * MI,
        cap=256 * MI,
        text="{share} % of {all} temporary tables were written to disk",
    ),
    Rule(
        setting="pool",
        # While pages are free, what is read is read for the first time.
        bad=lambda one: one.of("misses") if one.of("free") * 20 < one.of("pages") else 0,
        all=lambda one: one.of("reads"),
        share=10,
        text="{share} % of {all} reads of pages missed the buffer pool",
    ),
    Rule(
        setting="table_cache",
        bad=lambda one: one.of("cache_misses"),
        all=lambda one: one.of("cache_hits") + one.of("cache_misses"),
        share=50,
        floor=400,
        cap=20_000,
        text="{share} % of {all} tables to open were not in the table cache",
    ),
    Rule(
        setting="thread_cache",
        bad=lambda one: one.of("threads"),
        all=lambda one: one.of("connections"),
        share=100,
        few=lambda one: max(20.0, one.seconds),
        floor=16,
        cap=512,
        text="{share} % of {all} connections needed a new thread",
    ),
    Rule(
        setting="redo",
        bad=lambda one: one.of("age"),
        all=lambda one: one.of("max_age"),
        share=750,
        floor=96 * MI,
        cap=4096 * MI,
        memory=False,
        text="{share} % of the redo log is in use: writes are about to wait for its checkpoint",
    ),
    Rule(
        setting="log_buffer",
        bad=lambda one: one.of("log_waits"),
        all=lambda one: int(one.seconds),
        share=100,
        few=lambda one: max(3.0, one.seconds / 10),
        known=lambda one: 1.0,
        floor=16 * MI,
        cap=128 * MI,
        text="writes waited {bad} times for room in the log buffer",
    ),
    Rule(
        setting="appliers",
        bad=lambda one: int((one.lag or 0) * 1000),
        all=lambda one: 1000,
        share=5000,
        few=lambda one: 0.0,
        floor=4,
        cap=16,
        memory=False,
        text="it is behind the primary by {lag} s",
    ),
)
_BY_SETTING: Final = {rule.setting: rule for rule in _RULES}


def permille(setting: str, window: Window) -> int | None:
    """The share of a setting's events that went wrong; ``None`` for too few of them."""
    rule = _BY_SETTING[setting]
    events = rule.all(window)
    return rule.bad(window) * 1000 // events if events >= rule.known(window) else None


def worth(setting: str, share: int) -> bool:
    """There is something to gain from this share."""
    return share >= _BY_SETTING[setting].share


def gained(before: int, since: int) -> bool:
    """A change that brought the share from the one to the other helps."""
    return since <= before * LESS


def says(setting: str, window: Window) -> str:
    """The numbers of a window in a sentence, rounded."""
    rule = _BY_SETTING[setting]
    share = (permille(setting, window) or 0) / 10
    text = rule.text.format(
        share=f"{share:.0f}" if share >= 10 else f"{share:.1f}",
        bad=_about(rule.bad(window)),
        all=_about(rule.all(window)),
        lag=round(window.lag or 0),
    )
    return f"{window.pod}: {text} in {window.seconds:.0f} s"


def _about(number: int) -> int:
    """Two digits that count."""
    unit = int(10 ** max(0, len(str(number)) - 2))
    return number // unit * unit


def recommend(window: Window, *, memory: int, storage: int = 0) -> list[TuningRecommendation]:
    """What a server's window asks for; ``memory``: the limit of its container in bytes, 0 for none, ``storage``: its volume."""
    found = [_recommend(rule, window, memory=memory, storage=storage) for rule in _RULES]
    return [one for one in found if one is not None]


def _recommend(rule: Rule, window: Window, *, memory: int, storage: int) -> TuningRecommendation | None:
    setting, share = window.load.settings.get(rule.setting), permille(rule.setting, window)
    if setting is None or share is None or share < rule.share or rule.bad(window) < rule.few(window):
        return None
    proposed, held = _next(rule, window, storage=storage), ""
    if proposed <= setting.value:
        return None
    if rule.memory:
        proposed, held = _within(rule.setting, window.load, proposed, memory=memory)
    return TuningRecommendation(
        setting=rule.setting,
        variable=setting.variables[0],
        pod=window.pod,
        current=setting.value,
        proposed=proposed,
        permille=share,
        evidence=says(rule.setting, window),
        live=setting.live,
        held=held,
    )


def _next(rule: Rule, window: Window, *, storage: int) -> int:
    """The value to try: twice as much, of the buffer pool a quarter more."""
    setting = window.load.settings[rule.setting]
    if rule.setting == "pool":
        return -(-(setting.value * 5 // 4) // setting.step) * setting.step
    cap = min(rule.cap, storage // 8) if rule.setting == "redo" and storage else rule.cap
    return min(cap, max(rule.floor, 2 * setting.value))


# --- memory ----------------------------------------------------------------------------------------------


def footprint(load: Load, changed: Mapping[str, int] | None = None) -> int:
    """Bytes that a server may come to need with these settings changed.

    Twice as many sessions as ever worked at once are taken to work, at least 32; the others, up to max_connections, are idle.
    One in four builds a temporary table of the largest size.
    """
    changed = changed or {}

    def size(name: str) -> int:
        setting = load.settings.get(name)
        return changed.get(name, setting.value if setting is not None else 0)

    working = min(load.max_connections, max(32, 2 * load.counters.get("peak", 0)))
    sessions = working * load.per_connection + (load.max_connections - working) * IDLE
    tables = max(1, working // 4) * size("tmp") + size("table_cache") * TABLE
    threads = size("thread_cache") * IDLE
    return size("pool") * 21 // 20 + size("log_buffer") + sessions + tables + threads + load.fixed


def allowed(memory: int) -> int:
    """Bytes that a server may come to need under a limit."""
    return int(memory * GUARD)


def _within(name: str, load: Load, proposed: int, *, memory: int) -> tuple[int, str]:
    """The proposed value, or less of the buffer pool; or the present value and why it stays."""
    setting = load.settings[name]
    if not memory:
        return setting.value, "there is no memory limit to stay below; set spec.resources.limits.memory"
    needed = footprint(load, {name: proposed})
    if name == "pool" and needed > allowed(memory):
        room = (allowed(memory) - footprint(load)) * 20 // 21
        proposed = (setting.value + room) // setting.step * setting.step
        if proposed > setting.value:
            return proposed, ""
    if needed > allowed(memory):
        text = (
            f"memory guard: the server could come to need {needed // MI} MiB of the {allowed(memory) // MI} MiB "
            "that it may use; raise spec.resources.limits.memory"
        )
        return setting.value, text
    return proposed, ""
