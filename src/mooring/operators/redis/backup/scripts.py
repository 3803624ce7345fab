"""The shell scripts of backups and restores; see `mooring.operators.backup.shell` for what they rely on."""

from __future__ import annotations

from typing import Final

from mooring.operators.redis.shell import PROGRAMS

__all__ = ["LOAD", "READ", "RESTORE", "VERIFY"]

READ: Final = r"""
set -eu
if command -v mooring >/dev/null 2>&1; then set -- mooring; else set -- python3 -m mooring; fi
"$@" agent redis-sentinel --source "$conf/source.json" --password "${MOORING_AUTH:-/mooring/auth}/password" --run "$run" \
  --account "${MOORING_AUTH:-/mooring/auth}/mooring-backup" \
  --authority "${MOORING_TLS:-/mooring/tls}/ca.crt"
"""
"""Reads the snapshots; runs in Mooring's image."""

LOAD: Final = r"""
set -eu
if command -v mooring >/dev/null 2>&1; then set -- mooring; else set -- python3 -m mooring; fi
"$@" agent redis-cluster --into "$conf/into.json" --password "${MOORING_AUTH:-/mooring/auth}/password" --run "$run" \
  --authority "${MOORING_TLS:-/mooring/tls}/ca.crt"
whole || fail "the backup could not be read to its end"
"""
"""Sends every key to its owner; runs in Mooring's image."""

RESTORE: Final = (
    r"""
# Puts the file onto the volume of the first server; it gets its name last. Runs in the servers' image.
set -eu
"""
    + PROGRAMS
    + r"""data=${DATA_DIR:-/data}
parts=data
if [ "$(was flavor)" = cluster ]; then
  parts=$(sed -n -e 's/^slots\.\(shard-[0-9]*\)=.*/\1/p' "$run/manifest.facts")
  [ "$(sed -n -e 's/^rdb\.shard-[0-9]*=//p' "$run/manifest.facts" | sort -u | wc -l)" = 1 ] ||
    refuse "spec.restoreFrom: the shards of the backup were of several versions; restore it into a Redis Cluster"
  ! grep -q '^functions\.shard-' "$run/manifest.facts" ||
    refuse "spec.restoreFrom: the backup has functions, which every shard holds; restore it into a Redis Cluster"
fi
if [ "$(cat "$data/.mooring-restored" 2>/dev/null)" = "$(was id)" ] && [ -e "$data/$DBFILENAME" ]; then
  for part in $parts; do cat "$run/$part" >/dev/null; done
  whole || fail "the backup could not be read to its end"
  fact position "$(was position)"
  exit 0
fi
for one in "$data"/*.rdb "$data"/*.aof "$data"/appendonlydir "$data"/nodes.conf; do
  [ ! -e "$one" ] || refuse "the volume holds data ($one); a restore never runs on it: choose another name for the cluster"
done
if [ "$parts" = data ]; then
  cat "$run/data" >"$data/.restoring"
else
  # One file of several: the head of the first (version), all of each between its head and its end, and an end without a
  # checksum. Each part was compared with its SHA-256 on the way.
  : >"$data/.restoring"
  for part in $parts; do
    cat "$run/$part" >"$data/.part"
    size=$(wc -c <"$data/.part")
    [ -s "$data/.restoring" ] || head -c 9 "$data/.part" >"$data/.restoring"
    tail -c +10 "$data/.part" | head -c "$((size - 18))" >>"$data/.restoring"
  done
  rm -f "$data/.part"
  printf '\377\000\000\000\000\000\000\000\000' >>"$data/.restoring"
fi
whole || fail "the backup could not be read to its end"
if command -v "$kind-check-rdb" >/dev/null 2>&1; then
  "$kind-check-rdb" "$data/.restoring" >"$data/.checked" 2>&1 || {
    tail -n 5 "$data/.checked" >&2
    rm -f "$data/.checked"
    refuse "$("$kind-server" --version | cut -c1-30) cannot read the backup of version $(was version): use that version in spec.image, or a later one of the same kind"
  }
  rm -f "$data/.checked"
fi
printf '%s' "$CLUSTER_UID" >"$data/.mooring-cluster"
printf '%s' "$(was id)" >"$data/.mooring-restored"
# The servers may run as another user of the volume's group.
chmod 0660 "$data/.restoring" "$data/.mooring-cluster" "$data/.mooring-restored"
# A server that is to keep a log and finds a snapshot alone begins with the snapshot: see start.sh.
mv "$data/.restoring" "$data/$DBFILENAME"
sync
fact position "$(was position)"
"""
)
"""Fills the claim of the first pod."""

VERIFY: Final = (
    r"""
# Loads every part into a server that nobody reaches, and counts. Runs in the servers' image.
set -eu
"""
    + PROGRAMS
    + r"""scratch=${SCRATCH:-/mooring/scratch}
PARTS=$(sed -n -e 's/^slots\.\(shard-[0-9]*\)=.*/\1/p' "$run/manifest.facts")
PARTS=${PARTS:-data}
for part in $PARTS; do cat "$run/$part" >"$scratch/$part.rdb"; done
whole || fail "the backup could not be read to its end"
socket=$scratch/redis.sock total=0
ask() { "$kind-cli" -s "$socket" "$@" 2>/dev/null; }
for part in $PARTS; do
  # A replica drops no expired keys while it loads: the count is that of the backup. Its master exists nowhere.
  "$kind-server" --port 0 --unixsocket "$socket" --dir "$scratch" --dbfilename "$part.rdb" --appendonly no --save '' \
    --slaveof 192.0.2.1 6379 >"$scratch/log" 2>&1 &
  server=$!
  until ask INFO persistence | grep -q '^loading:0'; do
    kill -0 "$server" 2>/dev/null || {
      tail -n 10 "$scratch/log" >&2
      fail "the server could not load $part: $(grep -v '^$' "$scratch/log" | tail -n 1 | cut -c1-300)"
    }
    sleep 0.2
  done
  case $PARTS in data) said=$(was keys) ;; *) said=$(was "keys.$part") ;; esac
  found=$(ask INFO keyspace | tr -d '\r' | sed -n -e 's/^db\([0-9]*\):keys=\([0-9]*\).*/\1:\2/p')
  if [ -n "$said" ] && ! printf '%s\n' "$found" | grep -qx "$said"; then
    fail "$part has other keys than were saved: database:keys $said in the manifest," $found "after loading"
  fi
  for one in $found; do total=$((total + ${one#*:})); done
  kill "$server"
  wait "$server" || true
  rm -f "$scratch/$part.rdb"
done
fact keys "$total"
"""
)
"""Restores every part into a throw-away server."""
