"""The dialect of each flavour."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from mooring.operators.mysql.dialect import Dialect
from mooring.operators.mysql.mariadb import MariaDB
from mooring.operators.mysql.mysql import MySQL
from mooring.operators.mysql.topology import Flavor

__all__ = ["dialect_of"]

_DIALECTS: Final[Mapping[Flavor, Dialect]] = {"mariadb": MariaDB(), "mysql": MySQL()}


def dialect_of(flavor: Flavor) -> Dialect:
    """Statements and answers of a flavour."""
    return _DIALECTS[flavor]
