"""What admission rejects of backups and schedules."""

from __future__ import annotations

from typing import Any

import pytest

from mooring.cache import SystemClock
from mooring.kube import Key
from mooring.operators.mysql.backup import webhook as mysql
from mooring.operators.redis.backup import webhook as redis
from mooring.runtime.webhooks import Allow, Refuse, Review, Webhook

TARGET = {"claim": {"name": "backups"}}
WEBHOOKS = {
    "mysql.mooring.dev": mysql.backup_webhooks(SystemClock()),
    "redis.mooring.dev": redis.backup_webhooks(SystemClock()),
}
BACKUP, SCHEDULE = range(2)
each = pytest.mark.parametrize("group", WEBHOOKS)


async def answer(
    hook: Webhook[Any], spec: dict[str, Any], old: dict[str, Any] | None = None
) -> Allow | Refuse:
    def whole(one: dict[str, Any] | None) -> dict[str, Any] | None:
        resource, meta = hook.kind.resource, {"name": "a", "namespace": "default"}
        head = {"apiVersion": f"{resource.group}/{resource.version}", "kind": resource.kind, "metadata": meta}
        return {**head, "spec": one} if one is not None else None

    review: Review[Any] = Review(
        kind=hook.kind,
        operation="UPDATE" if old else "CREATE",
        key=Key("default", "a"),
        object=whole(spec),
        old=whole(old),
    )
    said = await hook.review(review)
    assert isinstance(said, Allow | Refuse)
    return said


@each
@pytest.mark.parametrize(
    ("which", "spec", "field"),
    [
        (BACKUP, {"cluster": {"name": "a"}, "target": {"s3": {"bucket": "B"}}}, "spec.target.s3.bucket"),
        (SCHEDULE, {"schedule": "0 0 30 2 *", "template": {"target": TARGET}}, "spec.schedule"),
        (SCHEDULE, {"schedule": "every night", "template": {"target": TARGET}}, "spec.schedule"),
        (
            SCHEDULE,
            {"schedule": "@daily", "timeZone": "Mars/X", "template": {"target": TARGET}},
            "spec.timeZone",
        ),
        (
            SCHEDULE,
            {"schedule": "@daily", "template": {"target": {"s3": {"bucket": "B"}}}},
            "spec.template.target.s3.bucket",
        ),
    ],
)
async def test_what_could_never_run_is_rejected(
    group: str, which: int, spec: dict[str, Any], field: str
) -> None:
    hook = WEBHOOKS[group][which]
    refused = await answer(hook, spec)
    assert isinstance(refused, Refuse)
    assert refused.causes[0][0] == field
    # One that is there already can still be edited.
    assert isinstance(await answer(hook, {**spec, "suspend": True}, old=spec), Allow)


@each
async def test_a_sound_schedule_is_accepted(group: str) -> None:
    spec = {"schedule": "30 3 * * *", "timeZone": "Asia/Shanghai", "template": {"target": TARGET}}
    said = await answer(WEBHOOKS[group][SCHEDULE], spec)
    assert isinstance(said, Allow)
    assert not said.warnings


@each
async def test_a_misspelt_field_is_warned_of(group: str) -> None:
    spec = {"schedule": "@daily", "timezone": "Asia/Shanghai", "template": {"target": TARGET}}
    said = await answer(WEBHOOKS[group][SCHEDULE], spec)
    assert isinstance(said, Allow)
    assert '"timeZone"' in said.warnings[0]
