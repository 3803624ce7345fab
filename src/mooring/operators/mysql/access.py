"""Who may connect, and how: certificates, declared accounts and databases, changed passwords; and storage. Pure rules.

A password changes without an outage: the account takes both, everything that uses it turns to the new one, and after
`GRACE` the old one stops to count. Accounts and databases that are no longer declared stay as they are.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from mooring.operators.mysql import durability, records
from mooring.operators.mysql.accounts import (
    BACKUP_RIGHTS,
    Account,
    Accounts,
    WantedUser,
    corrections,
    create_database,
    create_user,
    unlike,
)
from mooring.operators.mysql.credentials import ACCOUNTS, OWN
from mooring.operators.mysql.moves import (
    Amend,
    Follow,
    PublishPasswords,
    Record,
    ReloadCertificates,
    SetPasswords,
    Verdict,
    Wait,
    target_of,
)
from mooring.operators.mysql.names import BACKUP, OPERATOR_USER, REPLICATION
from mooring.operators.mysql.snapshot import Snapshot
from mooring.operators.mysql.topology import Member, Server
from mooring.operators.mysql.types import AccountResult, MySQLClusterStatus

__all__ = ["GRACE", "accounts", "backups", "certificates", "turned"]

GRACE: Final = 60.0
"""Seconds for which the old password counts beside a new one, and after which what failed is tried again."""
_REPLICATION: Final = f"{REPLICATION}@%"


def accounts(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Bring accounts, their passwords and databases to what is declared, one step at a time, where writes get through."""
    found = snapshot.topology.accounts
    if found is None or found.error or server.read_only or durability.blocked(snapshot):
        return None
    if verdict := _own_passwords(snapshot, member, found):
        return verdict
    if not snapshot.wanted.sound:
        return None
    return _users(snapshot, member, found) or _databases(snapshot, member, found) or _results(snapshot, found)


