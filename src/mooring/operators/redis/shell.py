"""Pieces of shell that the pods of both operators use: plain `sh`, nothing that a stock image lacks."""

from __future__ import annotations

from typing import Final

__all__ = ["ASK", "BEGIN", "ENCRYPTED", "LOCK", "PROGRAMS", "REDIS_LIVE", "REDIS_READY", "WRITTEN", "ready"]

PROGRAMS: Final = r"""# An image of Valkey may have the programs under their own names alone.
kind=redis
command -v redis-server >/dev/null 2>&1 || kind=valkey
"""

ASK: Final = (
    PROGRAMS
    + r"""
home=${MOORING_HOME:-/mooring}
# The password goes through standard input: every version takes it, and no process list shows it. The operator's account
# is tried first where there is one; a server that does not know it yet is asked as before.
ask() {
  if [ -s "$home/auth/mooring-operator" ]; then
    answered=$(printf 'AUTH mooring-operator %s\n%s\n' "$(cat "$home/auth/mooring-operator")" "$1" | asked)
    case $answered in OK*) printf '%s\n' "$answered" && return ;; esac
  fi
  {
    [ ! -s "$home/auth/password" ] || printf 'AUTH "%s"\n' "$(sed -e 's/[\\"]/\\&/g' "$home/auth/password")"
    printf '%s\n' "$1"
  } | asked
}
# The client puts an empty line after an error.
asked() { cli -h "${REDIS_HOST:-127.0.0.1}" 2>/dev/null | sed -e '/^$/d'; }
# The users of a start: after these lines nobody comes in but by them. Rules about channels are of 6.2.
users() {
  [ -s "$home/auth/users.conf" ] || return 0
  case $("$kind-server" --version) in
    *v=[2-5].*) ;;
    *v=6.0.*) sed -e 's/ &[^ ]*//g' "$home/auth/users.conf" ;;
    *) cat "$home/auth/users.conf" ;;
  esac
}
# Where only TLS is taken a pod asks its own server so; an expired certificate is no reason to kill a server that serves.
cli() {
  if [ -d "$home/tls" ]; then "$kind-cli" --tls --insecure -p 6380 "$@"; else "$kind-cli" -p 6379 "$@"; fi
}
"""
)

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

ENCRYPTED: Final = r"""# The lines of a server or sentinel that takes TLS; the name of the file says which authorities it has read.
# KEEP_PLAIN: the plain port stays open too; "plain" says that servers use that one among themselves at first.
encrypted() {
  for authority in "$home"/tls/ca-*.crt; do :; done
  replication=yes
  case ${KEEP_PLAIN:-no} in no) echo 'port 0' ;; plain) replication=no ;; esac
  printf 'tls-port %s\ntls-replication %s\ntls-auth-clients no\n' "$1" "$replication"
  printf 'tls-cert-file "%s"\ntls-key-file "%s"\n' "$home/tls/tls.crt" "$home/tls/tls.key"
  printf 'tls-ca-cert-file "%s"\n' "$authority"
}
"""

BEGIN: Final = rf"""{ASK}
# What a configuration file says of one thing; the last word counts.
value() {{ sed -n "s/^$1[[:space:]][[:space:]]*\"\{{0,1\}}\([^\"[:space:]]*\).*/\1/p" "$2" | tail -n 1; }}
has_snapshot() {{
  snapshot=$(value dbfilename "$conf")
  [ -s "$data/${{snapshot:-dump.rdb}}" ]
}}
# Whether the log that is to be kept in $data is there. Before 7.0 one beside a snapshot is empty until it is complete.
has_log() {{
  [ "$(value appendonly "$conf")" = yes ] || return 1
  log=$(value appendfilename "$conf") dir=$(value appenddirname "$conf")
  log=${{log:-appendonly.aof}}
  [ -s "$data/$log" ] || [ -e "$data/${{dir:-appendonlydir}}/$log.manifest" ] ||
    {{ [ -e "$data/$log" ] && ! has_snapshot; }}
}}
# Becomes the server. One that is to keep a log and finds none would begin empty, whatever its snapshot holds: it
# begins without, and is told afterwards.
begin() {{
  if [ "$(value appendonly "$conf")" = yes ] && has_snapshot && ! has_log; then
    (
      until ask 'INFO persistence' | grep -q '^loading:0'; do sleep 0.2; done
      until ask 'CONFIG SET appendonly yes' | tail -n 1 | grep -q '^OK'; do sleep 0.2; done
    ) 9>&- &
    exec "$kind-server" "$conf" "$@" --appendonly no
  fi
  exec "$kind-server" "$conf" "$@"
}}
"""

WRITTEN: Final = r"""# A server that writes its first append-only file refuses to end and would be killed in the end; it is waited for.
written() {
  tries=0
  while [ "$tries" -lt 40 ] && ask 'INFO persistence' | grep -q '^aof_rewrite_\(in_progress\|scheduled\):1'; do
    tries=$((tries + 1))
    sleep 0.25
  done
}
"""

REDIS_LIVE: Final = f"""#!/bin/sh
# Alive: any answer at all; a server that loads its data or runs a script is not to be killed.
{ASK}
answer=$(ask PING | tail -n 1)
case $answer in *PONG* | *LOADING* | *BUSY* | *MASTERDOWN* | *NOAUTH* | *WRONGPASS* | *MISCONF*) exit 0 ;; esac
exit 1
"""


def ready(also: str = "") -> str:
    """The readiness probe; ``also`` are lines for a server that answers, which exit with 1 when it is not ready yet."""
    return f"""#!/bin/sh
# Ready: answers exactly PONG, and leads or follows with the link up and nothing left to synchronise.
{ASK}
answer=$(ask PING | tail -n 1)
# While the password changes the file here may be older than the server's word: it served, and goes on serving.
case $answer in *NOAUTH*) exit 0 ;; esac
[ "$answer" = PONG ] || exit 1
{also}state=$(ask 'INFO replication' | tr -d '\\r')
case $state in *role:master*) exit 0 ;; esac
case $state in *master_sync_in_progress:1*) exit 1 ;; esac
case $state in *master_link_status:up*) exit 0 ;; esac
exit 1
"""


REDIS_READY: Final = ready()
