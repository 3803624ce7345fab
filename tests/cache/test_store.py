"""The store's one rule, trap by trap, and against a model with random histories."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooring.cache.store import Store, Transition
from mooring.kube import Key
from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta, OwnerReference

A = Key("default", "a")


def config_map(
    version: int,
    *,
    name: str = "a",
    uid: str = "u1",
    labels: dict[str, str] | None = None,
    namespace: str = "default",
    owner: str = "",
) -> ConfigMap:
    owners = [OwnerReference(uid=owner, controller=True, kind="X", name="x")] if owner else None
    return ConfigMap(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid,
            resource_version=str(version),
            labels=labels,
            owner_references=owners,
        )
    )


def synced(*objects: ConfigMap, version: int = 10) -> Store[ConfigMap]:
    store: Store[ConfigMap] = Store()
    store.replace(objects, version)
    return store


def version_in(store: Store[ConfigMap], key: Key = A) -> int | None:
    obj = store.get(key)
    return None if obj is None else int(obj.metadata.resource_version or 0)


def test_versions_are_compared_as_numbers() -> None:
    store = synced(config_map(9))
    assert store.apply(config_map(100), "watch") is not None
    assert version_in(store) == 100


def test_an_older_event_changes_nothing_whatever_its_uid() -> None:
    store = synced(config_map(20), version=20)
    assert store.apply(config_map(15, uid="older"), "watch") is None
    assert store.remove(config_map(15, uid="older")) is None
    assert version_in(store) == 20


def test_the_event_of_our_own_write_is_no_second_transition() -> None:
    store = synced(config_map(5))
    change = store.apply(config_map(12), "write")
    assert change == Transition(A, config_map(5), config_map(12), "write")
    assert store.apply(config_map(12), "watch") is None


def test_a_third_partys_edit_shows_in_the_transition_of_our_write() -> None:
    # Someone adds a label at 11, our status write is answered at 12: the event at 11 will look old.
    store = synced(config_map(5))
    change = store.apply(config_map(12, labels={"theirs": "1"}), "write")
    assert change is not None
    assert change.old is not None
    assert change.new is not None
    assert (change.old.metadata.labels, change.new.metadata.labels) == (None, {"theirs": "1"})
    assert store.apply(config_map(11, labels={"theirs": "1"}), "watch") is None


def test_a_create_whose_deletion_was_seen_first_leaves_no_ghost() -> None:
    store = synced(version=10)
    store.apply(config_map(11), "watch")
    store.remove(config_map(12))
    assert store.apply(config_map(11), "write") is None
    assert store.get(A) is None


def test_a_create_answered_before_the_first_list_is_seen() -> None:
    store: Store[ConfigMap] = Store()
    assert store.apply(config_map(11), "write") is not None
    assert store.replace([], 10) == [], "the list is older than the object"
    assert version_in(store) == 11


def test_what_we_deleted_stays_gone_for_every_late_event_of_it() -> None:
    store = synced(config_map(5))
    change = store.gone(A, "u1")
    assert change is not None
    assert change.new is None
    assert store.apply(config_map(11), "watch") is None
    assert store.replace([config_map(11)], 11) == []
    assert store.get(A) is None
    assert store.remove(config_map(12)) is None


def test_a_successor_of_what_we_deleted_appears() -> None:
    store = synced(config_map(5))
    store.gone(A, "u1")
    assert store.apply(config_map(14, uid="u2"), "watch") is not None
    assert store.remove(config_map(13)) is None, "the late deletion of the old one does not touch it"
    assert version_in(store) == 14


def test_the_answer_to_a_delete_does_not_touch_a_newer_object_of_that_name() -> None:
    store = synced(config_map(20, uid="u2"), version=20)
    assert store.gone(A, "u1") is None
    assert version_in(store) == 20


def test_tombstones_are_forgotten() -> None:
    store = synced(config_map(5))
    store.gone(A, "u1")
    store.remove(config_map(12))
    assert not store._tombstones
    store = synced(config_map(5))
    store.gone(A, "u1")
    store.replace([], 12)
    assert not store._tombstones


def test_a_relist_synthesises_what_was_missed() -> None:
    store = synced(config_map(5), config_map(6, name="b"), config_map(7, name="c"))
    changes = store.replace([config_map(5), config_map(15, name="c"), config_map(16, name="d")], 20)
    found = {change.key.name: (change.new is not None, change.final_state_unknown) for change in changes}
    assert found == {"b": (False, True), "c": (True, False), "d": (True, False)}


def test_a_relist_replaces_an_object_of_the_same_name() -> None:
    store = synced(config_map(5))
    (change,) = store.replace([config_map(15, uid="u2")], 20)
    assert change.old is not None
    assert change.new is not None
    assert (change.old.metadata.uid, change.new.metadata.uid) == ("u1", "u2")


def test_a_list_from_the_past_is_refused_unless_the_server_was_restored() -> None:
    store = synced(config_map(30), version=30)
    with pytest.raises(ValueError, match="older"):
        store.replace([config_map(5)], 10)
    store.replace([config_map(5)], 10, reset=True)
    assert version_in(store) == 5
    assert store.apply(config_map(11), "watch") is not None


def test_a_relist_keeps_the_last_sound_state_of_what_it_cannot_read() -> None:
    store = synced(config_map(5))
    assert store.replace([], 20, keep=[A]) == []
    assert version_in(store) == 5


def test_a_filtered_store_lets_go_of_what_our_write_moved_out() -> None:
    store: Store[ConfigMap] = Store(selects=lambda obj: (obj.metadata.labels or {}).get("in") == "1")
    store.replace([config_map(5, labels={"in": "1"})], 10)
    change = store.apply(config_map(12, labels={"in": "0"}), "write")
    assert change is not None
    assert change.new is None
    assert store.apply(config_map(11, labels={"in": "1"}), "watch") is None, "older than the write"
    assert store.apply(config_map(13, labels={"in": "1"}), "watch") is not None, "it came back"


def test_indexes_follow_every_change() -> None:
    store = synced(config_map(5, owner="o1"), config_map(6, name="b", namespace="other"))
    store.add_index("name", lambda obj: [obj.metadata.name or ""])
    assert [o.metadata.name for o in store.by_index("owner", "o1")] == ["a"]
    assert [o.metadata.name for o in store.by_index("namespace", "other")] == ["b"]
    store.apply(config_map(12, owner="o2", labels={"x": "1"}), "watch")
    assert store.by_index("owner", "o1") == []
    assert [o.metadata.name for o in store.by_index("label:x", "1")] == ["a"]
    store.remove(config_map(13))
    assert store.by_index("owner", "o2") == []
    assert store.by_index("name", "a") == []
    with pytest.raises(KeyError, match="add_index"):
        store.by_index("nope", "x")


# --- against a model: whatever order news arrives in, readers never go back and end up with the truth


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, ConfigMap]]:
    """Versions of one name on the server: created, changed, deleted, created anew."""
    events: list[tuple[str, ConfigMap]] = []
    version, uid, alive = 10, 0, False
    for _ in range(draw(st.integers(1, 12))):
        version += draw(st.integers(1, 3))
        if not alive:
            uid, alive = uid + 1, True
            events.append(("ADDED", config_map(version, uid=f"u{uid}")))
        elif draw(st.booleans()):
            events.append(("MODIFIED", config_map(version, uid=f"u{uid}")))
        else:
            alive = False
            events.append(("DELETED", config_map(version, uid=f"u{uid}")))
    return events


@settings(max_examples=300, deadline=None)
@given(histories(), st.data())
def test_late_and_early_write_answers_never_change_the_outcome(
    history: list[tuple[str, ConfigMap]], data: st.DataObject
) -> None:
    store: Store[ConfigMap] = Store()
    store.replace([], 10)
    newest = 0
    # Each write may be answered at any moment relative to the watch; the watch itself is in order.
    answers = [event for event in history if data.draw(st.booleans())]
    pending = list(history)
    while pending or answers:
        take_answer = bool(answers) and (not pending or data.draw(st.booleans()))
        kind, obj = answers.pop(0) if take_answer else pending.pop(0)
        if kind != "DELETED":
            store.apply(obj, "write" if take_answer else "watch")
        elif take_answer:
            store.gone(A, obj.metadata.uid or "")
        else:
            store.remove(obj)
        seen = version_in(store)
        assert seen is None or seen >= newest, "a reader went back in time"
        newest = max(newest, seen or 0)
        if data.draw(st.integers(0, 9)) == 0 and store.last_version > 10:
            at = store.last_version
            state = [e for e in history if int(e[1].metadata.resource_version or 0) <= at]
            store.replace([state[-1][1]] if state and state[-1][0] != "DELETED" else [], at)
    kind, last = history[-1]
    assert store.get(A) == (None if kind == "DELETED" else last)
