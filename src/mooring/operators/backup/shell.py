"""The shell around a run's script: how the container ``data`` speaks with the container ``store`` beside it.

A script is plain ``sh`` with what the database's stock image has. It runs in a subshell with these at hand:

- ``$run``: directory that both containers share. Every part of the request is a FIFO in it, opened **once**: writing to
  ``"$run/data"`` for a backup, reading from it for a restore. What was written is stored only if the script ends with 0.
- ``fact NAME VALUE``: adds to the facts of the manifest, or of the result of a restore.
- ``fail TEXT``: ends the script; TEXT (with the remedy, without secrets) becomes the reason that people read.
- ``refuse TEXT``: the same where no other try can help, since the backup or the declaration is what it is (status 3).
- ``whole``: of a restore, waits until the store is done, and succeeds only if every byte arrived and its SHA-256 is right.
  What was restored gets its name after it, never before.
- ``$run/manifest.facts``: of a restore, the facts of the backup as lines NAME=VALUE; ``was NAME`` prints one of them.
- ``$conf``: the further files of the request, read-only.

If either container ends early, the other one does too: nothing waits for a dead peer.
"""

from __future__ import annotations

from typing import Final

__all__ = ["PRELUDE", "REFUSED"]

REFUSED: Final = 3
"""The status of a script where no other try can help."""

PRELUDE: Final = r"""#!/bin/sh
# Runs data.sh beside `mooring objects`, joined by FIFOs; each notices when the other one ends.
set -u
run=${MOORING_RUN:-/mooring/run}
conf=${MOORING_CONF:-/mooring/conf}
log=${TERMINATION_LOG:-/dev/termination-log}
refused=1
umask 077
trap 'exit 143' TERM INT
trap 'echo "the container that moves the data ended first; its own message says why" >"$log"; exit 1' USR1
tries=0
until [ -e "$run/ready" ]; do
  tries=$((tries + 1))
  if [ -e "$run/store.status" ] || [ "$tries" -gt 9000 ]; then
    echo "the container that moves the data did not begin; its own message says why" >"$log"
    exit 1
  fi
  sleep 0.1
done
exec 7<"$run/held" 8>"$run/alive"
echo started >&8

fact() { printf '%s=%s\n' "$1" "$2" >>"$run/facts"; }
was() { sed -n -e "s/^$1=//p" "$run/manifest.facts" | tail -n 1; }
fail() {
  printf 'mooring: %s\n' "$*" >&2
  printf '%s\n' "$*" >"$run/failure"
  exit "$refused"
}
refuse() {
  refused=3
  fail "$@"
}
store_is_done() { [ "$(cat "$run/store.status" 2>/dev/null)" = 0 ]; }
whole() {
  cat <&7 >/dev/null
  store_is_done
}
: >"$run/facts"
( . "$conf/data.sh" ) &
main=$!
( whole || kill -USR1 "$$" 2>/dev/null ) 8>&- &
wait "$main"
code=$?
if [ "$code" = 0 ]; then
  grep -v '^table\.' "$run/facts" | head -c 3000 >"$log" 2>/dev/null
elif [ -s "$run/failure" ]; then
  head -c 2000 "$run/failure" >"$log"
else
  echo "the script ended with status $code; the log of the container says why" >"$log"
fi
printf '%s\n' "$code" >"$run/data.status.new"
mv "$run/data.status.new" "$run/data.status"
exit "$code"
"""
