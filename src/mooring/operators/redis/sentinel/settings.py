"""From the declared spec to the settings of servers and sentinels: pure text and numbers.

Three kinds of redis.conf text: the base every start reads, restart-only keys of the user beside it (both
immutable, content-named), and the live keys in force (one fixed ConfigMap, rewritten only after the servers
accepted a value).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from mooring.operators.redis.parameters import SECRET_KEYS, canonical, classify, same_value, told
from mooring.operators.redis.sentinel.snapshot import Wanted
from mooring.operators.redis.sentinel.types import (
    DISCARD_ANNOTATION,
    ELECT_ANNOTATION,
    PAUSE_ANNOTATION,
    RedisCluster,
    RedisClusterSpec,
    SentinelSettings,
    spec_of,
)
from mooring.operators.workload.configuration import Keys, as_line, render_keys

__all__ = [
    "KEYS",
    "base_conf",
    "first_live",
    "live_keys",
    "render_live",
    "restart_keys",
    "sentinel_settings",
    "wanted_of",
]

KEYS = Keys(classify=classify, canonical=canonical, same=same_value, sent=told, secret=SECRET_KEYS)
"""The configuration keys of Redis."""

#: UCloud's defaults with persistence on, and two of ours (measured: 0.1 s instead of 5.1 s to write again).
_PERSISTENT = {
    "appendonly": "yes",
    "auto-aof-rewrite-min-size": "536870912",
    "auto-aof-rewrite-percentage": "100",
    "repl-backlog-size": "62914560",
    "repl-diskless-sync": "yes",
    "aof-load-truncated": "yes",
    "stop-writes-on-bgsave-error": "no",
    "save": "900 1 300 10",
}
#: What would change how an existing cluster serves: never switched on by itself.
_FOR_NEW_CLUSTERS = frozenset(
    ["min-slaves-to-write", "min-slaves-max-lag", "repl-diskless-sync-delay", "maxmemory"]
)
_MEMORY_ONLY = {"appendonly": "no", "save": ""}
_SENTINEL_DEFAULTS = {"down-after-milliseconds": "5000", "failover-timeout": "10000", "parallel-syncs": "2"}
_OURS = frozenset({"auth-pass", "auth-user"})
_MANY_WORDS = frozenset({"save", "client-output-buffer-limit", "oom-score-adj-values"})


def defaults(spec: RedisClusterSpec, *, memory: int = 0) -> dict[str, str]:
    """Live keys of ours: they yield to the user's, but for the persistence switch.

    ``memory`` is what a container may use, in bytes; a quarter of it stays for buffers and for the copy that a
    save makes.
    """
    base = {**(_MEMORY_ONLY if spec.disable_persistence else _PERSISTENT), "repl-diskless-sync-delay": "0"}
    if (spec.size or 3) >= 3:
        base |= {"min-slaves-to-write": "1", "min-slaves-max-lag": "10"}
    if memory:
        base["maxmemory"] = str(memory * 3 // 4)
    return base


def user_keys(spec: RedisClusterSpec) -> dict[str, str]:
    """The user's keys, without the one that was always forced."""
    given = {key.strip().lower(): value for key, value in (spec.config or {}).items()}
    forced = {"replica-priority"} | ({"appendonly", "save"} if spec.disable_persistence else set())
    return {key: value for key, value in given.items() if canonical(key) not in forced}


def live_keys(
    spec: RedisClusterSpec, *, memory: int = 0, held: Collection[str] | None = None
) -> dict[str, str]:
    """All keys to hold: ours where the user's say nothing.

    Of an existing cluster ``held`` are the keys it is known to hold: what is for new clusters is kept, not begun.
    """
    given = user_keys(spec)
    taken = {canonical(key) for key in given}
    ours = defaults(spec, memory=memory)
    if held is not None:
        ours = {key: value for key, value in ours.items() if key in held or key not in _FOR_NEW_CLUSTERS}
        if "maxmemory" in held:
            ours.setdefault("maxmemory", "0")
    return {**{key: value for key, value in ours.items() if canonical(key) not in taken}, **given}


