"""The shell of physical backups: the server's files instead of its rows. Parts of `scripts`, which joins them.

MariaDB: `mariadb-backup` reads the files of a server that runs, on the claim of its pod, and streams them; nothing is stored
on the way. MySQL: a server of the Job's own takes a copy by CLONE onto a volume that goes with the pod, starts on it once to
learn its GTID position, and the files are streamed then. Stock images of MySQL have no `tar`: the stream has a line ``f SIZE
PATH`` before the bytes of each file, ``d 0 PATH`` for each directory, and ``end 0 .`` at its end.
"""

# ruff: noqa: S608 - the names are constants

from __future__ import annotations

from typing import Final

from mooring.operators.mysql.names import BACKUP, PORT

__all__ = ["FILL", "SQUEEZE", "TAKE"]

#: How the data of a backup is compressed: with the first of these programs that the image has.
SQUEEZE: Final = r"""packer=$(command -v zstd || command -v gzip) || fail "the image has no zstd and no gzip; correct spec.image"
fact compression "${packer##*/}"
squeeze() { if [ "${packer##*/}" = zstd ]; then "$packer" -q -3 -c; else "$packer" -1 -c; fi; }
"""

TAKE: Final = rf"""
# The server's files as of one moment, and the GTID position of that moment.
at() {{ ask --host="$HOST" --connect-timeout=10 -N -B -e "$1"; }}
version=$(at 'SELECT @@version') || fail "$HOST cannot be reached or refuses the account of backups; see status of the cluster"
fact version "$version"
fact source "${{HOST%%.*}}"
fact lower_case_table_names "$(at 'SELECT @@lower_case_table_names')"
page=$(at 'SELECT @@innodb_page_size') file=$(at 'SELECT @@innodb_data_file_path')
fact innodb_page_size "$page"
fact innodb_data_file_path "$file"
volume=${{DATA_DIR:-/var/lib/mysql}}
{SQUEEZE}
# Of two positions the later one in each domain.
later() {{
  printf '%s,%s' "$1" "$2" | tr ',' '\n' | sed '/^$/d' | LC_ALL=C sort -t- -k1,1n -k3,3nr | LC_ALL=C sort -s -u -t- -k1,1n |
    tr '\n' ',' | sed 's/,$//'
}}
take_mariadb() {{
  program=$(command -v mariadb-backup || command -v mariabackup) ||
    fail "the image has no mariadb-backup; correct spec.image of the cluster, or set spec.method: Logical"
  [ -r "$volume/data/ibdata1" ] ||
    fail "the files of $HOST cannot be read on its claim; the pod of the backup must run as the user of the cluster's pods"
  mkdir -p "$scratch/known"
  # A pipe's status is that of its last program alone: each one leaves its own. Of thousands of lines the last ones are kept.
  {{
    {{
      {{
        "$program" --defaults-file="$cnf" --backup --stream=mbstream --host="$HOST" --port={PORT} \
          --datadir="$volume/data" --target-dir="$scratch/target" --extra-lsndir="$scratch/known" &&
          echo 0 >"$scratch/copied"
      }} 2>&1 >&4 | tail -n 20 >"$scratch/errors"
    }} 4>&1 | {{ squeeze && echo 0 >"$scratch/squeezed"; }}
  }} >"$run/data"
  for step in copied squeezed; do
    [ -e "$scratch/$step" ] || {{
      cat "$scratch/errors" >&2
      fail "mariadb-backup of $HOST broke off: $(tail -n 3 "$scratch/errors" | tr '\n' ' ')"
    }}
  done
  grep -q 'completed OK' "$scratch/errors" || fail "mariadb-backup of $HOST did not say that it is complete"
  known=$(cat "$scratch"/known/*_info | tr -d '\n')
  applied=$(printf '%s\n' "$known" | sed -n -e "s/.*GTID of the last change '\([^']*\)'.*/\1/p")
  # A replica counts a transaction as applied a moment after its commit: the files may hold more than mariadb-backup says.
  # The place in the binary log is exact, but a replica that was made of a copy has nothing of older domains there.
  place=$(printf '%s\n' "$known" | sed -n -e "s/.*binlog_pos = filename \('[^']*'\), position '\([0-9]*\)'.*/\1, \2/p")
  logged=
  if [ -n "$place" ]; then
    logged=$(at "SELECT COALESCE(BINLOG_GTID_POS($place), 'gone')") || logged=gone
    [ "$logged" != gone ] || fail "$HOST has purged the binary log of the backup's position, $place; keep binary logs longer"
  fi
  position=$(later "$applied" "$logged")
  [ -n "$position" ] || [ -z "$(at 'SELECT @@GLOBAL.gtid_binlog_pos')" ] ||
    fail "mariadb-backup of $HOST names no GTID position; use the mariadb-backup of the server's version"
}}

local_ask() {{ "$client" --defaults-file="$login" --socket="$scratch/server.sock" --ssl-mode=DISABLED -N -B "$@"; }}
broke_off() {{
  kill -KILL "${{pid:-}}" 2>/dev/null || true
  tail -n 30 "$log" >&2
  fail "$*"
}}
begin() {{
  rm -f "$scratch/server.sock"
  "$server" --no-defaults --datadir="$1" --socket="$scratch/server.sock" --pid-file="$scratch/server.pid" --skip-networking \
    --mysqlx=OFF --skip-log-bin --gtid-mode=ON --enforce-gtid-consistency=ON --skip-replica-start --event-scheduler=OFF \
    --secure-file-priv=NULL --performance-schema=OFF --innodb-buffer-pool-size=64M --innodb-page-size="$page" \
    --innodb-data-file-path="$file" --lower-case-table-names="$(at 'SELECT @@lower_case_table_names')" "$2" >>"$log" 2>&1 &
  pid=$!
  tries=0
  until local_ask -e 'SELECT 1' >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 3000 ] || ! kill -0 "$pid" 2>/dev/null; then broke_off "the server for the copy did not start"; fi
    sleep 0.2
  done
}}
end() {{
  kill -TERM "$pid"
  wait "$pid" || broke_off "the server for the copy did not shut down cleanly"
}}
# A donor that vanished sends nothing, not even an end: a copy of which no file changes for so long is given up.
watch() {{
  quiet=0 before=
  while [ "$quiet" -lt "${{COPY_PATIENCE:-300}}" ]; do
    sleep 1
    quiet=$((quiet + 1))
    now=$(ls -lR --full-time "$volume/copy" 2>/dev/null | cksum)
    if [ "$now" != "$before" ]; then quiet=0 before=$now; fi
  done
  kill -KILL "$pid" 2>/dev/null || true
}}
walk() {{
  for path in "$1"/* "$1"/.[!.]*; do
    if [ -d "$path" ]; then
      echo "d 0 $path"
      walk "$path" || return 1
    elif [ -f "$path" ]; then
      echo "f $(wc -c <"$path") $path"
      cat "$path" || return 1
    fi
  done
}}
take_mysql() {{
  server=$(command -v mysqld) || fail "the image has no mysqld; correct spec.image of the cluster"
  log=$scratch/server.log
  unsafe=$(at "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES \
    WHERE ENGINE NOT IN ('InnoDB', 'PERFORMANCE_SCHEMA', 'MEMORY') AND $_theirs LIMIT 3")
  [ -z "$unsafe" ] || fail "CLONE copies only InnoDB tables; convert" $unsafe "by ALTER TABLE ... ENGINE=InnoDB"
  mkdir -p "$volume/own"
  "$server" --no-defaults --datadir="$volume/own" --initialize-insecure --secure-file-priv=NULL --innodb-page-size="$page" \
    --innodb-data-file-path="$file" --lower-case-table-names="$(at 'SELECT @@lower_case_table_names')" >"$log" 2>&1 ||
    broke_off "the server for the copy could not be initialised"
  login=$scratch/root.cnf
  printf '[client]\nuser=root\n' >"$login"
  begin "$volume/own" --plugin-load-add=mysql_clone.so
  watch &
  watching=$!
  secure=
  {{
    echo "SET GLOBAL clone_valid_donor_list = '$HOST:{PORT}';"
    if [ -s "$tls/ca.crt" ]; then
      echo "SET GLOBAL clone_ssl_ca = '$tls/ca.crt';"
      secure=' REQUIRE SSL'
    fi
    printf "CLONE INSTANCE FROM '{BACKUP}'@'%s':{PORT} IDENTIFIED BY '%s' DATA DIRECTORY = '%s'%s;\n" "$HOST" \
      "$(sed -e "s/['\\\\]/\\\\&/g" "$auth/backup-password" | tr -d '\n')" "$volume/copy" "$secure"
  }} | local_ask >>"$log" 2>"$scratch/errors" ||
    broke_off "the files of $HOST could not be copied: $(sed -e 's/IDENTIFIED.*//' "$scratch/errors" | tail -n 1)"
  kill "$watching" 2>/dev/null || true
  end
  rm -rf "$volume/own"
  # Its start applies what came while it was copied; from where the donor replicated is not where this one goes on.
  login=$cnf
  begin "$volume/copy" --max-allowed-packet=1G
  local_ask -e 'RESET REPLICA ALL' || broke_off "the copy could not be made a server of its own"
  position=$(local_ask -e 'SELECT @@GLOBAL.gtid_executed' | sed -e 's/\\n//g' | tr -d '\n ') ||
    broke_off "the copy does not say its GTID position"
  fact tables "$(local_ask -e "$COUNTED")"
  if [ "${{VERIFICATION:-}}" = Checksums ]; then
    local_ask -r -e "$SUMS" >"$scratch/sums.sql" || broke_off "the tables of the copy could not be listed"
    {{ local_ask <"$scratch/sums.sql" && echo 0 >"$scratch/summed"; }} 2>>"$log" | sums >>"$run/facts"
    [ -e "$scratch/summed" ] || broke_off "the rows of the copy could not be summed"
  fi
  end
  rm -rf "$volume/copy/auto.cnf" "$volume/copy/#innodb_temp" "$volume/copy/#clone"
  {{
    {{ cd "$volume/copy" && walk . && echo "end 0 ." && echo 0 >"$scratch/copied"; }} |
      {{ squeeze && echo 0 >"$scratch/squeezed"; }}
  }} >"$run/data"
  for step in copied squeezed; do [ -e "$scratch/$step" ] || fail "the files of the copy could not be read"; done
}}
"take_$FLAVOR"
fact position "$position"
"""

