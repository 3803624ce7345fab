"""A decision's snapshot as a file: what ``mooring why --save`` writes and ``mooring replay`` decides again.

A file holds what was seen, never a password nor a key of the data, so that it can be sent to somebody: a `Form` refuses
a snapshot type with a field that is hidden from ``repr``, or of a type that holds secrets.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, get_args, get_type_hints

import msgspec

from mooring.kube.objects import core
from mooring.operators.workload.credentials import Kept

__all__ = ["Form", "NotDecided", "form_of"]

S = TypeVar("S")
_SECRET = (Kept, core.Secret)
_REMEDY = "make one by mooring why KIND/NAME --save FILE"


class NotDecided(Exception):
    """There is nothing to decide from; the message says why."""


class _Head(msgspec.Struct, frozen=True):
    form: str


class Form(Generic[S]):
    """How one operator's snapshots are written; ``name`` changes whenever older files can no longer be read.

    ``packed`` and ``unpacked`` change the values in place that JSON cannot hold, on writing and on reading.
    Raises `TypeError` for a snapshot type that could hold a secret.
    """

    def __init__(
        self,
        name: str,
        snapshot: type[S],
        *,
        packed: Callable[[dict[str, Any]], None] = lambda raw: None,
        unpacked: Callable[[dict[str, Any]], None] = lambda raw: None,
    ) -> None:
        _refuse_secrets(snapshot, set(), snapshot.__name__)
        self.name = name
        self._snapshot = snapshot
        self._packed, self._unpacked = packed, unpacked

    def dump(self, snapshot: S) -> bytes:
        """Write a snapshot as JSON, for people too."""
        raw = msgspec.to_builtins(snapshot, enc_hook=_plain, str_keys=True)
        self._packed(raw)
        text = msgspec.json.encode({"form": self.name, **raw}, order="sorted")
        return msgspec.json.format(text, indent=1) + b"\n"

    def load(self, text: bytes) -> S:
        """Read a file that `dump` wrote; `NotDecided` when it is another."""
        if (form := form_of(text)) != self.name:
            raise NotDecided(f"saved in the form {form!r}; this version reads {self.name!r}; {_REMEDY}")
        try:
            raw = msgspec.json.decode(text)
            self._unpacked(raw)
            return msgspec.convert(raw, self._snapshot, str_keys=True)
        except (msgspec.MsgspecError, KeyError, TypeError, ValueError) as error:
            raise _not_saved(error) from error


def _plain(value: object) -> object:
    """A mapping that may not be changed, as the dictionary that it shows."""
    if isinstance(value, Mapping):
        return dict(value)
    raise NotImplementedError(f"{type(value).__name__} is not for saving")


def form_of(text: bytes) -> str:
    """The form of a saved decision, which tells its operator; `NotDecided` when the text is none."""
    try:
        return msgspec.json.decode(text, type=_Head).form
    except msgspec.MsgspecError as error:
        raise _not_saved(error) from error


def _not_saved(error: Exception) -> NotDecided:
    return NotDecided(f"not a saved decision: {error}; {_REMEDY}")


def _refuse_secrets(kind: Any, seen: set[Any], where: str) -> None:
    """Walk a type and the types of its fields."""
    for part in get_args(kind):
        _refuse_secrets(part, seen, where)
    if not isinstance(kind, type) or kind in seen:
        return
    seen.add(kind)
    if issubclass(kind, _SECRET):
        raise TypeError(f"{where} holds secrets ({kind.__name__}); a decision that is saved must not")
    if dataclasses.is_dataclass(kind):
        for one in dataclasses.fields(kind):
            if not one.repr:
                raise TypeError(f"{where}.{one.name} is hidden, so it is a secret; it must not be saved")
    elif not issubclass(kind, msgspec.Struct):
        return
    for name, hint in get_type_hints(kind).items():
        _refuse_secrets(hint, seen, f"{where}.{name}")
