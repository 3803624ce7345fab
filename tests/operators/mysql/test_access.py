"""Certificates that servers show, accounts, databases and passwords, as the planner sees them."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from msgspec.structs import replace as set_fields
from tests.operators.mysql.builders import NOW, Scene, ago, at, healthy

from mooring.operators.mysql.access import GRACE, turned
from mooring.operators.mysql.accounts import (
    BACKUP_RIGHTS,
    WITHHELD,
    Account,
    Accounts,
    WantedDatabase,
    WantedUser,
    corrections,
    create_user,
    privileges,
)
from mooring.operators.mysql.credentials import OWN
from mooring.operators.mysql.moves import (
    Amend,
    Follow,
    InSync,
    PublishPasswords,
    Record,
    ReloadCertificates,
    SetPasswords,
    Wait,
)
from mooring.operators.mysql.passwords import _crypt, matches, ways
from mooring.operators.mysql.types import AccountResult

OLD, NEW = "Jan  2 15:04:05 2026 GMT", "Mar  2 15:04:05 2026 GMT"


def showing(scene: Scene, wanted: str, **shown: str) -> Scene:
    """The scene with TLS; ``shown`` is what servers show by pod, with an underscore for the hyphen."""
    members = dict(scene.members)
    for name, certificate in shown.items():
        member = members[name.replace("_", "-")]
        assert member.server is not None
        members[member.name] = replace(member, server=replace(member.server, certificate=certificate))
    return replace(scene, wanted=replace(scene.wanted, certificate=wanted), members=members)


def test_servers_read_a_renewed_certificate_without_a_restart() -> None:
    move = showing(healthy(), NEW, demo_0=NEW, demo_1=OLD, demo_2=OLD).decide()
    assert isinstance(move, ReloadCertificates)
    assert [one.name for one in move.targets] == ["demo-1", "demo-2"]
    assert move.certificate == NEW


def test_nothing_is_reloaded_once_all_show_it_or_where_a_server_has_none() -> None:
    assert not isinstance(
        showing(healthy(), NEW, demo_0=NEW, demo_1=NEW, demo_2="").decide(), ReloadCertificates
    )
    assert not isinstance(showing(healthy(), "", demo_0=OLD).decide(), ReloadCertificates)


# --- accounts --------------------------------------------------------------------------------------------

SHOP = WantedUser(name="shop", label="user-0", grants=("ALL ON shop.*",))
THERE = Account(password=True, grants=privileges(SHOP.grants or ()))


def with_accounts(
    scene: Scene,
    *users: WantedUser,
    there: dict[str, Account] | None = None,
    databases: tuple[WantedDatabase, ...] = (),
    has: dict[str, tuple[str, str]] | None = None,
    changed: frozenset[str] = frozenset(),
    results: dict[str, AccountResult] | None = None,
) -> Scene:
    """The scene with declared accounts and databases, and what the primary has of them."""
    return replace(
        scene,
        wanted=replace(scene.wanted, users=users, databases=databases),
        accounts=Accounts(users=there or {}, databases=has or {}),
        observed=replace(scene.observed, changed_passwords=changed),
        status=set_fields(scene.status, accounts=results),
    )


def test_a_declared_account_is_made_with_its_privileges_and_without_its_password_in_the_text() -> None:
    move = with_accounts(healthy(), SHOP).decide()
    assert isinstance(move, Amend)
    assert move.subject == "shop@%"
    assert move.statements == (
        "CREATE USER IF NOT EXISTS 'shop'@'%' IDENTIFIED BY %(user-0)s",
        "GRANT ALL PRIVILEGES ON `shop`.* TO 'shop'@'%'",
    )


def test_an_account_that_is_as_declared_is_noted_once_and_left_alone() -> None:
    scene = with_accounts(healthy(), SHOP, there={"shop@%": THERE})
    move = scene.decide()
    assert isinstance(move, Record)
    assert move.status.accounts == {"shop@%": AccountResult(state="Applied", since=NOW)}
    assert isinstance(replace(scene, status=move.status).decide(), InSync)


def test_what_somebody_granted_or_revoked_is_corrected() -> None:
    there = Account(password=True, grants=privileges(["SELECT ON shop.*", "INSERT ON sys.*"]))
    move = with_accounts(healthy(), SHOP, there={"shop@%": there}).decide()
    assert isinstance(move, Amend)
    assert move.statements == (
        "GRANT ALL PRIVILEGES ON `shop`.* TO 'shop'@'%'",
        "REVOKE INSERT ON `sys`.* FROM 'shop'@'%'",
    )


def test_nothing_is_amended_while_the_declaration_is_refused() -> None:
    scene = with_accounts(healthy(), SHOP, databases=(WantedDatabase(name="shop"),)).want(sound=False)
    assert isinstance(scene.decide(), InSync)
    assert isinstance(scene.want(sound=True).decide(), Amend)
    own_ones = with_accounts(healthy(), there=own(password=False), changed=CHANGED).want(sound=False)
    assert isinstance(own_ones.decide(), SetPasswords)


@pytest.mark.parametrize(
    ("declared", "has", "statements"),
    [
        (  # what cannot be granted is refused before anything is taken away
            "INSERT ON shop.*",
            "SELECT ON shop.*",
            ["GRANT INSERT ON `shop`.* TO 'shop'@'%'", "REVOKE SELECT ON `shop`.* FROM 'shop'@'%'"],
        ),
        (  # to revoke all takes what was granted before it
            "SELECT ON shop.*",
            "ALL ON shop.* WITH GRANT OPTION",
            [
                "GRANT SELECT ON `shop`.* TO 'shop'@'%'",
                "REVOKE ALL PRIVILEGES ON `shop`.* FROM 'shop'@'%'",
                "REVOKE GRANT OPTION ON `shop`.* FROM 'shop'@'%'",
                "GRANT SELECT ON `shop`.* TO 'shop'@'%'",
            ],
        ),
        (  # and so does the same privilege on the whole table
            "SELECT (id) ON shop.t",
            "SELECT ON shop.t",
            [
                "GRANT SELECT (`id`) ON `shop`.`t` TO 'shop'@'%'",
                "REVOKE SELECT ON `shop`.`t` FROM 'shop'@'%'",
                "GRANT SELECT (`id`) ON `shop`.`t` TO 'shop'@'%'",
            ],
        ),
        ("ALL, SELECT ON shop.*", "ALL ON shop.*", []),
    ],
)
def test_privileges_are_given_before_others_are_taken_away(
    declared: str, has: str, statements: list[str]
) -> None:
    there = Account(password=True, grants=privileges([has]))
    assert corrections(replace(SHOP, grants=(declared,)), there) == statements


def test_nobody_gets_by_all_privileges_what_lets_him_write_to_a_replica() -> None:
    user = replace(SHOP, grants=("ALL ON *.*",), withheld=WITHHELD["mariadb"])
    grant = "GRANT ALL PRIVILEGES ON *.* TO 'shop'@'%'"
    revoke = "REVOKE READ ONLY ADMIN ON *.* FROM 'shop'@'%'"
    assert create_user(user)[1:] == [grant, revoke]
    listed = frozenset(f"RIGHT {number}" for number in range(30))
    for there, statements in (
        (frozenset({"ALL PRIVILEGES"}), [revoke]),
        (listed | {"READ ONLY ADMIN"}, [revoke]),
        (listed, []),
    ):
        assert corrections(user, Account(password=True, grants={"*.*": there})) == statements
    asked = replace(user, grants=("READ ONLY ADMIN ON *.*",))
    assert corrections(asked, Account(password=True, grants=privileges(asked.grants or ()))) == []


def test_another_password_is_set_beside_the_old_one_which_ends_after_a_while() -> None:
    other = replace(THERE, password=False)
    move = with_accounts(healthy(), SHOP, there={"shop@%": other}).decide()
    assert isinstance(move, SetPasswords)
    assert (move.accounts, move.beside) == ((("shop", "%", "user-0"),), True)
    assert move.first is not None
    results = move.first.accounts
    assert results == {"shop@%": AccountResult(state="Changing", since=NOW)}
    both = replace(THERE, spare=True)
    assert isinstance(
        with_accounts(healthy(), SHOP, there={"shop@%": both}, results=results).decide(), InSync
    )
    old = {"shop@%": AccountResult(state="Changing", since=ago(GRACE))}
    end = with_accounts(healthy(), SHOP, there={"shop@%": both}, results=old).decide()
    assert isinstance(end, SetPasswords)
    assert not end.beside


def test_a_missing_secret_is_named_and_holds_up_no_other_account() -> None:
    missing = WantedUser(name="other", missing="Secret s does not exist; create it")
    first = with_accounts(healthy(), missing, SHOP).decide()
    assert isinstance(first, Amend)
    assert first.subject == "shop@%"
    noted = with_accounts(healthy(), missing, SHOP, there={"shop@%": THERE}).decide()
    assert isinstance(noted, Record)
    assert (noted.status.accounts or {})["other@%"].message == "Secret s does not exist; create it"


def test_an_account_that_failed_holds_up_nothing_and_is_tried_again_later() -> None:
    failed = {"shop@%": AccountResult(state="Failed", message="error 1410", since=ago(10))}
    assert isinstance(with_accounts(healthy(), SHOP, results=failed).decide(), InSync)
    failed = {"shop@%": AccountResult(state="Failed", message="error 1410", since=ago(GRACE))}
    assert isinstance(with_accounts(healthy(), SHOP, results=failed).decide(), Amend)


def test_a_database_is_made_and_one_with_other_contents_is_named_and_left() -> None:
    shop, bin_ = WantedDatabase(name="shop"), WantedDatabase(name="bin", collation="utf8mb4_bin")
    has = {"bin": ("latin1", "latin1_swedish_ci")}
    made = with_accounts(healthy(), databases=(shop, bin_), has=has).decide()
    assert isinstance(made, Amend)
    assert made.statements == ("CREATE DATABASE IF NOT EXISTS `shop` CHARACTER SET utf8mb4",)
    has["shop"] = ("utf8mb4", "utf8mb4_general_ci")
    noted = with_accounts(healthy(), databases=(shop, bin_), has=has).decide()
    assert isinstance(noted, Record)
    results = noted.status.databases or {}
    assert results["shop"].state == "Applied"
    assert results["bin"].state == "Differs"
    assert "latin1_swedish_ci, not utf8mb4_bin; correct spec.databases" in results["bin"].message


def test_the_account_of_backups_is_made_where_a_cluster_has_none() -> None:
    without = healthy().server("demo-0", backup_account=False)
    move = without.decide()
    assert isinstance(move, Amend)
    made, granted = move.statements
    assert made == "CREATE USER IF NOT EXISTS 'mooring_backup'@'%' IDENTIFIED BY %(backup-password)s"
    assert granted.startswith("GRANT BINLOG MONITOR, EVENT, LOCK TABLES, PROCESS, RELOAD, SELECT, ")
    assert granted.endswith(" ON *.* TO 'mooring_backup'@'%'")
    failed = AccountResult(state="Failed", message="no", since=ago(GRACE - 1))
    assert isinstance(without.record(accounts={"mooring_backup@%": failed}).decide(), InSync)
    assert not isinstance(without.server("demo-0", read_only=True).decide(), Amend)


@pytest.mark.parametrize("flavor", ["mariadb", "mysql"])
def test_the_account_of_backups_can_write_nothing(flavor: str) -> None:
    rights = {one.strip() for one in BACKUP_RIGHTS[flavor].split(",")}
    assert not rights & {
        "ALL PRIVILEGES",
        "INSERT",
        "UPDATE",
        "DELETE",
        "CREATE",
        "DROP",
        "ALTER",
        "SUPER",
        "CREATE USER",
    }
    assert not [one for one in rights if one.endswith(" ADMIN") or "READ ONLY" in one]


def test_accounts_wait_while_no_write_gets_through() -> None:
    scene = healthy()
    alone = replace(scene, members={name: one for name, one in scene.members.items() if name == "demo-0"})
    assert not isinstance(with_accounts(alone, SHOP).decide(), Amend)


# --- the operator's own passwords ------------------------------------------------------------------------

CHANGED = frozenset({"operator-password", "replication-password"})


def own(*, password: bool, spare: bool = False) -> dict[str, Account]:
    return {f"{name}@{host}": Account(password=password, spare=spare) for name, host in OWN}


def test_a_changed_password_is_accepted_beside_the_old_one_before_anything_uses_it() -> None:
    move = with_accounts(healthy(), there=own(password=False), changed=CHANGED).decide()
    assert isinstance(move, SetPasswords)
    assert [one[0] for one in move.accounts] == ["mooring", "mooring_replication"]
    assert move.beside


def test_it_is_in_force_once_every_server_takes_it_and_replicas_use_it() -> None:
    scene = with_accounts(healthy(), there=own(password=True, spare=True), changed=CHANGED)
    for name in ("demo-1", "demo-2"):
        move = scene.decide()
        assert isinstance(move, Follow)
        assert move.again
        assert [one.name for one in move.targets] == [name]
        assert move.first is not None
        scene = replace(scene, status=turned(move.first, move))
        assert not (scene.status.members or {})[name].synced
        scene = scene.settled()
        assert (scene.status.members or {})[name].synced
    assert isinstance(scene.decide(), PublishPasswords)


def test_the_next_replica_turns_to_a_new_password_once_the_one_before_has_caught_up() -> None:
    scene = with_accounts(healthy(), there=own(password=True, spare=True), changed=CHANGED)
    first = scene.decide()
    assert isinstance(first, Follow)
    assert first.first is not None
    scene = replace(scene, status=turned(first.first, first), before=at("0-10-101"))
    scene = scene.has("demo-2", "0-10-101").pod("demo-1", role="")
    waiting = scene.decide()
    assert isinstance(waiting, Wait)
    assert waiting.message == "demo-1 has not caught up yet"
    second = scene.has("demo-1", "0-10-101").pod("demo-1", role="replica").settled().decide()
    assert isinstance(second, Follow)
    assert second.targets[0].name == "demo-2"


def test_new_passwords_are_not_in_force_before_every_server_takes_the_operators() -> None:
    scene = with_accounts(healthy(), there=own(password=True, spare=True), changed=CHANGED)
    late = dict(scene.members)
    member = late["demo-2"]
    assert member.server is not None
    taken = {"operator-password": "operator-password-previous"}
    late["demo-2"] = replace(member, server=replace(member.server, accepted=taken))
    waiting = replace(scene, members=late).decide()
    assert isinstance(waiting, Wait)
    assert waiting.reason == "PasswordsSpreading"


def test_the_old_password_stops_to_count_after_a_while() -> None:
    results = {f"{name}@{host}": AccountResult(state="Changing", since=ago(GRACE)) for name, host in OWN}
    scene = with_accounts(healthy(), there=own(password=True, spare=True), results=results)
    move = scene.decide()
    assert isinstance(move, SetPasswords)
    assert (len(move.accounts), move.beside) == (len(OWN), False)
    done = replace(scene, accounts=Accounts(users=own(password=True))).decide()
    assert isinstance(done, Record)
    assert done.status.accounts is None


# --- privileges and stored passwords ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("declared", "shown"),
    [
        ("select, INSERT on shop.*", "GRANT INSERT, SELECT ON `shop`.* TO `a`@`%`"),
        ("ALL ON shop.*", "GRANT ALL PRIVILEGES ON `shop`.* TO 'a'@'%'"),
        ("SELECT (b, a), UPDATE ON s.t", "GRANT SELECT (`a`, `b`), UPDATE ON `s`.`t` TO `a`@`%`"),
        ("PROCESS ON *.* WITH GRANT OPTION", "GRANT PROCESS ON *.* TO `a`@`%` WITH GRANT OPTION"),
        ("EXECUTE ON PROCEDURE s.p", "GRANT EXECUTE ON PROCEDURE `s`.`p` TO `a`@`%`"),
    ],
)
def test_privileges_are_compared_by_their_meaning(declared: str, shown: str) -> None:
    usage = "GRANT USAGE ON *.* TO `a`@`%` IDENTIFIED BY PASSWORD '*0'"
    assert privileges([declared]) == privileges([usage, shown])


def test_all_privileges_that_a_server_lists_one_by_one_are_all_privileges() -> None:
    there = Account(password=True, grants={"*.*": frozenset(f"RIGHT {number}" for number in range(30))})
    user = replace(SHOP, grants=("ALL ON *.*",))
    assert corrections(user, there) == []


def test_what_a_server_stores_tells_whether_it_is_the_declared_password() -> None:
    native = "*" + hashlib.sha1(hashlib.sha1(b"secret").digest()).hexdigest().upper()
    assert matches("mysql_native_password", native, "secret") is True
    assert matches("mysql_native_password", native, "other") is False
    assert matches("unix_socket", "", "secret") is None


def test_the_sha256_form_is_that_of_crypt() -> None:
    salt = "saltstringsaltstring"
    stored = f"$A$005${salt}{_crypt(b'Hello world!', salt.encode(), 5000)}"
    assert _crypt(b"Hello world!", b"saltstring", 5000) == "5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5"
    assert matches("caching_sha2_password", stored, "Hello world!") is True
    assert matches("caching_sha2_password", stored, "Hello world") is False
    assert matches("caching_sha2_password", "$A$", "x") is None


def test_every_way_into_an_account_is_read() -> None:
    one = {"plugin": "mysql_native_password", "authentication_string": "*1"}
    assert ways(one) == [("mysql_native_password", "*1")]
    several = {**one, "auth_or": [{"plugin": "unix_socket"}, {}]}
    assert ways(several) == [("unix_socket", ""), ("mysql_native_password", "*1")]
