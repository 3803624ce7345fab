"""Shared storage: an S3 bucket or a file system that every process reaches, and its caches."""

from __future__ import annotations

from typing import Annotated, Final

from mooring.kube.objects import core
from mooring.kube.part import Part
from mooring.operators.matrixone.types.podset import Quantity
from mooring.runtime.crd import F, exactly_one_of, rules

__all__ = [
    "DELETE",
    "ONE_PROVIDER",
    "RETAIN",
    "CertificateRef",
    "FileSystemProvider",
    "S3Provider",
    "SharedStorageCache",
    "SharedStorageProvider",
]

DELETE, RETAIN = "Delete", "Retain"
LONG = 2048


class CertificateRef(Part, frozen=True, kw_only=True):
    """Certificates of authorities, from a Secret."""

    name: Annotated[str | None, F("The Secret.", required=True, max_length=253)] = None
    files: Annotated[
        list[Annotated[str, F(max_length=253)]] | None,
        F("Its keys that hold certificates.", required=True, max_items=64),
    ] = None


class S3Provider(Part, frozen=True, kw_only=True):
    """A path in a bucket."""

    path: Annotated[str | None, F("bucket/prefix.", required=True, max_length=LONG)] = None
    type: Annotated[
        str | None,
        F("aws, or minio for any other server; default aws.", max_length=64),
    ] = None
    region: Annotated[str | None, F("The bucket's region.", max_length=253)] = None
    endpoint: Annotated[
        str | None, F("URL of the server; default: that of AWS in the region.", max_length=LONG)
    ] = None
    secret_ref: Annotated[
        core.LocalObjectReference | None,
        F("Secret with AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; absent: from the environment."),
    ] = None
    certificate_ref: Annotated[CertificateRef | None, F("Authorities that the server is trusted by.")] = None
    s3_retention_policy: Annotated[
        str | None,
        F("What becomes of the data when the LogSet is deleted.", enum=(DELETE, RETAIN)),
    ] = None


class FileSystemProvider(Part, frozen=True, kw_only=True):
    """A directory that every pod sees, such as a mounted network file system."""

    path: Annotated[str | None, F("Where it is mounted in the pods.", required=True, max_length=LONG)] = None


ONE_PROVIDER: Final = exactly_one_of(
    "s3", "fileSystem", message="exactly one storage provider is needed: give either s3 or fileSystem"
)


@rules(ONE_PROVIDER)
class SharedStorageProvider(Part, frozen=True, kw_only=True):
    """Storage that all processes of a cluster share: one of the two."""

    s3: Annotated[S3Provider | None, F("A path in a bucket.")] = None
    file_system: Annotated[FileSystemProvider | None, F("A shared directory.")] = None


class SharedStorageCache(Part, frozen=True, kw_only=True):
    """Caches of shared storage in each pod."""

    memory_cache_size: Annotated[
        Quantity | None, F("In memory; default: half of the memory request. 1B is nearly none.")
    ] = None
    disk_cache_size: Annotated[
        Quantity | None, F("On the cache volume; default: 90 percent of it. Without a volume there is none.")
    ] = None
