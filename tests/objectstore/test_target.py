"""Declarations of targets: what is refused, with the field and the remedy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import ClassVar

import pytest

from mooring.kube.object import Object, Resource
from mooring.objectstore import (
    CredentialsRejected,
    ExtraMissing,
    Target,
    TargetInvalid,
    location,
    mounted_secrets,
    open_store,
    validate,
)
from mooring.objectstore.secrets import entry, read_secret
from mooring.objectstore.target import S3, Azure, Claim, Directory, Encryption, Gcs
from mooring.runtime.crd import crd, render_crd

NO_SECRETS: dict[str, dict[str, bytes]] = {}

GOOD = [
    Target(s3=S3(bucket="backups", endpoint="https://minio:9000", prefix="a/b/")),
    Target(gcs=Gcs(bucket="a_bucket", credentials_secret="gcs")),
    Target(azure=Azure(account="account1", container="my-backups")),
    Target(claim=Claim(name="backups")),
    Target(directory=Directory(path="/mnt/backups"), encryption=Encryption(secret="keys", key_id="2026-01")),
]


@pytest.mark.parametrize("target", GOOD)
def test_a_good_target_has_no_problem(target: Target) -> None:
    assert validate(target) == []
    assert location(target)


@pytest.mark.parametrize(
    ("target", "field", "says"),
    [
        (Target(), "t", "exactly one of s3, gcs, azure, claim, directory must be set, none is"),
        (Target(s3=S3(bucket="abc"), claim=Claim(name="a")), "t", "not 2: s3, claim"),
        (Target(s3=S3()), "t.s3.bucket", "is required"),
        (Target(s3=S3(bucket="Up")), "t.s3.bucket", "3 to 63"),
        (Target(s3=S3(bucket="abc", prefix="../x")), "t.s3.prefix", "relative names"),
        (
            Target(s3=S3(bucket="abc", endpoint="minio:9000")),
            "t.s3.endpoint",
            "https://minio.storage.svc:9000",
        ),
        (Target(s3=S3(bucket="abc", endpoint="https://u:p@minio")), "t.s3.endpoint", "credentialsSecret"),
        (Target(s3=S3(bucket="abc", endpoint="https://minio:99999")), "t.s3.endpoint", "must be a URL"),
        (Target(s3=S3(bucket="abc", region="eu central")), "t.s3.region", "eu-central-1"),
        (Target(s3=S3(bucket="abc", ca_bundle="x")), "t.s3.caBundle", "PEM"),
        (Target(s3=S3(bucket="abc", credentials_secret="A/b")), "t.s3.credentialsSecret", "a Secret"),
        (Target(gcs=Gcs(bucket="a")), "t.gcs.bucket", "3 to 222"),
        (Target(azure=Azure(account="a-b", container="abc")), "t.azure.account", "a-z and 0-9"),
        (Target(azure=Azure(account="abc", container="a--b")), "t.azure.container", "single -"),
        (Target(claim=Claim()), "t.claim.name", "is required"),
        (Target(directory=Directory(path="/")), "t.directory.path", "absolute path below /"),
        (Target(directory=Directory(path="a/b")), "t.directory.path", "absolute path"),
        (Target(directory=Directory(path="/a/../b")), "t.directory.path", "without .."),
        (Target(claim=Claim(name="a"), encryption=Encryption()), "t.encryption.secret", "is required"),
        (
            Target(claim=Claim(name="a"), encryption=Encryption(secret="k", key_id="a b")),
            "t.encryption.keyId",
            "entry of the Secret",
        ),
    ],
)
async def test_a_bad_target_is_refused_by_field_and_remedy(target: Target, field: str, says: str) -> None:
    (problem,) = validate(target, "t")
    assert problem.field == field
    assert says in problem.message
    assert "u:p" not in problem.message
    with pytest.raises(TargetInvalid, match="target"):
        async with open_store(target, secrets=NO_SECRETS.__getitem__):
            pass


@crd()
class Holder(Object, frozen=True, kw_only=True):
    resource: ClassVar[Resource] = Resource("test.mooring.dev", "v1", "Holder", "holders", True)
    spec: Target | None = None


def test_the_schema_refuses_two_kinds() -> None:
    versions = render_crd(Holder)["spec"]["versions"]
    schema = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert schema["x-kubernetes-validations"][0]["rule"].endswith(".size() == 1")
    assert schema["properties"]["s3"]["required"] == ["bucket"]
    assert "caBundle" in schema["properties"]["s3"]["properties"]


async def test_a_bucket_without_obstore_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith(("obstore", "mooring.objectstore.bucket"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.delattr(sys.modules["mooring.objectstore"], "bucket", raising=False)
    with pytest.raises(ExtraMissing, match=r"install mooring\[objectstore\]"):
        async with open_store(GOOD[0], secrets=NO_SECRETS.__getitem__):
            pass


async def test_a_directory_needs_no_obstore(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "obstore", None)
    async with open_store(
        Target(directory=Directory(path=str(tmp_path))), secrets=NO_SECRETS.__getitem__
    ) as store:
        assert (await store.check()).ok


def test_mounted_secrets_are_read_at_every_use(tmp_path: Path) -> None:
    secrets = mounted_secrets(tmp_path)
    with pytest.raises(CredentialsRejected, match="'s3' cannot be read"):
        read_secret(secrets, "s3")
    (tmp_path / "s3").mkdir()
    (tmp_path / "s3" / "accessKeyId").write_bytes(b"one\n")
    assert entry(read_secret(secrets, "s3"), "s3", "accessKeyId") == "one"
    (tmp_path / "s3" / "accessKeyId").write_bytes(b"two")
    assert entry(read_secret(secrets, "s3"), "s3", "accessKeyId") == "two"
    with pytest.raises(CredentialsRejected, match="no usable entry secretAccessKey"):
        entry(read_secret(secrets, "s3"), "s3", "secretAccessKey")
