"""Configuration keys of a Redis server: which may be changed live, and when two values mean the same.

Classes as read from CONFIG SET on 7.0.15 (the restart list is what it calls immutable); keys that move the
server away from where it is managed (address, files, replication, password) are forbidden.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal

__all__ = [
    "FORBIDDEN",
    "RESTART_ONLY",
    "SECRET_KEYS",
    "KeyClass",
    "canonical",
    "classify",
    "implausible",
    "same_value",
    "spelling",
    "told",
]

KeyClass = Literal["live", "restart", "forbidden"]

FORBIDDEN: Final = frozenset(
    [
        "aclfile",
        "appenddirname",
        "appendfilename",
        "bind",
        "bind-source-addr",
        "cluster-config-file",
        "cluster-enabled",
        "daemonize",
        "dbfilename",
        "dir",
        "enable-debug-command",
        "enable-module-command",
        "enable-protected-configs",
        "include",
        "loadmodule",
        "logfile",
        "masterauth",
        "masteruser",
        "pidfile",
        "port",
        "protected-mode",
        "rename-command",
        "replicaof",
        "replica-announce-ip",
        "replica-announce-port",
        "replica-priority",
        "requirepass",
        "slaveof",
        "supervised",
        "tls-port",
        "unixsocket",
        "unixsocketperm",
        "user",
    ]
)
"""Keys the operator itself decides; given by a user they are refused with a reason."""

RESTART_ONLY: Final = frozenset(
    [
        "always-show-logo",
        "aof-rewrite-cpulist",
        "aof_rewrite_cpulist",
        "bgsave_cpulist",
        "bio_cpulist",
        "cluster-port",
        "crash-log-enabled",
        "databases",
        "disable-thp",
        "io-threads",
        "io-threads-do-reads",
        "locale-collate",
        "rdbchecksum",
        "server_cpulist",
        "set-proc-title",
        "socket-mark-id",
        "syslog-enabled",
        "syslog-facility",
        "syslog-ident",
        "tcp-backlog",
    ]
)
"""Keys a running server does not let anyone change."""

SECRET_KEYS: Final = frozenset(["masterauth", "masteruser", "requirepass", "user"])
"""Keys whose values must not be shown anywhere."""

_UNITS: Final = {
    "b": 1,
    "k": 1000,
    "kb": 1024,
    "m": 1000**2,
    "mb": 1024**2,
    "g": 1000**3,
    "gb": 1024**3,
}
_MEMORY_KEYS: Final = frozenset(
    [
        "active-defrag-ignore-bytes",
        "auto-aof-rewrite-min-size",
        "client-query-buffer-limit",
        "hash-max-listpack-value",
        "hll-sparse-max-bytes",
        "maxmemory",
        "maxmemory-clients",
        "proto-max-bulk-len",
        "repl-backlog-size",
        "set-max-listpack-value",
        "stream-node-max-bytes",
        "zset-max-listpack-value",
    ]
)
_TWINS: Final = (("slave", "replica"), ("ziplist", "listpack"))
_BUFFER_CLASSES: Final = {"slave": "replica"}


@lru_cache(maxsize=4096)
def canonical(key: str) -> str:
    """The modern spelling in lower case: ``slave-priority`` and ``replica-priority`` are one key."""
    key = key.strip().lower()
    for old, new in _TWINS:
        key = key.replace(old, new)
    return key


def told(key: str, value: str) -> str:
    """The value that servers get for a declared one: the same, but a second less of ``min-replicas-max-lag``.

    A master that lost its replicas goes on acknowledging for up to two seconds longer than it was told: it counts
    in whole seconds, and looks once a second. So what is declared holds to a second. Below 2 there is nothing to
    take away: replicas report once a second.
    """
    if canonical(key) == "min-replicas-max-lag" and value.isdigit() and int(value) >= 2:
        return str(int(value) - 1)
    return value


def spelling(key: str, known: Mapping[str, str]) -> str | None:
    """How this server spells the key, given its own CONFIG GET answers; None when it does not know it."""
    wanted = canonical(key)
    return next((name for name in known if canonical(name) == wanted), None)


def classify(key: str) -> KeyClass:
    """Whether a key may be set live, needs a restart, or is the operator's own."""
    name = canonical(key)
    if name in FORBIDDEN or name.startswith(("tls-", "cluster-")):
        return "forbidden"
    return "restart" if name in RESTART_ONLY else "live"


def implausible(key: str, value: str) -> str:
    """Why no server will take this value, as far as that is plain without one; or ""."""
    if canonical(key) in _MEMORY_KEYS and not isinstance(_bytes(value.removesuffix("%")), int):
        return f"{value!r} is not a number of bytes; write it as 100mb"
    return ""


def same_value(key: str, left: str, right: str) -> bool:
    """Whether two values of a key mean the same (``100mb`` and ``104857600``, spaces, letter case)."""
    if left == right:
        return True
    name = canonical(key)
    if name in _MEMORY_KEYS:
        return _bytes(left) == _bytes(right)
    if name == "client-output-buffer-limit":
        return _buffer_limits(left).items() <= _buffer_limits(right).items()
    if name == "save":
        return _save(left) == _save(right)
    return " ".join(left.lower().split()) == " ".join(right.lower().split())


def _bytes(text: str) -> int | str:
    text = text.strip().lower()
    digits = text.rstrip("bkmg")
    unit = text[len(digits) :]
    if not digits.isdigit() or (unit and unit not in _UNITS):
        return text
    return int(digits) * _UNITS.get(unit, 1)


def _buffer_limits(text: str) -> dict[str, tuple[int | str, int | str, str]]:
    """``normal 0 0 0 slave 256mb 64mb 60`` by class, in bytes; a set may name some classes only."""
    words = text.split()
    return {
        _BUFFER_CLASSES.get(words[at], words[at]): (
            _bytes(words[at + 1]),
            _bytes(words[at + 2]),
            words[at + 3],
        )
        for at in range(0, len(words) - 3, 4)
    }


def _save(text: str) -> list[str]:
    return [word for word in text.replace('"', "").split() if word]
