"""The shell scripts of backups and restores; see `mooring.operators.backup.shell` for what they rely on.

Passwords are read from mounted files, and written to files in memory that only the database's user may read.
"""

# ruff: noqa: S608 - the names are constants

from __future__ import annotations

from typing import Final

from mooring.operators.mysql.accounts import BACKUP_RIGHTS
from mooring.operators.mysql.backup.physical import FILL, SQUEEZE, TAKE
from mooring.operators.mysql.names import BACKUP, MONITOR, OPERATOR_USER, REPLICATION

__all__ = ["LOGICAL", "PHYSICAL", "RESTORE"]

_COMMON: Final = rf"""
set -eu
auth=${{MOORING_AUTH:-/mooring/auth}} tls=${{MOORING_TLS:-/mooring/tls}} scratch=${{MOORING_SCRATCH:-/mooring/scratch}}
umask 077
client=$(command -v mariadb || command -v mysql)
dump=$(command -v mariadb-dump || command -v mysqldump) || fail "the image has no mariadb-dump and no mysqldump; correct spec.image"
cnf=$scratch/client.cnf
{{
  printf '[client]\nuser={BACKUP}\npassword="'
  sed -e 's/[\\"]/\\&/g' "$auth/backup-password" | tr -d '\n'
  printf '"\nloose-max-allowed-packet=1G\n'
  if [ -s "$tls/ca.crt" ]; then
    printf 'ssl-ca=%s\n' "$tls/ca.crt"
    if [ "$FLAVOR" = mysql ]; then echo 'ssl-mode=VERIFY_CA'; else echo 'loose-disable-ssl-verify-server-cert'; fi
  elif [ "$FLAVOR" = mariadb ]; then
    echo 'loose-disable-ssl-verify-server-cert'
  fi
}} >"$cnf"
ask() {{ "$client" --defaults-file="$cnf" "$@"; }}
_theirs="TABLE_TYPE = 'BASE TABLE' AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
COUNTED="SELECT COUNT(*) FROM information_schema.TABLES WHERE $_theirs"
SUMS="SELECT CONCAT('SELECT COUNT(*) FROM ', n, '; CHECKSUM TABLE ', n, ';') FROM (SELECT CONCAT('\`', \
  REPLACE(TABLE_SCHEMA, '\`', '\`\`'), '\`.\`', REPLACE(TABLE_NAME, '\`', '\`\`'), '\`') AS n FROM information_schema.TABLES \
  WHERE ENGINE = 'InnoDB' AND $_theirs) AS t"
# The answers to what SUMS says, two lines a table, as facts: table.NAME=ROWS:CHECKSUM.
sums() {{
  tab=$(printf '\t')
  while IFS= read -r rows && IFS= read -r sum; do
    name=${{sum%"$tab"*}}
    [ "${{#name}}" -gt 150 ] || printf '%s\t%s:%s\n' "$name" "$rows" "${{sum##*"$tab"}}"
  done | sed -e 's/%/%25/g' -e 's/=/%3D/g' -e "s/^\(.*\)$tab\(.*\)\$/table.\1=\2/"
}}
"""

