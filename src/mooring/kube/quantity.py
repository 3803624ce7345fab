"""Kubernetes quantities: ``100m``, ``1.5Gi``, ``2e3``."""

from __future__ import annotations

import re
from decimal import Context, Decimal
from functools import lru_cache

__all__ = ["format_bytes", "parse_quantity", "same_quantity", "split_quantity"]

_FORM = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([eE][+-]?\d+|[numkMGTPE]|[KMGTPE]i|)", re.ASCII)
_TEN = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
#: The longest number, and the largest power of ten. A longer one takes the square of its length to read.
_DIGITS, _POWER = 60, 60
#: Enough for all digits of the largest one.
_EXACT = Context(prec=200)


@lru_cache(maxsize=8192)
def split_quantity(text: str) -> tuple[Decimal, str]:
    """The exact number a quantity stands for, and its suffix (`Gi`, `m`, `e3` ...); raises :class:`ValueError`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ValueError(f"{text[:80]!r} is not a quantity (such as 500m, 2, 1.5Gi)")
    number, suffix = found.groups()
    power = suffix[1:] if suffix[1:].lstrip("+-").isdigit() else ""
    if len(number) > _DIGITS or len(power) > 4 or abs(int(power or 0)) > _POWER:
        raise ValueError(f"{text[:80]!r} is larger or finer than any quantity")
    if suffix in _BINARY:
        return _EXACT.multiply(Decimal(number), Decimal(1024 ** _BINARY[suffix])), suffix
    return Decimal(number).scaleb(int(power) if power else _TEN[suffix], context=_EXACT), suffix


def parse_quantity(value: str | int | float) -> Decimal:
    """The exact number a quantity stands for; raises :class:`ValueError` naming the text."""
    return split_quantity(value)[0] if isinstance(value, str) else Decimal(str(value))


def same_quantity(a: str | int | float, b: str | int | float) -> bool:
    """Whether two quantities mean the same number (``1Gi`` and ``1024Mi``); text that is none never does."""
    try:
        return parse_quantity(a) == parse_quantity(b)
    except ValueError:
        return False


def format_bytes(value: Decimal | int) -> str:
    """A whole number of bytes with the largest binary suffix that loses nothing."""
    number = int(value)
    for suffix, power in reversed(_BINARY.items()):
        unit = 1024**power
        if number and number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)
