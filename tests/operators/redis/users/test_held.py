"""What the cluster's Secret keeps of users, and what pods make of it at their start."""

from __future__ import annotations

import base64

from msgspec.structs import replace
from tests.operators.redis.sentinel.builders import healthy
from tests.operators.redis.users.scene import ACCOUNTS, OFF, Scene, declared, hashes

from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.redis.pods import AUTH_FILES, auth_volume, password_entries
from mooring.operators.redis.sentinel.saved import dump, load
from mooring.operators.redis.users.accounts import CLUSTER, DEFAULT, SENTINEL
from mooring.operators.redis.users.held import ENTRY, Access, Held, first, held_in, start_lines
from mooring.operators.redis.users.inputs import accounts_in, closes, read_access
from mooring.operators.redis.users.plan import state_of
from mooring.operators.redis.users.template import inputs_of, ready, takes_users
from mooring.operators.redis.users.types import DefaultUserSpec
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod

KEPT = Kept(password="of-all", accounts=ACCOUNTS)
RESTRICTED = DefaultUserSpec(mode="Restricted", rules=["~a", "+get"])


def settled(**how: object) -> Access:
    scene = Scene(users=[declared()], **how)  # type: ignore[arg-type]
    scene.settle()
    return scene.access


def secret_of(access: Access) -> core.Secret:
    return core.Secret(data=password_entries(KEPT, access))


def lines(access: Access, kept: Kept = KEPT) -> list[str]:
    return start_lines(access, kept).splitlines()


def test_the_secret_gives_back_what_it_was_given() -> None:
    access = settled(default=OFF)
    assert held_in(secret_of(access)) == access.held
    assert held_in(None) == Held()
    assert held_in(core.Secret(data={ENTRY: base64.b64encode(b"no json").decode()})) == Held()


def test_without_users_the_secret_is_as_it_always_was() -> None:
    entries = password_entries(Kept(password="of-all"), Access())
    assert set(entries) == {"exporter.json", "password"}


def test_a_start_reads_hashes_and_no_password_but_that_of_replicas() -> None:
    found = lines(settled(default=OFF))
    assert f"user {DEFAULT} off" in found
    assert [one.split()[1] for one in found if one.startswith("user ")] == [*ACCOUNTS, "app", DEFAULT]
    (app,) = [one for one in found if one.startswith("user app ")]
    assert app == f"user app on #{hashes('first').pop()} ~* +@read"
    plain = [one for one in found if any(text in one for text in ("first", *ACCOUNTS.values()))]
    assert plain == [f'masterauth "{ACCOUNTS["mooring-replica"]}"']


def test_a_restricted_default_user_starts_with_the_password_in_force() -> None:
    (found,) = [one for one in lines(settled(default=RESTRICTED)) if one.startswith("user default ")]
    assert found == f"user default on #{hashes('of-all').pop()} ~a +get"
    changed = Kept(password="another", accounts=ACCOUNTS)
    (found,) = [one for one in lines(settled(default=RESTRICTED), changed) if one.startswith("user default ")]
    assert f"#{hashes('another').pop()}" in found


def test_a_new_cluster_whose_default_user_is_restricted_starts_with_it_off() -> None:
    access = Scene(users=[declared()], default=RESTRICTED).access
    new = Access(managed=True, wanted=access.wanted, hashes=access.hashes, held=first(access.wanted))
    assert "user default off" in lines(new)
    assert "masteruser mooring-replica" in lines(new)


def test_replicas_do_not_present_an_account_before_servers_know_it() -> None:
    access = Scene(users=[declared()]).access
    assert not any(one.startswith("masteruser") for one in lines(access))


def test_accounts_are_made_when_users_are_declared_for_the_first_time_and_then_stay() -> None:
    assert accounts_in(None, SENTINEL, declared=False) == {}
    made = accounts_in(None, CLUSTER, declared=True)
    assert set(made) == set(CLUSTER)
    assert len(set(made.values())) == len(CLUSTER)
    secret = core.Secret(data={name: base64.b64encode(text.encode()).decode() for name, text in made.items()})
    assert accounts_in(secret, CLUSTER, declared=False) == made


