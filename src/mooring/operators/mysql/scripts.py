"""The shell scripts inside the pods: plain `sh`, nothing that a stock image lacks.

They read everything from files below ``/mooring``; a password is never an argument, nor in an environment. For running them
outside a pod, ``MOORING_HOME`` and ``DATA_DIR`` move the two trees.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.mysql.accounts import BACKUP_RIGHTS
from mooring.operators.mysql.names import ADMIN_PORT, BACKUP, MONITOR, OPERATOR_USER, PORT, REPLICATION

__all__ = ["LIVE", "PRE_STOP", "READY", "START", "TRIAL"]

_SERVER: Final = r"""if command -v mariadbd >/dev/null 2>&1; then
  flavor=mariadb server=mariadbd
elif command -v mysqld >/dev/null 2>&1; then
  flavor=mysql server=mysqld
  case $(mysqld --no-defaults --version 2>/dev/null) in *MariaDB*) flavor=mariadb ;; esac
else
  fail "the image has neither mariadbd nor mysqld; correct spec.image"
fi
[ "${FLAVOR:-$flavor}" = "$flavor" ] || fail "the image holds $flavor, not $FLAVOR; correct spec.flavor or spec.image"

# Servers refuse to run as root by accident; a container that is root gives its rights away where it can.
set --
if [ "$(id -u)" = 0 ]; then
  if chown mysql "$volume" "$run" 2>/dev/null; then set -- --user=mysql; else set -- --user=root; fi
fi
"""

_LEAST_ROOM: Final = 16 << 10
"""KiB that a volume must have left: InnoDB's temporary tablespace takes 12 MiB at the start."""

