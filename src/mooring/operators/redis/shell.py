"""Pieces of shell that the pods of both operators use: plain `sh`, nothing that a stock image lacks."""

from __future__ import annotations

from typing import Final

__all__ = ["ASK", "LOCK", "REDIS_LIVE", "REDIS_READY"]

ASK: Final = r"""
home=${MOORING_HOME:-/mooring}
# The password goes through standard input: every version takes it, and no process list shows it.
ask() {
  {
    [ ! -s "$home/auth/password" ] || printf 'AUTH "%s"\n' "$(sed -e 's/[\\"]/\\&/g' "$home/auth/password")"
    printf '%s\n' "$1"
  } | redis-cli -h "${REDIS_HOST:-127.0.0.1}" -p 6379 2>/dev/null
}
"""

LOCK: Final = r"""# A predecessor on the same volume may outlive its pod by a second: its lock is waited for.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$data/.mooring-lock"
  tries=0
  until flock -n 9; do
    tries=$((tries + 1))
    [ "$tries" -le 60 ] || { echo "another server still holds $data" >&2; exit 1; }
    sleep 0.5
  done
fi
"""

REDIS_LIVE: Final = f"""#!/bin/sh
# Alive: any answer at all; a server that loads its data or runs a script is not to be killed.
{ASK}
answer=$(ask PING | tail -n 1)
case $answer in *PONG* | *LOADING* | *BUSY* | *MASTERDOWN* | *NOAUTH* | *WRONGPASS* | *MISCONF*) exit 0 ;; esac
exit 1
"""

REDIS_READY: Final = f"""#!/bin/sh
# Ready: answers exactly PONG, and leads or follows with the link up and nothing left to synchronise.
{ASK}
answer=$(ask PING | tail -n 1)
# While the password changes the file here may be older than the server's word: it served, and goes on serving.
case $answer in *NOAUTH*) exit 0 ;; esac
[ "$answer" = PONG ] || exit 1
state=$(ask 'INFO replication' | tr -d '\\r')
case $state in *role:master*) exit 0 ;; esac
case $state in *master_sync_in_progress:1*) exit 1 ;; esac
case $state in *master_link_status:up*) exit 0 ;; esac
exit 1
"""
