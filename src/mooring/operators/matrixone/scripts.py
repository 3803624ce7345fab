"""The start scripts of the pods: each completes its configuration with what only this pod knows, and becomes the server.

Plain ``sh`` with what a MatrixOne image has. The files that come out have the same keys as upstream's; the scripts are ours.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.matrixone.names import CN_LOCK, CN_RPC, GOSSIP, HAKEEPER, LOGTAIL, RAFT, SQL, TN_BASE

__all__ = [
    "CONFIG_PATH",
    "LOG_PATH",
    "START",
    "cn_script",
    "leave_script",
    "log_script",
    "proxy_script",
    "tn_script",
]

START: Final = "start.sh"
CONFIG_PATH: Final = "/etc/matrixone/config"
LOG_PATH: Final = "/etc/logservice"

_HEAD: Final = """\
#!/bin/sh
set -eu
host=$POD_NAME.$HEADLESS_SERVICE_NAME.$NAMESPACE.svc
work=$(mktemp -d)
# put TABLE: the lines on stdin become the first of a table.
put() {
  cat >"$work/lines"
  sed "/^\\\\[$1\\\\]\\$/r $work/lines" "$work/config" >"$work/next"
  mv "$work/next" "$work/config"
}
"""
_UUID: Final = """\
# The first 16 characters of a SHA-256 sum, as eight little-endian words.
uuid_of() {
  printf '%s\\n' "$1" | sha256sum | od -An -tx2 -N16 | {
    read -r a b c d e f g h
    echo "$a$b-$c-$d-$e-$f$g$h"
  }
}
"""
_RESOLVE: Final = """\
# A server that finds no address of its own name stops; the name may be late.
resolves() { getent hosts "$1" >/dev/null 2>&1 || nslookup "$1" >/dev/null 2>&1; }
left=30
until resolves "$host"; do
  left=$((left - 1))
  [ "$left" -gt 0 ] || { echo "$host has no address after 30 s" >&2; exit 1; }
  sleep 1
done
"""
_RUN: Final = """\
server=/mo-service
"""
_FROM_MEMORY: Final = """\
mkdir -p "$MO_BIN_PATH"
cp "$server" "$MO_BIN_PATH/mo-service"
server=$MO_BIN_PATH/mo-service
"""
_EXEC: Final = """\
exec "$server" -cfg "$work/config" "$@"
"""


def _end(*, memory: bool) -> str:
    return _RUN + (_FROM_MEMORY if memory else "") + _EXEC


def log_script(*, ports: bool, memory: bool) -> str:
    """Of a log store. ``ports``: the server takes its host and ports apart (from 2.0); ``memory``: run from memory."""
    apart = (
        f'service-host = "$host"\nraft-port = {RAFT}\nlogservice-port = {HAKEEPER}\ngossip-port = {GOSSIP}'
        if ports
        else f'raft-address = "$host:{RAFT}"\nlogservice-address = "$host:{HAKEEPER}"\n'
        f'gossip-address = "$POD_IP:{GOSSIP}"\ngossip-address-v2 = "$host:{GOSSIP}"'
    )
    body = f"""\
uuid=$(printf '00000000-0000-0000-0000-0%011x' "${{POD_NAME##*-}}")
cp {LOG_PATH}/logservice.toml "$work/config"
put logservice <<EOF
uuid = "$uuid"
{apart}
EOF
sed '/^\\[logservice\\]$/d' {LOG_PATH}/gossip.toml | put logservice
sed '/^\\[logservice\\]$/d' {LOG_PATH}/bootstrap.toml >>"$work/config"
"""
    return _HEAD + body + _RESOLVE + _end(memory=memory)


def tn_script(table: str, *, memory: bool) -> str:
    """Of a transaction node, whose table is ``tn`` or ``dn``."""
    body = f"""\
if [ -n "${{HOSTNAME_UUID:-}}" ]; then
  uuid=$(uuid_of "$host")
else
  uuid=$(printf '00000000-0000-0000-0000-1%011x' "${{POD_NAME##*-}}")
fi
cp {CONFIG_PATH}/config.toml "$work/config"
put {table} <<EOF
uuid = "$uuid"
service-address = "$host:{TN_BASE}"
service-host = "$host"
EOF
put {table}.lockservice <<EOF
service-address = "$host:{CN_LOCK}"
EOF
put {table}.LogtailServer <<EOF
service-address = "$host:{LOGTAIL}"
EOF
"""
    return _HEAD + _UUID + body + _RESOLVE + _end(memory=memory)


def cn_script(*, memory: bool) -> str:
    """Of a compute node; its UUID is a label of the pod."""
    body = f"""\
cp {CONFIG_PATH}/config.toml "$work/config"
put cn <<EOF
uuid = "$CN_UUID"
listen-address = "0.0.0.0:{CN_RPC}"
service-address = "$POD_IP:{CN_RPC}"
sql-address = "$POD_IP:{SQL}"
service-host = "$POD_IP"
EOF
put cn.lockservice <<EOF
service-address = "$POD_IP:{CN_LOCK}"
EOF
"""
    return _HEAD + body + _end(memory=memory)


def proxy_script(*, plugin: str, memory: bool) -> str:
    """Of a proxy; ``plugin`` is a host:port to wait for, or ""."""
    host, _, port = plugin.rpartition(":")
    wait = (
        f"""\
until timeout 2 bash -c '</dev/tcp/{host}/{port}' 2>/dev/null; do
  echo 'waiting for {plugin}' >&2
  sleep 1
done
"""
        if plugin
        else ""
    )
    body = f"""\
cp {CONFIG_PATH}/config.toml "$work/config"
put proxy <<EOF
uuid = "$(uuid_of "$POD_NAME.$NAMESPACE.svc")"
EOF
"""
    head = _HEAD.replace("host=$POD_NAME.$HEADLESS_SERVICE_NAME.$NAMESPACE.svc\n", "")
    return head + _UUID + body + wait + _end(memory=memory)


def leave_script(*, port: int, unknown_after: float, stays: int) -> str:
    """Before the stop of a proxy: ends ``unknown_after`` seconds later, or when no client has a connection to ``port``.

    It waits for clients no longer than ``stays`` further seconds. The kernel lists connections by local address and port, in
    hexadecimal, and their state: 01 is one that is open.
    """
    return f"""\
busy() {{
  while read -r _ here _ state _; do
    case "$here $state" in *:{port:04X}" 01") return 0 ;; esac
  done
  return 1
}}
sleep {unknown_after:g}
left={stays}
while [ "$left" -gt 0 ] && cat /proc/net/tcp /proc/net/tcp6 2>/dev/null | busy; do
  sleep 1
  left=$((left - 1))
done
"""
