"""Where backups go, as a user declares it in a custom resource.

`Target` is a field of the operators' kinds. The schema refuses what it can; `validate` answers the rest with the
field and the remedy, for webhooks and conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import urlsplit

from mooring.kube.part import Part
from mooring.objectstore.encryption import KEY_ID
from mooring.objectstore.errors import NameInvalid
from mooring.objectstore.names import check_prefix
from mooring.runtime.crd import F, exactly_one_of, rules

__all__ = [
    "S3",
    "Azure",
    "Claim",
    "Directory",
    "Encryption",
    "Gcs",
    "Problem",
    "Target",
    "container_of",
    "location",
    "prefix_of",
    "validate",
]

_PREFIX: Final = F(
    "Names of objects begin with this; whole segments, such as prod/orders. Give every cluster its own.",
    max_length=250,
)
_SECRET: Final = F("Name of a Secret in the same namespace.", min_length=1, max_length=253)
_CA: Final = F(
    "PEM certificates to trust besides the system's, for endpoints with a private CA.", max_length=65536
)


class S3(Part, frozen=True, kw_only=True):
    """A bucket of Amazon S3 or of a server that speaks its protocol."""

    bucket: Annotated[str | None, F("Name of the bucket.", required=True, min_length=3, max_length=63)] = None
    prefix: Annotated[str | None, _PREFIX] = None
    endpoint: Annotated[
        str | None,
        F("URL of the server, without the bucket. Default: Amazon's for the region.", max_length=500),
    ] = None
    region: Annotated[str | None, F("Region of the bucket. Default: us-east-1.", max_length=60)] = None
    path_style: Annotated[
        bool | None,
        F(
            "Put the bucket into the path, not the host name. Default: true if an endpoint is given, else false."
        ),
    ] = None
    credentials_secret: Annotated[
        str | None,
        F(
            "Name of a Secret with the entries accessKeyId and secretAccessKey, and sessionToken for temporary "
            "credentials. Left out: the identity of the pod (IRSA, instance profile).",
            min_length=1,
            max_length=253,
        ),
    ] = None
    ca_bundle: Annotated[str | None, _CA] = None


class Gcs(Part, frozen=True, kw_only=True):
    """A bucket of Google Cloud Storage."""

    bucket: Annotated[str | None, F("Name of the bucket.", required=True, min_length=3, max_length=222)] = (
        None
    )
    prefix: Annotated[str | None, _PREFIX] = None
    credentials_secret: Annotated[
        str | None,
        F(
            "Name of a Secret with the entry serviceAccount: the JSON key of a service account. Left out: the "
            "identity of the pod (Workload Identity).",
            min_length=1,
            max_length=253,
        ),
    ] = None


class Azure(Part, frozen=True, kw_only=True):
    """A container of Azure Blob Storage."""

    account: Annotated[
        str | None, F("Name of the storage account.", required=True, min_length=3, max_length=24)
    ] = None
    container: Annotated[
        str | None, F("Name of the container.", required=True, min_length=3, max_length=63)
    ] = None
    prefix: Annotated[str | None, _PREFIX] = None
    endpoint: Annotated[
        str | None, F("URL of the blob service. Default: Azure's for the account.", max_length=500)
    ] = None
    credentials_secret: Annotated[
        str | None,
        F(
            "Name of a Secret with the entry accountKey or sasToken. Left out: the identity of the pod "
            "(workload identity).",
            min_length=1,
            max_length=253,
        ),
    ] = None
    ca_bundle: Annotated[str | None, _CA] = None


class Claim(Part, frozen=True, kw_only=True):
    """A PersistentVolumeClaim; the operator mounts it where the data is moved."""

    name: Annotated[
        str | None, F("Name of a claim in the same namespace.", required=True, min_length=1, max_length=253)
    ] = None
    prefix: Annotated[str | None, _PREFIX] = None


class Directory(Part, frozen=True, kw_only=True):
    """A directory that exists where the data is moved, such as a mounted network file system."""

    path: Annotated[
        str | None, F("Absolute path of the directory.", required=True, min_length=2, max_length=1000)
    ] = None
    prefix: Annotated[str | None, _PREFIX] = None


class Encryption(Part, frozen=True, kw_only=True):
    """Encrypt on the client's side with AES-256-GCM: the store never sees plaintext or keys."""

    secret: Annotated[
        str | None,
        F(
            "Name of a Secret; every entry is a key of 32 bytes (base64 and hex are accepted), its name the key's "
            "id. Keep every key that a backup was written with.",
            required=True,
            min_length=1,
            max_length=253,
        ),
    ] = None
    key_id: Annotated[
        str | None,
        F("Id of the key to write with. May be left out if the Secret has one entry.", max_length=64),
    ] = None


@rules(exactly_one_of("s3", "gcs", "azure", "claim", "directory"))
class Target(Part, frozen=True, kw_only=True):
    """Where backups are stored; exactly one of the kinds."""

    s3: Annotated[S3 | None, F("Amazon S3 or a compatible server.")] = None
    gcs: Annotated[Gcs | None, F("Google Cloud Storage.")] = None
    azure: Annotated[Azure | None, F("Azure Blob Storage.")] = None
    claim: Annotated[Claim | None, F("A PersistentVolumeClaim.")] = None
    directory: Annotated[Directory | None, F("A directory.")] = None
    encryption: Annotated[Encryption | None, F("Client-side encryption. Default: none.")] = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A field that cannot be accepted, and what to do about it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


