"""The shell that applies a piece of the archive inside a restore Job, in the stock image of either flavour.

A server of its own starts on the restored directory, reachable by its socket alone and read-only, and applies the relay logs
that `mooring archive fetch` left. No tool that a stock image lacks is used. The account by which progress is watched lives as
long as that server: restored accounts have the passwords of another time.
"""

from __future__ import annotations

from typing import Final

from mooring.operators.mysql.archive.relay import FIRST, INDEX

__all__ = ["ACCOUNT", "APPLY", "WAY"]

WAY: Final = "way"
"""The file beside the relay logs that says where they lead: lines ``stop=GTID``, ``position=``, ``committed=``."""
ACCOUNT: Final = "mooring_restore"

APPLY: Final = rf"""
# apply_archive DATA FROM FLAVOR SERVER [OPTION ...]: apply the relay logs in FROM on the data directory DATA.
# It fails with the server's own words in "$apply_error". Options go to the server, such as --user and sizes.
apply_error=
apply_archive() {{
  apply_data=$1 apply_from=$2 apply_flavor=$3 apply_server=$4
  shift 4
  [ -s "$apply_from/{INDEX}" ] || return 0
  apply_stop=$(sed -n 's/^stop=//p' "$apply_from/{WAY}")
  apply_run=$apply_data/.mooring-apply
  rm -rf "$apply_run"
  mkdir "$apply_run"
  rm -f "$apply_data"/relay.* "$apply_data"/relay-log.info "$apply_data"/master.info
  while IFS= read -r file; do mv "$apply_from/${{file#./}}" "$apply_data/" || return 1; done <"$apply_from/{INDEX}"
  cp "$apply_from/{INDEX}" "$apply_data/{INDEX}"
  apply_client=$(command -v mariadb || command -v mysql)
  apply_password=$(head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n')
  {{
    # One statement a line.
    echo 'SET sql_log_bin = 0;'
    echo "DROP USER IF EXISTS '{ACCOUNT}'@'localhost';"
    echo "CREATE USER '{ACCOUNT}'@'localhost' IDENTIFIED BY '$apply_password';"
    echo "GRANT ALL PRIVILEGES ON *.* TO '{ACCOUNT}'@'localhost';"
    if [ "$apply_flavor" = mariadb ]; then
      # 10.11.19 crashes where several threads apply a relay log without GTIDs.
      echo 'SET GLOBAL slave_parallel_threads = 0;'
      echo "CHANGE MASTER TO MASTER_HOST='archive.invalid', MASTER_USE_GTID=no, RELAY_LOG_FILE='{FIRST}', RELAY_LOG_POS=4;"
    else
      echo "CHANGE REPLICATION SOURCE TO SOURCE_HOST='archive.invalid', SOURCE_AUTO_POSITION=0, RELAY_LOG_FILE='{FIRST}', RELAY_LOG_POS=4;"
    fi
  }} >"$apply_run/init.sql"
  printf '[client]\nuser={ACCOUNT}\npassword="%s"\nsocket=%s\n' "$apply_password" "$apply_run/sock" >"$apply_run/client.cnf"
  if [ "$apply_flavor" = mariadb ]; then
    set -- "$@" --skip-slave-start --gtid-strict-mode=OFF --read-only=ON --slave-net-timeout=60
  else
    set -- "$@" --skip-replica-start --gtid-mode=ON --enforce-gtid-consistency=ON --super-read-only=ON --relay-log-recovery=OFF \
      --mysqlx=OFF --secure-file-priv=NULL --replica-parallel-workers=1
  fi
  case " $* " in *' --user=mysql '*) chown -R mysql "$apply_run" "$apply_data"/relay.* ;; esac
  "$apply_server" --no-defaults --datadir="$apply_data" --socket="$apply_run/sock" --pid-file="$apply_run/pid" --skip-networking \
    --skip-log-bin --relay-log=relay --relay-log-index={INDEX} --server-id=4294967295 --init-file="$apply_run/init.sql" \
    --innodb-flush-log-at-trx-commit=0 --innodb-doublewrite=OFF --max-allowed-packet=1G "$@" >"$apply_run/log" 2>&1 &
  apply_pid=$!
  apply_ended=0
  apply_wait || apply_ended=1
  kill -TERM "$apply_pid" 2>/dev/null || true
  if ! wait "$apply_pid" && [ "$apply_ended" = 0 ]; then
    apply_error="the server that applied the archive did not stop cleanly"
    apply_ended=1
  fi
  if [ "$apply_ended" = 0 ]; then
    rm -rf "$apply_run" "$apply_data"/relay.* "$apply_data"/relay-log.info "$apply_data"/master.info
  else
    apply_log 20 >&2
  fi
  return "$apply_ended"
}}
# The last lines of the server's log, and an error, without statements: these may hold passwords and rows.
apply_log() {{ grep '^[0-9][0-9]*-[0-9][0-9]-' "$apply_run/log" | tail -n "$1" | apply_plain; }}
apply_plain() {{ sed -e "s/ *Query: '.*//"; }}
apply_ask() {{ "$apply_client" --defaults-file="$apply_run/client.cnf" --connect-timeout=5 -N -B -e "$1" 2>&1; }}
apply_wait() {{
  tries=0
  until [ "$(apply_ask 'SELECT 1')" = 1 ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt 3000 ] || ! kill -0 "$apply_pid" 2>/dev/null; then
      apply_error="the server does not start on the restored data: $(apply_log 3 | tr '\n' ' ')"
      return 1
    fi
    sleep 0.2
  done
  # The init file is no file of the restored server: its password is of no use after this.
  rm -f "$apply_run/init.sql"
  apply_said=$(apply_ask 'START REPLICA SQL_THREAD') || {{
    apply_error="the archive cannot be applied: $apply_said"
    return 1
  }}
  if [ "$apply_flavor" = mariadb ]; then
    apply_query="SELECT MASTER_GTID_WAIT('$apply_stop', 5) = 0"
  else
    apply_query="SELECT WAIT_FOR_EXECUTED_GTID_SET('$apply_stop', 5) = 0"
  fi
  until [ "$(apply_ask "$apply_query")" = 1 ]; do
    apply_status=$("$apply_client" --defaults-file="$apply_run/client.cnf" --connect-timeout=5 -E -e 'SHOW REPLICA STATUS' 2>&1)
    case $apply_status in
      *_SQL_Running:\ Yes*) ;;
      *)
        kill -0 "$apply_pid" 2>/dev/null || apply_status=" Last_SQL_Error: the server ended: $(apply_log 3 | tr '\n' ' ')"
        apply_error="the archive could not be applied up to $apply_stop: $(printf '%s\n' "$apply_status" | sed -n 's/^ *Last_SQL_Error: //p' | apply_plain | head -c 700)"
        return 1
        ;;
    esac
  done
  apply_said=$(apply_ask "STOP REPLICA; RESET REPLICA ALL; SET GLOBAL read_only = OFF; SET sql_log_bin = 0; DROP USER '{ACCOUNT}'@'localhost'") || {{
    apply_error="the server that applied the archive could not be put in order: $apply_said"
    return 1
  }}
}}
"""
