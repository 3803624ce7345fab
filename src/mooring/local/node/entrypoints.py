"""Scripts that start a program the way its image elsewhere does."""

from __future__ import annotations

from typing import Final

__all__ = ["MARIADB_ENTRYPOINT", "MYSQL_ENTRYPOINT", "REDIS_ENTRYPOINT", "VALKEY_ENTRYPOINT"]

REDIS_ENTRYPOINT: Final = """#!/bin/sh
set -e
# As in the image: options and configuration files are meant for redis-server.
if [ "${1#-}" != "$1" ] || [ "${1%.conf}" != "$1" ]; then
	set -- redis-server "$@"
fi
exec "$@"
"""

VALKEY_ENTRYPOINT: Final = REDIS_ENTRYPOINT.replace("redis-server", "valkey-server")

MARIADB_ENTRYPOINT: Final = """#!/bin/sh
set -e
# As in the image: options are meant for mariadbd; an empty data directory is initialised first.
if [ "$#" = 0 ] || [ "${1#-}" != "$1" ]; then
	set -- mariadbd "$@"
fi
if { [ "$1" = mariadbd ] || [ "$1" = mysqld ]; } && [ ! -d /var/lib/mysql/mysql ]; then
	password=${MARIADB_ROOT_PASSWORD:-${MYSQL_ROOT_PASSWORD:-}}
	allow=${MARIADB_ALLOW_EMPTY_ROOT_PASSWORD:-${MYSQL_ALLOW_EMPTY_PASSWORD:-}}
	if [ -z "$password$allow" ]; then
		echo "database is uninitialized: set MARIADB_ROOT_PASSWORD or MARIADB_ALLOW_EMPTY_ROOT_PASSWORD" >&2
		exit 1
	fi
	mariadb-install-db --user="$(id -un)" --datadir=/var/lib/mysql \\
		--auth-root-authentication-method=normal --skip-name-resolve >&2
	escaped=$(printf %s "$password" | sed "s/['\\\\\\\\]/\\\\\\\\&/g")
	mariadbd --no-defaults --user="$(id -un)" --datadir=/var/lib/mysql --bootstrap <<SQL >&2
FLUSH PRIVILEGES;
ALTER USER 'root'@'localhost' IDENTIFIED BY '$escaped';
CREATE USER IF NOT EXISTS 'root'@'%' IDENTIFIED BY '$escaped';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
fi
case "$1" in
mariadbd | mysqld)
	program=$1
	shift
	set -- "$program" --user="$(id -un)" --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock "$@"
	mkdir -p /run/mysqld
	;;
esac
exec "$@"
"""

MYSQL_ENTRYPOINT: Final = """#!/bin/sh
set -e
# As in the image: options are meant for mysqld; an empty data directory is initialised first.
if [ "$#" = 0 ] || [ "${1#-}" != "$1" ]; then
	set -- mysqld "$@"
fi
if [ "$1" = mysqld ] && [ ! -d /var/lib/mysql/mysql ]; then
	if [ -z "${MYSQL_ROOT_PASSWORD:-}${MYSQL_ALLOW_EMPTY_PASSWORD:-}" ]; then
		echo "Database is uninitialized and password option is not specified: set MYSQL_ROOT_PASSWORD" >&2
		exit 1
	fi
	escaped=$(printf %s "${MYSQL_ROOT_PASSWORD:-}" | sed "s/['\\\\\\\\]/\\\\\\\\&/g")
	first=$(umask 077 && mktemp)
	cat >"$first" <<SQL
ALTER USER 'root'@'localhost' IDENTIFIED BY '$escaped';
CREATE USER 'root'@'%' IDENTIFIED BY '$escaped';
GRANT ALL ON *.* TO 'root'@'%' WITH GRANT OPTION;
SQL
	mysqld --no-defaults --user="$(id -un)" --datadir=/var/lib/mysql --secure-file-priv=NULL \\
		--initialize-insecure --init-file="$first" >&2
	rm -f "$first"
fi
if [ "$1" = mysqld ]; then
	shift
	mkdir -p /run/mysqld
	set -- mysqld --user="$(id -un)" --datadir=/var/lib/mysql --socket=/run/mysqld/mysqld.sock \\
		--secure-file-priv=NULL "$@"
fi
exec "$@"
"""
