"""The server's BACKUP statement. Pure.

The server shows it in process lists and in its log of statements as it formats it itself, with ``******`` for both keys.
It shows a statement that it cannot parse as it came: so no value may hold what would end a text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Final

from mooring.operators.matrixone.storage import DEFAULT_REGION, backend_of, bucket_of
from mooring.operators.matrixone.types import S3Provider, SharedStorageProvider

__all__ = ["Keys", "StatementError", "backup_statement", "bucket_options", "masked"]

OWN_REGION: Final = "us-east-1"
"""What servers of one's own take for their region."""
_SAFE: Final = re.compile(r"[\x21-\x7e]*")
_ENDS: Final = re.compile(r"['\"\\`;]")


class StatementError(ValueError):
    """A value that the statement cannot hold; the text names it, not what it is."""


@dataclass(frozen=True, kw_only=True)
class Keys:
    """What the server signs its requests with; empty: by the identity of its own pod."""

    id: str = ""
    secret: str = field(default="", repr=False)


def backup_statement(
    identity: str, location: SharedStorageProvider, keys: Keys, *, parallelism: int = 4, since: str = ""
) -> str:
    """The statement that writes a backup into an empty place; raises `StatementError`.

    ``since``: the position of an earlier backup; only objects that are new since then are written.
    """
    kind = f" type 'incremental' timestamp {_text('the position', since)}" if since else ""
    if location.s3 is None:
        assert location.file_system is not None
        path = str(PurePosixPath(location.file_system.path or "/"))
        return f"backup {_text('the ID', identity)} filesystem {_text('the path', path)} parallelism '{parallelism}'{kind}"
    options = {
        **bucket_options(location.s3),
        "access_key_id": keys.id,
        "secret_access_key": keys.secret,
        "compression": "",
        "format": "jsonline",
        "jsondata": "object",
        "parallelism": str(parallelism),
    }
    listed = ",".join(f"'{name}'={_text(name, value)}" for name, value in options.items())
    return f"backup {_text('the ID', identity)} s3option {{{listed}}}{kind}"


def bucket_options(s3: S3Provider) -> dict[str, str]:
    """A path of a bucket, in the words of the statement."""
    bucket, prefix = bucket_of(s3)
    minio = backend_of(s3) == "MINIO"
    region = s3.region or (OWN_REGION if minio else DEFAULT_REGION)
    return {
        "endpoint": s3.endpoint or f"https://s3.{region}.amazonaws.com",
        "bucket": bucket,
        "filepath": prefix,
        "region": region,
        "is_minio": str(minio).lower(),
    }


def masked(text: str, keys: Keys) -> str:
    """A server's message without the keys."""
    for key in (keys.secret, keys.id):
        if key:
            text = text.replace(key, "******")
    return text


def _text(name: str, value: str) -> str:
    if not _SAFE.fullmatch(value) or _ENDS.search(value):
        raise StatementError(
            f"{name} has a quote, backslash, semicolon, space or other character that the server's BACKUP statement "
            "cannot hold; use another one"
        )
    return f"'{value}'"
