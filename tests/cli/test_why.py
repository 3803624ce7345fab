"""`mooring why` for people: what serves, what is waited for, what would unblock it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mooring.cli.main import main
from mooring.cli.why import Warned, diagnosed, explained, kinds_of
from mooring.diagnosis import Diagnosis
from mooring.operators.redis.cluster import explain as cluster_explain
from mooring.operators.redis.sentinel import explain as sentinel_explain

SINCE = "2026-01-01T12:00:00Z"
NOW = datetime(2026, 1, 1, 13, 5, tzinfo=UTC)


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": SINCE}


def cluster(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "cart", "generation": 2}
    observed = {"observedGeneration": 2, "conditions": list(conditions), **status}
    return {"kind": "RedisCluster", "metadata": metadata, "status": observed}


SERVES = condition("Ready", "True", "Serving", "cart-0 leads")
RESTS = condition("Progressing", "False", "InSync", "everything is as declared")


def text(raw: dict[str, Any], *warnings: Warned, details: Iterable[str] = ()) -> str:
    return "\n".join(explained(raw, warnings, details, now=NOW))


def warned(ago: int, note: str, reason: str = "Failed") -> Warned:
    return Warned(NOW - timedelta(seconds=ago), reason, note)


def test_a_cluster_that_is_fine_is_said_to_be() -> None:
    said = text(cluster(SERVES, RESTS))
    assert "RedisCluster shop/cart" in said
    assert "Serves: cart-0 leads" in said
    assert "Nothing is in the way" in said


def test_what_needs_a_person_comes_with_reason_time_and_remedy() -> None:
    stalled = condition("Stalled", "True", "RollHalted", "cart-2 does not come up; correct spec.image")
    roll = {"redis": {"pod": "cart-2", "reason": "ErrImagePull", "message": "no such image"}}
    raw = cluster(SERVES, RESTS, stalled, rolls=roll)
    said = text(
        raw,
        warned(60, "cart-2 does not come up; correct spec.image"),
        warned(40, "once", "Evicted"),
        details=sentinel_explain.lines(raw["status"]),
    )
    assert f"Needs you: cart-2 does not come up; correct spec.image (RollHalted, since {SINCE})" in said
    assert "stopped at cart-2: ErrImagePull: no such image" in said
    assert "Warning, 40 s ago: Evicted: once" in said
    assert "ago: Failed" not in said


def test_no_sentence_is_there_twice() -> None:
    refused = "cart-2: no such image; correct spec.image"
    stalled = condition("Stalled", "True", "ErrImagePull", refused)
    unready = condition("Ready", "False", "ErrImagePull", refused)
    said = text(
        cluster(unready, RESTS, stalled),
        warned(60, refused, "ErrImagePull"),
        warned(50, "cart-2: no such image", "Failed"),
        warned(40, "once", "Evicted"),
        details=[f"PullImage failed 3 times: {refused}"],
    )
    assert said.count("no such image") == 1
    assert f"  DOES NOT SERVE; needs you: {refused} (ErrImagePull, since {SINCE})" in said
    assert "  PullImage failed 3 times\n" in said
    assert "Evicted: once" in said

    found = Diagnosis(code="ImageMissing", params={"pod": "cart-2", "image": "a"}, raw="no such image")
    assert not any("Said: " in line for line in diagnosed(found, "en", said))


def test_a_backup_is_not_said_to_serve() -> None:
    raw = cluster(condition("Ready", "False", "Running", "the backup is running"), RESTS)
    said = "\n".join(explained(raw, serves=False, now=NOW))
    assert "  Not ready: the backup is running" in said
    assert "SERVE" not in said
    assert "  Ready: done" in "\n".join(
        explained(cluster(condition("Ready", "True", "Done", "done"), RESTS), serves=False)
    )


def test_of_a_backup_that_failed_it_is_not_said_that_nothing_is_in_the_way() -> None:
    failed = condition("Ready", "False", "NoSpace", "the target is full; make room and make another backup")
    over = condition("Progressing", "False", "InSync", "the backup failed")
    said = "\n".join(explained(cluster(failed, over), serves=False, now=NOW))
    assert "  Not ready: the target is full" in said
    assert "  Nothing more is done: the backup failed" in said
    assert "in the way" not in said


def test_a_warning_of_what_is_over_is_dated_and_stands_below() -> None:
    said = text(
        cluster(SERVES, RESTS),
        warned(600, "cart-2 did not come up"),
        warned(30, "cart-2 did not come up"),
        warned(10000, "cart-0 was killed", "MasterDied"),
    )
    lines = said.splitlines()
    assert "  Warning" not in said
    assert lines[-3:] == [
        "  Over, for your information:",
        "    2026-01-01T10:18:20Z, 2 h ago: MasterDied: cart-0 was killed",
        "    2026-01-01T13:04:30Z, 30 s ago: Failed: cart-2 did not come up",
    ]


def test_a_warning_from_before_what_is_in_the_way_now_is_over() -> None:
    stalled = condition("Stalled", "True", "RollHalted", "cart-2 does not come up")
    said = text(cluster(SERVES, RESTS, stalled), warned(3960, "no such image"), warned(9000, "disk full"))
    assert "  Warning, 66 min ago: Failed: no such image" in said
    assert "    2026-01-01T10:35:00Z, 2 h ago: Failed: disk full" in said


def test_what_is_under_way_and_what_is_out_of_service_is_named() -> None:
    waits = condition("Progressing", "True", "ReplicaSynchronising", "cart-2 is not in sync yet")
    raw = cluster(
        condition("Ready", "False", "NoMaster", "no server leads"),
        waits,
        operation={"kind": "Promote", "subject": "cart-1", "since": SINCE, "why": "it has the data"},
        nodes=[{"name": "cart-2", "state": "Synchronising", "since": SINCE}],
        sentinels=[{"name": "s-0", "state": "Watching"}],
        config={"databases": {"state": "NeedsRestart", "message": "read at start only"}},
        lastFailover={
            "at": SINCE,
            "old": "cart-0",
            "new": "cart-1",
            "cause": "MasterDied",
            "lossBound": "few",
            "lostBytes": 512,
        },
    )
    said = text(raw, details=sentinel_explain.lines(raw["status"]))
    assert "DOES NOT SERVE: no server leads" in said
    assert "Waits or works: cart-2 is not in sync yet" in said
    assert "Under way: Promote of cart-1" in said
    assert "cart-2: Synchronising" in said
    assert "s-0" not in said
    assert "spec.config.databases: NeedsRestart" in said
    assert "cart-0 -> cart-1, MasterDied" in said
    assert "512 bytes of writes that the new one did not have" in said


def test_an_object_nobody_looked_at_is_said_to_be_that() -> None:
    assert "No operator has looked at it" in text(cluster())


def test_an_edit_that_was_not_looked_at_yet_is_said() -> None:
    raw = cluster(SERVES, RESTS)
    raw["metadata"]["generation"] = 3
    assert "generation 3" in text(raw)


def test_an_unknown_kind_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["why", "teapot/mine"])
    assert ended.value.code == 1
    assert "rediscluster" in "".join(capsys.readouterr())


def test_a_redis_cluster_of_harmonycloud_tells_of_its_nodes_and_its_slots() -> None:
    node = {"name": "cart-1", "domainName": "cart-1.cart", "type": "master", "lastTransitionTime": SINCE}
    down = {**node, "status": "False", "reason": "HeldBack", "message": "it waits until its data is safe"}
    plan = {"kind": "Drain", "replicas": 6, "since": SINCE, "moved": 100, "total": 4096, "secondsLeft": 9}
    raw = cluster(down, standardConditions=[SERVES, RESTS], slotPlan=plan)
    said = text(raw, details=cluster_explain.lines(raw["status"]))
    assert "Serves: cart-0 leads" in said
    assert "cart-1: False since" in said
    assert "HeldBack: it waits until its data is safe" in said
    assert f"Drain towards 6 nodes since {SINCE}: 100 of 4096 slots, 9 s left" in said


@pytest.mark.parametrize(
    ("word", "group"),
    [
        ("rediscluster", "redis.kun"),
        ("rec", "redis.middleware.hc.cn"),
        ("redisclusters.redis.middleware.hc.cn", "redis.middleware.hc.cn"),
    ],
)
def test_kinds_are_called_as_kubectl_calls_them(word: str, group: str) -> None:
    (kind, *_), name = kinds_of(f"{word}/cart")
    assert (kind.resource.group, name) == (group, "cart")


def test_a_name_of_two_groups_means_both() -> None:
    kinds, _ = kinds_of("mysqlcluster/shop")
    assert [kind.resource.group for kind in kinds] == ["mysql.mooring.dev", "example.com"]
    assert len(kinds_of("mysqlclusters.example.com/shop")[0]) == 1


def test_the_cause_and_the_next_step_come_first_in_both_languages() -> None:
    found = Diagnosis(
        code="NoRoom",
        params={"pod": "cart-0", "resource": "cpu", "asked": "8", "free": "2"},
        kind="Pod",
        name="cart-0",
        raw="0/1 nodes are available: 1 Insufficient cpu.",
    )
    english = list(diagnosed(found, "en"))
    assert english[0].startswith("  Cause: No node has enough cpu for pod cart-0")
    assert english[1].startswith("  Next: Ask for less cpu")
    assert english[2] == "  Said: 0/1 nodes are available: 1 Insufficient cpu."
    assert next(iter(diagnosed(found, "zh"))).startswith("  原因：没有节点有足够的 cpu")
    assert list(diagnosed(None, "en")) == []


def test_what_the_operator_says_itself_is_not_said_twice() -> None:
    found = Diagnosis(code="Stalled", params={"reason": "InvalidArgs", "message": "spec.size is too small"})
    assert list(diagnosed(found, "en")) == []
    assert "spec.size is too small" in next(iter(diagnosed(found, "zh")))
