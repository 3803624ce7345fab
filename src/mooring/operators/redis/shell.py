"""Pieces of shell that the pods of both operators use: plain `sh`, nothing that a stock image lacks."""

from __future__ import annotations

from typing import Final

__all__ = ["ASK", "REDIS_LIVE"]

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

REDIS_LIVE: Final = f"""#!/bin/sh
# Alive: any answer at all; a server that loads its data or runs a script is not to be killed.
{ASK}
answer=$(ask PING | tail -n 1)
case $answer in *PONG* | *LOADING* | *BUSY* | *MASTERDOWN* | *NOAUTH* | *WRONGPASS* | *MISCONF*) exit 0 ;; esac
exit 1
"""
