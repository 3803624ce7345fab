"""my.cnf: what the operator forces, what it sets by default, what the memory limit gives, and what a user may change how.

A start reads, the last word counting: ``base.cnf`` (defaults and the user's keys that are read at start only), ``live.cnf``
(keys that the running servers accepted), ``forced.cnf`` (what replication and durability rest on). Which key can be changed
on a running server is for the server to say: one that refuses (`ConfigResult.restart`) moves the key to ``base.cnf``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from decimal import Decimal, InvalidOperation
from typing import Final

from mooring.operators.mysql.topology import Flavor
from mooring.operators.workload.configuration import KeyClass, Keys, parse_keys, render_keys

__all__ = [
    "FOUNDING",
    "base_cnf",
    "canonical",
    "declared_lines",
    "forced",
    "forced_cnf",
    "is_forbidden",
    "keys_of",
    "live_cnf",
    "live_defaults",
    "parse_live",
    "restart_keys",
    "same_value",
    "sent",
]

MI: Final = 1 << 20
GI: Final = 1 << 30

_RECEIVER_PATIENCE: Final = "2"
"""Seconds without a word from the source, and for a connection to it. A receiver that connects to a hung source cannot be stopped
(MariaDB 11), or takes two seconds more (MySQL): at four seconds, when the source is taken for dead, it has tried once and sleeps."""

_FORCED: Final[Mapping[Flavor, Mapping[str, str]]] = {
    "mariadb": {
        "binlog_format": "ROW",
        "gtid_strict_mode": "ON",
        "log_slave_updates": "ON",
        "slave_net_timeout": _RECEIVER_PATIENCE,
        "rpl_semi_sync_master_wait_point": "AFTER_SYNC",
        "rpl_semi_sync_slave_kill_conn_timeout": "1",
        "skip_slave_start": "ON",
        "read_only": "ON",
        "extra_max_connections": "10",
    },
    "mysql": {
        "gtid_mode": "ON",
        "enforce_gtid_consistency": "ON",
        "log_replica_updates": "ON",
        "replica_net_timeout": _RECEIVER_PATIENCE,
        "relay_log_recovery": "OFF",
        "skip_replica_start": "ON",
        "super_read_only": "ON",
        "persisted_globals_load": "OFF",
        "mysqlx": "OFF",
        "plugin_load_add": "semisync_source.so;semisync_replica.so;mysql_clone.so",
    },
}
_FORCED_BOTH: Final = {
    "port": "3306",
    "bind_address": "*",
    "skip_name_resolve": "ON",
    "log_bin": "binlog",
    "relay_log": "relay",
    "sync_binlog": "1",
    "innodb_flush_log_at_trx_commit": "1",
}
_REDO: Final[Mapping[Flavor, str]] = {
    "mariadb": "innodb_log_file_size",
    "mysql": "innodb_redo_log_capacity",
}
"""What sets the size of the redo log."""
_APPLIERS: Final[Mapping[Flavor, Mapping[str, str]]] = {
    "mariadb": {"slave_parallel_threads": "4", "slave_parallel_mode": "optimistic"},
    "mysql": {"replica_parallel_workers": "4"},
}
"""How replicas apply, by default."""
_SMALL: Final[Mapping[Flavor, Mapping[str, str]]] = {
    "mariadb": {"aria_pagecache_buffer_size": str(MI)},
    "mysql": {},
}
"""What a server with little memory does without, beyond what both flavours do."""
_SMALL_BOTH: Final = {"innodb_log_buffer_size": str(2 * MI), "performance_schema": "OFF"}
_HELD: Final = frozenset(
    [
        *("gtid_strict_mode", "slave_net_timeout", "rpl_semi_sync_master_wait_point", "replica_net_timeout"),
        *("sync_binlog", "innodb_flush_log_at_trx_commit", "binlog_format"),
    ]
)
"""Of the forced ones, those that a client with the right could change on a running server and nothing else looks after."""

_FORBIDDEN: Final = frozenset(
    [
        *("server_id", "server_uuid", "report_host", "report_port", "report_user", "report_password", "user"),
        *("port", "socket", "bind_address", "skip_networking", "extra_port", "admin_address", "admin_port"),
        *(
            "datadir",
            "basedir",
            "pid_file",
            "tmpdir",
            "plugin_dir",
            "plugin_load",
            "plugin_load_add",
            "log_error",
        ),
        *("read_only", "super_read_only", "offline_mode", "innodb_read_only", "transaction_read_only"),
        *("gtid_mode", "enforce_gtid_consistency", "gtid_strict_mode", "gtid_domain_id", "gtid_seq_no"),
        *("gtid_next", "gtid_purged", "gtid_slave_pos", "gtid_binlog_state", "gtid_executed"),
        *("log_bin", "log_bin_index", "log_bin_basename", "sql_log_bin", "skip_log_bin", "disable_log_bin"),
        *("binlog_format", "sync_binlog", "innodb_flush_log_at_trx_commit", "log_slave_updates"),
        *("log_replica_updates", "skip_slave_start", "skip_replica_start", "slave_net_timeout"),
        *("replica_net_timeout", "relay_log", "relay_log_index", "relay_log_recovery", "relay_log_info_file"),
        *("master_info_file", "init_rpl_role", "init_file", "skip_grant_tables", "skip_name_resolve"),
        *("binlog_do_db", "binlog_ignore_db", "persisted_globals_load", "mysqlx", "secure_file_priv"),
        *(
            "ssl_ca",
            "ssl_cert",
            "ssl_key",
            "ssl_capath",
            "ssl_crl",
            "ssl_crlpath",
            "require_secure_transport",
        ),
        *(
            "super_large_pages",
            "defaults_file",
            "defaults_extra_file",
            "no_defaults",
            "extra_max_connections",
        ),
        *("clone_valid_donor_list", "wsrep_on", "wsrep_provider", "group_replication_group_name"),
    ]
)
_FORBIDDEN_PREFIXES: Final = (
    *("rpl_semi_sync_", "replicate_", "master_", "clone_ssl_", "wsrep_", "group_replication_"),
    *(
        "binlog_do_",
        "binlog_ignore_",
        "innodb_undo_directory",
        "innodb_data_home_dir",
        "innodb_log_group_home",
    ),
)

FOUNDING: Final = frozenset(
    ["lower_case_table_names", "innodb_page_size", "innodb_data_file_path", "innodb_undo_tablespaces"]
)
"""Keys that data is made with: another value later keeps a server from starting."""

_RESTART: Final = frozenset(
    [
        *FOUNDING,
        *(
            "performance_schema",
            "back_log",
            "open_files_limit",
            "thread_handling",
            "table_open_cache_instances",
        ),
        *("innodb_buffer_pool_chunk_size", "innodb_buffer_pool_instances", "innodb_log_files_in_group"),
        *("innodb_log_buffer_size", "innodb_doublewrite", "innodb_flush_method", "innodb_open_files"),
        *(
            "innodb_autoinc_lock_mode",
            "innodb_ft_min_token_size",
            "innodb_ft_max_token_size",
            "innodb_use_native_aio",
        ),
        *(
            "innodb_sort_buffer_size",
            "innodb_rollback_on_timeout",
            "innodb_force_recovery",
            "innodb_numa_interleave",
        ),
        *("innodb_temp_data_file_path", "innodb_adaptive_hash_index_parts", "innodb_purge_threads"),
        *(
            "innodb_read_io_threads",
            "innodb_write_io_threads",
            "innodb_dedicated_server",
            "innodb_page_cleaners",
        ),
        *("aria_block_size", "aria_pagecache_buffer_size", "aria_pagecache_file_hash_size", "large_pages"),
        *("ft_min_word_len", "ft_max_word_len", "ft_stopword_file", "myisam_recover_options", "log_tc_size"),
        *(
            "slave_parallel_threads",
            "slave_parallel_mode",
            "replica_parallel_workers",
            "slave_parallel_workers",
        ),
        *("encrypt_binlog", "encrypt_tmp_files", "innodb_encrypt_log", "max_digest_length", "thread_stack"),
        *("skip_external_locking", "skip_show_database", "tls_version", "metadata_locks_hash_instances"),
        *("slave_skip_errors", "replica_skip_errors", "character_set_system", "lc_messages_dir"),
    ]
)
"""Read at start only, as MariaDB 10.11 and MySQL 9.7 say, but for the number of appliers: it cannot be changed while they run."""

_ON: Final = frozenset({"1", "on", "true", "yes"})
_OFF: Final = frozenset({"0", "off", "false", "no"})
_SIZES: Final = {"k": 1 << 10, "m": MI, "g": GI, "t": 1 << 40, "p": 1 << 50, "e": 1 << 60}
_NUMBER: Final = re.compile(r"[+-]?\d+(\.\d+)?")
_SIZED: Final = re.compile(r"(\d+)([kmgtpe])", re.IGNORECASE)


# --- keys ------------------------------------------------------------------------------------------------


def canonical(key: str) -> str:
    """One spelling of a key: small letters, underscores, without ``loose_``."""
    return key.strip().lower().replace("-", "_").removeprefix("loose_")


def is_forbidden(key: str) -> bool:
    """The operator decides it."""
    name = canonical(key).removeprefix("skip_").removeprefix("disable_")
    names = (canonical(key), name)
    return any(one in _FORBIDDEN or one.startswith(_FORBIDDEN_PREFIXES) for one in names)


def classify(key: str) -> KeyClass:
    """The class of a key before any server was asked."""
    name = canonical(key)
    if is_forbidden(name):
        return "forbidden"
    fixed = name in _RESTART or name.startswith("performance_schema_")
    return "restart" if fixed else "live"


def sent(key: str, value: str) -> str:
    """The value for SET GLOBAL, which knows no 64M: a number of bytes."""
    found = _SIZED.fullmatch(value.strip())
    return str(int(found[1]) * _SIZES[found[2].lower()]) if found else value.strip()


def same_value(key: str, left: str, right: str) -> bool:
    """Whether two values of a key mean the same."""
    return _plain(key, left) == _plain(key, right)


def _plain(key: str, value: str) -> str:
    text = sent(key, value).strip("\"'")
    if _NUMBER.fullmatch(text):
        try:
            text = str(Decimal(text).normalize())
        except InvalidOperation:
            return text
        return text if text not in ("0", "1") else {"0": "off", "1": "on"}[text]
    low = text.lower()
    if low in _ON:
        return "on"
    if low in _OFF:
        return "off"
    return ",".join(sorted(part.strip() for part in low.split(","))) if "mode" in key else low


def keys_of(learnt: Collection[str] = ()) -> Keys:
    """How keys are classified and compared; ``learnt`` are those that a server refused to change while it runs."""
    fixed = frozenset(canonical(key) for key in learnt)

    def classified(key: str) -> KeyClass:
        kind = classify(key)
        return "restart" if kind == "live" and canonical(key) in fixed else kind

    return Keys(classify=classified, canonical=canonical, same=same_value, sent=sent)


# --- what is set -----------------------------------------------------------------------------------------


def forced(flavor: Flavor) -> dict[str, str]:
    """The forced keys that must also be corrected on a running server, where a client changed them."""
    return {key: value for key, value in _all_forced(flavor).items() if key in _HELD}


def _all_forced(flavor: Flavor) -> dict[str, str]:
    return {**_FORCED_BOTH, **_FORCED[flavor]}


def live_defaults(flavor: Flavor, memory: int, *, tuned: bool = True) -> dict[str, str]:
    """Keys of ours that yield to the user's and can be changed on running servers.

    ``memory`` is what a container may use in bytes, 0 for no limit; not ``tuned`` leaves sizes to the server.
    """
    base = {"character_set_server": "utf8mb4", "binlog_expire_logs_seconds": "259200"}
    if not tuned:
        return base
    pool, connections = _pool(memory), _connections(memory)
    log = max(16 * MI, min(GI, pool // 4))
    keys = {
        "innodb_buffer_pool_size": str(pool),
        "max_connections": str(connections),
        _REDO[flavor]: str(log // MI * MI),
    }
    if memory < GI:
        keys["key_buffer_size"] = str(MI)
    return {**base, **keys}


def _pool(memory: int) -> int:
    """Half of a small limit, up to seven tenths of a big one; connections, appliers and the server itself need the rest."""
    if not memory:
        return 64 * MI
    share = 0.35 if memory < 512 * MI else 0.5 if memory < 2 * GI else 0.6 if memory < 8 * GI else 0.7
    return max(16 * MI, int(memory * share) // (16 * MI) * 16 * MI)


def _connections(memory: int) -> int:
    """About 12 MB each."""
    return max(50, min(5000, memory // (12 * MI))) if memory else 150


def _base_defaults(flavor: Flavor, memory: int, *, tuned: bool) -> dict[str, str]:
    """Keys of ours that yield to the user's and are read at start only."""
    small = {**_SMALL_BOTH, **_SMALL[flavor]} if tuned and memory < GI else {}
    return {**_APPLIERS[flavor], **small}


