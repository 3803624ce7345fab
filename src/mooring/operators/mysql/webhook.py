"""Admission warnings and rejections for MySQLCluster.

The schema alone keeps bad input out (the failure policy is Ignore), and a condition shows the same to those who come
without a webhook; here it is shown at once. A change is rejected only for what it makes wrong, so that an object with an
old fault can still be edited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from mooring.cache import Clock
from mooring.kube import Client, DecodeError
from mooring.kube.object import decode
from mooring.kube.quantity import parse_quantity
from mooring.operators.mysql import compatible
from mooring.operators.mysql.backup.webhook import backup_webhooks
from mooring.operators.mysql.config import FOUNDING, canonical, same_value
from mooring.operators.mysql.dialects import dialect_of
from mooring.operators.mysql.flavors import flavor_of, version_of
from mooring.operators.mysql.types import DEFAULT_IMAGE, MySQLCluster, MySQLClusterSpec
from mooring.operators.mysql.validate import Problem, forbidden_keys, validate
from mooring.operators.workload.admission import (
    Scope,
    Served,
    annotation_of,
    part,
    served_by,
    unknown_warnings,
)
from mooring.runtime.webhooks import Allow, Operation, Refuse, Review, Verdict, Webhook

__all__ = ["MySQLClusterReview", "webhooks"]

NAME = "mysql"
_STORAGE = "1Gi"


class MySQLClusterReview:
    """Reviews MySQLClusters for operators of one scope; see `Scope`."""

    def __init__(self, *, scope: str, namespaces: Sequence[str], served: Served) -> None:
        self._scope = Scope(scope=scope, namespaces=tuple(namespaces), served=served)

    async def review(self, asked: Review[MySQLCluster]) -> Verdict:
        """Answer one request."""
        new, old = asked.object, asked.old
        if new is None:
            return Allow(*_on_delete(old or {}))
        if part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        spec, before = part(new, "spec"), part(old, "spec")
        warnings: list[str] = []
        if old is None or annotation_of(new) != annotation_of(old):
            warnings += await self._scope.warnings(asked)
        if old is not None and spec == before:
            return Allow(*warnings)
        warnings += unknown_warnings(MySQLClusterSpec, spec)
        present = _problems(new)
        known = set(_problems(old)) if old is not None else set()
        made = [problem for problem in present if problem not in known]
        if old is not None:
            made += _changes(spec, before, part(old, "status"))
        warnings += [f"{problem}" for problem in present if problem in known]
        warnings += _notes(spec)
        if made:
            causes = tuple((problem.field, problem.message) for problem in made)
            return Refuse("; ".join(str(problem) for problem in made), causes, tuple(warnings))
        return Allow(*warnings)


def _problems(raw: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with an object; nothing of one that cannot be read, which another warning names."""
    try:
        found = validate(decode(dict(raw), MySQLCluster))
    except DecodeError:
        return []
    config = {str(key): str(value) for key, value in part(part(raw, "spec"), "config").items()}
    return found + [
        Problem(f"spec.config.{key}", "the operator decides this one; remove it")
        for key in forbidden_keys(config)
    ]


def _changes(
    spec: Mapping[str, Any], before: Mapping[str, Any], status: Mapping[str, Any]
) -> Iterator[Problem]:
    """What an existing cluster cannot be changed to."""
    image, old = str(spec.get("image") or DEFAULT_IMAGE), str(before.get("image") or DEFAULT_IMAGE)
    flavor = flavor_of(image, str(spec.get("flavor")))
    if (was := flavor_of(old, str(before.get("flavor")))) and flavor and flavor != was:
        text = f"{image} is {flavor}, the data is of {was}; create another cluster and copy the data"
        yield Problem("spec.image", text)
    elif (new := version_of(image)[:2]) < version_of(old)[: len(new)]:
        text = f"{image} is older than {old}: no server reads data of a later version for sure; keep {old} or a later one"
        yield Problem("spec.image", text)
    yield from _storage_changes(part(spec, "storage"), part(before, "storage"), has=_capacity(status))
    config, had = part(spec, "config"), part(before, "config")
    values = {canonical(str(key)): str(value) for key, value in config.items()}
    earlier = {canonical(str(key)): str(value) for key, value in had.items()}
    for key in sorted(FOUNDING & (values.keys() | earlier.keys())):
        if not same_value(key, values.get(key, ""), earlier.get(key, "")):
            text = (
                "the data was made with another value, and no server starts on it with this one; put it back"
            )
            yield Problem(f"spec.config.{key}", text)


