"""What a server that ended said last: one telling line, without secrets, of what its node keeps in the pod's status.

Under the policy `containers.FROM_LOG` the kubelet keeps the end of the log (2 KiB, 80 lines) as the message of a container that
failed, so nobody needs the right to read logs. A log may hold anything: only lines of known forms are quoted, and
values that look like credentials are masked in them. Times, request ids and the like are left out, since they differ with
each start and a status that repeats itself is not written again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from mooring.kube.objects import core
from mooring.runtime import redact

__all__ = [
    "BAD_CONFIGURATION",
    "BUCKET_MISSING",
    "OUT_OF_MEMORY",
    "STORAGE_REFUSED",
    "LastWords",
    "last_words",
]

STORAGE_REFUSED: Final = "StorageRefused"
"""The object store takes neither the key nor the signature, or allows too little."""
BUCKET_MISSING: Final = "BucketMissing"
BAD_CONFIGURATION: Final = "BadConfiguration"
"""The server does not understand its configuration."""
OUT_OF_MEMORY: Final = "OOMKilled"


@dataclass(frozen=True, kw_only=True)
class LastWords:
    """``line`` is for people; ``kind`` is one of the constants of this module, or ""."""

    line: str
    kind: str = ""


_CUT_AT: Final = 2000
"""Characters from which a message may begin in the middle of a line: the kubelet keeps 2048 bytes."""
_LONGEST: Final = 240
"""Characters of a line that are quoted."""
_KINDS: Final = (
    (
        BUCKET_MISSING,
        re.compile(r"NoSuchBucket|no such bucket|bucket does not exist|S3.*StatusCode: 404", re.I),
    ),
    (
        STORAGE_REFUSED,
        re.compile(
            r"SignatureDoesNotMatch|InvalidAccessKeyId|Access ?Denied|signature we calculated|access key id you provided"
            r"|S3.*StatusCode: 403",
            re.I,
        ),
    ),
    (
        BAD_CONFIGURATION,
        re.compile(r"\btoml: |failed to parse config|unknown (?:variable|option)|invalid config", re.I),
    ),
)
"""What a line is about; the first one counts."""
_ENDS: Final = re.compile(r"^(?:panic: |fatal error: |\S*\s?(?:FATAL|PANIC)\b)")
"""A line with which a program says that it ends."""
_TRACE: Final = re.compile(
    r"^(?:goroutine \d|created by |\[signal |gc \d+ @|\t|\S+\.go:\d|[\w./*()\[\]-]+\([^ ]*\)$)"
)
"""Lines of a stack, and those that Go's garbage collector prints."""
_ERROR: Final = re.compile(
    r"\b(?:error|fatal|denied|refused|failed|cannot|can't|could not|unable|invalid|not found|no such|no space left|not permitted"
    r"|unsupported|has no address)\b",
    re.I,
)
_REDIS: Final = re.compile(r"^>>> '([\w-]+)")
"""Redis shows the directive that it does not take, and says in the next line why."""
_NOISE: Final = (
    re.compile(r"^\d+:[A-Z] \d+ \w+ \d{4} [\d:.]+ [.*#-] "),  # Redis
    re.compile(r"^\d{4}[-/]\d\d[-/]\d\d[ T][\d:.,]+(?:Z| ?[+-]\d\d:?\d\d)?\s+(?:\d+ (?=\[))?"),
    re.compile(r",? ?(?:RequestID|HostID|request id|host id): ?[^,;]*(?=[,;])", re.I),
    re.compile(r"/\S*/tmp\.\w+/|/tmp/tmp\.\w+/"),  # of mktemp
)
_MASK: Final = "[redacted]"
_SECRETS: Final = (
    re.compile(r"\b(?:AKIA|ASIA|LTAI)[A-Z0-9]{8,}", re.I),
    re.compile(r"(?<=://)[^/\s@]+(?=@)"),
)
_NAMED: Final = re.compile(
    r"""((?:access[-_]?key(?:[-_]?id)?|\bkey[-_]?(?:id|secret)|secret[\w-]*|passw\w*
    |[\w-]*token|credentials?|signature|authorization)["']?\s?(?:[=:>]|\s'|\s")\s*)("[^"]*"|'[^']*'|[^\s,;&<>]+)""",
    re.I | re.X,
)
"""Values by the names before them."""
_DIRECTIVE: Final = re.compile(r"\b((?:requirepass|masterauth|auth-pass) +)\S+", re.I)
_EMPTY: Final = re.compile(r"Aborting$|check server logs")
"""Errors that say no more than that there was one."""


def last_words(ended: core.ContainerStateTerminated | None) -> LastWords | None:
    """The line that tells why a container failed; ``None`` where none is known, or it did not fail."""
    if ended is None or not ended.exit_code:
        return None
    if ended.reason == OUT_OF_MEMORY:
        return LastWords(line="killed: it needed more memory than its limit", kind=OUT_OF_MEMORY)
    text = ended.message or ""
    lines = text.splitlines()
    whole = lines[1:] if len(text) >= _CUT_AT else lines
    return _redis(whole) or _chosen([_plain(one) for one in whole if not _TRACE.match(one)])


def _redis(lines: Sequence[str]) -> LastWords | None:
    for one, following in pairwise(lines):
        if found := _REDIS.match(one):
            return LastWords(line=_shown(f"{found[1]}: {following.strip()}"), kind=BAD_CONFIGURATION)
    return None


def _chosen(lines: Sequence[str]) -> LastWords | None:
    """The line by which it ended; else the first that is about something known, or that a server marks; else the last error."""
    lines = [one for one in lines if not _EMPTY.search(one)]
    found = (
        next((one for one in lines if _ENDS.match(one)), None)
        or next((one for one in lines if _kind(one)), None)
        or next((one for one in lines if "[ERROR]" in one), None)
        or next((one for one in reversed(lines) if _ERROR.search(one)), None)
    )
    return LastWords(line=_shown(found), kind=_kind(found)) if found else None


def _kind(line: str) -> str:
    return next((kind for kind, pattern in _KINDS if pattern.search(line)), "")


def _plain(line: str) -> str:
    """Without what differs with each start."""
    for one in _NOISE:
        line = one.sub("", line)
    return " ".join(line.split())


def _shown(line: str) -> str:
    """Masked, and no longer than is read at a glance. It is cut last: half a secret would not be known as one."""
    for named in (_NAMED, _DIRECTIVE):
        line = named.sub(lambda found: found[1] + _MASK, line)
    for one in _SECRETS:
        line = one.sub(_MASK, line)
    text = str(redact(line))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3].rstrip()}..."
