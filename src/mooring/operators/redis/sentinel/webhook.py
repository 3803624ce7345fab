"""What is said to whoever writes a RedisCluster: warnings, and refusals of what could never be carried out.

The schema alone keeps bad input out (the failure policy is Ignore), and a condition says the same to those
who come without a webhook; here it is said at once. A change is refused only for what it makes wrong, so an
object with an old fault can still be edited. In namespaced mode there is no webhook: its configuration would
belong to the whole cluster.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from mooring.cache import Clock
from mooring.kube import Client, DecodeError, KubeError, NotFound
from mooring.kube.object import decode
from mooring.kube.objects.coordination import Lease
from mooring.operators.redis.keys import nearest
from mooring.operators.redis.parameters import implausible
from mooring.operators.redis.sentinel.actor import NAME
from mooring.operators.redis.sentinel.types import RedisCluster, RedisClusterSpec
from mooring.operators.redis.sentinel.validate import Problem, forbidden_keys, validate
from mooring.operators.workload.scope import SCOPE_ANNOTATION, lease_name, managed, yields
from mooring.runtime import unknown_fields
from mooring.runtime.webhooks import Allow, Refuse, Review, Verdict, Webhook

__all__ = ["RedisClusterReview", "webhooks"]

#: Unknown fields that are named; the rest is counted.
NAMED = 6

Served = Callable[[str], Awaitable[bool]]


class RedisClusterReview:
    """Reviews RedisClusters for operators of one scope.

    ``served`` tells whether a live namespaced operator works in a namespace; ``namespaces`` are those
    watched here, none means all.
    """

    def __init__(self, *, scope: str, namespaces: Sequence[str], served: Served) -> None:
        self._scope = scope
        self._namespaces = tuple(namespaces)
        self._served = served

    async def review(self, asked: Review[RedisCluster]) -> Verdict:
        """What to say of one request."""
        new, old = asked.object, asked.old
        if new is None:
            return Allow(*_on_delete(old or {}))
        if _meta(new).get("deletionTimestamp"):
            return Allow()
        spec, before = _spec(new), _spec(old or {})
        said: list[str] = []
        if old is None or _annotation(new) != _annotation(old):
            said += await self._unmanaged(asked)
        if old is not None and spec == before:
            return Allow(*said)
        said += _unknown(spec)
        present = _problems(new)
        known = set(_problems(old)) if old is not None else set()
        said += [f"{problem}" for problem in present if problem in known]
        if old is None or spec.get("storage") != before.get("storage"):
            said += _claims(spec)
        said += [
            f"spec.config.{key}: the operator decides this one; the value is not used, remove it"
            for key in forbidden_keys(_texts(spec.get("config")))
        ]
        said += _doubtful_keys(_texts(spec.get("config")))
        if made := [problem for problem in present if problem not in known]:
            message = "; ".join(str(problem) for problem in made)
            return Refuse(message, tuple((problem.field, problem.message) for problem in made), tuple(said))
        return Allow(*said)

    async def _unmanaged(self, asked: Review[RedisCluster]) -> list[str]:
        """A warning for an object that no live operator will look at."""
        obj = asked.typed()
        if obj is None:
            return []
        namespace = asked.key.namespace
        watched = not self._namespaces or namespace in self._namespaces
        wide = _annotation(asked.object or {}) == "cluster-scoped"
        ours = managed(obj, scope=self._scope, annotation=SCOPE_ANNOTATION, yielded=lambda _: False)
        if (watched and ours) or (not wide and await self._served(namespace)):
            return []
        if not watched:
            there = ", ".join(self._namespaces)
            return [
                f"no operator manages it: namespace {namespace} is not watched, only {there}; see --namespaces"
            ]
        remedy = f"annotate it {SCOPE_ANNOTATION}=cluster-scoped, or run a namespaced operator in {namespace}"
        return [f"no operator manages it: {remedy}"]


def _on_delete(old: Mapping[str, Any]) -> list[str]:
    storage = _storage(_spec(old))
    if not storage.get("persistentVolumeClaim"):
        return []
    name = _meta(old).get("name")
    if storage.get("keepAfterDeletion") is False:
        return [f"the claims of {name} and the data on them are deleted with it (keepAfterDeletion: false)"]
    return [f"the claims of {name} are kept, and used again by a RedisCluster of that name"]


def _claims(spec: Mapping[str, Any]) -> list[str]:
    """What will become of the data; UCloud's operator deleted it by default."""
    storage = _storage(spec)
    if not storage.get("persistentVolumeClaim"):
        return []
    if storage.get("keepAfterDeletion") is False:
        return [
            "spec.storage.keepAfterDeletion: false: the claims and their data will be deleted with the cluster"
        ]
    if storage.get("keepAfterDeletion") is None:
        return [
            "spec.storage.keepAfterDeletion: not given, so claims stay when the cluster goes; false deletes them"
        ]
    return []


def _unknown(spec: Mapping[str, Any]) -> list[str]:
    found = unknown_fields(RedisClusterSpec, spec, path="spec")
    said = [f"{one}; it has no effect" for one in found[:NAMED]]
    return [*said, f"and {len(found) - NAMED} more unknown fields"] if len(found) > NAMED else said


def _doubtful_keys(config: Mapping[str, str]) -> list[str]:
    """Keys and values that a server will probably refuse."""
    said = []
    for key, value in config.items():
        if near := nearest(key):
            said.append(f"spec.config.{key}: Redis 7.0 has no such key; did you mean {near!r}?")
        elif why := implausible(key, value):
            said.append(f"spec.config.{key}: {why}")
    return [*said[:NAMED], f"and {len(said) - NAMED} more"] if len(said) > NAMED else said


def _problems(raw: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with an object; nothing of one that cannot be read, which another warning tells of."""
    try:
        return validate(decode(dict(raw), RedisCluster))
    except DecodeError:
        return []


def _meta(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("metadata")
    return found if isinstance(found, Mapping) else {}


def _spec(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    found = raw.get("spec")
    return found if isinstance(found, Mapping) else {}


def _storage(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    found = spec.get("storage")
    return found if isinstance(found, Mapping) else {}


def _texts(config: object) -> dict[str, str]:
    return {str(key): str(value) for key, value in config.items()} if isinstance(config, Mapping) else {}


def _annotation(raw: Mapping[str, Any]) -> object:
    annotations = _meta(raw).get("annotations")
    return annotations.get(SCOPE_ANNOTATION) if isinstance(annotations, Mapping) else None


def webhooks(
    client: Client, *, clock: Clock, scope: str = "all", namespaces: Sequence[str] = ()
) -> list[Webhook[RedisCluster]]:
    """The webhooks of the operator; none in namespaced mode."""
    if scope == "namespaced":
        return []

    async def served(namespace: str) -> bool:
        """Read live: it is asked rarely, and a cache of all namespaces' Leases would cost more."""
        try:
            lease = await client.get(Lease, lease_name(NAME, "namespaced"), namespace=namespace)
        except NotFound:
            return False
        except KubeError:
            return True  # unknown: no warning that may be wrong
        return yields(lease, clock.now())

    review = RedisClusterReview(scope=scope, namespaces=namespaces, served=served)
    return [
        Webhook(
            RedisCluster,
            review.review,
            operations=("CREATE", "UPDATE", "DELETE"),
            failure_policy="Ignore",
        )
    ]
