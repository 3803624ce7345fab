"""The user's part of a configuration file, and what of it is the operator's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from mooring.operators.matrixone import toml
from mooring.operators.matrixone.types import (
    CNSetSpec,
    DNSetSpec,
    LogSetSpec,
    PodSet,
    ProxySetSpec,
    WebUISpec,
)

__all__ = ["owned_keys", "tn_table", "unusable"]

Path = tuple[str, ...]

_EVERYWHERE: Final[tuple[Path, ...]] = (
    ("service-type",),
    ("data-dir",),
    ("hakeeper-client", "discovery-address"),
    ("hakeeper-client", "service-addresses"),
)
_LOG: Final[tuple[Path, ...]] = tuple(
    ("logservice", key)
    for key in (
        "uuid",
        "deployment-id",
        "logservice-listen-address",
        "raft-address",
        "logservice-address",
        "gossip-address",
        "gossip-address-v2",
        "service-host",
        "raft-port",
        "logservice-port",
        "gossip-port",
        "gossip-seed-addresses",
        "gossip-allow-self-as-seed",
        "BootstrapConfig",
    )
)
_TN: Final[tuple[Path, ...]] = (
    *((key,) for key in ("uuid", "listen-address", "service-address", "service-host", "port-base")),
    *(("lockservice", key) for key in ("listen-address", "service-address")),
    *(("LogtailServer", key) for key in ("listen-address", "service-address")),
)
_CN: Final[tuple[Path, ...]] = tuple(
    ("cn", *rest)
    for rest in (
        ("uuid",),
        ("role",),
        ("port-base",),
        ("listen-address",),
        ("service-address",),
        ("sql-address",),
        ("service-host",),
        ("init-work-state",),
        ("lockservice", "listen-address"),
        ("lockservice", "service-address"),
        ("python-udf-client", "server-address"),
    )
)
_PROXY: Final[tuple[Path, ...]] = (("proxy", "uuid"), ("proxy", "listen-address"))
_UI: Final[tuple[Path, ...]] = (
    *(("db", key) for key in ("host", "port", "username", "password")),
    *(("server", key) for key in ("host", "port")),
)


def tn_table(table: Mapping[str, Any]) -> str:
    """The table of transaction nodes: ``tn`` where the user has one, else ``dn``."""
    return "tn" if table.get("tn") is not None else "dn"


def owned_keys(spec: PodSet) -> Sequence[Path]:
    """The keys that the operator sets for a set of this kind."""
    for kind, keys in _OWNED.items():
        if isinstance(spec, kind):
            return keys
    return ()


def unusable(spec: PodSet) -> list[str]:
    """What is wrong with ``spec.config``, each with the remedy."""
    if not spec.config:
        return []
    try:
        table = toml.parse(spec.config)
    except toml.TomlError as error:
        return [f"is not TOML: {error}; correct it"]
    found = [
        f"{'.'.join(path)} is for the operator to set; remove it"
        for path in owned_keys(spec)
        if toml.get(table, *path) is not None
    ]
    for check in (_tables, _file_services):
        found += check(spec, table)
    if isinstance(spec, DNSetSpec) and table.get("tn") is not None and table.get("dn") is not None:
        found.append("[tn] and [dn] cannot be set at the same time; keep [tn]")
    return found


def _tables(spec: PodSet, table: Mapping[str, Any]) -> list[str]:
    """Names that must be tables, since the operator writes into them."""
    names = {path[0] for path in owned_keys(spec) if len(path) > 1}
    return [
        f"{name} must be a table; write [{name}]"
        for name in sorted(names)
        if name in table and not isinstance(table[name], Mapping)
    ]


def _file_services(_: PodSet, table: Mapping[str, Any]) -> list[str]:
    entries = table.get("fileservice")
    if entries is None:
        return []
    listed = isinstance(entries, list) and all(isinstance(one, Mapping) for one in entries)
    if not listed:
        return ["fileservice must be a list of tables; write [[fileservice]]"]
    if all(isinstance(one.get("name"), str) for one in entries):
        return []
    return ["an entry of fileservice has no name; give LOCAL, S3 or ETL"]


_OWNED: Final[Mapping[type[PodSet], tuple[Path, ...]]] = {
    LogSetSpec: (*_EVERYWHERE, *_LOG),
    DNSetSpec: (*_EVERYWHERE, *(("dn", *rest) for rest in _TN), *(("tn", *rest) for rest in _TN)),
    CNSetSpec: (*_EVERYWHERE, *_CN),
    ProxySetSpec: (*_EVERYWHERE, *_PROXY),
    WebUISpec: _UI,
}
