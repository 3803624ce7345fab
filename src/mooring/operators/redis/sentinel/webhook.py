"""Admission warnings and rejections for RedisCluster.

The schema alone keeps bad input out (the failure policy is Ignore), and a condition shows the same to those who come
without a webhook; here it is shown at once. A change is rejected only for what it makes wrong, so that an object with
an old fault can still be edited.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mooring.cache import Clock
from mooring.kube import Client, DecodeError
from mooring.kube.object import decode
from mooring.operators.redis import SCOPE_ANNOTATION
from mooring.operators.redis.backup.webhook import backup_webhooks
from mooring.operators.redis.keys import doubtful
from mooring.operators.redis.sentinel.actor import NAME
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterSpec
from mooring.operators.redis.sentinel.validate import forbidden_keys, validate
from mooring.operators.workload.admission import (
    Scope,
    Served,
    annotation_of,
    at_most,
    part,
    served_by,
    unknown_warnings,
)
from mooring.operators.workload.problem import Problem
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict, Webhook

__all__ = ["RedisClusterReview", "webhooks"]


class RedisClusterReview:
    """Reviews RedisClusters for operators of one scope; see `Scope`."""

    def __init__(self, *, scope: str, namespaces: Sequence[str], served: Served) -> None:
        self._scope = Scope(
            scope=scope, namespaces=tuple(namespaces), served=served, annotation=SCOPE_ANNOTATION
        )

    async def review(self, asked: Review[RedisCluster]) -> Verdict:
        """Answer one request."""
        new, old = asked.object, asked.old
        if new is None:
            return Allow(*_on_delete(old or {}))
        if part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        spec, before = part(new, "spec"), part(old, "spec")
        warnings: list[str] = []
        if old is None or annotation_of(new, SCOPE_ANNOTATION) != annotation_of(old, SCOPE_ANNOTATION):
            warnings += await self._scope.warnings(asked)
        if old is not None and spec == before:
            return Allow(*warnings)
        warnings += unknown_warnings(RedisClusterSpec, spec)
        present = _problems(new)
        known = set(_problems(old)) if old is not None else set()
        warnings += [f"{problem}" for problem in present if problem in known]
        if old is None or spec.get("storage") != before.get("storage"):
            warnings += _claims(spec)
        config = {str(key): str(value) for key, value in part(spec, "config").items()}
        warnings += [
            f"spec.config.{key}: the operator decides this one; the value is not used, remove it"
            for key in forbidden_keys(config)
        ]
        warnings += at_most(
            [f"spec.config.{key}: {why}" for key, value in config.items() if (why := doubtful(key, value))]
        )
        if made := [problem for problem in present if problem not in known]:
            message = "; ".join(str(problem) for problem in made)
            causes = tuple((problem.field, problem.message) for problem in made)
            return Refuse(message, causes, tuple(warnings))
        return Allow(*warnings)


def _on_delete(old: Mapping[str, Any]) -> list[str]:
    """What will become of the claims."""
    storage = part(part(old, "spec"), "storage")
    if not storage.get("persistentVolumeClaim"):
        return []
    name = part(old, "metadata").get("name")
    if storage.get("keepAfterDeletion") is False:
        return [f"the claims of {name} and the data on them are deleted with it (keepAfterDeletion: false)"]
    return [f"the claims of {name} are kept, and used again by a RedisCluster of that name"]


def _claims(spec: Mapping[str, Any]) -> list[str]:
    """What would become of the claims; UCloud's operator deleted them by default."""
    storage = part(spec, "storage")
    kept = storage.get("keepAfterDeletion")
    if not storage.get("persistentVolumeClaim") or (kept is not None and kept is not False):
        return []
    if kept is False:
        return [
            "spec.storage.keepAfterDeletion: false: the claims and their data will be deleted with the cluster"
        ]
    return [
        "spec.storage.keepAfterDeletion: not given, so claims stay when the cluster goes; false deletes them"
    ]


def _problems(raw: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with an object; nothing of one that cannot be read, which another warning names."""
    try:
        return validate(decode(dict(raw), RedisCluster))
    except DecodeError:
        return []


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[Any]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []
    review = RedisClusterReview(scope=scope, namespaces=namespaces, served=served_by(client, clock, NAME))
    clusters = Webhook(
        RedisCluster, review.review, operations=("CREATE", "UPDATE", "DELETE"), failure_policy="Ignore"
    )
    return [clusters, *backup_webhooks(clock)]