LOGICAL: Final = (
    _COMMON
    + r"""
# Every row of one moment, and the GTID position of that moment.
at() { ask --host="$HOST" --connect-timeout=10 -N -B -e "$1"; }
version=$(at 'SELECT @@version') || fail "$HOST cannot be reached or refuses the account of backups; see status of the cluster"
fact version "$version"
fact source "${HOST%%.*}"
fact lower_case_table_names "$(at 'SELECT @@lower_case_table_names')"
unsafe=$(at "SELECT CONCAT(TABLE_SCHEMA, '.', TABLE_NAME) FROM information_schema.TABLES WHERE TABLE_TYPE = 'BASE TABLE' \
  AND ENGINE NOT IN ('InnoDB', 'Aria', 'CSV', 'PERFORMANCE_SCHEMA', 'MEMORY') \
  AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema') LIMIT 3")
[ -z "$unsafe" ] || fail "tables without transactions cannot be copied as of one moment:" $unsafe "; ALTER TABLE ... ENGINE=InnoDB"
set -- --defaults-file="$cnf" --host="$HOST" --all-databases --single-transaction --quick --routines --events --triggers \
  --hex-blob --max-allowed-packet=1G
if [ "$FLAVOR" = mariadb ]; then
  set -- "$@" --master-data=2 --gtid --ignore-table=mysql.gtid_slave_pos
else
  set -- "$@" --set-gtid-purged=COMMENTED --source-data=2 --ignore-table=mysql.gtid_executed \
    --ignore-table=mysql.slave_master_info --ignore-table=mysql.slave_relay_log_info --ignore-table=mysql.slave_worker_info
fi
# A session of its own reads the rows of the same moment: nothing is committed from its lock to the dump's first table.
# It gives up soon: while it waits behind a long statement, writers wait behind both.
if [ "${VERIFICATION:-}" = Checksums ]; then
  mkfifo "$scratch/orders"
  ask --host="$HOST" --connect-timeout=10 -N -B --unbuffered <"$scratch/orders" >"$scratch/answers" 2>"$scratch/refused" &
  summing=$!
  exec 5<>"$scratch/orders"
  cat >&5 <<SQL
SET SESSION lock_wait_timeout = ${LOCK_PATIENCE:-10};
FLUSH TABLES WITH READ LOCK;
SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;
START TRANSACTION WITH CONSISTENT SNAPSHOT;
SELECT 'held';
SQL
  until grep -q '^held$' "$scratch/answers"; do
    kill -0 "$summing" 2>/dev/null || fail "no moment of $HOST could be held for its checksums: $(tail -n 1 "$scratch/refused")"
    sleep 0.1
  done
  ask --host="$HOST" --connect-timeout=10 -N -B --raw -e "$SUMS" >"$scratch/sums.sql" || fail "the tables of $HOST could not be listed"
  {
    tries=0
    until grep -q '^-- Current Database' "$scratch/said" 2>/dev/null || [ "$tries" -gt 600 ]; do
      tries=$((tries + 1))
      sleep 0.1
    done
    # The end of what it is told ends the session, and with it what it holds.
    [ "$tries" -gt 600 ] || { echo 'UNLOCK TABLES;' && echo "SELECT 'free';" && cat "$scratch/sums.sql" && echo "SELECT 'summed';"; }
  } >&5 &
  exec 5>&-
fi
# The dump says its position: MariaDB at its end, MySQL in its head.
mkfifo "$scratch/copy"
LC_ALL=C sed -u -n -e '/^-- *SET GLOBAL gtid_slave_pos=/p' -e '/SET @@GLOBAL.GTID_PURGED=/,/;/p' -e '/^-- Dump completed/p' \
  -e '/^-- Current Database: /p' -e '/^-- Table structure for table /p' \
  <"$scratch/copy" >"$scratch/said" &
listener=$!
"""
    + SQUEEZE
    + r"""# A pipe's status is that of its last program alone: each one leaves its own.
{
  { "$dump" "$@" 2>"$scratch/errors" && echo 0 >"$scratch/dumped"; } |
    { tee "$scratch/copy" && echo 0 >"$scratch/passed"; } |
    { squeeze && echo 0 >"$scratch/squeezed"; }
} >"$run/data"
for step in dumped passed squeezed; do
  [ -e "$scratch/$step" ] || fail "the dump of $HOST broke off: $(tail -n 3 "$scratch/errors" | tr '\n' ' ')"
done
wait "$listener"
grep -q '^-- Dump completed' "$scratch/said" || fail "the dump of $HOST has no end"
if [ "$FLAVOR" = mariadb ]; then
  position=$(sed -n -e "s/^-- *SET GLOBAL gtid_slave_pos='\(.*\)'.*/\1/p" "$scratch/said" | tail -n 1)
else
  position=$(tr -d '\n' <"$scratch/said" | sed -n -e "s/.*GTID_PURGED=[^']*'+*\([^';]*\)'.*/\1/p" | tr -d ' ')
fi
# A cluster that never took a write has none.
grep -q -e '^-- *SET GLOBAL gtid_slave_pos=' -e 'GTID_PURGED=' "$scratch/said" || [ -z "$(at 'SELECT @@GLOBAL.gtid_executed')" ] ||
  fail "the dump of $HOST names no GTID position; set gtid_mode=ON"
fact position "$position"
# As they are in the dump: a table may have come or gone since.
tables=0 database=
while IFS= read -r line; do
  case $line in
    '-- Current Database: '*) database=${line#*: } ;;
    '-- Table structure'*) case $database in '`mysql`' | '`sys`') ;; *) tables=$((tables + 1)) ;; esac ;;
  esac
done <"$scratch/said"
fact tables "$tables"
if [ "${VERIFICATION:-}" = Checksums ]; then
  wait "$summing" && grep -q '^summed$' "$scratch/answers" ||
    fail "the rows of $HOST could not be summed, a table may have changed meanwhile: $(tail -n 1 "$scratch/refused")"
  sed -e '1,/^free$/d' -e '/^summed$/,$d' "$scratch/answers" | sums >>"$run/facts"
fi
"""
)

