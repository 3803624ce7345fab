"""A conversion webhook on loopback, which both servers can ask, and the definition that names it.

`v1` has `spec.size: "3Gi"`, `v2` has `spec.size: {value: 3, unit: Gi}`. The path of the URL says how it
answers: `/good` converts, the others are wrong in one way each.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from mooring.local.api.tls import ensure_certificates

__all__ = ["Converter", "converted", "converting"]

Json = Any


def converted(obj: Json, api_version: str) -> Json:
    """Return an object in the other version."""
    result = {**obj, "apiVersion": api_version}
    size = (obj.get("spec") or {}).get("size")
    if isinstance(size, str) and api_version.endswith("/v2"):
        number, unit = re.fullmatch(r"(\d+)(\w*)", size).groups()  # type: ignore[union-attr]
        result["spec"] = {**obj["spec"], "size": {"value": int(number), "unit": unit}}
    elif isinstance(size, dict) and api_version.endswith("/v1"):
        result["spec"] = {**obj["spec"], "size": f"{size.get('value', 0)}{size.get('unit', '')}"}
    return result


def _answer(request: Json) -> Json:
    objects = [converted(obj, request["desiredAPIVersion"]) for obj in request["objects"]]
    return {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": objects}


def _changed(change: Callable[[Json], Json]) -> Callable[[Json], Json]:
    def answer(request: Json) -> Json:
        response = _answer(request)
        return {**response, "convertedObjects": [change(obj) for obj in response["convertedObjects"]]}

    return answer


def _with(obj: Json, **meta: Any) -> Json:
    return {**obj, "metadata": {**obj["metadata"], **meta}}


_WAYS: dict[str, Callable[[Json], Json]] = {
    "good": _answer,
    "labels": _changed(lambda obj: _with(obj, labels={"converted": "yes"}, finalizers=["example.com/no"])),
    "failed": lambda request: {
        "uid": request["uid"],
        "result": {"status": "Failed", "message": "no way to say it"},
    },
    "silent": lambda request: {"uid": request["uid"], "result": {"status": "Failed"}},
    "uid": lambda request: {**_answer(request), "uid": "other"},
    "none": lambda request: {**_answer(request), "convertedObjects": []},
    "version": _changed(lambda obj: {**obj, "apiVersion": "example.com/v9"}),
    "kind": _changed(lambda obj: {**obj, "kind": "Other"}),
    "name": _changed(lambda obj: _with(obj, name="other")),
    "label": _changed(lambda obj: _with(obj, labels={"a": "not a value!"})),
    "bare": _changed(lambda obj: {key: value for key, value in obj.items() if key != "metadata"}),
}


class Converter:
    """The webhook: where it is, and how often it was asked."""

    def __init__(self, directory: Path) -> None:
        self._certificates = ensure_certificates(directory, ["127.0.0.1"])
        self.asked: list[Json] = []
        asked = self.asked

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                way = _WAYS.get(self.path.partition("?")[0].strip("/"))
                asked.append(review["request"])
                if way is None:
                    self.send_response(500)
                    body = b"out of order"
                else:
                    self.send_response(200)
                    body = json.dumps({**review, "response": way(review["request"])}).encode()
                self.send_header("Content-Type", "application/json" if way else "text/plain")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = self._certificates.server_context().wrap_socket(
            self._server.socket, server_side=True
        )
        self.port = self._server.server_address[1]

    def conversion(self, way: str = "good") -> Json:
        """Return the `spec.conversion` that asks this webhook."""
        bundle = base64.b64encode(self._certificates.authority.read_bytes()).decode()
        client = {"url": f"https://127.0.0.1:{self.port}/{way}", "caBundle": bundle}
        webhook = {"clientConfig": client, "conversionReviewVersions": ["v1"]}
        return {"strategy": "Webhook", "webhook": webhook}

    def run(self) -> None:
        """Serve until stopped."""
        self._server.serve_forever(poll_interval=0.05)

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


@contextmanager
def converting(directory: Path) -> Iterator[Converter]:
    """Run a conversion webhook."""
    converter = Converter(directory)
    thread = threading.Thread(target=converter.run, name="converter", daemon=True)
    thread.start()
    try:
        yield converter
    finally:
        converter.stop()
        thread.join(10)