def test_while_the_declaration_is_wrong_servers_keep_what_they_have() -> None:
    access = settled(default=OFF)
    kept = read_access(
        [declared("default")],
        None,
        secret=secret_of(access),
        find=lambda name: None,
        accounts=ACCOUNTS,
        fresh=False,
        sound=False,
    )
    assert {one.name for one in kept.wanted} == {*ACCOUNTS, "app", DEFAULT}
    scene = Scene(users=[declared()], default=OFF)
    scene.settle()
    state = state_of(kept, ready=True, grace=60.0)
    assert all(one.same for one in state.held.values())


def test_nothing_secret_is_in_a_saved_decision() -> None:
    access = settled(default=OFF)
    scene = healthy().see(users=state_of(access, ready=True, grace=60.0))
    saved = dump(scene.snapshot)
    assert load(saved).observed.users == scene.snapshot.observed.users
    for text in ("first", *ACCOUNTS.values(), *hashes("first"), *hashes(*ACCOUNTS.values())):
        assert text.encode() not in saved


# --- templates ---


def set_with(template: core.PodTemplateSpec, inputs: str, revision: str = "") -> apps.StatefulSet:
    return apps.StatefulSet(
        metadata=ObjectMeta(annotations={"inputs": inputs}),
        spec=apps.StatefulSetSpec(template=template),
        status=apps.StatefulSetStatus(update_revision=revision),
    )


def template(*keys: str) -> core.PodTemplateSpec:
    return core.PodTemplateSpec(spec=core.PodSpec(volumes=[auth_volume("secret", *keys)], containers=[]))


OLD, NEW = template("password", "exporter.json"), template(*AUTH_FILES)


def test_pods_of_an_earlier_template_are_recreated_once_before_the_default_user_is_closed() -> None:
    def digest(live: apps.StatefulSet | None, *, of: DefaultUserSpec | None, also: str = "") -> str:
        return inputs_of(["image", also], live, "inputs", closes=closes(of))

    plain = digest(None, of=None)
    old = set_with(OLD, plain)
    assert not takes_users(OLD)
    assert digest(old, of=None) == plain
    asked = digest(old, of=OFF)
    assert asked != plain
    # Written, put back after a failure, and written for good: nothing of it is done twice.
    assert digest(set_with(NEW, asked), of=OFF) == asked
    assert digest(set_with(OLD, plain), of=OFF) == asked
    assert digest(set_with(NEW, asked), of=None) == asked
    # A cluster that begins with it, or comes by it with another change, has nothing to write.
    assert digest(None, of=OFF) == digest(set_with(NEW, plain), of=OFF) == plain
    other = digest(None, of=OFF, also="another")
    assert digest(set_with(NEW, other), of=OFF, also="another") == other


def test_the_default_user_waits_for_every_pod_of_an_earlier_template() -> None:
    live = set_with(NEW, "", revision="new")
    pods = [Pod(name=f"a-{at}", ordinal=at, revision="new") for at in range(2)]
    assert ready(live, pods)
    assert not ready(live, [*pods, Pod(name="a-2", ordinal=2, revision="old")])
    assert not ready(set_with(OLD, "", revision="new"), pods)
    assert not ready(None, pods)


def test_the_default_user_waits_until_the_controller_of_pods_has_seen_the_new_template() -> None:
    pods = [Pod(name=f"a-{at}", ordinal=at, revision="old") for at in range(2)]
    written = set_with(NEW, "", revision="old")
    written = replace(written, metadata=replace(written.metadata, generation=2))
    assert written.status is not None
    assert not ready(replace(written, status=replace(written.status, observed_generation=1)), pods)
    assert ready(replace(written, status=replace(written.status, observed_generation=2)), pods)
