"""Logging: constant messages with keys and values, as JSON or for a console, without secrets.

A line written during a pass carries the controller, the object and the pass's id by itself; they cost nothing
while no line is written. Secret values are registered once (`Secrets.add`) and never reach a log line, an
event or a status text; keys that sound like secrets are hidden whatever they hold.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import msgspec
import structlog

from mooring.runtime.context import current_pass

__all__ = ["REDACTED", "Secrets", "configure_logging", "redact", "secrets"]

REDACTED: Final = "[redacted]"
_KEY: Final = re.compile(r"passw|secret|token|credential|auth$|authorization|requirepass|privatekey", re.I)
#: Shorter values would turn ordinary words into holes.
_SHORTEST: Final = 4
_MOST: Final = 4096


class Secrets:
    """The secret values this process knows, so that they can be cut out of whatever it says."""

    def __init__(self) -> None:
        self._values: OrderedDict[str, None] = OrderedDict()
        self._pattern: re.Pattern[str] | None = None

    def add(self, value: str | bytes | None) -> None:
        """Remember a secret; the oldest of more than 4096 are forgotten, short ones are not remembered."""
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if not text or len(text) < _SHORTEST:
            return
        if text in self._values:
            self._values.move_to_end(text)
            return
        self._values[text] = None
        if len(self._values) > _MOST:
            self._values.popitem(last=False)
        self._pattern = None

    def cut(self, text: str) -> str:
        """The text without any known secret."""
        if not self._values:
            return text
        if self._pattern is None:
            longest_first = sorted(self._values, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))
        return self._pattern.sub(REDACTED, text)


secrets: Final = Secrets()
"""The process's secrets."""


def redact(value: Any) -> Any:
    """The value (text, mapping or list, nested) without known secrets and without secret-sounding fields."""
    if isinstance(value, str):
        return secrets.cut(value)
    if isinstance(value, Mapping):
        return {
            key: REDACTED if isinstance(key, str) and _KEY.search(key) and item else redact(item)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    return value


def _add_pass(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    current = current_pass()
    if current is not None and current.key is not None:
        event.setdefault("controller", current.controller)
        event.setdefault("key", str(current.key))
        event["pass"] = current.id
    return event


def _redact(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for key, value in event.items():
        if isinstance(value, (str, Mapping, list, tuple)):
            hidden = key != "event" and _KEY.search(key) and value
            event[key] = REDACTED if hidden else redact(value)
    return event


_encoder = msgspec.json.Encoder(enc_hook=str)


def _json(_: Any, __: str, event: MutableMapping[str, Any]) -> str:
    return _encoder.encode(event).decode()


class _Output:
    """Where lines go; one that cannot be written (a full disk, a reader that is gone) is dropped."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        with suppress(OSError):
            return self._out.write(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._out.flush()


def configure_logging(*, level: str = "info", json: bool | None = None, stream: TextIO | None = None) -> None:
    """Set up structlog, and the standard library's logging for warnings of others, once per process.

    ``json``: one object per line; by default when ``stream`` (standard error) is not a terminal. Levels that
    are off cost one comparison. A line that cannot be written is dropped: logging never ends a process.
    """
    out = stream or sys.stderr
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"unknown log level {level!r}; use debug, info, warning or error")
    as_json = not out.isatty() if json is None else json
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _add_pass,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    if as_json:
        render: list[Any] = [structlog.processors.format_exc_info, _redact, _json]
    else:
        # The console renderer prints tracebacks itself, so they are made text, and cut, before.
        render = [
            structlog.processors.format_exc_info,
            _redact,
            structlog.dev.ConsoleRenderer(
                colors=out.isatty() and not os.environ.get("NO_COLOR"), timestamp_key="time"
            ),
        ]
    structlog.configure(
        processors=[*shared, *render],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, _Output(out))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(
        stream=_Output(out), level=logging.WARNING, format="%(levelname)s %(name)s %(message)s", force=True
    )
