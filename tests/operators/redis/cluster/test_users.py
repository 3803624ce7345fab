"""Users of a Redis Cluster, among everything else there is to do."""

from __future__ import annotations

from dataclasses import replace

from tests.operators.redis.cluster.builders import NOW, id_of, snapshot, whole
from tests.operators.redis.users.scene import OFF, Server, declared
from tests.operators.redis.users.scene import Scene as Users

from mooring.operators.backup import restore_rules
from mooring.operators.backup.outcome import Outcome
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.address import Address
from mooring.operators.redis.cluster.mover import Mover
from mooring.operators.redis.cluster.moves import InSync, MoveSlots, Promote, Target, Wait
from mooring.operators.redis.cluster.plan import next_step
from mooring.operators.redis.cluster.slots import Transfer
from mooring.operators.redis.cluster.snapshot import Snapshot
from mooring.operators.redis.cluster.topology import Seen
from mooring.operators.redis.cluster.users import change_users
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.users.accounts import OPERATOR, RULES
from mooring.operators.redis.users.moves import PresentAccount, SetUsers
from mooring.operators.redis.users.plan import state_of
from mooring.operators.workload.credentials import PasswordState

NAMES = tuple(f"demo-{at}" for at in range(6))
HERE = Target(name="demo-0", address=Address("10.0.0.1", 6379), id=id_of(0))


def users(*, settled: bool = True) -> Users:
    made = Users(users=[declared()], servers={name: Server() for name in NAMES})
    if settled:
        made.settle()
    return made


def with_users(made: Users, base: Snapshot | None = None) -> Snapshot:
    """The nodes have these users."""
    base = base or snapshot(whole())
    found = {one.name: one.users for one in made.answering}
    nodes = tuple(replace(one, users=found[one.name]) for one in base.seen.nodes)
    state = state_of(made.access, ready=made.ready, grace=60.0)
    return replace(base, seen=Seen(nodes=nodes), users=state, now=made.now)


def test_users_that_are_as_declared_leave_nothing_to_do() -> None:
    assert isinstance(next_step(with_users(users())), InSync)


def test_users_are_set_on_the_nodes_that_were_seen() -> None:
    made = users()
    made.servers["demo-4"].users.pop("app")
    move = next_step(with_users(made))
    assert isinstance(move, SetUsers)
    assert [(one.name, one.id) for one in move.targets] == [("demo-4", id_of(4))]


def test_there_is_no_account_of_sentinels_to_tell() -> None:
    moves = users(settled=False)
    seen = with_users(moves)
    assert isinstance(next_step(seen), SetUsers)
    made = users()
    made.servers["demo-1"].presents = False
    assert isinstance(next_step(with_users(made)), PresentAccount)


def test_users_come_before_slots_that_move_and_after_every_other_step() -> None:
    made = with_users(users(settled=False))
    transfer = Transfer(source=id_of(0), target=id_of(1), slots=1)
    slots = MoveSlots(transfer=transfer, source=HERE, target=HERE, masters=(), pipeline=10, why="test")
    assert isinstance(change_users(made, slots), SetUsers)
    promote = Promote(target=HERE, how="", why="test")
    assert change_users(made, promote) is promote
    founding = replace(made, recorded=replace(made.recorded, formed=False))
    assert change_users(founding, InSync()) == InSync()


def test_the_default_user_is_not_closed_while_the_password_changes() -> None:
    made = users()
    made.default = OFF
    seen = with_users(made)
    assert isinstance(change_users(seen, InSync()), SetUsers)
    changing = replace(seen, password=PasswordState(retired=True, published=NOW))
    assert change_users(changing, InSync()) == InSync()


def test_the_default_user_is_not_closed_while_a_restore_sends_keys_as_that_user() -> None:
    made = users()
    made.default = OFF
    seen = with_users(made)
    run = Outcome(job="j", purpose="restore", state="Running")
    status = RestoreStatus(phase="Running", tries=1, job="j", prefix="p", started_at=NOW)
    restoring = replace(seen, restore=restore_rules.Seen(status=status, run=run, now=NOW))
    assert isinstance(next_step(seen), SetUsers)
    verdict = next_step(restoring)
    assert isinstance(verdict, Wait)
    assert verdict.reason == "Restoring"


def test_an_old_password_is_waited_for() -> None:
    made = users()
    made.texts = {"one": "second"}
    made.settle()
    wait = next_step(with_users(made))
    assert isinstance(wait, Wait)
    assert (wait.reason, wait.after) == ("PasswordChanging", 60.0)


def test_keys_move_by_what_the_target_took() -> None:
    mover = Mover(dial=Dial(), password="of-all")
    assert mover._auth(HERE) == ["AUTH", "of-all"]
    mover.logins["demo-0"] = ("mooring-operator", "text")
    assert mover._auth(HERE) == ["AUTH2", "mooring-operator", "text"]
    assert Mover(dial=Dial())._auth(HERE) == []


def test_keys_move_to_a_server_whose_connection_rights_do_not_hold_all_that_is_asked_of_it() -> None:
    """Redis 6.0 has SELECT in @keyspace, and MIGRATE sends it before RESTORE-ASKING."""
    assert {"+select", "+restore-asking"} <= set(RULES[OPERATOR])