START: Final = rf"""#!/bin/sh
# Initialises an empty data directory, waits at the gate for the operator's order, then becomes the server.
set -eu
home=${{MOORING_HOME:-/mooring}}
volume=${{DATA_DIR:-/var/lib/mysql}}
data=$volume/data
run=$home/run
umask 077
trap 'exit 0' TERM INT
say() {{ echo "mooring: $*" >&2; }}
state() {{ printf '%s\n' "$1" >"$run/state"; }}
fail() {{
  say "$*"
  {{ printf '%s\n' "$*" >"${{TERMINATION_LOG:-/dev/termination-log}}"; }} 2>/dev/null || true
  exit 1
}}

# An order that is there already is of an earlier start, where the count of starts does not say otherwise.
seen=0
{{ read -r seen rest <"$home/order/order"; }} 2>/dev/null || true
case $seen in '' | *[!0-9]*) seen=0 ;; esac
# This container start, counted from 1 as the kubelet does, which may also count starts that never came so far.
{{ read -r start <"$home/starts/count"; }} 2>/dev/null || start=0
start=$((start + 1))
printf '%s\n' "$start" >"$home/starts/count.new"
sync "$home/starts/count.new" 2>/dev/null || sync
mv "$home/starts/count.new" "$home/starts/count"
state starting

{_SERVER}
# A predecessor on the same volume may outlive its pod by a second: its lock is waited for.
if command -v flock >/dev/null 2>&1; then
  exec 9>"$volume/.mooring-lock"
  tries=0
  until flock -n 9; do
    tries=$((tries + 1))
    [ "$tries" -le 120 ] || fail "another server still holds $volume"
    sleep 0.5
  done
fi

# Without room for its first files no server starts, and the next start would be no better.
left() {{ df -P -k "$volume" 2>/dev/null | {{ read -r _ && read -r _ _ _ kib _ && printf '%s' "$kib"; }}; }}
said=
while kib=$(left); do
  case $kib in '' | *[!0-9]*) break ;; esac
  [ "$kib" -lt {_LEAST_ROOM} ] || break
  state waiting
  [ -n "$said" ] || say "$volume has only $kib KiB left, a server needs {_LEAST_ROOM}; raise spec.storage.size, or delete what else is there"
  said=yes
  sleep 1
done

secret() {{ sed -e "s/['\\\\]/\\\\&/g" "$home/auth/$1"; }}
# One statement a line: an init file is read line by line.
accounts() {{
  root=$(secret root-password) operator=$(secret operator-password)
  replication=$(secret replication-password) monitor=$(secret monitor-password) backup=$(secret backup-password)
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
CREATE USER '{BACKUP}'@'%' IDENTIFIED BY '$backup';
SQL
  # Replicas come by the operator's port, which clients cannot fill.
  [ "$server" = mariadbd ] || echo "GRANT SERVICE_CONNECTION_ADMIN ON *.* TO '{REPLICATION}'@'%';"
}}
initialise_mariadb() {{
  mariadb-install-db --no-defaults "$@" --datadir="$new" --auth-root-authentication-method=normal \
    --skip-test-db --skip-name-resolve >"$run/initialise.log" 2>&1 || return 1
  {{
    echo 'FLUSH PRIVILEGES;'
    echo "DELETE FROM mysql.global_priv WHERE User IN ('root', '');"
    echo 'FLUSH PRIVILEGES;'
    accounts
    # An account with this right can write to a replica, and those writes are lost.
    echo "REVOKE READ ONLY ADMIN ON *.* FROM 'root'@'localhost';"
    echo "REVOKE READ ONLY ADMIN ON *.* FROM 'root'@'%';"
    echo "GRANT PROCESS, BINLOG MONITOR, SLAVE MONITOR ON *.* TO '{MONITOR}'@'localhost';"
    echo "GRANT {BACKUP_RIGHTS["mariadb"]} ON *.* TO '{BACKUP}'@'%';"
    echo "GRANT SELECT ON performance_schema.* TO '{MONITOR}'@'localhost';"
  }} | "$server" --no-defaults "$@" --datadir="$new" --bootstrap --skip-networking >>"$run/initialise.log" 2>&1
}}
initialise_mysql() {{
  {{
    echo "DROP USER 'root'@'localhost';"
    accounts
    echo "GRANT PROCESS, REPLICATION CLIENT ON *.* TO '{MONITOR}'@'localhost';"
    echo "GRANT {BACKUP_RIGHTS["mysql"]} ON *.* TO '{BACKUP}'@'%';"
    echo "GRANT SELECT ON performance_schema.* TO '{MONITOR}'@'localhost';"
  }} >"$run/accounts.sql"
  [ "${{1:-}}" != --user=mysql ] || chown mysql "$run/accounts.sql"
  made=0
  "$server" --no-defaults "$@" --datadir="$new" --initialize-insecure --init-file="$run/accounts.sql" \
    --secure-file-priv=NULL >"$run/initialise.log" 2>&1 || made=1
  rm -f "$run/accounts.sql"
  return "$made"
}}
# The directory gets its name last: one that was begun and not finished is made again.
initialise() {{
  new=$volume/data.new
  rm -rf "$new"
  mkdir -p "$new"
  [ "${{1:-}}" != --user=mysql ] || chown mysql "$new"
  if ! "initialise_$flavor" "$@"; then
    tail -n 20 "$run/initialise.log" >&2
    fail "the data directory could not be initialised; the log of the container says why"
  fi
  : >"$new/$unused"
  sync -f "$volume" 2>/dev/null || sync
  mv "$new" "$data"
}}
# No server ran on a directory with the first of these files: there is nothing in it to keep. One with the second is a whole
# copy of another server: it stands for everything that was set aside before it.
unused=.mooring-unused
copied=.mooring-copied
set_aside() {{
  if [ -e "$data/$unused" ]; then
    rm -rf "$data"
    return
  fi
  [ ! -e "$data/$copied" ] || rm -rf "$volume"/data.old*
  aside=$volume/data.old
  generation=1
  while [ -e "$aside" ]; do
    generation=$((generation + 1))
    aside=$volume/data.old.$generation
  done
  mv "$data" "$aside"
  say "the data so far is kept in $aside"
}}
if [ ! -d "$data" ]; then
  state initialising
  say "initialising the data directory"
  initialise "$@"
fi

# Waits for an order for exactly this start. One for a later start counts where the kubelet counted more of them, unless it
# was there already when this start began.
role= id= file= position= fresh= donor=
wait_for_order() {{
  state waiting
  while :; do
    asked= words=
    {{ read -r asked words <"$home/order/order"; }} 2>/dev/null || true
    case $asked in
      '' | *[!0-9]*) ;;
      *) if [ "$asked" = "$start" ] || {{ [ "$asked" -gt "$start" ] && [ "$asked" -gt "$seen" ]; }}; then
        if take $words; then return 0; fi
      fi ;;
    esac
    sleep 0.1
  done
}}
take() {{
  role=${{1:-}} id=${{2:-}} file= position= fresh= donor=
  case $role in primary | replica) ;; *) return 1 ;; esac
  case $id in '' | *[!0-9]*) return 1 ;; esac
  shift 2
  if [ "${{1:-}}" = cut ]; then
    file=${{2:-}} position=${{3:-}}
    case $position in '' | *[!0-9]*) return 1 ;; esac
    shift 3
  fi
  if [ "${{1:-}}" = fresh ]; then
    fresh=yes
    shift
  fi
  [ "${{1:-}}" != seed ] || donor=${{2:-}}
}}
say "start $start waits for its order"
wait_for_order
state starting
say "start $start is a $role with server_id $id${{file:+, its binary log cut at $file $position}}${{fresh:+, on new data}}${{donor:+, copied from $donor}}"

# A server of its own on the new directory, which nobody else reaches, takes the copy: it ends before this one starts.
begin_copy() {{
  rm -f "$run/seed.sock"
  "$server" --no-defaults "$@" --datadir="$new" --socket="$run/seed.sock" --pid-file="$run/seed.pid" \
    --skip-log-bin --innodb-flush-log-at-trx-commit=0 --innodb-buffer-pool-size=64M --performance-schema=OFF \
    --max-allowed-packet=1G >>"$run/initialise.log" 2>&1 &
  copying=$!
  tries=0
  until "$client" --defaults-file="$run/copy.cnf" --socket="$run/seed.sock" -e 'SELECT 1' >/dev/null 2>&1; do
    tries=$((tries + 1))
    if [ "$tries" -gt 300 ] || ! kill -0 "$copying" 2>/dev/null; then return 1; fi
    sleep 0.2
  done
}}
# A donor that vanished sends nothing, not even an end: a copy of which no file changes for so long is given up.
watch() {{
  patience=${{COPY_PATIENCE:-300}}
  quiet=0 before=
  while [ "$quiet" -lt "$patience" ]; do
    sleep 1
    quiet=$((quiet + 1))
    # Sizes and times; a stock image need not have `find`.
    now=$(ls -lR --full-time "$new" 2>/dev/null | cksum)
    if [ "$now" != "$before" ]; then quiet=0 before=$now; fi
  done
  say "no file of the copy changed for $patience s: $donor sends nothing"
  : >"$run/stalled"
  {{ read -r copier <"$run/copier" && kill -KILL "$copier"; }} 2>/dev/null || true
}}
# Everything as of one moment, with its GTID position, over SQL: the tables by rows, in one transaction at the donor.
seed_mariadb() {{
  initialise_mariadb "$@" || return 1
  begin_copy "$@" --skip-networking --skip-grant-tables --skip-slave-start || return 1
  {{
    echo 'SET SESSION foreign_key_checks = 0, unique_checks = 0, sql_log_bin = 0;'
    mariadb-dump --defaults-file="$run/copy.cnf" --host="$donor" --port={ADMIN_PORT} --all-databases --single-transaction --quick \
      --master-data=2 --gtid --routines --events --triggers --hex-blob \
      --ignore-table=mysql.gtid_slave_pos 2>>"$run/initialise.log" &
    printf '%s\n' "$!" >"$run/copier"
    if wait "$!"; then
      echo 'SELECT 1;'
      : >"$run/copied"
    fi
  }} | LC_ALL=C sed -e 's/^-- *SET GLOBAL gtid_slave_pos=/SET GLOBAL gtid_slave_pos=/' |
    "$client" --defaults-file="$run/copy.cnf" --socket="$run/seed.sock" >>"$run/initialise.log" 2>&1 || return 1
  [ -f "$run/copied" ] || return 1
  reached=$("$client" --defaults-file="$run/copy.cnf" --socket="$run/seed.sock" -N -B -e 'SELECT @@GLOBAL.gtid_slave_pos')
  [ -n "$reached" ] || return 1
  say "copied from $donor up to $reached"
  kill -TERM "$copying"
  wait "$copying" || return 1
  # The system tables came from the donor, too, which may be older: see `upgrade`.
  version=$("$client" --defaults-file="$run/copy.cnf" --host="$donor" --port={ADMIN_PORT} -N -B -e 'SELECT @@version' 2>/dev/null) || version=
  rm -f "$new/mariadb_upgrade_info"
  printf '%s' "$version" >"$new/mysql_upgrade_info"
}}
# The donor's files, by the clone plugin; the server that took them ends by itself.
seed_mysql() {{
  initialise_mysql "$@" || return 1
  begin_copy "$@" --skip-networking --plugin-load-add=mysql_clone.so --mysqlx=OFF --secure-file-priv=NULL || return 1
  printf '%s\n' "$copying" >"$run/copier"
  {{
    echo "SET GLOBAL clone_valid_donor_list = '$donor:{ADMIN_PORT}';"
    echo "CLONE INSTANCE FROM '{OPERATOR_USER}'@'$donor':{ADMIN_PORT} IDENTIFIED BY '$(secret operator-password)';"
  }} | "$client" --defaults-file="$run/copy.cnf" --socket="$run/seed.sock" >>"$run/initialise.log" 2>&1 || true
  tries=0
  while kill -0 "$copying" 2>/dev/null; do
    tries=$((tries + 1))
    if [ "$tries" -gt 50 ]; then
      kill -KILL "$copying"
      return 1
    fi
    sleep 0.2
  done
  wait "$copying" || true
  rm -f "$run/copier"
  [ -d "$new/#clone" ] && [ ! -e "$run/stalled" ] || return 1
  say "copied the files of $donor"
  # The next start puts them in place, at the path at which they were received.
  begin_copy "$@" --skip-networking --skip-replica-start --mysqlx=OFF --secure-file-priv=NULL || return 1
  # From where the donor replicated is not where this one goes on.
  "$client" --defaults-file="$run/copy.cnf" --socket="$run/seed.sock" -e 'RESET REPLICA ALL' \
    >>"$run/initialise.log" 2>&1 || return 1
  kill -TERM "$copying"
  wait "$copying" || return 1
}}
# How a client on this pod logs in as the operator; removed once it is done.
login() {{
  client=$(command -v mariadb || command -v mysql)
  # shellcheck disable=SC2016
  {{
    printf '[client]\nuser={OPERATOR_USER}\npassword="'
    sed -e 's/[\\"]/\\&/g' "$home/auth/operator-password" | tr -d '\n'
    printf '"\n'
    [ "$flavor" != mariadb ] || printf 'loose-disable-ssl-verify-server-cert\nloose-max-allowed-packet=1G\n'
  }} >"$run/copy.cnf"
  [ "${{1:-}}" != --user=mysql ] || chown mysql "$run/copy.cnf"
}}
seed() {{
  state seeding
  login "$@"
  new=$volume/data.new
  rm -rf "$new" "$run/copied" "$run/copier" "$run/stalled"
  mkdir -p "$new"
  [ "${{1:-}}" != --user=mysql ] || chown mysql "$new"
  watch &
  watching=$!
  took=0
  "seed_$flavor" "$@" || took=1
  kill "$watching" 2>/dev/null || true
  wait "$watching" 2>/dev/null || true
  if [ "$took" != 0 ]; then
    kill -KILL "${{copying:-}}" 2>/dev/null || true
    rm -f "$run/copy.cnf"
    tail -n 20 "$run/initialise.log" >&2
    fail "the data of $donor could not be copied; the log of the container says why"
  fi
  rm -f "$run/copy.cnf"
  : >"$new/$unused"
  : >"$new/$copied"
  sync -f "$volume" 2>/dev/null || sync
  set_aside
  mv "$new" "$data"
}}
if [ -n "$donor" ]; then
  seed "$@"
  state starting
elif [ -n "$fresh" ]; then
  set_aside
  initialise "$@"
fi
# What stands in a binary log after this position was acknowledged by no replica: the server rolls it back.
cut_tail() {{
  index=$data/binlog.index
  [ -s "$index" ] && grep -qx "\(.*/\)\{{0,1\}}$file" "$index" || return 0
  # What is cut is numbered under the present uuid: others may have received it, so this server writes under a new one.
  rm -f "$data/auto.cnf"
  sed -e "1,/^\(.*\/\)\{{0,1\}}$file\$/d" "$index" | while IFS= read -r later; do rm -f "$data/${{later##*/}}"; done
  sed -e "/^\(.*\/\)\{{0,1\}}$file\$/q" "$index" >"$index.new"
  sync "$index.new" 2>/dev/null || sync
  mv "$index.new" "$index"
  [ "$(wc -c <"$data/$file")" -le "$position" ] || truncate -s "$position" "$data/$file"
  sync -f "$volume" 2>/dev/null || sync
}}
[ -z "$file" ] || [ -n "$donor" ] || cut_tail

{{
  cat "$home/scripts/base.cnf"
  echo
  [ ! -f "$home/live/live.cnf" ] || cat "$home/live/live.cnf"
  echo
  cat "$home/scripts/forced.cnf"
  printf 'datadir=%s\nsocket=%s\npid_file=%s\n' "$data" "$run/mysqld.sock" "$run/mysqld.pid"
  printf 'server_id=%s\n' "$id"
  [ -z "${{HOST:-}}" ] || printf 'report_host=%s\n' "$HOST"
  if [ "$flavor" = mariadb ]; then
    printf 'extra_port=%s\n' {ADMIN_PORT}
  elif [ -n "${{POD_IP:-}}" ]; then
    printf 'admin_address=%s\nadmin_port=%s\n' "$POD_IP" {ADMIN_PORT}
  fi
  if [ -s "$home/tls/tls.crt" ]; then
    printf 'ssl_cert=%s\nssl_key=%s\n' "$home/tls/tls.crt" "$home/tls/tls.key"
    [ ! -s "$home/tls/ca.crt" ] || printf 'ssl_ca=%s\n' "$home/tls/ca.crt"
  fi
  cat "$home/scripts/extra.cnf" 2>/dev/null || true
}} >"$run/my.cnf"
[ "${{1:-}}" != --user=mysql ] || chown -R mysql "$run" "$volume"
if [ "$flavor" = mariadb ]; then
  # A server that crashed as the primary gives up what no replica acknowledged when it starts as a replica.
  case $role in primary) set -- "$@" --init-rpl-role=MASTER ;; *) set -- "$@" --init-rpl-role=SLAVE ;; esac
fi

# MariaDB's system tables stay those of the version that ran last on this volume, which it notes there. A later one brings them
# up to date before anyone can connect; nothing of that goes to the binary log. An earlier one does not start.
series() {{ sed -n 's/^[^0-9]*\([0-9][0-9]*\.[0-9][0-9]*\).*/\1/p' | sed -n 1p; }}
older() {{ [ "${{1%%.*}}" -lt "${{2%%.*}}" ] || {{ [ "${{1%%.*}}" = "${{2%%.*}}" ] && [ "${{1#*.}}" -lt "${{2#*.}}" ]; }}; }}
written_by() {{ cat "$data/mariadb_upgrade_info" 2>/dev/null || cat "$data/mysql_upgrade_info" 2>/dev/null || true; }}
upgrading=
upgrade() {{
  login "$@"
  rm -f "$run/upgrade.sock"
  # With the binary log: a crash before left transactions of which it alone says whether they count.
  "$server" --defaults-file="$run/my.cnf" "$@" --skip-networking --socket="$run/upgrade.sock" \
    --pid-file="$run/upgrade.pid" --event-scheduler=OFF &
  upgrading=$!
  until answer=$("$client" --defaults-file="$run/copy.cnf" --socket="$run/upgrade.sock" -e 'SELECT 1' 2>&1); do
    case $answer in *'ERROR 1045'*) return 1 ;; esac
    kill -0 "$upgrading" 2>/dev/null || return 1
    sleep 0.2
  done
  mariadb-upgrade --defaults-file="$run/copy.cnf" --socket="$run/upgrade.sock" --silent || return 1
  kill -TERM "$upgrading"
  wait "$upgrading"
}}
if [ "$flavor" = mariadb ]; then
  now=$("$server" --no-defaults --version | sed 's/.* Ver //' | series) before=$(written_by | series)
  if [ -n "$before" ] && [ -n "$now" ] && older "$now" "$before"; then
    fail "MariaDB $before wrote the data, $now must not run on it; give $before or a later version in spec.image"
  fi
  if [ "$before" != "$now" ]; then
    state upgrading
    say "the system tables of MariaDB ${{before:-of unknown version}} are brought to $now"
    if ! upgrade "$@" >"$run/upgrade.log" 2>&1; then
      kill -KILL "$upgrading" 2>/dev/null || true
      rm -f "$run/copy.cnf"
      tail -n 20 "$run/upgrade.log" >&2
      fail "the system tables of MariaDB ${{before:-of unknown version}} could not be brought to $now; the log of the container says why"
    fi
    rm -f "$run/copy.cnf" "$run/upgrade.log"
    state starting
  fi
fi
rm -f "$data/$unused"
sync "$data" 2>/dev/null || sync
exec "$server" --defaults-file="$run/my.cnf" "$@"
"""  # noqa: S608 - the names are constants

