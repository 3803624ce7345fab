"""Admission of MatrixOne's kinds: defaults, rejections and warnings.

The operator says the same in conditions to those who come without a webhook, so the failure policy is Ignore. A change is
rejected only for what it makes wrong: an object with an old fault can still be edited, and deleted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mooring.cache import Clock
from mooring.kube import Client, DecodeError, KubeError
from mooring.kube.object import Object, decode
from mooring.operators.matrixone.advice import warnings
from mooring.operators.matrixone.bucket.paths import overlap
from mooring.operators.matrixone.changes import changes
from mooring.operators.matrixone.defaults import default_patch
from mooring.operators.matrixone.types import (
    IN_USE,
    KINDS,
    BucketClaim,
    CNSet,
    DNSet,
    LogSet,
    MainContainerOverlay,
    MatrixOneCluster,
    Overlay,
    S3Provider,
)
from mooring.operators.matrixone.validate import Problem, validate
from mooring.operators.workload.admission import Scope, annotation_of, at_most, part, served_by
from mooring.runtime import unknown_fields
from mooring.runtime.webhooks import Allow, Change, Refuse, Review, Verdict, Webhook

__all__ = ["Defaults", "Reviews", "unknown", "webhooks"]

NAME: Final = "matrixone"
DEFAULTED: Final[tuple[type[Object], ...]] = (MatrixOneCluster, LogSet, DNSet, CNSet)


class Defaults:
    """Writes defaults that depend on other fields into objects as they are stored."""

    async def review(self, asked: Review[Any]) -> Verdict:
        """What is missing, as a patch."""
        new = asked.object
        if new is None or part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        patch = default_patch(asked.kind, new, new=asked.operation == "CREATE")
        return Change(patch) if patch else Allow()


class Reviews:
    """Reviews objects for operators of one scope; ``client`` reads who owns paths of object stores."""

    def __init__(self, client: Client, scope: Scope) -> None:
        self._client, self._scope = client, scope

    async def review(self, asked: Review[Any]) -> Verdict:
        """Answer one request."""
        new, old = asked.object, asked.old
        if new is None or part(new, "metadata").get("deletionTimestamp"):
            return Allow()
        said: list[str] = []
        if old is None or annotation_of(new) != annotation_of(old):
            with suppress(DecodeError):  # which is said below, with the field
                said += await self._scope.warnings(asked)
        if old is not None and _declared(new) == _declared(old):
            return Allow(*said)
        present = _problems(asked.kind, new, old) + await self._bucket_problems(asked)
        known = set(_problems(asked.kind, old)) if old is not None else set()
        said += at_most([str(one) for one in present if one in known])
        said += at_most(
            [f"{one}; it has no effect" for one in unknown(asked.kind, new)], "more unknown fields"
        )
        said += at_most(_warnings(asked.kind, new))
        if made := [one for one in present if one not in known]:
            resource = asked.kind.resource
            causes = tuple((one.field, one.message) for one in made)
            listed = "; ".join(map(str, made))
            message = f'{resource.kind}.{resource.group} "{asked.key.name}" is invalid: {listed}'
            return Refuse(message, causes, tuple(said))
        return Allow(*said)

    async def _bucket_problems(self, asked: Review[Any]) -> list[Problem]:
        """A path of an object store within one that another log service owns, or whose data is being deleted."""
        where, raw = _storage(asked.kind, asked.object or {})
        if raw is None:
            return []
        try:
            s3 = msgspec.convert(raw, S3Provider)
            found = await self._client.list(BucketClaim)
        except (msgspec.ValidationError, KubeError):
            return []  # unknown is no refusal: the LogSet says the same in a condition
        mine = f"{asked.key.namespace}/{asked.key.name}"
        for one in found.items:
            if one.spec is None or one.spec.s3 is None or not overlap(one.spec.s3, s3):
                continue
            name = f"{one.metadata.namespace}/{one.metadata.name}"
            owner = one.status.bind_to if one.status is not None else None
            state = one.status.state if one.status is not None else None
            if state == IN_USE and owner and owner != mine:
                remedy = "choose another path, or delete that LogSet first"
                return [Problem(where, f"claimed bucket {name} already bind to {owner}; {remedy}")]
            if asked.operation == "CREATE" and one.metadata.deletion_timestamp is not None:
                message = f"the data of claimed bucket {name} is being deleted; wait for its end, or choose another path"
                return [Problem(where, message)]
        return []


def unknown(kind: type[Object], raw: Mapping[str, Any]) -> list[str]:
    """Unknown fields of an object, overlays included, each with the nearest known one."""
    found = [
        str(one)
        for name, annotation in _parts(kind)
        for one in unknown_fields(annotation, part(raw, name), path=name)
    ]
    return [
        *found,
        *(
            str(one)
            for where, form, overlay in _overlays(raw)
            for one in unknown_fields(form, overlay, path=where)
        ),
    ]


def _parts(kind: type[Object]) -> Iterator[tuple[str, type[msgspec.Struct]]]:
    """The parts of a kind that users write, but the overlay."""
    for field in msgspec.structs.fields(kind):
        if field.encode_name in ("spec", "deps", "meta"):
            found = [
                one for one in _types(field.type) if isinstance(one, type) and issubclass(one, msgspec.Struct)
            ]
            yield from ((field.encode_name, one) for one in found)


def _types(annotation: Any) -> Iterator[Any]:
    """The types in an annotation such as ``Annotated[LogSetSpec | None, F(...)]``."""
    inner = getattr(annotation, "__args__", None)
    if inner is None:
        yield annotation
        return
    for one in inner:
        yield from _types(one)


def _overlays(raw: object, where: str = "") -> Iterator[tuple[str, type[msgspec.Struct], Mapping[str, Any]]]:
    """Every overlay in an object: where it is, its type, and itself."""
    if isinstance(raw, list):
        for at, one in enumerate(raw):
            yield from _overlays(one, f"{where}[{at}]")
    if not isinstance(raw, Mapping):
        return
    for name, value in raw.items():
        path = f"{where}.{name}" if where else str(name)
        if name in ("metadata", "status", "logSetSpec", "logSet", "dnSet", "cnset"):
            continue
        if name == "overlay" and isinstance(value, Mapping):
            yield path, MainContainerOverlay if where.endswith("pythonUdfSidecar") else Overlay, value
        else:
            yield from _overlays(value, path)


def _declared(raw: Mapping[str, Any]) -> list[Any]:
    return [raw.get(name) for name in ("spec", "deps", "overlay", "meta")]


def _storage(kind: type[Object], raw: Mapping[str, Any]) -> tuple[str, Mapping[str, Any] | None]:
    """Where the S3 path of a log service is declared, and the declaration."""
    spec, where = part(raw, "spec"), "spec"
    if kind is MatrixOneCluster:
        spec, where = part(spec, "logService"), "spec.logService"
    elif kind is not LogSet:
        return "", None
    s3 = part(spec, "sharedStorage").get("s3")
    return f"{where}.sharedStorage.s3", s3 if isinstance(s3, Mapping) else None


def _problems(
    kind: type[Object], raw: Mapping[str, Any], before: Mapping[str, Any] | None = None
) -> list[Problem]:
    """What is wrong with an object and, given the one before, with its change."""
    try:
        obj = decode(dict(raw), kind)
    except DecodeError as error:
        reason, _, place = str(error).partition(": ")[2].rpartition(" - at ")
        field = place.strip("`").removeprefix("$.") or "spec"
        return [Problem(field, f"{(reason or str(error)).replace('Expected', 'expected')}; correct it")]
    found = validate(obj)
    try:
        return found if before is None else found + changes(decode(dict(before), kind), obj)
    except DecodeError:
        return found


def _warnings(kind: type[Object], raw: Mapping[str, Any]) -> list[str]:
    try:
        return warnings(decode(dict(raw), kind))
    except DecodeError:
        return []


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[Any]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []
    served = served_by(client, clock, NAME)
    review = Reviews(client, Scope(scope=scope, namespaces=tuple(namespaces), served=served)).review
    defaults = Defaults().review
    return [
        *(Webhook(kind, defaults, mutating=True, failure_policy="Ignore") for kind in DEFAULTED),
        *(Webhook(kind, review, failure_policy="Ignore") for kind in KINDS),
    ]
