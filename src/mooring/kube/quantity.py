"""Kubernetes quantities: ``100m``, ``1.5Gi``, ``2e3``."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from functools import lru_cache

__all__ = ["format_bytes", "parse_quantity", "same_quantity"]

_SUFFIXES: dict[str, Decimal] = {
    "": Decimal(1),
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "k": Decimal(10) ** 3,
    "M": Decimal(10) ** 6,
    "G": Decimal(10) ** 9,
    "T": Decimal(10) ** 12,
    "P": Decimal(10) ** 15,
    "E": Decimal(10) ** 18,
    "Ki": Decimal(2) ** 10,
    "Mi": Decimal(2) ** 20,
    "Gi": Decimal(2) ** 30,
    "Ti": Decimal(2) ** 40,
    "Pi": Decimal(2) ** 50,
    "Ei": Decimal(2) ** 60,
}


@lru_cache(maxsize=4096)
def _parse(text: str) -> Decimal:
    body = text.rstrip("numkKMGTPEi")
    # "1E" is exa, "1E3" an exponent: the suffix only counts when nothing follows it.
    suffix = text[len(body) :]
    if suffix not in _SUFFIXES or not body or body != body.strip():
        raise ValueError(f"{text!r} is not a quantity (such as 500m, 2, 1.5Gi)")
    try:
        value = Decimal(body)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity (such as 500m, 2, 1.5Gi)") from None
    if not value.is_finite() or "_" in body:
        raise ValueError(f"{text!r} is not a quantity (such as 500m, 2, 1.5Gi)")
    try:
        return value * _SUFFIXES[suffix]
    except ArithmeticError:
        raise ValueError(f"{text!r} is larger than any quantity") from None


def parse_quantity(value: str | int | float) -> Decimal:
    """The exact number a quantity stands for; raises :class:`ValueError` naming the text."""
    return _parse(value) if isinstance(value, str) else Decimal(str(value))


def same_quantity(a: str | int | float, b: str | int | float) -> bool:
    """Whether two quantities mean the same number (``1Gi`` and ``1024Mi``); text that is none never does."""
    try:
        return parse_quantity(a) == parse_quantity(b)
    except ValueError:
        return False


def format_bytes(value: Decimal | int) -> str:
    """A whole number of bytes with the largest binary suffix that loses nothing."""
    number = int(value)
    for suffix in ("Ei", "Pi", "Ti", "Gi", "Mi", "Ki"):
        unit = int(_SUFFIXES[suffix])
        if number and number % unit == 0:
            return f"{number // unit}{suffix}"
    return str(number)
