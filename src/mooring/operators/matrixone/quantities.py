"""Quantities written as Kubernetes writes them, which is how they get into MatrixOne's configuration."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from mooring.kube.quantity import split_quantity

__all__ = ["amount", "canonical", "share"]

_TEN: Final = ("", "k", "M", "G", "T", "P", "E")
_SMALL: Final = ((-3, "m"), (-6, "u"), (-9, "n"))
_TWO: Final = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")


def amount(value: str | int | float | None) -> Decimal:
    """The number of a quantity, 0 for none. Raises `ValueError` naming the text."""
    return Decimal(0) if value is None else split_quantity(str(value))[0]


def canonical(value: str | int | float) -> str:
    """A quantity as the API server shows it: ``1024Mi`` is ``1Gi``. Raises `ValueError` naming the text."""
    number, suffix = split_quantity(str(value))
    return _written(number, binary=suffix.endswith("i"), exponent=suffix[:1] in ("e",) and len(suffix) > 1)


def share(value: str | int | float, numerator: int, denominator: int) -> str:
    """A part of a quantity in whole units, with suffixes of the same kind. Raises `ValueError` naming the text."""
    number, suffix = split_quantity(str(value))
    whole = int(number.to_integral_value(rounding="ROUND_CEILING"))
    return _written(Decimal(whole * numerator // denominator), binary=suffix.endswith("i"))


def _written(number: Decimal, *, binary: bool, exponent: bool = False) -> str:
    if number == 0:
        return "0"
    if binary and number == number.to_integral_value() and abs(number) >= 1024:
        whole, power = int(number), 0
        while whole % 1024 == 0 and power < len(_TWO) - 1:
            whole, power = whole // 1024, power + 1
        return f"{whole}{_TWO[power]}"
    if number == number.to_integral_value():
        whole, power = int(number), 0
        while whole % 1000 == 0 and power < len(_TEN) - 1:
            whole, power = whole // 1000, power + 1
        if exponent:
            return f"{whole}e{3 * power}" if power else str(whole)
        return f"{whole}{_TEN[power]}"
    for power, suffix in _SMALL:
        scaled = number.scaleb(-power)
        if scaled == scaled.to_integral_value():
            return f"{int(scaled)}e{power}" if exponent else f"{int(scaled)}{suffix}"
    return f"{int(number.scaleb(9).to_integral_value(rounding='ROUND_CEILING'))}n"
