"""Expressions of entries: regular ones by RE2, others in CEL. An entry's author must not be able to stop the console.

ExpressionError    an expression that is no CEL, or that gave no value

CEL sees ``params``: the values of the form by field. All numbers are doubles, and so are quantities (``2Gi``) and sizes
(``100mb``), so that ``params.size * params.memory`` is the memory of all servers. Literals are doubles too: ``2.0``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from mooring.extras import require

require("console", "the console", ("re2", "cel_expr_python"))

import re2  # noqa: E402
from cel_expr_python import cel  # noqa: E402

from mooring.kube.quantity import parse_quantity  # noqa: E402

if TYPE_CHECKING:
    from mooring.catalog.entry import Parameter

__all__ = ["ExpressionError", "compiled", "evaluate", "params", "re2"]

#: Characters of an expression. Without macros that iterate, its length bounds the time and the memory it takes.
LENGTH: Final = 1000
#: The parser knows no macro but `has`: a few nested ones could fill the memory long before they iterate too often.
_CONFIG: Final = "stdlib: {include_macros: [has]}"
_ITERATES = re2.compile(r"\.\s*(all|exists|exists_one|existsOne|map|filter)\s*\(")
_SIZES: Final = {"": 1, "k": 10**3, "kb": 2**10, "m": 10**6, "mb": 2**20, "g": 10**9, "gb": 2**30}


class ExpressionError(ValueError):
    """An expression that cannot be used; the text is for its author."""


@lru_cache(maxsize=1)
def _environment() -> Any:
    # Of the standard alone: the container image leaves the library's extensions out.
    return cel.NewEnv(config=cel.NewEnvConfigFromYaml(_CONFIG), variables={"params": cel.Type.DYN})


@lru_cache(maxsize=2048)
def compiled(text: str) -> Any:
    """The program of an expression over ``params``; raises `ExpressionError`."""
    if len(text) > LENGTH:
        raise ExpressionError(f"longer than {LENGTH} characters")
    try:
        return _environment().compile(text)
    except RuntimeError as error:
        hint = "; all, exists, exists_one, map and filter are not available" if _ITERATES.search(text) else ""
        raise ExpressionError(_said(error) + hint) from None


def evaluate(text: str, known: Mapping[str, Any]) -> Any:
    """The value of an expression over these `params`; raises `ExpressionError`."""
    program = compiled(text)
    try:
        found = program.eval(data={"params": dict(known)})
    except RuntimeError as error:
        raise ExpressionError(_said(error)) from None
    if found.type() == cel.Type.ERROR:
        raise ExpressionError(str(found.value()).partition(": ")[2] or str(found.value()))
    return found.value()


def params(parameters: Mapping[str, Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values of a form as expressions see them; fields without a value are left out, and `has` says so."""
    known = {}
    for name, parameter in parameters.items():
        value = values.get(name)
        if value is None or value == "":
            continue
        known[name] = _number(parameter, value)
    return known


def _number(parameter: Parameter, value: Any) -> Any:
    try:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
        if parameter.format == "quantity":
            return float(parse_quantity(value))
        if parameter.format == "bytes":
            digits = str(value).rstrip("kKmMgGbB")
            return float(digits) * _SIZES[str(value)[len(digits) :].lower()]
    except OverflowError:
        return math.inf
    except (ValueError, KeyError):
        return value
    return value


def _said(error: Exception) -> str:
    return " ".join(str(error).split(" | ")[0].removeprefix("INVALID_ARGUMENT: ").split())
