"""The shell scripts inside the pods: plain `sh`, nothing that a stock image lacks.

No server begins as a node of the cluster by itself. Every start of a container first runs a stand-in: a server
without data that follows an address where nobody lives and answers every client with MASTERDOWN, while the bus port
stays closed, so that the cluster sees what is true: this node is away. Its configuration file is named after the pod,
the node id on the volume and what else is on it, which INFO shows. The operator lets exactly this start in by
setting ``slave-priority`` (1: as it is, 2: with a new id and without the old data), CONFIG REWRITE and SHUTDOWN; an
order for an earlier start cannot reach it, because the order is a command to this very process. ``slowlog-max-len 1`` says
that no cluster serves yet, and the node is ready as soon as it answers.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.shell import ASK, BEGIN, ENCRYPTED, LOCK, WRITTEN, ready

__all__ = ["READY", "START", "STOP"]

_HEAD: Final = rf"""#!/bin/sh
set -eu
home=${{MOORING_HOME:-/mooring}}
data=${{DATA_DIR:-/data}}
conf=$home/run/redis.conf
umask 077
mkdir -p "$data" "$home/run/held"
rm -f "$home/run/served"
{BEGIN}{ENCRYPTED}"""
_FILES: Final = r"""nodes=nodes.conf rdb=dump.rdb aof=appendonly.aof
# Files of HarmonyCloud's pods stay where they are and as they are named: its configuration lies beside them.
for old in "$data/${POD_NAME:-$(hostname)}" "$data"; do
  [ -d "$old/data" ] && [ -f "$old/config/redis.conf" ] || continue
  data=$old/data
  theirs=$old/config/redis.conf
  nodes=$(value cluster-config-file "$theirs") rdb=$(value dbfilename "$theirs")
  aof=$(value appendfilename "$theirs")
  nodes=${nodes:-nodes.conf} rdb=${rdb:-dump.rdb} aof=${aof:-appendonly.aof}
  break
done
"""
START: Final = (
    _HEAD
    + _FILES
    + LOCK
    + r"""version=$("$kind-server" --version | sed -n 's/.*v=\([0-9]*\)\.\([0-9]*\).*/\1 \2/p')
major=${version%% *}
secrets() {
  if [ -s "$home/auth/password" ]; then
    secret=$(sed -e 's/[\\"]/\\&/g' "$home/auth/password")
    printf 'requirepass "%s"\nmasterauth "%s"\n' "$secret" "$secret"
  fi
  users
}
{
  cat "$home/conf/defaults.conf"
  # The user's template, with HarmonyCloud's placeholders filled in; its 409.6mb is no number to Redis 7.
  [ ! -f "$home/conf/template.conf" ] || sed -e "s/[$]\{0,1\}[({]PODIP[)}]/${POD_IP:-}/g" \
    -e "s/[$]\{0,1\}[({]MAX_MEMORY[)}]/${MAXMEMORY:-429496729}/g" "$home/conf/template.conf"
  echo
  [ -z "${MAXMEMORY:-}" ] || printf 'maxmemory %s\n' "$MAXMEMORY"
  cat "$home/conf/forced.conf"
  if [ "${MODE:-cluster}" = cluster ]; then
    printf 'cluster-enabled yes\ncluster-config-file %s\n' "$nodes"
    [ "$major" -lt 4 ] || [ -z "${POD_IP:-}" ] || printf 'cluster-announce-ip %s\n' "$POD_IP"
    # Replicas stay with the shard they were given; before 7.0 a high barrier does the same.
    if [ "$major" -ge 7 ]; then echo 'cluster-allow-replica-migration no'; else echo 'cluster-migration-barrier 999'; fi
  else
    printf 'slaveof 192.0.2.1 6379\nslave-priority 0\n'
    [ -z "${POD_IP:-}" ] || printf 'slave-announce-ip %s\n' "$POD_IP"
  fi
  if [ -d "$home/tls" ]; then
    encrypted 6380
    [ "${MODE:-cluster}" != cluster ] || echo 'tls-cluster yes'
  fi
  secrets
  printf 'dbfilename %s\nappendfilename "%s"\ndir "%s"\n' "$rdb" "$aof" "$data"
} >"$conf"

