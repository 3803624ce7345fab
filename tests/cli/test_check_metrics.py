"""`mooring check-metrics`: what `helm test` asks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from mooring.cli import check_metrics
from mooring.cli.main import main

STANDBY = b'leader_election_master_status{name="mooring-redis-sentinel-all"} 0.0\n'
LEADER = b'leader_election_master_status{name="mooring-redis-sentinel-all"} 1.0\n'


@pytest.fixture
def answers() -> Iterator[tuple[list[bytes], str]]:
    """What a server answers, in turn, the last one again and again; and its address."""
    said: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(said.pop(0) if len(said) > 1 else said[0])

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield said, f"http://127.0.0.1:{server.server_port}/metrics"
        server.shutdown()
        thread.join()


def run(url: str) -> object:
    with pytest.raises(SystemExit) as ended:
        main(["check-metrics", url])
    return ended.value.code


def test_it_asks_until_the_one_that_leads_answers(answers: tuple[list[bytes], str]) -> None:
    said, url = answers
    said += [STANDBY, LEADER]
    assert run(url) == 0


def test_it_fails_when_nobody_leads(
    answers: tuple[list[bytes], str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said, url = answers
    said += [STANDBY]
    monkeypatch.setattr(check_metrics, "PATIENCE", 0.1)
    assert run(url) == 1
    assert "no operator that answers leads" in capsys.readouterr().err
