"""A restored backup is continued from the archive: the container that fetches, and the shell that goes on. Pure.

The container `fetch` runs first in the restore's pod: it resolves the point in time, and leaves relay logs and the file
`WAY` on the volume. A point that cannot be reached ends the Job before anything is restored.
"""

# ruff: noqa: S608 - the names are constants

from __future__ import annotations

from typing import Final

from mooring.kube.objects import core
from mooring.objectstore import Target
from mooring.operators.backup.layout import archive_of
from mooring.operators.backup.run import AGENT_RESOURCES, target_mounts, unprivileged
from mooring.operators.mysql.archive.apply import APPLY, WAY
from mooring.operators.mysql.types import PointInTime

__all__ = ["FETCHED", "FORWARD", "fetcher"]

FETCHED: Final = "/var/lib/mysql/archive.fetched"
"""Where the relay logs and the file `WAY` are for the restore."""
_KEPT: Final = ".mooring-way"
"""That file in the restored data: a Job that is made again after all is done says the same."""

FORWARD: Final = (
    APPLY
    + rf"""
for kept in "${{DATA_DIR:-/var/lib/mysql}}/data/{_KEPT}"; do
  [ -s "$kept" ] || continue
  grep '^position=' "$kept" >>"$run/manifest.facts"
  fact transaction "$(sed -n 's/^stop=//p' "$kept")"
  fact committed "$(sed -n 's/^committed=//p' "$kept")"
  rm -rf "${{FORWARD:-}}"
done
# forward [OPTION ...]: the server with the rows of the backup ends, the archive is applied, and it runs again with OPTIONs.
forward() {{
  {{ echo 'SET sql_log_bin = 0;'; history; }} | local_ask >>"$log" 2>"$scratch/errors" ||
    give_up "the position of the backup could not be set: $(tail -n 1 "$scratch/errors")"
  end
  # Files that were copied as they are need the sizes that they were made with.
  sizes=
  for option in "$@"; do
    case $option in --innodb-page-size=* | --innodb-data-file-path=*) sizes="$sizes $option" ;; esac
  done
  apply_archive "$new" "$FORWARD" "$FLAVOR" "$server" --innodb-buffer-pool-size=64M --performance-schema=OFF \
    --event-scheduler=OFF --lower-case-table-names="${{names:-0}}" $sizes || give_up "$apply_error"
  mv "$FORWARD/{WAY}" "$new/{_KEPT}"
  rm -rf "$FORWARD"
  position=$(sed -n 's/^position=//p' "$new/{_KEPT}")
  fact transaction "$(sed -n 's/^stop=//p' "$new/{_KEPT}")"
  fact committed "$(sed -n 's/^committed=//p' "$new/{_KEPT}")"
  # Passwords are those of the moment that is restored, and not known here.
  begin "$@" --skip-grant-tables
  if [ "$FLAVOR" = mariadb ]; then
    echo "RESET MASTER; SET GLOBAL gtid_slave_pos = '';" | local_ask >>"$log" 2>"$scratch/errors" ||
      give_up "the position of the applier could not be cleared: $(tail -n 1 "$scratch/errors")"
  fi
  # Tables may have come or gone since the backup.
  echo "tables=$(local_ask -N -B -e "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' \
    AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')")" >>"$run/manifest.facts"
}}
"""
)


def fetcher(target: Target, backup: str, point: PointInTime, *, image: str, data: str) -> core.Container:
    """The container that fetches what continues ``backup``, a prefix; ``data`` names the volume it writes to."""
    arguments = [
        *("agent", "mysql", "fetch", "--target=/mooring/conf/target.json"),
        f"--root={archive_of(backup)}",
        f"--backup={backup}",
        f"--into={FETCHED}",
        "--report=/dev/termination-log",
    ]
    if point.gtid:
        arguments.append(f"--gtid={point.gtid}")
    if point.moment is not None:
        arguments.append(f"--time={point.moment.isoformat()}")
    if point.allow_gap:
        arguments.append("--allow-gap")
    return core.Container(
        name="fetch",
        image=image,
        args=arguments,
        resources=AGENT_RESOURCES,
        termination_message_policy="FallbackToLogsOnError",
        security_context=unprivileged(),
        volume_mounts=[
            core.VolumeMount(name="conf", mount_path="/mooring/conf", read_only=True),
            core.VolumeMount(name="tmp", mount_path="/tmp"),  # noqa: S108 - of the container
            *target_mounts(target),
            core.VolumeMount(name=data, mount_path="/var/lib/mysql"),
        ],
    )