TRIAL: Final = rf"""#!/bin/sh
# Starts this version once, on empty data of its own, with the configuration that a server would read: what it refuses stands in
# the termination message. DECLARED holds the user's keys: one that a version does not know is passed over at a real start.
set -eu
home=${{MOORING_HOME:-/mooring}}
volume=${{DATA_DIR:-/var/lib/mysql}}
data=$volume/data
run=$home/run
umask 077
say() {{ echo "mooring: $*" >&2; }}
fail() {{
  [ ! -f "$run/trial.log" ] || tail -n 50 "$run/trial.log" >&2
  say "$*"
  {{ printf '%s\n' "$*" >"${{TERMINATION_LOG:-/dev/termination-log}}"; }} 2>/dev/null || true
  exit 1
}}
{_SERVER}
mkdir -p "$data"
[ "${{1:-}}" != --user=mysql ] || chown mysql "$data"
if [ "$flavor" = mariadb ]; then
  mariadb-install-db --no-defaults "$@" --datadir="$data" --auth-root-authentication-method=normal --skip-test-db \
    --skip-name-resolve >"$run/trial.log" 2>&1 || fail "spec.image: it cannot initialise a data directory; the log says why"
  set -- "$@" --loose-innodb-log-file-size=16M
else
  "$server" --no-defaults "$@" --datadir="$data" --initialize-insecure --secure-file-priv=NULL >"$run/trial.log" 2>&1 ||
    fail "spec.image: it cannot initialise a data directory; the log says why"
  set -- "$@" --loose-innodb-redo-log-capacity=16M --secure-file-priv=NULL
fi
{{
  cat "$home/scripts/base.cnf"
  echo
  [ ! -f "$home/live/live.cnf" ] || cat "$home/live/live.cnf"
  printf '\n[mysqld]\n%s\n' "${{DECLARED:-}}"
  cat "$home/scripts/forced.cnf"
  cat "$home/scripts/extra.cnf" 2>/dev/null || true
}} >"$run/my.cnf"
[ "${{1:-}}" != --user=mysql ] || chown -R mysql "$run"
"$server" --defaults-file="$run/my.cnf" "$@" --datadir="$data" --socket="$run/trial.sock" --pid-file="$run/trial.pid" \
  --server-id=1 --skip-networking --innodb-buffer-pool-size=16M --performance-schema=OFF >"$run/trial.log" 2>&1 &
trying=$!
client=$(command -v mariadb || command -v mysql)
until "$client" --no-defaults --user=root --socket="$run/trial.sock" -e 'SELECT 1' >/dev/null 2>&1; do
  kill -0 "$trying" 2>/dev/null || break
  sleep 0.2
done
unknown=$(sed -n -e "s/.*unknown variable '\([^'=]*\).*/\1/p" -e "s/.*unknown option '--\([^'=]*\).*/\1/p" \
  -e "s/.*\[Warning\] '\([^']*\)' was removed\. It does nothing.*/\1/p" "$run/trial.log" | sed -n 1p | tr - _)
if [ -n "$unknown" ]; then
  kill -KILL "$trying" 2>/dev/null || true
  fail "spec.config: this version does not know $unknown; remove it"
fi
if ! kill -0 "$trying" 2>/dev/null; then
  error=$(sed -n -e 's/.*\[ERROR\] *//' -e 't found' -e d -e ':found' -e 's/^\(\[[^]]*\] *\)*//' -e p "$run/trial.log" | sed -n 1p)
  fail "spec.config: it does not start with this configuration: ${{error:-the log says why}}"
fi
kill -TERM "$trying"
wait "$trying" || fail "spec.image: it did not stop as it should; the log says why"
"""

