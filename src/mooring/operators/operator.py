"""What one operator offers to the process and to the command line; `mooring.operators.registry` lists them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from mooring.actor.verdict import Verdict
from mooring.kube.client import Client
from mooring.kube.object import Object
from mooring.operators.workload.removal import Removable
from mooring.operators.workload.upgrade import Planned
from mooring.runtime.webhooks import Webhook

__all__ = [
    "Demo",
    "Handover",
    "Importer",
    "Ledger",
    "Operator",
    "Option",
    "Replayed",
    "SavedDecision",
    "deferred",
    "minutes",
    "seconds",
]

_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One setting of an operator that ``mooring run`` and ``mooring up`` take.

    ``keyword`` is the parameter of `Operator.register`; ``flags`` are the spellings on the command line, the first one
    is documented. ``parse`` turns the text into the parameter's value and raises `argparse.ArgumentTypeError`; ``default``
    is a text too.
    """

    keyword: str
    flags: tuple[str, ...]
    default: str
    doc: str
    metavar: str = "VALUE"
    parse: Callable[[str], Any] = str

    @property
    def attribute(self) -> str:
        """The option's name in the parsed command line."""
        return self.flags[0].removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True, kw_only=True)
class Demo:
    """What ``mooring demo --what NAME`` shows of an operator."""

    name: str
    doc: str
    """Half a sentence for the help."""
    example: str
    """Its manifest, a file of ``examples/``; the package has it too."""
    kind: type[Object]
    """The kind of the one cluster in that manifest."""
    story: str
    """``MODULE:CLASS``, a `mooring.testing.show.Show` that is imported when it is shown: operators stand without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """What ``mooring ledger FLAG HOST[:PORT]`` writes to, and what then counts the acknowledged writes that were lost.

    ``open(addresses, user=..., password=..., tls=..., rate=..., wait_every=..., writers=..., master_name=..., follow=...,
    table=...)`` gives what has ``write(seconds)``, ``stop()``, ``check(patience=...)`` and, as ``unanswered``, the exceptions of a
    ``check`` that found nobody to ask.
    """

    flag: str
    doc: str
    """For the help, with the port that is taken where none is given."""
    open: Callable[..., Any] = field(repr=False)
    repeated: bool = False
    """Whether several addresses may be given."""
    leader: str = "master"
    """What the field calls the server that takes the writes."""
    takes: Sequence[str] = ()
    """Options that are of this one alone: ``table``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDecision:
    """What ``mooring why --save`` writes: a JSON object with ``form`` ``mooring/OPERATOR/VERSION``, free of secrets.

    ``silent`` names the servers that did not answer.
    """

    content: bytes
    silent: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """What a saved decision was made from, one line per server, and what the planner decides from it."""

    seen: Sequence[str]
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Importer:
    """What ``mooring import NAME`` does for an operator: a database that runs elsewhere becomes a backup.

    ``run(store, prefix=..., source=..., user=..., password=..., tls=..., bandwidth=..., show=...)`` gives a
    `mooring.operators.backup.agent.Result`.
    """

    name: str
    doc: str
    """What SOURCE may be, for the help."""
    run: Callable[..., Awaitable[Any]] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """How ``mooring switchover`` asks for a planned change of a master or primary.

    ``leaders(raw)`` are the pods that lead, by the status of an object as the API server gives it.
    ``ask(client, raw, leader, to)`` asks for another one than ``leader``, for ``to`` where it is not empty; raises
    `ValueError` with the reason and the remedy.
    """

    leaders: Callable[[Mapping[str, Any]], Sequence[str]] = field(repr=False)
    ask: Callable[[Client, Mapping[str, Any], str, str], Awaitable[None]] = field(repr=False)


def _no_webhooks(*_: object, **__: object) -> Sequence[Webhook[Any]]:
    return ()


@dataclass(frozen=True, slots=True)
class Operator:
    """One operator. ``name`` is the same everywhere: ``--operators``, Leases, metrics, events.

    ``register(manager, scope=..., namespaces=..., workers=..., **options)`` adds its controllers; see
    :mod:`mooring.operators.workload.scope` for what a scope means. ``webhooks(client, clock=..., scope=...,
    namespaces=...)`` gives its admission webhooks for that scope. What an operator leaves out, the command line says is
    not offered.
    """

    name: str
    kinds: tuple[type[Object], ...]
    register: Callable[..., None] = field(repr=False)
    webhooks: Callable[..., Sequence[Webhook[Any]]] = field(repr=False, default=_no_webhooks)
    options: tuple[Option, ...] = field(repr=False, default=())
    aliases: tuple[str, ...] = ()
    """Other names that ``--operators`` takes."""
    backups: tuple[type[Object], ...] = ()
    """Those of its kinds that are about backups and serve no clients. While they are not defined, it registers with
    ``backups=False`` and manages its clusters."""
    without_clients: tuple[type[Object], ...] = ()
    """Its other kinds that serve no clients: ``mooring why`` says of them whether they are Ready, not whether they serve."""
    explain: Callable[[Client, Mapping[str, Any]], Awaitable[Sequence[str]]] | None = field(
        repr=False, default=None
    )
    """The lines of ``mooring why`` about an object (as the API server gives it), beside its conditions and events."""
    save: Callable[[Client, Any], Awaitable[SavedDecision]] | None = field(repr=False, default=None)
    """The inputs of the next decision about an object; reads only. Raises `mooring.operators.workload.saved.NotDecided`."""
    replay: Callable[[bytes], Replayed] | None = field(repr=False, default=None)
    """The decision from saved inputs; contacts nothing. Raises the same."""
    plan_upgrade: Callable[[Client, Any], Awaitable[Sequence[Planned]]] | None = field(
        repr=False, default=None
    )
    """What this version would roll with the next change of an object; reads only."""
    removal: Removable | None = field(repr=False, default=None)
    """How ``mooring remove-clusters`` deletes its objects."""
    demo: Demo | None = field(repr=False, default=None)
    ledgers: tuple[Ledger, ...] = field(repr=False, default=())
    importer: Importer | None = field(repr=False, default=None)
    handover: Handover | None = field(repr=False, default=None)
    agent: Callable[[Sequence[str]], int] | None = field(repr=False, default=None)
    """``mooring agent NAME ARGUMENTS``, which its pods run in Mooring's image; gives the exit status."""

    def serves(self, kind: type[Object]) -> bool:
        """Whether clients connect to objects of this kind of its."""
        return kind not in self.backups + self.without_clients


def deferred(module: str, name: str) -> Callable[..., Any]:
    """A function of a module that is imported with the first call: what a command does not use costs it nothing."""

    def call(*args: Any, **options: Any) -> Any:
        return getattr(import_module(module), name)(*args, **options)

    call.__name__ = call.__qualname__ = f"{module}.{name}"
    return call


def seconds(text: str) -> float:
    """Seconds, more than 0, from a duration as Go writes it (``1m30s``) or a plain number."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        return _positive(float(text))
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|s|m|h)", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration; write 15s or 1m30s")
    return _positive(sum(float(number) * _UNITS[unit] for number, unit in parts))


def minutes(text: str) -> float:
    """Seconds, more than 0, from a number of minutes."""
    try:
        return _positive(float(text) * 60)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of minutes") from None


def _positive(value: float) -> float:
    if not value > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value