FILL: Final = r"""
# The files of a physical backup, in the directory $new.
unpack_files() {
  while read -r kind size path; do
    case $path in /* | *..*) return 1 ;; esac
    case $kind in
      d) mkdir -p "$new/$path" || return 1 ;;
      f) head -c "$size" >"$new/$path" || return 1 ;;
      end) return 0 ;;
      *) return 1 ;;
    esac
  done
  return 1
}
series() { sed -n 's/^[^0-9]*\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p' | sed -n 1p; }
fill() {
  now=$("$server" --no-defaults --version | sed 's/.* Ver //' | series) made=$(was version | series)
  [ "$now" = "$made" ] ||
    fail "the backup holds files of $(was flavor) $made, the image is $now; restore with the version of the backup, then upgrade"
  if [ "$FLAVOR" = mariadb ]; then
    program=$(command -v mariadb-backup || command -v mariabackup) ||
      fail "the image has no mariadb-backup; use the image that the backup was made with"
    { "$unpack" -d -c <"$run/data" && echo 0 >"$scratch/unpacked"; } | mbstream -x -C "$new" >"$log" 2>&1 &&
      echo 0 >"$scratch/loaded"
  else
    { "$unpack" -d -c <"$run/data" && echo 0 >"$scratch/unpacked"; } | unpack_files && echo 0 >"$scratch/loaded"
  fi
  whole || give_up "the backup could not be read to its end"
  [ -e "$scratch/unpacked" ] && [ -e "$scratch/loaded" ] || give_up "the files could not be written; the log says why"
  [ "$FLAVOR" = mariadb ] || return 0
  "$program" --no-defaults --prepare --use-memory=64M --target-dir="$new" >"$log" 2>&1 ||
    give_up "the files could not be prepared: $(tail -n 1 "$log")"
  rm -f "$new"/xtrabackup_* "$new"/mariadb_backup_* "$new/backup-my.cnf"
  was version >"$new/mariadb_upgrade_info"
}
"""