_ASK: Final = r"""
home=${MOORING_HOME:-/mooring}
run=$home/run
client=$(command -v mariadb || command -v mysql)
ask() {
  "$client" "$login" --socket="$run/mysqld.sock" --connect-timeout=3 -N -B -e "$1" 2>&1
}
login=--defaults-file=$home/auth/monitor.cnf
# No file: the Secret was emptied. A refusal shows that the server is alive.
[ -r "$home/auth/monitor.cnf" ] || login=--no-defaults
"""

LIVE: Final = f"""#!/bin/sh
# Alive: it initialises, waits for its order, starts (recovery may take long), or answers anything at all.
{_ASK}
{{ read -r state <"$run/state"; }} 2>/dev/null || exit 0
case $state in initialising | waiting | seeding | upgrading) exit 0 ;; esac
answer=$(ask 'SELECT 1')
case $answer in
  *1 | *'ERROR 10'* | *'ERROR 11'* | *'ERROR 12'* | *'ERROR 16'* | *'ERROR 18'* | *'ERROR 3'*) [ "$state" = up ] || echo up >"$run/state"; exit 0 ;;
esac
# One that never answered yet is still starting: nothing is gained by killing it.
[ "$state" != up ]
"""

READY: Final = f"""#!/bin/sh
# Ready: it answers, and where it follows another server, it applies what it receives.
{_ASK}
{{ read -r state <"$run/state"; }} 2>/dev/null || exit 1
case $state in initialising | waiting | seeding | upgrading) exit 1 ;; esac
answer=$(ask 'SELECT @@read_only') || exit 1
[ "$state" = up ] || echo up >"$run/state"
case $answer in 0) exit 0 ;; 1 | OFF | ON) ;; *) exit 1 ;; esac
case $client in *mariadb) query='SHOW SLAVE STATUS' ;; *) query='SHOW REPLICA STATUS' ;; esac
# Vertical and with names, unlike `ask`: the columns differ between versions. mysql 9 does not know \\G in a statement given to it.
status=$("$client" --defaults-file="$home/auth/monitor.cnf" --socket="$run/mysqld.sock" --connect-timeout=3 -E -e "$query" 2>&1)
case $status in *_SQL_Running:\\ No*) ;; *) exit 0 ;; esac
# Replication that is stopped as a whole, as after a start until the operator's word, is no fault of this server.
case $status in *_IO_Running:\\ No*) ;; *) exit 1 ;; esac
case $status in *Last_SQL_Errno:\\ [1-9]*) exit 1 ;; esac
exit 0
"""

PRE_STOP: Final = f"""#!/bin/sh
# A primary with replicas waits until the operator has moved the primary away. Bounded, and never a reason not to stop.
{_ASK}
# A server lists replicas that are gone for a while: one that counts answers, be it with a refusal.
followed() {{
  for peer in $(ask 'SHOW PROCESSLIST' | grep 'Binlog Dump' | cut -f 3); do
    answer=$("$client" --defaults-file="$home/auth/monitor.cnf" --protocol=tcp --host="${{peer%:*}}" --port={PORT} \
      --connect-timeout=1 -e 'SELECT 1' 2>&1)
    case $answer in *'ERROR 2'*) ;; *) return 0 ;; esac
  done
  return 1
}}
tries=0
while [ "$tries" -lt 12 ]; do
  [ "$(ask 'SELECT @@read_only')" = 0 ] || exit 0
  followed || exit 0
  tries=$((tries + 1))
  sleep 0.5
done
exit 0
"""