PHYSICAL: Final = _COMMON + TAKE

RESTORE: Final = (
    _COMMON
    + FILL
    + rf"""
# Fills a data directory that gets its name last, with the accounts of the new cluster.
volume=${{DATA_DIR:-/var/lib/mysql}}
data=$volume/data new=$volume/data.restored
if [ -e "$data" ]; then
  [ "$(cat "$data/.mooring-restored" 2>/dev/null)" != "$(was id)" ] || restored=yes
  [ "${{restored:-}}" = yes ] || fail "the volume holds data; a restore never runs on it: choose another name for the cluster"
  cat "$run/data" >/dev/null
  whole || fail "the backup could not be read to its end"
  fact position "$(was position)"
  exit 0
fi
[ "$(was flavor)" = "$FLAVOR" ] || fail "the backup is of $(was flavor), the cluster is $FLAVOR; correct spec.image"
server=$(command -v mariadbd || command -v mysqld) || fail "the image has no server; correct spec.image"
exec 9>"$volume/.mooring-lock"
! command -v flock >/dev/null 2>&1 || flock -w 60 9 || fail "another server still holds the volume"
rm -rf "$new"
mkdir -p "$new"
log=$scratch/server.log socket=$scratch/restore.sock
case $(was compression) in gzip) unpack=gzip ;; *) unpack=zstd ;; esac
command -v "$unpack" >/dev/null 2>&1 || fail "the image has no $unpack; use the image that the backup was made with"
give_up() {{ tail -n 30 "$log" >&2; [ ! -s "$scratch/errors" ] || tail -n 5 "$scratch/errors" >&2; fail "$*"; }}
open= physical=
[ "$(was method)" != Physical ] || physical=yes
if [ -n "$physical" ]; then
  fill
  open=--skip-grant-tables
  set -- --innodb-page-size="$(was innodb_page_size)" --innodb-data-file-path="$(was innodb_data_file_path)"
elif [ "$FLAVOR" = mariadb ]; then
  mariadb-install-db --no-defaults --datadir="$new" --auth-root-authentication-method=normal --skip-test-db \
    --skip-name-resolve >"$log" 2>&1 || give_up "the data directory could not be initialised"
else
  "$server" --no-defaults --datadir="$new" --initialize-insecure --secure-file-priv=NULL >"$log" 2>&1 ||
    give_up "the data directory could not be initialised"
fi
if [ "$FLAVOR" = mariadb ]; then
  set -- "$@" --skip-grant-tables --skip-slave-start
else
  set -- "$@" --skip-replica-start --mysqlx=OFF --secure-file-priv=NULL --gtid-mode=ON --enforce-gtid-consistency=ON
fi
names=$(was lower_case_table_names)
begin() {{
  "$server" --no-defaults --datadir="$new" --socket="$socket" --pid-file="$scratch/restore.pid" --skip-networking \
    --log-bin=binlog --innodb-flush-log-at-trx-commit=0 --sync-binlog=0 --innodb-buffer-pool-size=64M \
    --performance-schema=OFF --event-scheduler=OFF --max-allowed-packet=1G --lower-case-table-names="${{names:-0}}" "$@" >>"$log" 2>&1 9>&- &
  pid=$!
  tries=0
  until "$client" --no-defaults --user=root --socket="$socket" -e 'SELECT 1' >/dev/null 2>&1 || answers; do
    tries=$((tries + 1))
    if [ "$tries" -gt 600 ] || ! kill -0 "$pid" 2>/dev/null; then give_up "the server for the restore did not start"; fi
    sleep 0.2
  done
}}
end() {{
  kill -TERM "$pid"
  wait "$pid" || give_up "the restored server did not shut down cleanly"
}}
answers() {{ "$client" --defaults-file="$cnf" --socket="$socket" -N -B -e 'SELECT 1' >/dev/null 2>&1; }}
begin "$@" $open
local_ask() {{ "$client" --no-defaults --user=root --socket="$socket" --max-allowed-packet=1G "$@"; }}
load() {{
  {{
    echo 'SET SESSION foreign_key_checks = 0, unique_checks = 0, sql_log_bin = 0;'
    "$unpack" -d -c <"$run/data" && echo 0 >"$scratch/unpacked"
  }} | local_ask >>"$log" 2>"$scratch/errors" && echo 0 >"$scratch/loaded"
  whole || give_up "the backup could not be read to its end"
  [ -e "$scratch/unpacked" ] && [ -e "$scratch/loaded" ] ||
    give_up "the rows could not be loaded: $(tail -n 2 "$scratch/errors")"
}}
[ -n "$physical" ] || load
position=$(was position)
secret() {{ sed -e "s/['\\\\]/\\\\&/g" "$auth/$1" | tr -d '\n'; }}
backup=$(secret backup-password)
own_accounts() {{
  root=$(secret root-password) operator=$(secret operator-password)
  replication=$(secret replication-password) monitor=$(secret monitor-password)
  for who in "'root'@'localhost'" "'root'@'%'" "'{OPERATOR_USER}'@'%'" "'{REPLICATION}'@'%'" "'{MONITOR}'@'localhost'"; do
    echo "DROP USER IF EXISTS $who;"
  done
  cat <<SQL
CREATE USER 'root'@'localhost' IDENTIFIED BY '$root';
CREATE USER 'root'@'%' IDENTIFIED BY '$root';
GRANT ALL PRIVILEGES ON *.* TO 'root'@'localhost' WITH GRANT OPTION;
GRANT ALL PRIVILEGES ON *.* TO 'root'@'%' WITH GRANT OPTION;
CREATE USER '{OPERATOR_USER}'@'%' IDENTIFIED BY '$operator';
GRANT ALL PRIVILEGES ON *.* TO '{OPERATOR_USER}'@'%' WITH GRANT OPTION;
CREATE USER '{REPLICATION}'@'%' IDENTIFIED BY '$replication';
GRANT REPLICATION SLAVE ON *.* TO '{REPLICATION}'@'%';
CREATE USER '{MONITOR}'@'localhost' IDENTIFIED BY '$monitor';
SQL
  if [ "$FLAVOR" = mariadb ]; then
    echo "REVOKE READ ONLY ADMIN ON *.* FROM 'root'@'localhost';"
    echo "REVOKE READ ONLY ADMIN ON *.* FROM 'root'@'%';"
    echo "GRANT PROCESS, BINLOG MONITOR, SLAVE MONITOR ON *.* TO '{MONITOR}'@'localhost';"
  else
    echo "GRANT PROCESS, REPLICATION CLIENT ON *.* TO '{MONITOR}'@'localhost';"
  fi
  echo "GRANT SELECT ON performance_schema.* TO '{MONITOR}'@'localhost';"
}}
# A test restore lets nobody in but the account that it checks with.
accounts() {{
  echo 'FLUSH PRIVILEGES;'
  [ -n "${{VERIFY:-}}" ] || own_accounts
  echo "DROP USER IF EXISTS '{BACKUP}'@'%';"
  echo "CREATE USER '{BACKUP}'@'%' IDENTIFIED BY '$backup';"
  if [ "$FLAVOR" = mariadb ]; then
    echo "GRANT {BACKUP_RIGHTS["mariadb"]} ON *.* TO '{BACKUP}'@'%';"
  else
    echo "GRANT {BACKUP_RIGHTS["mysql"]} ON *.* TO '{BACKUP}'@'%';"
  fi
}}
# The history that was copied is part of the new one: replicas ask for what follows it.
history() {{
  if [ "$FLAVOR" = mariadb ]; then
    echo "RESET MASTER;"
    echo "SET GLOBAL gtid_slave_pos = '';"
    [ -z "$position" ] || echo "SET GLOBAL gtid_binlog_state = '$position';"
  else
    echo "RESET BINARY LOGS AND GTIDS;"
    [ -z "$position" ] || echo "SET GLOBAL gtid_purged = '$position';"
  fi
}}
[ -z "${{FORWARD:-}}" ] || forward "$@"
{{ echo 'SET sql_log_bin = 0;'; history; [ "$FLAVOR" = mysql ] || accounts; }} | local_ask >>"$log" 2>"$scratch/errors" ||
  give_up "the accounts of the new cluster could not be made: $(sed -e 's/IDENTIFIED.*//' "$scratch/errors" | tail -n 1)"
if [ "$FLAVOR" = mysql ]; then
  # Nobody who logs in may drop the account that is logged in: the server does it itself as it starts.
  end
  {{ echo 'SET sql_log_bin = 0;'; accounts; }} >"$scratch/accounts.sql"
  begin "$@" --init-file="$scratch/accounts.sql"
  rm -f "$scratch/accounts.sql"
fi
inside() {{ "$client" --defaults-file="$cnf" --socket="$socket" -N -B "$@"; }}
tables=$(inside -e "$COUNTED") || give_up "the restored server does not let the account of backups in"
# Of files the number of tables is known only where a server ran on their copy.
made=$(was tables)
[ "$tables" = "${{made:-$tables}}" ] || give_up "the backup has $made tables, $tables were restored"
if [ -n "${{VERIFY:-}}" ]; then
  check=$(command -v mariadb-check || command -v mysqlcheck) || fail "the image has no mariadb-check and no mysqlcheck"
  "$check" --defaults-file="$cnf" --socket="$socket" --all-databases --check >"$scratch/checked" 2>>"$scratch/errors" ||
    give_up "the restored tables could not be checked: $(tail -n 1 "$scratch/errors")"
  wrong=$(grep -i -e '^error' -e 'corrupt' "$scratch/checked" | head -n 3 | tr '\n' ' ') || true
  [ -z "$wrong" ] || give_up "the restored tables are damaged: $wrong"
  inside --raw -e "$SUMS" >"$scratch/sums.sql" || give_up "the restored tables could not be listed"
  {{ inside <"$scratch/sums.sql" && echo 0 >"$scratch/summed"; }} 2>>"$scratch/errors" | sums | LC_ALL=C sort >"$scratch/restored"
  [ -e "$scratch/summed" ] || give_up "the restored rows could not be summed: $(tail -n 1 "$scratch/errors")"
  grep '^table\.' "$run/manifest.facts" | LC_ALL=C sort >"$scratch/wanted" || true
  rows=0
  while IFS= read -r line; do
    line=${{line##*=}}
    rows=$((rows + ${{line%%:*}}))
  done <"$scratch/restored"
  what="$rows rows in $tables tables, every table passes CHECK TABLE"
  if [ -s "$scratch/wanted" ]; then
    differ=$(LC_ALL=C comm -3 "$scratch/wanted" "$scratch/restored" | sed -e 's/^.*table\.//' -e 's/=.*//' | LC_ALL=C sort -u)
    [ -z "$differ" ] ||
      give_up "rows differ from those of the source in $(printf '%s\n' "$differ" | head -n 3 | tr '\n' ' '); make another backup"
    what="$what, rows and checksums of $(grep -c . "$scratch/wanted") are those of the source"
  fi
  fact checked "$what"
fi
end
rm -f "$new/auto.cnf"
was id >"$new/.mooring-restored"
sync -f "$volume" 2>/dev/null || sync
mv "$new" "$data"
fact position "$position"
fact tables "$tables"
"""
)
