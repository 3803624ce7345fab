"""Identities, versions, quantities and TOML: the parts that specs are made of."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from tests.operators.matrixone.builders import typed

from mooring.operators.matrixone import toml
from mooring.operators.matrixone.identity import (
    bootstrap_members,
    bootstrap_replicas,
    bucket_id,
    deployment_id,
    hash64,
    host_uuid,
    log_uuid,
    read_bootstrap,
    tn_uuid,
    write_bootstrap,
)
from mooring.operators.matrixone.quantities import canonical, share
from mooring.operators.matrixone.storage import backend_of, bucket_of
from mooring.operators.matrixone.types import S3Provider, claim_retention, data_retention
from mooring.operators.matrixone.versions import (
    FIRST_OPERATOR,
    Version,
    operator_version,
    server_version,
    tag_of,
)

# --- identities --------------------------------------------------------------------------------------------


def test_a_compute_node_has_the_uuid_that_upstream_derives_from_its_host() -> None:
    assert host_uuid("default-cn-0.default-cn-headless.test.svc") == "64396564-3061-3238-3164-363835623561"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", 0xEF46DB3751D8E999),
        (b"a", 0xD24EC4F1A98C6E5B),
        (b"abc", 0x44BC2CF5AD770999),
        (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    ],
)
def test_xxhash64_gives_the_published_values(data: bytes, expected: int) -> None:
    assert hash64(data) == expected


def test_stores_are_numbered_by_ordinal() -> None:
    assert log_uuid(0) == "00000000-0000-0000-0000-000000000000"
    assert log_uuid(17) == "00000000-0000-0000-0000-000000000011"
    assert tn_uuid(1) == "00000000-0000-0000-0000-100000000001"
    assert deployment_id("mo") == hash64(b"mo") >> 1


def test_the_recorded_bootstrap_is_read_back_and_names_members() -> None:
    replicas = bootstrap_replicas(2)
    text = write_bootstrap(replicas)
    assert text == '[{"ordinal":0,"replicaId":131072},{"ordinal":1,"replicaId":131073}]'
    assert read_bootstrap(text) == replicas
    assert bootstrap_members(replicas)[1] == f"131073:{log_uuid(1)}"
    with pytest.raises(ValueError, match="malformed"):
        read_bootstrap("{")


def test_a_bucket_is_known_by_type_endpoint_and_path() -> None:
    assert bucket_id(kind=None, endpoint=None, path="b/p") != bucket_id(kind="aws", endpoint=None, path="b/p")
    assert len(bucket_id(kind="minio", endpoint="http://x", path="b")) == 40


# --- versions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("image", "tag"),
    [
        ("repo/mo:1.2.4", "1.2.4"),
        ("host:5000/mo:v1", "v1"),
        ("mo", ""),
        ("", ""),
        (None, ""),
        ("a:b:c", "c"),
    ],
)
def test_the_tag_follows_the_last_colon(image: str | None, tag: str) -> None:
    assert tag_of(image) == tag


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("v1.2.4", (1, 2, 4)),
        ("1.2", (1, 2, 0)),
        ("2", (2, 0, 0)),
        (" 1.2.3-rc1+x ", (1, 2, 3)),
        ("nightly-b3da04e0", None),
        ("latest", None),
        ("1.2.3.4", None),
        ("", None),
        (None, None),
        ("9" * 40, None),
    ],
)
def test_versions_are_read_as_tolerantly_as_upstream_does(text: str | None, version: Any) -> None:
    found = Version.read(text)
    assert (found.release if found else None) == version


def test_the_declared_version_wins_over_the_tag() -> None:
    spec = typed("CNSet", spec__semanticVersion="2.1.0").spec
    assert server_version(spec) == Version(2, 1, 0)
    assert operator_version(spec) == FIRST_OPERATOR


@pytest.mark.parametrize(
    ("version", "new"), [("1.2.4", False), ("2.0.0", True), ("3.1.0", True), ("4.0.1", True)]
)
def test_every_version_from_2_0_finds_hakeeper_by_one_address(version: str, new: bool) -> None:
    found = Version.read(version)
    assert found is not None
    assert found.discovers is new


# --- quantities --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("1024Mi", "1Gi"),
        ("1.5Gi", "1536Mi"),
        ("1000M", "1G"),
        (4, "4"),
        ("0.5", "500m"),
        ("0", "0"),
        ("1e3", "1e3"),
        ("1.0", "1"),
        ("1.5k", "1500"),
    ],
)
def test_quantities_are_written_as_the_api_server_writes_them(given: str | int, shown: str) -> None:
    assert canonical(given) == shown


@pytest.mark.parametrize(
    ("given", "part", "shown"),
    [("12Gi", (1, 2), "6Gi"), ("1G", (9, 10), "900M"), ("10Gi", (9, 10), "9Gi"), ("3", (1, 2), "1")],
)
def test_a_share_of_a_quantity_is_a_whole_number_with_suffixes_of_its_kind(
    given: str, part: tuple[int, int], shown: str
) -> None:
    assert share(given, *part) == shown


# --- storage -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("s3", "backend"),
    [
        (S3Provider(path="b"), "S3"),
        (S3Provider(path="b", type="minio", endpoint="http://x"), "MINIO"),
        (S3Provider(path="b", type="aws", endpoint="http://minio:9000"), "S3"),
        (S3Provider(path="b", endpoint="http://minio.default:9000"), "MINIO"),
        (S3Provider(path="b", endpoint="https://10.0.0.1"), "MINIO"),
        (S3Provider(path="b", endpoint="https://minio.default.svc"), "MINIO"),
        (S3Provider(path="b", endpoint="https://oss-cn-hangzhou.aliyuncs.com"), "S3"),
        (S3Provider(path="b", endpoint="s3.eu-west-1.amazonaws.com"), "S3"),
        (S3Provider(path="b", endpoint="http://[bad"), "S3"),
    ],
)
def test_a_server_of_ones_own_is_asked_by_path(s3: S3Provider, backend: str) -> None:
    assert backend_of(s3) == backend


@pytest.mark.parametrize(
    ("path", "expected"), [("b", ("b", "")), ("/b/p/q/", ("b", "p/q")), ("", ("", "")), ("b//p", ("b", "p"))]
)
def test_a_path_is_a_bucket_and_a_prefix(path: str, expected: tuple[str, str]) -> None:
    assert bucket_of(S3Provider(path=path)) == expected


@pytest.mark.parametrize(
    ("claims", "data", "expected"),
    [
        (None, None, ("Delete", "Delete")),
        ("Retain", None, ("Retain", "Retain")),
        (None, "Retain", ("Retain", "Retain")),
        ("Delete", "Retain", ("Delete", "Retain")),
    ],
)
def test_retention_of_claims_and_of_data_is_inherited_from_each_other(
    claims: str | None, data: str | None, expected: tuple[str, str]
) -> None:
    changes = {"spec__pvcRetentionPolicy": claims, "spec__sharedStorage__s3__s3RetentionPolicy": data}
    spec = typed("LogSet", **changes).spec
    assert (claim_retention(spec), data_retention(spec)) == expected


def test_without_s3_there_is_no_data_to_retain() -> None:
    spec = typed("LogSet", spec__sharedStorage={"fileSystem": {"path": "/x"}}).spec
    assert data_retention(spec) is None
    assert claim_retention(spec) == "Delete"


# --- TOML --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "over", "expected"),
    [
        ({}, {"a": 1}, {"a": 1}),
        ({"a": 1, "b": 2}, {"a": 3}, {"a": 3, "b": 2}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}, {"a": {"b": 3, "c": 2}}),
        ({"a": 1}, {"a": {"b": 1}}, {"a": {"b": 1}}),
        (
            {"fs": [{"name": "S3", "cache": {"m": 1}, "mine": True}, {"name": "X"}]},
            {"fs": [{"name": "LOCAL"}, {"name": "S3", "cache": {"d": 2}}]},
            {
                "fs": [
                    {"name": "LOCAL"},
                    {"name": "S3", "cache": {"m": 1, "d": 2}, "mine": True},
                    {"name": "X"},
                ]
            },
        ),
        ({"fs": [1, 2]}, {"fs": [{"name": "A"}]}, {"fs": [{"name": "A"}]}),
        ({"fs": [{"id": 1}]}, {"fs": [{"name": "A"}]}, {"fs": [{"name": "A"}]}),
        ({"fs": []}, {"fs": [{"name": "A"}]}, {"fs": [{"name": "A"}]}),
    ],
)
def test_tables_are_merged_deeply_and_the_operators_part_wins(
    base: dict[str, Any], over: dict[str, Any], expected: dict[str, Any]
) -> None:
    before = repr(base)
    assert toml.merged(base, over) == expected
    assert repr(base) == before, "the user's table is left as it was"


def test_a_value_is_set_below_a_path_whatever_is_in_the_way() -> None:
    table = {"a": 1}
    assert toml.put(table, 2, "a", "b") == {"a": {"b": 2}}
    assert toml.get(toml.put(table, 2, "x", "y", "z"), "x", "y", "z") == 2
    assert toml.get(table, "a", "b") is None
    assert table == {"a": 1}


@pytest.mark.parametrize(
    "table",
    [
        {"a": 'q"uo\\te\n\t\x01\x7fé', "b": [1, -2], "c": 1.5, "d": 1e300, "e": True, "f": []},
        {"t": {"u": {"v": 1}}, "l": [{"x": 1}, {"x": {"y": [["a"], ["b"]]}}]},
        {"odd key": {"a.b": 1}, "": 1, "mixed": [{"a": 1}, 2]},
        {"when": tomllib.loads("a = 1979-05-27T07:32:00Z")["a"], "day": tomllib.loads("a = 1979-05-27")["a"]},
        {"inf": float("inf"), "minus": float("-inf"), "small": 1e-7, "round": 3.0},
    ],
)
def test_what_is_written_reads_back_the_same(table: dict[str, Any]) -> None:
    assert tomllib.loads(toml.render(table)) == table


@pytest.mark.parametrize("text", ["a =", "[a\n", "a = 1\na = 2", "\x00", "[" * 5000])
def test_text_that_is_no_toml_is_one_kind_of_error(text: str) -> None:
    with pytest.raises(toml.TomlError):
        toml.parse(text)