def backups(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """The account of backups, where the cluster is older than it or somebody dropped it."""
    key = f"{BACKUP}@%"
    if server.backup_account or server.read_only or durability.blocked(snapshot) or _failed(snapshot, key):
        return None
    rights = f"{BACKUP_RIGHTS[snapshot.wanted.flavor]} ON *.*"
    user = WantedUser(name=BACKUP, label=ACCOUNTS[BACKUP], grants=(rights,))
    statements = tuple(create_user(user))
    return Amend(primary=target_of(member), subject=key, statements=statements, why=f"{key} is missing")


# --- the operator's own accounts -------------------------------------------------------------------------


def _own_passwords(snapshot: Snapshot, member: Member, found: Accounts) -> Verdict | None:
    changed = snapshot.observed.changed_passwords
    own = [(name, host, ACCOUNTS[name]) for name, host in OWN if f"{name}@{host}" in found.users]
    late = [one for one in own if one[2] in changed and found.users[_key(one)].password is False]
    if late:
        return SetPasswords(
            primary=target_of(member),
            accounts=tuple(late),
            first=_changing(snapshot, *(_key(one) for one in late)),
            why=f"{', '.join(sorted({one[2] for one in late}))} changed",
        )
    if changed:
        return _publish(snapshot, member, changed)
    spare = [one for one in own if found.users[_key(one)].spare and _is_over(snapshot, _key(one))]
    if spare:
        why = f"{', '.join(_key(one) for one in spare)}: the old password stops to count"
        return SetPasswords(primary=target_of(member), accounts=tuple(spare), beside=False, why=why)
    return None


def _publish(snapshot: Snapshot, member: Member, changed: frozenset[str]) -> Verdict:
    label = ACCOUNTS[OPERATOR_USER]
    old = [one.name for one, it in snapshot.topology.answering if it.accepted.get(label, label) != label]
    if label in changed and old:
        return Wait("PasswordsSpreading", f"{', '.join(old)} does not take the new password yet", after=0.5)
    if ACCOUNTS[REPLICATION] in changed and (verdict := _turn(snapshot, member)):
        return verdict
    return PublishPasswords(why=f"every server takes {', '.join(sorted(changed))}")


def _turn(snapshot: Snapshot, member: Member) -> Verdict | None:
    """One replica after another begins to use the new password, each once all of the ack set have caught up.

    MariaDB drops what a replica received and did not apply then: until it has received that again, it speaks for nothing.
    """
    used = (_known(snapshot).get(_REPLICATION) or AccountResult()).used_by or ()
    late = [one for one, it in snapshot.replicas if snapshot.healthy(one, it) and one.name not in used]
    if not late:
        return None
    if behind := sorted(snapshot.ack_set - {one.name for one, _ in snapshot.votes} - {member.name}):
        return Wait("PasswordsSpreading", f"{', '.join(behind)} has not caught up yet", after=0.5)
    one = late[0]
    status = records.unsynced(snapshot.status, [one.name])
    return Follow(
        targets=(target_of(one),),
        source=target_of(member),
        source_host=snapshot.host(member.name),
        acking=snapshot.ack_set & {one.name},
        again=True,
        first=status if status != snapshot.status else None,
        why=f"{one.name} is to connect with the new password",
    )


def turned(status: MySQLClusterStatus, move: Follow) -> MySQLClusterStatus:
    """The status once a replica connects with the new password."""
    known = (status.accounts or {}).get(_REPLICATION) or AccountResult(state="Changing")
    names = {*(known.used_by or ()), *(one.name for one in move.targets)}
    result = replace(known, used_by=sorted(names))
    return replace(status, accounts={**(status.accounts or {}), _REPLICATION: result})


def _key(one: tuple[str, str, str]) -> str:
    return f"{one[0]}@{one[1]}"


# --- declared ones ---------------------------------------------------------------------------------------


def _users(snapshot: Snapshot, member: Member, found: Accounts) -> Verdict | None:
    for user in snapshot.wanted.users:
        if user.missing or _failed(snapshot, user.key):
            continue
        if verdict := _user(snapshot, member, user, found.users.get(user.key)):
            return verdict
    return None


def _user(snapshot: Snapshot, member: Member, user: WantedUser, there: Account | None) -> Verdict | None:
    target = target_of(member)
    if there is None:
        statements = tuple(create_user(user))
        return Amend(primary=target, subject=user.key, statements=statements, why=f"{user.key} is declared")
    one = ((user.name, user.host, user.label),)
    if there.password is False:
        return SetPasswords(
            primary=target,
            accounts=one,
            subject=user.key,
            first=_changing(snapshot, user.key),
            why=f"{user.key} is to have another password",
        )
    if there.spare and user.key in _known(snapshot) and _is_over(snapshot, user.key):
        why = f"{user.key}: the old password stops to count"
        return SetPasswords(primary=target, accounts=one, beside=False, subject=user.key, why=why)
    if statements := tuple(corrections(user, there)):
        why = f"{user.key} differs from what is declared"
        return Amend(primary=target, subject=user.key, statements=statements, why=why)
    return None


def _databases(snapshot: Snapshot, member: Member, found: Accounts) -> Verdict | None:
    for one in snapshot.wanted.databases:
        if one.name not in found.databases and not _failed(snapshot, one.name, of="databases"):
            return Amend(
                primary=target_of(member),
                subject=one.name,
                statements=(create_database(one),),
                why=f"the database {one.name} is declared",
            )
    return None


# --- what became of them ---------------------------------------------------------------------------------


def _known(snapshot: Snapshot) -> dict[str, AccountResult]:
    return snapshot.status.accounts or {}


def _is_over(snapshot: Snapshot, key: str) -> bool:
    """Two passwords have counted long enough."""
    known = _known(snapshot).get(key)
    return known is None or known.state != "Changing" or _age(snapshot, known) >= GRACE


def _failed(snapshot: Snapshot, key: str, *, of: str = "accounts") -> bool:
    known = ((snapshot.status.accounts if of == "accounts" else snapshot.status.databases) or {}).get(key)
    return known is not None and known.state == "Failed" and _age(snapshot, known) < GRACE


def _age(snapshot: Snapshot, one: AccountResult) -> float:
    return (snapshot.now - one.since).total_seconds() if one.since is not None else float("inf")


def _changing(snapshot: Snapshot, *keys: str) -> MySQLClusterStatus:
    results = {key: AccountResult(state="Changing", since=snapshot.now) for key in keys}
    return replace(snapshot.status, accounts={**_known(snapshot), **results})


def _results(snapshot: Snapshot, found: Accounts) -> Verdict | None:
    """Record what became of everything declared, and of own passwords while two of them count."""
    users: dict[str, AccountResult] = {}
    for user in snapshot.wanted.users:
        there = found.users.get(user.key)
        if user.missing:
            users[user.key] = AccountResult(state="SecretMissing", message=user.missing)
        elif _failed(snapshot, user.key):
            users[user.key] = _known(snapshot)[user.key]
        else:
            users[user.key] = AccountResult(state="Changing" if there and there.spare else "Applied")
    for name, host in OWN:
        key = f"{name}@{host}"
        if key in found.users and found.users[key].spare:
            users[key] = AccountResult(state="Changing")
    databases: dict[str, AccountResult] = {}
    for one in snapshot.wanted.databases:
        if _failed(snapshot, one.name, of="databases"):
            databases[one.name] = (snapshot.status.databases or {})[one.name]
            continue
        message = unlike(one, found.databases.get(one.name, ("", "")))
        databases[one.name] = AccountResult(state="Differs" if message else "Applied", message=message)
    status = replace(
        snapshot.status,
        accounts=_dated(snapshot, users, snapshot.status.accounts),
        databases=_dated(snapshot, databases, snapshot.status.databases),
    )
    if status == snapshot.status:
        return None
    return Record(status=status, why="what became of accounts and databases")


def _dated(
    snapshot: Snapshot, made: dict[str, AccountResult], before: dict[str, AccountResult] | None
) -> dict[str, AccountResult] | None:
    """An entry keeps its time while nothing else about it changes."""
    dated = {}
    for key, one in made.items():
        known = (before or {}).get(key)
        same = known is not None and (known.state, known.message) == (one.state, one.message)
        dated[key] = known if same and known is not None else replace(one, since=snapshot.now)
    return dated or None


# --- certificates ----------------------------------------------------------------------------------------


def certificates(snapshot: Snapshot, member: Member, server: Server) -> Verdict | None:
    """Have servers read a certificate that was renewed; those that show none start with one when they are rolled."""
    wanted = snapshot.wanted.certificate
    late = [
        one
        for one, it in snapshot.topology.answering
        if wanted and it.certificate and it.certificate != wanted and not one.pod.terminating
    ]
    if not late:
        return None
    names = ", ".join(one.name for one in late)
    return ReloadCertificates(
        targets=tuple(target_of(one) for one in late),
        certificate=wanted,
        why=f"{names}: the certificate was renewed",
    )
