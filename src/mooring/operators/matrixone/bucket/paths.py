"""Paths of object stores: when two of them mean the same data, or one lies within the other. Pure."""

from __future__ import annotations

from mooring.operators.matrixone.storage import backend_of, bucket_of, endpoint_host
from mooring.operators.matrixone.types import S3Provider

__all__ = ["overlap"]


def overlap(one: S3Provider, other: S3Provider) -> bool:
    """Whether data of one path may be data of the other: the same bucket, and one prefix lies within the other.

    Slashes at the ends, a missing type and the scheme of the endpoint make no difference.
    """
    if _server(one) != _server(other):
        return False
    (bucket, prefix), (other_bucket, other_prefix) = bucket_of(one), bucket_of(other)
    if bucket != other_bucket:
        return False
    left, right = _segments(prefix), _segments(other_prefix)
    shared = min(len(left), len(right))
    return left[:shared] == right[:shared]


def _server(s3: S3Provider) -> str:
    """The server that holds the bucket; every endpoint of AWS is one, since bucket names are unique there."""
    return "aws" if backend_of(s3) == "S3" else endpoint_host(s3.endpoint)


def _segments(prefix: str) -> list[str]:
    return [one for one in prefix.split("/") if one]
