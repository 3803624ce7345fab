"""The writers of ``mooring ledger``, as operators offer them (`mooring.operators.operator.Ledger`)."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

from mooring.operators.mysql.dial import Login
from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT
from mooring.testing.ledger import Ledger, parse_address
from mooring.testing.ledger_cluster import ClusterLedger
from mooring.testing.ledger_mysql import MySQLLedger

__all__ = ["mysql_server", "redis_cluster", "redis_sentinels", "redis_server"]


def redis_server(addresses: Sequence[str], *, tls: ssl.SSLContext | None, **how: Any) -> Ledger:
    """Write to one server."""
    return Ledger(address=parse_address(addresses[0], port=_redis_port(tls)), **_redis(tls, **how))


def redis_sentinels(
    addresses: Sequence[str], *, tls: ssl.SSLContext | None, master_name: str, follow: bool, **how: Any
) -> Ledger:
    """Write to the master that sentinels name."""
    port = 26379 if tls is None else SENTINEL_TLS_PORT
    sentinels = [parse_address(text, port=port) for text in addresses]
    return Ledger(sentinels=sentinels, master_name=master_name, follow=follow, **_redis(tls, **how))


def redis_cluster(addresses: Sequence[str], *, tls: ssl.SSLContext | None, **how: Any) -> ClusterLedger:
    """Write to all masters of a Redis Cluster."""
    return ClusterLedger(
        [parse_address(text, port=_redis_port(tls)) for text in addresses], **_redis(tls, **how)
    )


def mysql_server(
    addresses: Sequence[str],
    *,
    user: str,
    password: str,
    tls: ssl.SSLContext | None,
    rate: float,
    writers: int,
    table: str = "",
    **_: Any,
) -> MySQLLedger:
    """Write rows to a server of MariaDB or MySQL; ``table`` is DATABASE.TABLE, one of the writer's own where none is named."""
    address = parse_address(addresses[0], port=3306)

    async def where() -> str:
        return address.ip

    return MySQLLedger(
        where,
        Login(user=user or "root", passwords=(("password", password),), tls=tls),
        clients=writers,
        rate=rate / writers,
        port=address.port,
        table=table,
    )


def _redis_port(tls: ssl.SSLContext | None) -> int:
    return 6379 if tls is None else TLS_PORT


def _redis(
    tls: ssl.SSLContext | None, *, user: str, password: str, rate: float, wait_every: int, **_: Any
) -> dict[str, Any]:
    login = [(user, password)] if user else password
    return {"password": login, "rate": rate, "wait_every": wait_every, "tls": tls}