_Kind = S3 | Gcs | Azure | Claim | Directory
_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_GCS_BUCKET: Final = re.compile(r"[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]")
_REGION: Final = re.compile(r"[A-Za-z0-9-]{1,60}")
_ACCOUNT: Final = re.compile(r"[a-z0-9]{3,24}")
_CONTAINER: Final = re.compile(r"(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_OBJECT: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


def validate(target: Target, field: str = "target") -> list[Problem]:
    """What cannot be accepted in a target; ``field`` is its path in the custom resource. Empty: nothing."""
    kinds = _kinds(target)
    problems = []
    if len(kinds) != 1:
        said = f"not {len(kinds)}: {', '.join(kinds)}" if kinds else "none is"
        problems.append(
            Problem(
                field=field, message=f"exactly one of s3, gcs, azure, claim, directory must be set, {said}"
            )
        )
    for name, kind in kinds.items():
        problems += [*_fields(kind, f"{field}.{name}"), *_prefix(kind, f"{field}.{name}")]
    if (encryption := target.encryption) is not None:
        problems += _encryption(encryption, f"{field}.encryption")
    return problems


def container_of(target: Target) -> _Kind:
    """The one kind of a valid target."""
    return next(iter(_kinds(target).values()))


def prefix_of(target: Target) -> str:
    """What names of objects begin with in a valid target, without slashes at its ends."""
    return check_prefix(container_of(target).prefix or "")


def location(target: Target) -> str:
    """A valid target for people, such as ``s3://bucket/prefix at https://host``; holds no credentials."""
    kind = container_of(target)
    prefix = "/" + text if (text := prefix_of(target)) else ""
    match kind:
        case S3():
            return f"s3://{kind.bucket}{prefix}" + (f" at {kind.endpoint}" if kind.endpoint else "")
        case Gcs():
            return f"gs://{kind.bucket}{prefix}"
        case Azure():
            return f"az://{kind.account}/{kind.container}{prefix}"
        case Claim():
            return f"claim {kind.name}{prefix}"
        case Directory():
            return f"directory {kind.path}{prefix}"


def _kinds(target: Target) -> dict[str, _Kind]:
    found: dict[str, _Kind | None] = {
        "s3": target.s3,
        "gcs": target.gcs,
        "azure": target.azure,
        "claim": target.claim,
        "directory": target.directory,
    }
    return {name: kind for name, kind in found.items() if kind is not None}


def _fields(kind: _Kind, field: str) -> Iterator[Problem]:
    match kind:
        case S3():
            yield from _name(kind.bucket, f"{field}.bucket", _BUCKET, "3 to 63 of a-z, 0-9, - and .")
            if kind.region is not None and not _REGION.fullmatch(kind.region):
                yield Problem(field=f"{field}.region", message="must be a region such as eu-central-1")
            yield from _url(kind.endpoint, f"{field}.endpoint")
            yield from _secret(kind.credentials_secret, f"{field}.credentialsSecret")
            yield from _ca(kind.ca_bundle, f"{field}.caBundle")
        case Gcs():
            yield from _name(kind.bucket, f"{field}.bucket", _GCS_BUCKET, "3 to 222 of a-z, 0-9, -, _ and .")
            yield from _secret(kind.credentials_secret, f"{field}.credentialsSecret")
        case Azure():
            yield from _name(kind.account, f"{field}.account", _ACCOUNT, "3 to 24 of a-z and 0-9")
            yield from _name(
                kind.container, f"{field}.container", _CONTAINER, "3 to 63 of a-z, 0-9 and single -"
            )
            yield from _url(kind.endpoint, f"{field}.endpoint")
            yield from _secret(kind.credentials_secret, f"{field}.credentialsSecret")
            yield from _ca(kind.ca_bundle, f"{field}.caBundle")
        case Claim():
            yield from _name(kind.name, f"{field}.name", _OBJECT, "the name of a PersistentVolumeClaim")
        case Directory():
            path = kind.path or ""
            if not path.startswith("/") or path == "/" or ".." in path.split("/") or "\0" in path:
                yield Problem(
                    field=f"{field}.path",
                    message="must be an absolute path below / without .., such as /backups",
                )


def _prefix(kind: _Kind, field: str) -> Iterator[Problem]:
    try:
        check_prefix(kind.prefix or "")
    except NameInvalid as invalid:
        yield Problem(field=f"{field}.prefix", message=str(invalid))


def _encryption(encryption: Encryption, field: str) -> Iterator[Problem]:
    yield from _name(encryption.secret, f"{field}.secret", _OBJECT, "the name of a Secret")
    if encryption.key_id and not KEY_ID.fullmatch(encryption.key_id):
        yield Problem(field=f"{field}.keyId", message="must be the name of an entry of the Secret")


def _name(value: str | None, field: str, pattern: re.Pattern[str], what: str) -> Iterator[Problem]:
    if not value:
        yield Problem(field=field, message=f"is required: {what}")
    elif not pattern.fullmatch(value):
        yield Problem(field=field, message=f"{value[:80]!r} is not valid: must be {what}")


def _secret(value: str | None, field: str) -> Iterator[Problem]:
    if value is not None:
        yield from _name(value, field, _OBJECT, "the name of a Secret")


def _url(value: str | None, field: str) -> Iterator[Problem]:
    if value is None:
        return
    try:
        url = urlsplit(value)
        good = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        good = False
    if not good:
        yield Problem(field=field, message="must be a URL such as https://minio.storage.svc:9000")
    elif url.username or url.password or url.query or url.fragment:
        yield Problem(
            field=field,
            message="must hold no user, password or query: credentials belong into credentialsSecret",
        )


def _ca(value: str | None, field: str) -> Iterator[Problem]:
    if value is not None and "-----BEGIN CERTIFICATE-----" not in value:
        yield Problem(field=field, message="must hold PEM certificates (-----BEGIN CERTIFICATE-----)")
