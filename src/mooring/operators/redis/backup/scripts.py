"""The shell scripts of backups and restores; see `mooring.operators.backup.shell` for what they rely on."""

from __future__ import annotations

from typing import Final

__all__ = ["READ", "RESTORE"]

READ: Final = r"""
set -eu
if command -v mooring >/dev/null 2>&1; then set -- mooring; else set -- python3 -m mooring; fi
"$@" redis-snapshot --source "$conf/source.json" --password "${MOORING_AUTH:-/mooring/auth}/password" --run "$run"
"""
"""Reads the snapshots; runs in Mooring's image."""

RESTORE: Final = r"""
# Puts the file onto the volume of the first server; it gets its name last. Runs in the servers' image.
set -eu
data=${DATA_DIR:-/data}
[ "$(was flavor)" = sentinel ] || fail "spec.restoreFrom: the backup is of a Redis Cluster with several shards; restore one of a cluster with sentinels"
if [ "$(cat "$data/.mooring-restored" 2>/dev/null)" = "$(was id)" ] && [ -e "$data/$DBFILENAME" ]; then
  cat "$run/data" >/dev/null
  whole || fail "the backup could not be read to its end"
  fact position "$(was position)"
  exit 0
fi
for one in "$data"/*.rdb "$data"/*.aof "$data"/appendonlydir "$data"/nodes.conf; do
  [ ! -e "$one" ] || fail "the volume holds data ($one); a restore never runs on it: choose another name for the cluster"
done
cat "$run/data" >"$data/.restoring"
whole || fail "the backup could not be read to its end"
if command -v redis-check-rdb >/dev/null 2>&1; then
  redis-check-rdb "$data/.restoring" >"$data/.checked" 2>&1 || {
    tail -n 5 "$data/.checked" >&2
    rm -f "$data/.checked"
    fail "$(redis-server --version | cut -c1-30) cannot read the backup of version $(was version): use that version in spec.image, or a later one"
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
"""Fills the claim of the first pod."""
