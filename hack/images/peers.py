"""Images for bench/peer_mysql.py: MariaDB with the first start that its official image has, and mariadb-operator.

The servers are Debian's, as in the image "mariadb" of recipes.py. Both operators get this one image, so that the same
program is measured.
"""

from __future__ import annotations

import tarfile
from dataclasses import replace
from pathlib import Path

from hack.build import mariadb_operator
from hack.images.archive import Config, add_directory, add_file
from hack.images.recipes import IMAGES as OWN
from hack.images.recipes import Recipe, make

__all__ = ["IMAGES", "MARIADB", "OPERATOR", "build"]

MARIADB = "docker.io/library/mariadb:10.11"
OPERATOR = "localhost/mariadb-operator"
#: Uid and gid of mariadb-operator in its own image.
_NONROOT = "65532:65532"
_CONF = b"""\
[client-server]
socket=/run/mysqld/mysqld.sock
[mariadbd]
skip-name-resolve
host-cache-size=0
!includedir /etc/mysql/conf.d/
"""
#: What the official image documents: an option alone is one of mariadbd; an empty data directory gets its system tables
#: and a root account with MARIADB_ROOT_PASSWORD, at localhost and at MARIADB_ROOT_HOST; the server does not run as root.
_START = rb"""#!/bin/bash
set -eu
case ${1:-} in -*|'') set -- mariadbd "$@" ;; esac
[ "$1" = mariadbd ] || exec "$@"
data=/var/lib/mysql
if [ "$(id -u)" = 0 ]; then
  chown mysql:mysql "$data"
  exec setpriv --reuid=mysql --regid=mysql --clear-groups "$0" "$@"
fi
if [ ! -d "$data/mysql" ]; then
  mariadb-install-db --datadir="$data" --auth-root-authentication-method=normal --skip-test-db >/dev/null
  secret=${MARIADB_ROOT_PASSWORD//\\/\\\\}
  secret=${secret//\'/\\\'}
  {
    echo "FLUSH PRIVILEGES;"
    echo "ALTER USER 'root'@'localhost' IDENTIFIED BY '$secret';"
    echo "CREATE USER 'root'@'${MARIADB_ROOT_HOST:-%}' IDENTIFIED BY '$secret';"
    echo "GRANT ALL ON *.* TO 'root'@'${MARIADB_ROOT_HOST:-%}' WITH GRANT OPTION;"
  } | mariadbd --bootstrap --skip-log-bin
fi
exec "$@"
"""


def build(name: str) -> Path:
    """The archive of one of these images; built on first use (mariadb-operator: minutes)."""
    return make(name, IMAGES[name])


def _fill_mariadb(layer: tarfile.TarFile) -> None:
    add_directory(layer, "var/lib/mysql", owner=999)
    add_directory(layer, "run/mysqld", mode=0o1777)
    add_file(layer, "etc/mysql/my.cnf", _CONF)
    add_file(layer, "usr/local/bin/start", _START, mode=0o755)


def _fill_operator(layer: tarfile.TarFile) -> None:
    add_file(layer, "bin/mariadb-operator", mariadb_operator().read_bytes(), mode=0o755)


IMAGES: dict[str, Recipe] = {
    "mariadb-stock": replace(
        OWN["mariadb"],
        config=lambda: Config(name=MARIADB, entrypoint=("/usr/local/bin/start",), command=("mariadbd",)),
        packages=(*OWN["mariadb"].packages, "bash"),
        fill=_fill_mariadb,
        inputs=Path(__file__).read_bytes,
    ),
    "mariadb-operator": Recipe(
        config=lambda: Config(name=f"{OPERATOR}:bench", entrypoint=("/bin/mariadb-operator",), user=_NONROOT),
        fill=_fill_operator,
        inputs=lambda: mariadb_operator().parent.name.encode(),
    ),
}
