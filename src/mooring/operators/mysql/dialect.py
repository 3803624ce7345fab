"""What differs between the flavours: statements, and how their answers are read. No other module asks for the flavour.

A `Dialect` is stateless; `mooring.operators.mysql.dialects.dialect_of` gives the one of a flavour.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from mooring.operators.mysql.accounts import Account
from mooring.operators.mysql.dial import Row, quoted
from mooring.operators.mysql.gtid import Position
from mooring.operators.mysql.topology import Flavor, Replication, Server

__all__ = ["DAY", "Dialect", "Source", "listed", "named", "number", "on", "text_of"]

DAY: Final = 86400
"""Seconds that a commit waits for acknowledgements where it must not go on without them."""


class Source(Protocol):
    """Where a replica connects to."""

    @property
    def host(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def password(self) -> str: ...
    @property
    def tls(self) -> bool: ...


class Dialect(Protocol):
    """Statements of one flavour. All of them are idempotent where SQL allows it."""

    flavor: Flavor
    keeps_relay_log: bool
    """Starting the applier alone goes on in the relay log, whatever happened before."""

    # --- reading

    def position(self) -> str:
        """Query of everything that was committed here: one row, read by `position_of`."""
        ...

    def position_of(self, row: Row) -> Position:
        """Reads `position`."""
        ...

    def role(self) -> str:
        """Query that any account may make: server_id, version, read_only, ``source`` (it waits for acknowledgements) and ``replica`` (it gives them)."""
        ...

    def survey(self, held: Collection[str]) -> str:
        """Everything that `server` needs, in one sending; ``held``: global variables to bring as well."""
        ...

    def server(self, results: Sequence[Sequence[Row]]) -> Server:
        """Reads what `survey` brought."""
        ...

    def purged(self) -> Sequence[str]:
        """Queries that `purged_of` needs, the second one made with `str.format` from the first row of the first."""
        ...

    def purged_of(self, rows: Sequence[Row]) -> Position:
        """Reads the rows of the last of `purged`: what the binary logs no longer hold."""
        ...

    def replication(self) -> str:
        """Query of where a server replicates from."""
        ...

    def replication_of(self, rows: Sequence[Row]) -> Replication | None:
        """Reads `replication`; ``None``: it replicates from no server."""
        ...

    # --- replication

    def follow(self, source: Source, here: Row) -> Sequence[str]:
        """Point a server whose replication is stopped at a source; ``here`` is the answer to `position`: it goes on after that."""
        ...

    def start(self) -> str: ...
    def start_applier(self) -> str: ...
    def start_receiver(self) -> str: ...
    def stop(self) -> str: ...
    def stop_receiver(self) -> str: ...
    def forget_source(self) -> str:
        """It replicates from no server any more. Its own history stays."""
        ...

    def apply_from(self, file: str, position: int) -> Sequence[str]:
        """Make a stopped applier begin at a byte of a relay log, with no regard to GTIDs: `follow` ends that."""
        ...

    def applied(self) -> Sequence[str]:
        """What `apply_from` changed otherwise is put back, once the source is forgotten."""
        ...

    # --- roles

    def read_only(self, on: bool) -> str:
        """No ordinary account writes (MySQL: nor one with all rights)."""
        ...

    def acks(self, wanted: int) -> int:
        """How many acknowledgements a source can wait for, if ``wanted`` are asked for."""
        ...

    def source_semi_sync(self, *, on: bool, acks: int) -> Sequence[str]:
        """Commits wait for acknowledgements for a day, after the binary log and before the engine."""
        ...

    def replica_semi_sync(self, *, on: bool) -> str:
        """Acknowledge what is received; counts from the next start of the receiver."""
        ...

    # --- sessions

    def writers(self) -> str:
        """Sessions of clients that write or hold locks: id, seconds, state; the longest first."""
        ...

    def clients(self) -> str:
        """Sessions of clients: id, user, state."""
        ...

    def waits_for_ack(self, state: str) -> bool:
        """Whether a session in this state waits for an acknowledgement (killing it would commit without)."""
        ...

    def kill(self, session: int) -> str: ...

    # --- accounts

    def accounts(self) -> str:
        """Query of all accounts: ``user`` and ``host``, and what `account_of` reads."""
        ...

    def account_of(self, row: Row, text: str) -> Account:
        """Reads a row of `accounts`: whether this text is a password of it, and whether there is another."""
        ...

    def password(self, user: str, host: str, text: str, *, keep: Sequence[str] = ()) -> Sequence[str]:
        """Set the password of an account; ``keep``: further ones that stay valid."""
        ...

    def add_password(self, row: Row, user: str, host: str, text: str) -> Sequence[str]:
        """Set the password of an account; what it takes now, by its row of `accounts`, stays valid beside it."""
        ...

    def only_password(self, user: str, host: str, text: str) -> Sequence[str]:
        """Set the password, all others stop to count."""
        ...

    def reload_tls(self) -> str: ...


# --- reading values


def text_of(row: Mapping[str, object], key: str) -> str:
    """A column as text; "" for NULL and for a column that is not there."""
    value = row.get(key)
    if value is None:
        return ""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def number(row: Mapping[str, object], key: str) -> int:
    """A column as a number, 0 where it is none."""
    text = text_of(row, key)
    return int(text) if text.lstrip("-").isdigit() else 0


def on(row: Mapping[str, object], key: str) -> bool:
    """A variable or column that is on."""
    return text_of(row, key).upper() in ("1", "ON", "YES", "TRUE")


def named(rows: Sequence[Row]) -> dict[str, str]:
    """Rows of SHOW VARIABLES or SHOW STATUS, by small-letter name."""
    return {text_of(row, "Variable_name").lower(): text_of(row, "Value") for row in rows}


def listed(names: Collection[str]) -> str:
    """Names as a list of literals; one that matches nothing where there are none."""
    return ", ".join(quoted(name) for name in sorted(names)) or "''"
