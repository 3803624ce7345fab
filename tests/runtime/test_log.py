"""Logging: one line of JSON, nothing secret, and the pass it belongs to."""

from __future__ import annotations

import errno
import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from mooring.kube import Key
from mooring.runtime.context import Pass, enter
from mooring.runtime.log import REDACTED, Secrets, configure_logging, redact, secrets


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    before = list(logging.getLogger().handlers)
    out = io.StringIO()
    yield out
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = before


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_its_values(stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    structlog.get_logger().bind(a=1).info("did it", b="two")
    structlog.get_logger().debug("not shown")
    (line,) = lines(stream)
    assert (line["event"], line["level"], line["a"], line["b"]) == ("did it", "info", 1, "two")


def test_secrets_never_reach_a_line_not_even_in_a_traceback(stream: io.StringIO) -> None:
    configure_logging(stream=stream, level="debug")
    secrets.add("s3cr3t-value")
    try:
        raise RuntimeError("AUTH s3cr3t-value refused")
    except RuntimeError:
        structlog.get_logger().exception(
            "failed s3cr3t-value", password="abc", nested={"apiToken": "t", "x": 1}
        )
    text = stream.getvalue()
    assert "s3cr3t-value" not in text
    (line,) = lines(stream)
    assert line["password"] == REDACTED
    assert line["nested"] == {"apiToken": REDACTED, "x": 1}
    assert "RuntimeError" in str(line["exception"])


class Full(io.StringIO):
    """A file on a disk without space."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        self.write("")


def test_a_full_disk_below_the_log_stops_nothing(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(stream=Full())
    structlog.get_logger().error("not written")
    logging.getLogger("other").error("not written")
    assert capsys.readouterr().err == ""


async def test_a_line_names_its_pass(stream: io.StringIO) -> None:
    configure_logging(stream=stream)
    current = Pass("pods")
    enter(current)
    current.begin(Key("ns", "a"))
    structlog.get_logger().info("inside")
    current.end()
    structlog.get_logger().info("outside")
    inside, outside = lines(stream)
    assert (inside["controller"], inside["key"], inside.get("pass")) == ("pods", "ns/a", current.id)
    assert "controller" not in outside


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(ValueError, match="debug, info"):
        configure_logging(level="loud")


def test_only_known_and_long_enough_secrets_are_cut() -> None:
    known = Secrets()
    known.add("abc")
    known.add(None)
    known.add(b"longer-one")
    known.add("longer-one-still")
    assert known.cut("abc longer-one-still longer-one") == f"abc {REDACTED} {REDACTED}"
    assert redact(["x", {"token": ""}]) == ["x", {"token": ""}]


def test_the_console_form_is_readable(stream: io.StringIO) -> None:
    configure_logging(stream=stream, json=False)
    structlog.get_logger().info("hello", who="you")
    assert "hello" in stream.getvalue()
    assert "who=you" in stream.getvalue()
