"""Lists the public API, so that a change of it shows in review.

    python -m hack.api [--check]

Writes docs/api.txt: every name in the `__all__` of a module of the public packages, with its signature, where it
is defined. `--check` only compares (status 1 when they differ). The same on every supported Python: annotations are
shown as written, defaults that are not plain values as `...`.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import inspect
import pkgutil
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

__all__ = ["LISTING", "PACKAGES", "listing", "main"]

ROOT = Path(__file__).resolve().parents[1]
LISTING = ROOT / "docs" / "api.txt"
PACKAGES = ("mooring.kube", "mooring.cache", "mooring.runtime", "mooring.actor", "mooring.testing")
#: Generated from the OpenAPI documents; listed there.
GENERATED = "mooring.kube.objects"

_PLAIN = (int, float, str, bytes, bool, type(None))
_SPECIAL = frozenset({"__call__", "__len__", "__iter__", "__bool__", "__aenter__", "__aexit__", "__aiter__"})


def listing() -> str:
    """The whole listing."""
    head = "# The public API. Made by `make api`; a test compares it. Do not edit.\n"
    return head + "".join(_module(module) for module in _modules())


def _modules() -> Iterator[ModuleType]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield package
        for found in sorted(
            pkgutil.walk_packages(package.__path__, f"{name}."), key=lambda entry: entry.name
        ):
            if not found.name.startswith(GENERATED) and not found.name.rpartition(".")[2].startswith("_"):
                yield importlib.import_module(found.name)


def _module(module: ModuleType) -> str:
    names = sorted(getattr(module, "__all__", ()))
    if not names:
        return ""
    lines = [f"\n{module.__name__}\n"]
    for name in names:
        value = getattr(module, name)
        home = getattr(value, "__module__", module.__name__)
        if isinstance(home, str) and home != module.__name__ and home.startswith("mooring."):
            lines.append(f"  {name}  -> {home}\n")
        else:
            lines += [f"  {line}\n" for line in _describe(name, value)]
    return "".join(lines)


def _describe(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value) and hasattr(value, "__code__"):
        yield _function(name, value)
    elif type(value) in _PLAIN:
        yield f"{name} = {value!r}"
    elif callable(value) and hasattr(value, "__wrapped__"):
        yield _function(name, value.__wrapped__)
    else:
        yield f"{name} = ..."


def _class(name: str, value: type) -> Iterator[str]:
    bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
    yield f"class {name}({bases})" if bases else f"class {name}"
    yield from (f"  {line}" for line in _fields(value))
    for member in sorted(vars(value)):
        if member.startswith("_") and member not in _SPECIAL:
            continue
        found = inspect.getattr_static(value, member)
        if isinstance(found, property):
            returned = inspect.signature(found.fget).return_annotation if found.fget else ""
            yield f"  {member}: {_annotation(returned)}  [property]"
        elif isinstance(found, (classmethod, staticmethod)):
            yield f"  {_function(member, found.__func__)}  [{type(found).__name__}]"
        elif inspect.isfunction(found):
            yield f"  {_function(member, found)}"


def _fields(value: type) -> Iterator[str]:
    if issubclass(value, msgspec.Struct):
        own = vars(value).get("__annotations__", {})
        yield from (f"{name}: {_annotation(kind)}" for name, kind in own.items() if not name.startswith("_"))
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            if not field.name.startswith("_"):
                default = "" if field.default is dataclasses.MISSING else f" = {_default(field.default)}"
                yield f"{field.name}: {_annotation(field.type)}{default}"
    elif issubclass(value, tuple) and hasattr(value, "_fields"):
        defaults = getattr(value, "_field_defaults", {})
        for name in value._fields:
            default = f" = {_default(defaults[name])}" if name in defaults else ""
            yield f"{name}: {_annotation(vars(value)['__annotations__'][name])}{default}"
    elif "__init__" in vars(value):
        yield _function("__init__", vars(value)["__init__"])


def _function(name: str, value: Any) -> str:
    signature = inspect.signature(value)
    parameters = [
        one.replace(
            annotation=one.empty if one.annotation is one.empty else _Text(_annotation(one.annotation)),
            default=one.empty if one.default is one.empty else _Text(_default(one.default)),
        )
        for one in signature.parameters.values()
    ]
    returned = signature.return_annotation
    shown = signature.replace(
        parameters=parameters,
        return_annotation=returned if returned is signature.empty else _Text(_annotation(returned)),
    )
    kind = "async def" if inspect.iscoroutinefunction(value) else "def"
    return f"{kind} {name}{shown}"


class _Text:
    """Shows as it is written in the source, without quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _annotation(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, typing.ForwardRef):
        return value.__forward_arg__
    return value.__name__ if inspect.isclass(value) and not hasattr(value, "__args__") else repr(value)


def _default(value: Any) -> str:
    return repr(value) if type(value) in _PLAIN or value == () else "..."


def main(arguments: list[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="api.py", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="only compare")
    options = parser.parse_args(arguments)
    if not options.check:
        LISTING.write_text(listing())
        return 0
    if LISTING.read_text() == listing():
        return 0
    print(
        "docs/api.txt is not the public API any more: run `make api` and look at the difference",
        file=sys.stderr,
    )
    return 1


if __name__ == "__main__":
    sys.exit(main())
