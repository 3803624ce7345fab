"""A small Redis exporter, for machines without Debian's ``prometheus-redis-exporter``.

``python -m mooring.local.node.exporter`` understands the flags and variables of oliver006/redis_exporter
that manifests use (address, password, listen address) and serves every figure of INFO under its names:
``redis_up``, ``redis_connected_clients``, ``redis_memory_used_bytes``, ``redis_db_keys{db=}`` ...
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from aiohttp import web
from redis.asyncio import Redis
from redis.exceptions import RedisError

__all__ = ["client", "main", "metrics"]

_NAMES = {
    "used_memory": "memory_used_bytes",
    "used_memory_rss": "memory_used_rss_bytes",
    "used_memory_peak": "memory_used_peak_bytes",
    "maxmemory": "memory_max_bytes",
    "uptime_in_seconds": "uptime_in_seconds",
    "total_commands_processed": "commands_processed_total",
    "total_connections_received": "connections_received_total",
    "rejected_connections": "rejected_connections_total",
    "keyspace_hits": "keyspace_hits_total",
    "keyspace_misses": "keyspace_misses_total",
    "expired_keys": "expired_keys_total",
    "evicted_keys": "evicted_keys_total",
    "master_repl_offset": "master_repl_offset",
}


def metrics(info: Mapping[str, Any]) -> Iterator[str]:
    """The lines of one answer, from what INFO says."""
    yield from _one("redis_up", 1)
    version, role = info.get("redis_version", ""), info.get("role", "")
    yield from _one(f'redis_instance_info{{redis_version="{version}",role="{role}"}}', 1)
    for name, value in info.items():
        if isinstance(value, Mapping):
            if name.startswith("db") and "keys" in value:
                yield from _one(f'redis_db_keys{{db="{name}"}}', value["keys"])
                yield from _one(f'redis_db_keys_expiring{{db="{name}"}}', value.get("expires", 0))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield from _one(f"redis_{_NAMES.get(name, name)}", value)
    if role == "slave":
        yield from _one("redis_master_link_up", int(info.get("master_link_status") == "up"))


def main(argv: Sequence[str] | None = None) -> None:
    """Serve until told to stop."""
    with suppress(KeyboardInterrupt):
        asyncio.run(_serve(argv))


def _one(name: str, value: float) -> Iterator[str]:
    plain = name.partition("{")[0]
    yield f"# TYPE {plain} {'counter' if plain.endswith('_total') else 'gauge'}\n{name} {value}\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="redis_exporter", description=__doc__, allow_abbrev=False)
    env = os.environ
    parser.add_argument(
        "--redis.addr", "-redis.addr", dest="address", default=env.get("REDIS_ADDR", "localhost:6379")
    )
    parser.add_argument("--redis.user", "-redis.user", dest="user", default=env.get("REDIS_USER"))
    parser.add_argument(
        "--redis.password", "-redis.password", dest="password", default=env.get("REDIS_PASSWORD")
    )
    parser.add_argument("--redis.password-file", dest="password_file", default=env.get("REDIS_PASSWORD_FILE"))
    listen = env.get("REDIS_EXPORTER_WEB_LISTEN_ADDRESS", ":9121")
    parser.add_argument("--web.listen-address", "-web.listen-address", dest="listen", default=listen)
    return parser


def _parsed(argv: Sequence[str] | None) -> argparse.Namespace:
    return _parser().parse_known_args(argv)[0]


async def _serve(argv: Sequence[str] | None) -> None:
    arguments, server = _parsed(argv), client(argv)

    async def answer(_request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(5):
                text = "".join(metrics(await server.info("everything")))
        except (RedisError, OSError, TimeoutError):
            text = "".join(_one("redis_up", 0))
        return web.Response(text=text, content_type="text/plain", charset="utf-8")

    app = web.Application()
    app.router.add_get("/metrics", answer)
    app.router.add_get("/health", _health)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    host, _, port = arguments.listen.rpartition(":")
    await web.TCPSite(runner, host or None, int(port)).start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await runner.cleanup()
    await server.aclose()


async def _health(_request: web.Request) -> web.Response:
    return web.Response(text="ok")


def client(argv: Sequence[str] | None = None) -> Redis:
    """Whom these flags and variables ask."""
    arguments = _parsed(argv)
    address = arguments.address if "://" in arguments.address else f"redis://{arguments.address}"
    parts = urlsplit(address)
    password = arguments.password or parts.password
    if arguments.password_file:
        # Passwords by address, as the program that it stands for has them.
        password = json.loads(Path(arguments.password_file).read_text()).get(address)
    checks = os.environ.get("REDIS_EXPORTER_SKIP_TLS_VERIFICATION", "").lower() != "true"
    return Redis(
        host=parts.hostname or "localhost",
        port=parts.port or 6379,
        username=arguments.user or None,
        password=password or None,
        ssl=parts.scheme == "rediss",
        ssl_cert_reqs="required" if checks else "none",
        ssl_check_hostname=checks,
        decode_responses=True,
    )


if __name__ == "__main__":
    main()
