"""What can be wrong with a value of a field: each fault with the field and the remedy."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from mooring.kube.objects import core
from mooring.operators.matrixone.quantities import amount
from mooring.operators.operator import seconds
from mooring.operators.workload.problem import Problem

__all__ = [
    "Problem",
    "address_faults",
    "choice_faults",
    "domain_faults",
    "duration_faults",
    "env_faults",
    "mount_faults",
    "name_faults",
    "number_faults",
    "quantity_faults",
    "scaled_faults",
]

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_DOMAIN: Final = re.compile(r"([a-z0-9]([-a-z0-9]*[a-z0-9])?\.)+[a-z0-9]([-a-z0-9]*[a-z0-9])?\.?")
_VOLUME: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?):([0-9]{1,5})")
_ENV: Final = re.compile(r"[ -<>-~]+")


Faults = Iterable[Problem]


def name_faults(where: str, name: str, *, limit: int) -> Faults:
    """A name that Services are called after."""
    if len(name) > limit:
        yield Problem(where, f"{len(name)} characters, at most {limit} are possible; choose a shorter name")
    if not _NAME.fullmatch(name):
        yield Problem(
            where, f"{name!r} must begin with a letter and have only a-z, 0-9 and -; choose another name"
        )


def choice_faults(where: str, value: str | None, choices: Collection[str]) -> Faults:
    """One of several words; none is fine."""
    if value not in (None, "", *choices):
        yield Problem(where, f"{value!r} is not known; give {' or '.join(choices)}")


def quantity_faults(where: str, value: str | int | float | None, *, positive: bool = True) -> Faults:
    """A quantity, more than 0 or at least 0; none is fine."""
    if value is None:
        return
    try:
        number = amount(value)
    except ValueError as error:
        yield Problem(where, f"{error}; correct it")
        return
    if number < 0 or (positive and number == 0):
        yield Problem(where, f"{value} is not possible; give {'more than 0' if positive else '0 or more'}")


def duration_faults(where: str, value: str | None) -> Faults:
    """A duration as Go writes it, more than 0; none is fine."""
    if value is None:
        return
    try:
        seconds(value)
    except argparse.ArgumentTypeError:
        yield Problem(where, f"{value!r} is no duration of more than 0; write 30s, 10m or 1h30m")


def number_faults(where: str, value: int | None, *, low: int, high: int) -> Faults:
    """A whole number between two limits; none is fine."""
    if value is not None and not low <= value <= high:
        yield Problem(where, f"{value} is not possible; give {low} to {high}")


def scaled_faults(where: str, value: int | str | None) -> Faults:
    """A number of pods, or a percentage; none is fine."""
    if value is None or (isinstance(value, int) and value >= 0):
        return
    if isinstance(value, str) and re.fullmatch(r"\d{1,9}%?", value):
        return
    yield Problem(where, f"{value!r} is no number of pods; give a number as 1, or a percentage as 25%")


def address_faults(where: str, value: str | None) -> Faults:
    """``host:port``."""
    found = _ADDRESS.fullmatch(value or "")
    if found is None or not 0 < int(found[3]) <= 65535:
        yield Problem(where, f"{value or ''!r} is no address; give host:port")


def domain_faults(where: str, value: str | None) -> Faults:
    """A domain of DNS; none is fine."""
    if value and not _DOMAIN.fullmatch(value):
        yield Problem(where, f"{value!r} is no domain; give one such as cluster.local, or remove it")


def env_faults(where: str, env: Iterable[core.EnvVar] | None, reserved: Mapping[str, str]) -> Faults:
    """Variables; ``reserved`` are refused, for the reason given."""
    for at, one in enumerate(env or ()):
        name = one.name or ""
        if not _ENV.fullmatch(name):
            yield Problem(f"{where}[{at}].name", f"{name!r} is no name of a variable; give one")
        elif name in reserved:
            yield Problem(f"{where}[{at}]", f"{name}: {reserved[name]}")
        if one.value is not None and one.value != "" and one.value_from is not None:
            yield Problem(f"{where}[{at}]", f"{name} has value and valueFrom; keep one of them")


def mount_faults(
    where: str,
    names: Iterable[str | None],
    *,
    unique: bool = True,
    taken: Callable[[str], bool] | None = None,
) -> Faults:
    """Names of volumes, containers or mounts."""
    seen: set[str] = set()
    for at, name in enumerate(names):
        text = name or ""
        if len(text) > 63 or not _VOLUME.fullmatch(text):
            yield Problem(
                f"{where}[{at}].name", f"{text!r} is no name; give lower-case letters, digits and -"
            )
        elif unique and text in seen:
            yield Problem(f"{where}[{at}].name", f"{text!r} is there twice; rename one")
        elif taken is not None and taken(text):
            yield Problem(f"{where}[{at}].name", f"{text!r} is the operator's own; rename it")
        seen.add(text)
