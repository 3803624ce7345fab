"""The shell scripts inside the pods: plain `sh`, nothing that a stock image lacks.

They read everything from files below ``/mooring``; a password is never an argument, nor in the environment of
a server. ``MOORING_HOME`` and ``DATA_DIR`` move the two trees, for running them outside a pod.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.shell import (
    ASK,
    BEGIN,
    ENCRYPTED,
    LOCK,
    PROGRAMS,
    REDIS_LIVE,
    REDIS_READY,
    WRITTEN,
)

__all__ = [
    "PRE_STOP",
    "REDIS_LIVE",
    "REDIS_READY",
    "REDIS_START",
    "SENTINEL_LIVE",
    "SENTINEL_READY",
    "SENTINEL_START",
]

_HEAD: Final = r"""#!/bin/sh
# Renders the configuration of this start and becomes the server. The arguments hold the start gate.
set -eu
home=${MOORING_HOME:-/mooring}
data=${DATA_DIR:-/data}
conf=$home/run/redis.conf
umask 077
"""
REDIS_START: Final = (
    _HEAD
    + LOCK
    + BEGIN
    + ENCRYPTED
    + r"""# What a claim of an earlier cluster holds is kept aside by hard links before a synchronisation replaces it.
if [ -n "${CLUSTER_UID:-}" ] && [ "$(cat "$data/.mooring-cluster" 2>/dev/null || true)" != "$CLUSTER_UID" ]; then
  kept=$data/kept-$(date +%Y%m%d%H%M%S)
  for one in "$data"/*.rdb "$data"/*.aof "$data"/appendonlydir; do
    [ ! -e "$one" ] || { mkdir -p "$kept" && cp -al "$one" "$kept/"; } 2>/dev/null || true
  done
  # The newest two stay: each holds as much as the data did when it was made.
  ls -d "$data"/kept-[0-9]* 2>/dev/null | sort -r | tail -n +3 | while IFS= read -r old; do rm -rf "$old"; done
  printf '%s' "$CLUSTER_UID" >"$data/.mooring-cluster"
fi
{
  cat "$home/conf/redis.conf"
  echo
  [ ! -f "$home/live/live.conf" ] || cat "$home/live/live.conf"
  echo
  if [ -s "$home/auth/password" ]; then
    secret=$(sed -e 's/[\\"]/\\&/g' "$home/auth/password")
    shown=$secret
    # Before 4.0 a replica sends its password as a bare line: only in quotes does it arrive whole.
    case $("$kind-server" --version) in *v=[23].*) shown=$(printf '"%s"\n' "$secret" | sed -e 's/[\\"]/\\&/g') ;; esac
    printf 'requirepass "%s"\nmasterauth "%s"\n' "$secret" "$shown"
  fi
  users
  [ ! -d "$home/tls" ] || encrypted 6380
  printf 'dir "%s"\n' "$data"
  [ -z "${POD_IP:-}" ] || printf 'slave-announce-ip %s\n' "$POD_IP"
} >"$conf"
begin "$@"
"""
)

PRE_STOP: Final = f"""#!/bin/sh
# A master hands over before it stops. The operator does that within a second or two; if it does not, the
# sentinels are asked. Bounded, and never a reason not to stop.
{ASK}{WRITTEN}
watching() {{
  if [ -d "$home/tls" ]; then
    "$kind-cli" --tls --cacert "$home/tls/ca.crt" -h "${{SENTINEL_HOST:-127.0.0.1}}" -p 26380 "$@" && return
    [ -n "${{KEEP_PLAIN:-}}" ] || return 1  # while TLS is turned on, a sentinel may not have it yet
  fi
  "$kind-cli" -h "${{SENTINEL_HOST:-127.0.0.1}}" -p 26379 "$@"
}}
leads() {{ ask 'INFO replication' | tr -d '\\r' | grep -q '^role:master'; }}
followed() {{ ask 'INFO replication' | tr -d '\\r' | grep -q '^slave[0-9].*state=online'; }}
tries=0
while [ "$tries" -lt 6 ] && leads && followed; do
  tries=$((tries + 1))
  sleep 1
done
leads && followed || {{ written; exit 0; }}
ask 'CLIENT PAUSE 15000 WRITE' >/dev/null
sleep 1
watching SENTINEL FAILOVER mymaster >/dev/null 2>&1
tries=0
while [ "$tries" -lt 5 ]; do
  now=$(watching SENTINEL get-master-addr-by-name mymaster 2>/dev/null)
  [ "$(printf '%s\\n' "$now" | head -n 1)" = "${{POD_IP:-}}" ] || break
  tries=$((tries + 1))
  sleep 1
done
written
exit 0
"""

SENTINEL_START: Final = (
    r"""#!/bin/sh
# A new sentinel watches nothing until the operator tells it the master; one that restarts in place keeps what
# it knew. Its id comes from its name, so that its peers know it again.
set -eu
home=${MOORING_HOME:-/mooring}
conf=$home/run/sentinel.conf
umask 077
"""
    + PROGRAMS
    + ENCRYPTED
    + r"""# INFO shows the name of the configuration file, and that tells which authorities this start has read.
# With both ports open it also tells which one the sentinel uses: that of the port it announces, which the operator sets
# before it restarts it.
if [ -d "$home/tls" ]; then
  for trusted in "$home"/tls/ca-*.crt; do :; done
  trusted=${trusted##*/}
  uses=${KEEP_PLAIN:-tls} before=
  for one in "$home"/run/sentinel.ca-*.conf "$home"/run/sentinel.plain.ca-*.conf; do
    [ ! -e "$one" ] || before=$one
  done
  if [ -n "${KEEP_PLAIN:-}" ] && [ -n "$before" ]; then
    uses=plain
    ! grep -q '^sentinel announce-port "\{0,1\}26380' "$before" || uses=tls
  fi
  conf=$home/run/sentinel.${trusted%.crt}.conf
  [ "$uses" = tls ] || conf=$home/run/sentinel.plain.${trusted%.crt}.conf
  [ -z "$before" ] || [ "$before" = "$conf" ] || mv "$before" "$conf"
