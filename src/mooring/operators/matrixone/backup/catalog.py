"""The tables of a server: listed around a backup, and compared with those of a server that was restored from it.

The data of a backup is of one moment while the statement runs. A table that was there before and after it, as the same
one, is in the backup. Rows are counted in the restored server alone: the server's reads of the past (MO_TS) were found to
miss what was committed since its newest checkpoint (1.2.4), so there is no count to compare with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

from asyncmy.errors import MySQLError

__all__ = ["LOST", "MOST", "PREFIX", "Differs", "Table", "checked", "facts_of", "listed"]

PREFIX: Final = "table."
"""Of the facts of a manifest that are tables."""
MOST: Final = 100_000
"""Tables that are listed in a manifest; of more the number alone is recorded."""
LOST: Final = frozenset({2003, 2006, 2013})
"""Errors of a session that ended."""
_SYSTEM: Final = frozenset(
    {
        "mo_catalog",
        "mo_task",
        "mo_debug",
        "mysql",
        "information_schema",
        "system",
        "system_metrics",
    }
)
_LIST: Final = "select account_id, reldatabase, relname, relkind, rel_id from mo_catalog.mo_tables"
_HIDDEN: Final = ("__mo_", "%!%")
"""Beginnings of the names of indexes and partitions, which the tables that own them speak for."""


class Differs(Exception):
    """The restored server has not what the backup had, or cannot read it."""

    def __init__(self, reason: str, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.reason, self.again = reason, again


@dataclass(frozen=True, slots=True, order=True)
class Table:
    """A table or view of an account; that of the account ``sys`` is 0."""

    account: int
    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}" + (f" of account {self.account}" if self.account else "")


async def listed(cursor: Any) -> dict[Table, tuple[str, int]]:
    """Every table and view of all accounts but the server's own, with its kind and its identity."""
    await cursor.execute(_LIST)
    return {
        Table(int(account or 0), database, name): (kind or "", int(identity))
        for account, database, name, kind, identity in await cursor.fetchall()
        if database not in _SYSTEM
    }


def facts_of(
    before: Mapping[Table, tuple[str, int]], after: Mapping[Table, tuple[str, int]]
) -> dict[str, str]:
    """The facts of a manifest: the tables that were there all the while."""
    both = sorted(one for one, found in before.items() if after.get(one) == found)
    facts = {"tables": str(len(both))}
    if len(both) <= MOST:
        facts |= {
            f"{PREFIX}{one.account}/{quote(one.database, safe='')}/{quote(one.name, safe='')}": before[one][0]
            for one in both
        }
    return facts


def _recorded(facts: Mapping[str, str]) -> set[Table]:
    found = set()
    for name in facts:
        if name.startswith(PREFIX):
            account, database, table = name.removeprefix(PREFIX).split("/")
            found.add(Table(int(account), unquote(database), unquote(table)))
    return found


async def checked(cursor: Any, facts: Mapping[str, str]) -> str:
    """What was compared and counted in the restored server; raises `Differs`."""
    found = await listed(cursor)
    wanted = _recorded(facts)
    if missing := sorted(wanted - found.keys()):
        text = f"{len(missing)} tables of the backup are not in the restored server, such as {_some(missing)}"
        raise Differs("TablesMissing", text, again=False)
    rows, counted = 0, 0
    for one, (kind, _) in sorted(found.items()):
        if one.account == 0 and kind == "r" and not one.name.startswith(_HIDDEN):
            rows += await _count(cursor, one)
            counted += 1
    text = f"{rows} rows in {counted} tables of the account sys"
    if "tables" in facts:
        return f"{text}, {len(wanted) or facts['tables']} tables and views listed at the backup are there"
    return f"{text}; the backup has no list of tables to compare with"


async def _count(cursor: Any, table: Table) -> int:
    database, name = (one.replace("`", "``") for one in (table.database, table.name))
    try:
        await cursor.execute(f"select count(*) from `{database}`.`{name}`")  # noqa: S608 - quoted
        return int((await cursor.fetchone())[0])
    except MySQLError as error:
        if error.args and error.args[0] in LOST:
            raise  # says nothing about the table: the server may have ended for want of memory
        said = str(error.args[-1])[:300] if error.args else ""
        raise Differs("TableUnreadable", f"{table} cannot be read: {said}", again=True) from None


def _some(tables: Iterable[Table]) -> str:
    return ", ".join(str(one) for one in list(tables)[:3])
