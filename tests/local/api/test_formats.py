"""Protobuf bodies, printer columns' JSONPath, ages, continue tokens: the formats one by one."""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.local.api.conftest import CM, Client

from mooring.local.api import codec, jsonpath, protobuf
from mooring.local.api.published.table import duration
from mooring.local.api.streams import spdy

DEFINITIONS = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Pod"): "io.k8s.api.core.v1.Pod",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
}


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value & 0xFFFFFFFFFFFFFFFF)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes((number & 0x7F | 0x80,))
        number >>= 7
    return encoded + bytes((number,))


def envelope(kind: str, raw: bytes) -> bytes:
    return b"k8s\0" + field(1, field(1, "v1") + field(2, kind)) + field(2, raw)


def decode(body: bytes) -> Any:
    return protobuf.decode(body, lambda version, kind: DEFINITIONS.get((version, kind)))


def test_a_protobuf_message_becomes_its_json() -> None:
    meta = field(1, "a") + field(11, field(1, "k") + field(2, "v")) + field(8, field(1, 1577836800))
    body = envelope("ConfigMap", field(1, meta) + field(2, field(1, "x") + field(2, "1")))
    assert decode(body) == {
        "kind": "ConfigMap",
        "apiVersion": "v1",
        "metadata": {"name": "a", "labels": {"k": "v"}, "creationTimestamp": "2020-01-01T00:00:00Z"},
        "data": {"x": "1"},
    }


def test_protobuf_numbers_quantities_and_inlined_structs() -> None:
    port = field(1, "web") + field(3, 80) + field(4, field(1, 1) + field(3, "http"))
    service = decode(envelope("Service", field(2, field(1, port))))
    assert service["spec"]["ports"] == [{"name": "web", "port": 80, "targetPort": "http"}]
    limit = field(1, field(1, "cpu") + field(2, field(1, "500m")))
    volume = field(1, "data") + field(2, field(2, field(1, "Memory")))
    probe = field(1, field(3, field(1, field(1, 0) + field(2, 6379)))) + field(2, -5)
    container = field(1, "c") + field(8, limit) + field(10, probe)
    pod = decode(envelope("Pod", field(2, field(1, volume) + field(2, container))))
    assert pod["spec"]["volumes"] == [{"name": "data", "emptyDir": {"medium": "Memory"}}]
    assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": "500m"}}
    assert pod["spec"]["containers"][0]["livenessProbe"] == {
        "tcpSocket": {"port": 6379},
        "initialDelaySeconds": -5,
    }


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_as_a_value_error(data: bytes) -> None:
    for body in (data, b"k8s\0" + data, envelope("Pod", data)):
        with contextlib.suppress(ValueError):
            decode(body)


async def test_a_protobuf_body_creates_an_object(api: Client) -> None:
    body = envelope("ConfigMap", field(1, field(1, "a")) + field(2, field(1, "x") + field(2, "1")))
    created = await api.create(CM, body, content_type="application/vnd.kubernetes.protobuf")
    assert created["data"] == {"x": "1"}


# --- JSONPath -------------------------------------------------------------------------------------------

OBJECT = {
    "spec": {"size": 3, "names": ["a", "b", "c"], "a.b": "dotted"},
    "status": {
        "conditions": [{"type": "Synced", "status": "True"}, {"type": "Ready", "status": "False", "age": 7}]
    },
}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".spec.size", [3]),
        ("{.spec.size}", [3]),
        ("$.spec.size", [3]),
        (".spec.nothing", []),
        (".spec.names[0]", ["a"]),
        (".spec.names[-1]", ["c"]),
        (".spec.names[9]", []),
        (".spec.names[0:2]", ["a", "b"]),
        (".spec.names[*]", ["a", "b", "c"]),
        (".spec['a.b']", ["dotted"]),
        (r".spec.a\.b", ["dotted"]),
        ('.status.conditions[?(@.type=="Ready")].status', ["False"]),
        (".status.conditions[?(@.type=='Ready')].status", ["False"]),
        ('.status.conditions[?(@.type != "Ready")].status', ["True"]),
        (".status.conditions[?(@.age > 5)].type", ["Ready"]),
        (".status.conditions[?(@.age)].type", ["Ready"]),
        (".status.conditions[*].type", ["Synced", "Ready"]),
        (".status.conditions.type", []),
    ],
)
def test_json_paths_of_printer_columns(path: str, expected: list[Any]) -> None:
    assert jsonpath.find(OBJECT, path) == expected


@pytest.mark.parametrize("path", [".a[", ".a[?(@.b==x)]", "..[["])
def test_json_paths_that_cannot_be_read_are_refused(path: str) -> None:
    with pytest.raises(jsonpath.JsonPathError):
        jsonpath.find({"a": [{"b": 1}]}, path)


# --- the rest -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"), (119, "119s"), (120, "2m"), (150, "2m30s"), (600, "10m"), (10799, "179m"), (10800, "3h"),
        (12000, "3h20m"), (28800, "8h"), (172799, "47h"), (172800, "2d"), (180000, "2d2h"), (700000, "8d"),
        (63072000, "2y"), (64000000, "2y10d"), (300000000, "9y"),
    ],
)  # fmt: skip
def test_durations_are_shown_as_kubectl_does(seconds: int, shown: str) -> None:
    assert duration(seconds) == shown


def test_duplicate_fields_are_found_with_their_paths() -> None:
    body = b'{"a":1,"b":{"c":1,"c":2},"d":[{"e":1,"e":1}],"a":2}'
    assert codec.duplicates(body) == ["a", "b.c", "d[0].e"]


def test_yaml_reads_as_the_real_server_reads_it() -> None:
    text = b"when: 2020-01-01\ny: n\n1: one\nlist: [off, 1.5]\n"
    assert codec.decode(text, "application/yaml") == {
        "when": "2020-01-01",
        "true": False,
        "1": "one",
        "list": [False, 1.5],
    }


def test_yaml_bombs_are_refused() -> None:
    bomb = b"a: &a [x,x,x,x,x,x,x,x,x,x]\n"
    for previous, name in zip("abcdefg", "bcdefgh", strict=True):
        bomb += f"{name}: &{name} [{','.join(['*' + previous] * 10)}]\n".encode()
    with pytest.raises(ValueError, match="excessive aliasing"):
        codec.decode(bomb, "application/yaml")


@given(st.lists(st.binary(max_size=50), max_size=8), st.integers(1, 40))
def test_frames_are_cut_right_wherever_the_bytes_are_split(payloads: list[bytes], size: int) -> None:
    stream = b"".join(spdy.data_frame(number + 1, data) for number, data in enumerate(payloads))
    reader = spdy.FrameReader()
    frames = [
        frame for start in range(0, len(stream), size) for frame in reader.feed(stream[start : start + size])
    ]
    assert [frame.payload for frame in frames] == payloads


def test_frames_that_are_not_spdy_are_refused() -> None:
    with pytest.raises(spdy.SpdyError):
        spdy.FrameReader().feed(struct.pack(">II", 0x80020001, 0))
    with pytest.raises(spdy.SpdyError):
        spdy.FrameReader().feed(struct.pack(">II", 1, 0xFFFFFF))