def _capacity(status: Mapping[str, Any]) -> Decimal | None:
    """The most that a volume has while none could be enlarged to what is declared; ``None`` where one was."""
    volumes, instances = status.get("volumes") or [], status.get("instances") or []
    sizes = [_size(one.get("capacity")) for one in volumes if one.get("capacity")]
    known = [size for size in sizes if size is not None]
    return max(known) if known and len(known) >= len(instances) else None


def _storage_changes(
    storage: Mapping[str, Any], before: Mapping[str, Any], *, has: Decimal | None
) -> Iterator[Problem]:
    if ("emptyDir" in storage) is not ("emptyDir" in before):
        kind = "claims" if "emptyDir" in storage else "an emptyDir"
        text = f"the pods keep their data on {kind}; put it back, or move the data to another cluster"
        yield Problem("spec.storage", text)
        return
    if storage.get("storageClass") != before.get("storageClass"):
        text = (
            "claims stay in the class they were made with; put it back, or move the data to another cluster"
        )
        yield Problem("spec.storage.storageClass", text)
    new, old = _size(storage.get("size")), _size(before.get("size"))
    if new is not None and old is not None and new < old and (has is None or new <= has):
        text = f"{storage.get('size') or _STORAGE} is less than {before.get('size') or _STORAGE}; a volume never shrinks"
        yield Problem("spec.storage.size", f"{text}: put it back")


def _size(text: object) -> Decimal | None:
    try:
        return parse_quantity(str(text or _STORAGE))
    except ValueError:
        return None


def _notes(spec: Mapping[str, Any]) -> Iterator[str]:
    """What is allowed and worth a word."""
    size, mode = spec.get("size"), part(spec, "durability").get("mode")
    if size == 1:
        yield "spec.size: one server has no replica: nothing takes over when it fails"
    elif size == 2 and mode != "Available":
        yield "spec.size: with two servers writes wait while one of them is away (durability.mode: Available does not wait)"
    memory = part(part(spec, "resources"), "limits").get("memory")
    flavor = flavor_of(str(spec.get("image") or DEFAULT_IMAGE), str(spec.get("flavor")))
    least = dialect_of(flavor or "mariadb").least_memory
    if memory and (given := _size(memory)) and given < parse_quantity(least):
        yield f"spec.resources.limits.memory: {memory} is little for {flavor or 'a server'}, which may be killed for it; give at least {least}"
    if mode == "Async":
        yield "spec.durability.mode: Async: a failover loses writes that no replica has received yet"
    if "emptyDir" in part(spec, "storage"):
        yield "spec.storage.emptyDir: the data of a pod goes with it; when all pods go, all data is gone"
    archive = part(spec, "archive")
    if archive.get("prune") is True:
        yield "spec.archive.prune: what is older than the oldest backup in the same target is deleted; backups elsewhere cannot be continued then"
    if claim := part(part(archive, "target"), "claim").get("name"):
        yield f"spec.archive.target.claim: the archiver holds {claim}: unless it is ReadWriteMany, backups to it run on the archiver's node alone"
    if part(spec, "storage").get("keepAfterDeletion") is False:
        yield "spec.storage.keepAfterDeletion: false: the claims and their data will be deleted with the cluster"


def _on_delete(old: Mapping[str, Any]) -> list[str]:
    """What will become of the claims."""
    storage, name = part(part(old, "spec"), "storage"), part(old, "metadata").get("name")
    if "emptyDir" in storage:
        return [f"the data of {name} is on emptyDirs and goes with its pods"]
    if storage.get("keepAfterDeletion") is False:
        return [f"the claims of {name} and the data on them are deleted with it (keepAfterDeletion: false)"]
    return [f"the claims and passwords of {name} are kept, and used again by a MySQLCluster of that name"]


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[Any]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []
    review = MySQLClusterReview(scope=scope, namespaces=namespaces, served=served_by(client, clock, NAME))
    operations: tuple[Operation, ...] = ("CREATE", "UPDATE", "DELETE")
    kinds: tuple[type[MySQLCluster], ...] = (MySQLCluster, compatible.MySQLCluster)
    clusters = [
        Webhook(kind, review.review, operations=operations, failure_policy="Ignore") for kind in kinds
    ]
    return [*clusters, *backup_webhooks(clock)]