fi
if [ ! -s "$conf" ]; then
  id=$(printf '%s/%s' "${POD_NAMESPACE:-}" "${POD_NAME:-$(hostname)}" | sha1sum | cut -c1-40)
  {
    cat "$home/conf/sentinel.conf"
    echo
    [ ! -d "$home/tls" ] || encrypted 26380
    case ${KEEP_PLAIN:-} in
      plain) echo 'sentinel announce-port 26379' ;;
      tls) echo 'sentinel announce-port 26380' ;;
    esac
    printf 'sentinel myid %s\n' "$id"
    [ -z "${POD_IP:-}" ] || printf 'sentinel announce-ip %s\n' "$POD_IP"
    # Clients may ask and subscribe without a password. What a sentinel watches is changed by the operator and by its
    # peers alone: a greeting that anybody could publish would send the servers' password to any address.
    key=$(cat "$home/auth/sentinel" 2>/dev/null || true)
    version=$("$kind-server" --version)
    case $version in *v=[1-5].* | *v=6.[01].*) key= ;; esac
    if [ -n "$key" ]; then
      printf 'user default on nopass ~* &* +@all'
      case $version in
        *v=6.*) # its rules can allow single subcommands and cannot forbid them
          printf ' -%s' publish acl shutdown client sentinel
          printf ' +client|%s' caching getname getredir help id info list reply setname tracking trackinginfo
          printf ' +sentinel|%s' ckquorum failover get-master-addr-by-name help info-cache master masters myid replicas \
            sentinels slaves
          ;;
        *)
          printf ' -%s' publish acl shutdown 'client|kill' 'client|pause' 'client|unpause'
          printf ' -sentinel|%s' monitor remove set reset config debug flushconfig simulate-failure pending-scripts \
            is-master-down-by-addr
          ;;
      esac
      printf '\nuser mooring on >%s ~* &* +@all\n' "$key"
      printf 'sentinel sentinel-user mooring\nsentinel sentinel-pass %s\n' "$key"
    fi
  } >"$conf.new"
  mv "$conf.new" "$conf"
fi
if [ -d "$home/tls" ]; then
  sed -i -e "s|^tls-ca-cert-file .*|tls-ca-cert-file \"$home/tls/$trusted\"|" "$conf"
fi
if [ -n "${KEEP_PLAIN:-}" ] && [ -d "$home/tls" ]; then
  case $uses in tls) data=6380 old=6379 own=26380 replication=yes ;; *) data=6379 old=6380 own=26379 replication=no ;; esac
  if grep -q "^sentinel monitor mymaster [^ ]* $old " "$conf"; then
    # It goes on with the same servers at their other port; what it heard of that one before would stand there twice.
    sed -i -e "/^sentinel known-replica mymaster [^ ]* $data\$/d" \
      -e "s/^\(sentinel monitor mymaster [^ ]* \)$old /\1$data /" \
      -e "s/^\(sentinel known-replica mymaster [^ ]* \)$old\$/\1$data/" \
      -e "s/^\(sentinel known-sentinel mymaster [^ ]* \)[0-9]* /\1$own /" "$conf"
  fi
  sed -i -e '/^tls-replication /d' "$conf"
  echo "tls-replication $replication" >>"$conf"
fi
[ -z "${RENDER_ONLY:-}" ] || exit 0
# A sentinel writes its password down without quotes and cannot read one with a space or a quote in it again.
sed -i -e '/^sentinel auth-pass [^ ]* "/b' \
  -e '/^sentinel auth-pass /{s/[\\"]/\\&/g;s/^\(sentinel auth-pass [^ ]* \)\(.*\)$/\1"\2"/;}' "$conf"
exec "$kind-server" "$conf" --sentinel "$@"
"""
)

_SENTINEL_CLI: Final = (
    PROGRAMS
    + r"""cli() {
  if [ -d "${MOORING_HOME:-/mooring}/tls" ]; then "$kind-cli" --tls --insecure -p 26380 "$@"; else "$kind-cli" -p 26379 "$@"; fi
}
"""
)

SENTINEL_LIVE: Final = f"""#!/bin/sh
{_SENTINEL_CLI}[ "$(cli -h "${{REDIS_HOST:-127.0.0.1}}" PING 2>/dev/null)" = PONG ]
"""

SENTINEL_READY: Final = f"""#!/bin/sh
{_SENTINEL_CLI}# Ready: answers, and can name the master to a client.
[ "$(cli -h "${{REDIS_HOST:-127.0.0.1}}" PING 2>/dev/null)" = PONG ] || exit 1
[ -n "$(cli -h "${{REDIS_HOST:-127.0.0.1}}" SENTINEL get-master-addr-by-name mymaster 2>/dev/null)" ]
"""