def restart_keys(config: Mapping[str, str], learnt: Collection[str] = ()) -> dict[str, str]:
    """The user's keys that are read at start only, in their canonical spelling."""
    keys = keys_of(learnt)
    return {canonical(key): value for key, value in sorted(config.items()) if keys.classify(key) == "restart"}


# --- files -----------------------------------------------------------------------------------------------


def base_cnf(
    flavor: Flavor,
    config: Mapping[str, str],
    *,
    memory: int = 0,
    tuned: bool = True,
    learnt: Collection[str] = (),
) -> str:
    """Defaults, and the user's keys that are read at start only; one that the server does not know is passed over."""
    values = {**_base_defaults(flavor, memory, tuned=tuned), **restart_keys(config, learnt)}
    return "[mysqld]\n" + "".join(f"loose_{key}={_quoted(value)}\n" for key, value in sorted(values.items()))


def live_cnf(values: Mapping[str, str]) -> str:
    """Keys that running servers accepted."""
    return "[mysqld]\n" + render_keys(values, lines=_loose)


def parse_live(text: str) -> dict[str, str]:
    """The values that `live_cnf` wrote."""
    lines = [line.removeprefix("loose_") for line in text.splitlines() if line.startswith("loose_")]
    return parse_keys("\n".join(lines), separator="=")


def declared_lines(config: Mapping[str, str], *, but: Collection[str] = ()) -> str:
    """The user's keys, so that a server refuses one that it does not know; ``but`` are left out."""
    known = {canonical(key) for key in but}
    values = {canonical(key): value for key, value in sorted(config.items())}
    return "\n".join(f"{key}={_quoted(value)}" for key, value in values.items() if key not in known)


def forced_cnf(flavor: Flavor) -> str:
    """What replication and durability rest on: the last word of every start."""
    lines = []
    for key, value in sorted(_all_forced(flavor).items()):
        values = value.split(";") if key == "plugin_load_add" else [value]
        lines += [f"{key}={one}" for one in values]
    return "\n".join(["[mysqld]", *lines]) + "\n"


def _loose(key: str, value: str) -> Iterable[str]:
    return (f"loose_{canonical(key)}={_quoted(value)}",)


def _quoted(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