if [ "${MODE:-cluster}" = cluster ]; then
  id=none
  if [ -s "$data/$nodes" ]; then
    id=$(sed -n 's/^\([0-9a-f]\{40\}\) .*myself.*/\1/p' "$data/$nodes" | head -n 1)
    id=${id:-none}
  fi
  disk=none
  if has_log; then
    disk=full
  elif has_snapshot; then
    disk=part
  fi
  held=$home/run/held/${POD_NAME:-$(hostname)}.$id.$disk.conf
  rm -f "$home"/run/held/*
  {
    printf 'port 6379\ndaemonize no\nprotected-mode no\nsave ""\nappendonly no\ndir "%s"\n' "$home/run/held"
    printf 'slaveof 192.0.2.1 6379\nslave-serve-stale-data no\nslave-priority 0\n'
    [ ! -d "$home/tls" ] || encrypted 6380
    secrets
  } >"$held"
  "$kind-server" "$held" &
  stand_in=$!
  trap 'kill "$stand_in" 2>/dev/null; wait "$stand_in"; exit 143' TERM INT
  wait "$stand_in" || true
  trap - TERM INT
  case $(sed -n 's/^\(slave\|replica\)-priority \([0-9]*\)$/\2/p' "$held" | tail -n 1) in
    1)
      # A node of before is ready as soon as it answers, also while its cluster is down.
      [ "$id" = none ] && ! grep -q '^slowlog-max-len 1$' "$held" || : >"$home/run/served"
      ;;
    2)
      # What is left is older than what the others have, or nobody's: set aside under a number of its own, not deleted.
      # Of many the first two stay, which a person may have put there, and the latest: a volume is not to fill up.
      for aside in .old .old.2 .old.3; do
        [ -e "$data/$nodes$aside" ] || [ -e "$data/$rdb$aside" ] || [ -e "$data/$aof$aside" ] ||
          [ -e "$data/appendonlydir$aside" ] || break
      done
      # The node's id goes last: without the data beside it nobody takes it for whole.
      for one in "$rdb" "$aof" appendonlydir "$nodes"; do
        [ ! -e "$data/$one" ] || { rm -rf "${data:?}/$one$aside" && mv "$data/$one" "$data/$one$aside"; }
      done
      ;;
    *)
      echo "nobody let this server in" >&2
      exit 1
      ;;
  esac
fi
begin
"""
)

READY: Final = ready(r"""# Clients of a node that has just joined would be told CLUSTERDOWN until it has heard of all slots. One that served once
# stays ready whatever becomes of the cluster; half a minute is enough for any joining, and a cluster that has no slots at
# all is not to be kept from becoming ready.
if [ ! -e "$home/run/served" ]; then
  case $(ask 'CLUSTER INFO' | tr -d '\r') in
    *cluster_state:ok*cluster_slots_assigned:16384*) : >"$home/run/served" ;;
    *cluster_state:*)
      up=$(ask 'INFO server' | tr -d '\r' | sed -n 's/^uptime_in_seconds:\([0-9]*\)$/\1/p')
      [ "${up:-0}" -ge 30 ] || exit 1 ;;
  esac
fi
""")

STOP: Final = f"""#!/bin/sh
# A master hands its slots over before it stops; the operator sees the deletion and does it within a second.
{ASK}{WRITTEN}
# Who was taken out tells clients for a moment longer where the slots are now.
sleep 2
tries=0
while [ "$tries" -lt 40 ]; do
  state=$(ask 'INFO replication' | tr -d '\\r')
  case $state in *role:master*state=online*) ;; *) break ;; esac
  tries=$((tries + 1))
  sleep 0.25
done
written
exit 0
"""