def first_live(spec: RedisClusterSpec, *, born: bool = True, memory: int = 0) -> dict[str, str]:
    """What the very first start reads: only values known to be good. The user's follow live.

    A cluster that ran before it was ours (not ``born`` with us) gets none of what would change how it serves.
    """
    base = {key: told(key, value) for key, value in defaults(spec, memory=memory).items()}
    return base if born else {key: value for key, value in base.items() if key not in _FOR_NEW_CLUSTERS}


def restart_keys(spec: RedisClusterSpec, learnt: Collection[str] = ()) -> dict[str, str]:
    """The user's keys that are read at start only: known for that, or ``learnt`` from the servers' refusal."""
    return {
        key: value
        for key, value in sorted(user_keys(spec).items())
        if classify(key) == "restart" or (key in learnt and classify(key) == "live")
    }


def base_conf(spec: RedisClusterSpec, learnt: Collection[str] = ()) -> str:
    """The immutable part: nothing in it can be changed without a restart, or it is not the user's to change."""
    lines = ["port 6379", "daemonize no", "protected-mode no", "tcp-keepalive 60"]
    lines += [line for key, value in restart_keys(spec, learnt).items() for line in as_line(key, value)]
    return "\n".join(lines) + "\n"


def render_live(values: Mapping[str, str]) -> str:
    """The live keys as redis.conf."""
    return render_keys(values, lines=_lines)


def _lines(key: str, value: str) -> Iterable[str]:
    """Keys that take several words stand unquoted, as the parser wants them."""
    name = canonical(key)
    if name == "save":
        words = value.replace('"', "").split()
        pairs = zip(words[::2], words[1::2], strict=False)
        return [f"{key} {after} {changes}" for after, changes in pairs] or [f'{key} ""']
    if name == "client-output-buffer-limit":
        words = value.split()
        return [f"{key} {' '.join(words[at : at + 4])}" for at in range(0, len(words) - 3, 4)]
    return [f"{key} {value}"] if name in _MANY_WORDS else as_line(key, value)


def sentinel_settings(sentinel: SentinelSettings) -> dict[str, str]:
    """What SENTINEL SET shall hold: our defaults under the user's customConfig, the quorum apart."""
    given = {}
    for line in sentinel.custom_config or ():
        name, _, value = line.strip().partition(" ")
        if value.strip():
            given[name] = value.strip()
    return {**_SENTINEL_DEFAULTS, **{name: value for name, value in given.items() if name not in _OURS}}


def wanted_of(cluster: RedisCluster, *, memory: int = 0, held: Collection[str] | None = None) -> Wanted:
    """The declaration as the planner reads it; for ``memory`` and ``held`` see `live_keys`."""
    spec = spec_of(cluster)
    sentinel = spec.sentinel or SentinelSettings()
    settings = sentinel_settings(sentinel)
    quorum = settings.pop("quorum", "")
    keys = live_keys(spec, memory=memory, held=held)
    annotations = cluster.metadata.annotations or {}
    least = next((value for key, value in keys.items() if canonical(key) == "min-replicas-to-write"), "0")
    discard = annotations.get(DISCARD_ANNOTATION, "")
    return Wanted(
        size=spec.size or 3,
        sentinels=sentinel.replicas or 3,
        quorum=int(quorum) if quorum.isdigit() else None,
        down_after=_milliseconds(settings, "down-after-milliseconds"),
        failover_timeout=_milliseconds(settings, "failover-timeout"),
        sentinel_settings=settings,
        config=keys,
        user_keys=frozenset(user_keys(spec)),
        rolls_config=spec.config_policy == "roll",
        paused=annotations.get(PAUSE_ANNOTATION, "").lower() == "true",
        persistence=not spec.disable_persistence,
        min_replicas=int(least) if least.isdigit() else 0,
        elect=annotations.get(ELECT_ANNOTATION, ""),
        image=spec.image or "",
        ports=spec.tls.ports if spec.tls is not None else "plain",
        discard=frozenset(name.strip() for name in discard.split(",") if name.strip()),
    )


def _milliseconds(settings: Mapping[str, str], name: str) -> float:
    text = settings.get(name, _SENTINEL_DEFAULTS[name])
    return int(text) / 1000 if text.isdigit() else int(_SENTINEL_DEFAULTS[name]) / 1000
