"""The Actor: observe an object, take one step, observe again.

An operator writes ``observe`` (and ``finalize`` where something outside Kubernetes must be cleaned up).
All else is here once for all operators: watches, finalizers, conditions, the status written at most once
per pass and only when it differs, events, and exceptions that harm no other object.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, cast

import msgspec
import structlog
from prometheus_client import Gauge

from mooring.actor.children import Memory
from mooring.actor.conditions import READY, STALLED, STANDARD, ConditionState, conclude, leaving, merged
from mooring.actor.context import Context
from mooring.actor.dependencies import Dependency
from mooring.actor.guard import Guard, OnEffect, observing
from mooring.actor.outcome import Act, InSync, Outcome, Terminal, Wait
from mooring.actor.repeats import Repeats
from mooring.actor.status import merge_diff
from mooring.cache import BadObject, Informer, Transition
from mooring.kube.errors import ApiError, BadRequest, Conflict, Forbidden, Invalid, KubeError
from mooring.kube.object import Key, Object, key_of, metadata_of
from mooring.kube.objects.meta import ObjectMeta
from mooring.kube.patches import MergePatch
from mooring.runtime import (
    After,
    CachedClient,
    Controller,
    Done,
    FenceLost,
    Manager,
    Result,
    add_finalizer,
    meaningful_change,
    redact,
    remove_finalizer,
)
from mooring.runtime import Terminal as Refusal

__all__ = ["Actor", "Related", "run_actor"]

T = TypeVar("T", bound=Object)
R = TypeVar("R", bound=Object)

log = structlog.get_logger("mooring.actor")

#: Steps taken for one object before others get their turn.
STEPS_PER_TURN = 20
#: Until the next look at an object for which the API server refused something; a change comes at once.
INVALID_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Related(Generic[R]):
    """A kind that is not owned but concerns the object: ``keys`` says which objects to look at again.

    ``changed`` filters transitions (default: any). ``own_writes=False``: what an action of the object itself writes needs
    no further pass, since one follows it anyway; for objects that are written often.
    """

    kind: type[R]
    keys: Callable[[R], Iterable[Key]]
    changed: Callable[[Transition[R]], bool] | None = None
    label_selector: str = ""
    own_writes: bool = True


class Actor(ABC, Generic[T]):
    """What an operator knows about one kind."""

    #: The kind acted upon.
    kind: type[T]
    #: Name of the controller; the field manager is ``mooring-<name>``.
    name: ClassVar[str]
    #: Kinds of the objects it declares; their changes bring it back, those no longer wanted are pruned.
    owns: ClassVar[Sequence[type[Object]]] = ()
    #: The same, of kinds whose content is not for keeping in memory, such as Secrets: the metadata alone is
    #: cached, and `Children.read` gets the one that is looked at.
    owns_by_metadata: ClassVar[Sequence[type[Object]]] = ()
    #: Other kinds to watch.
    related: Sequence[Related[Any]] = ()
    #: Objects it cannot work without, watched as well; `Context.unmet` says which of them to wait for.
    dependencies: Sequence[Dependency[Any]] = ()
    #: Finalizer to set, ``DOMAIN/NAME``; needed with ``finalize``, and only where something outside Kubernetes has to
    #: be cleaned up (default: none).
    finalizer: ClassVar[str] = ""
    #: Where in the status the standard conditions are (JSON names, joined by dots); kinds that were taken over
    #: may have a ``conditions`` of another meaning.
    conditions_path: ClassVar[str] = "conditions"
    #: Where the status is written; "" for a kind without a status subresource. Every write of that is another generation,
    #: so its conditions name none.
    status_subresource: ClassVar[str] = "status"
    #: Name of a gauge with the labels ``namespace`` and ``name`` that follows the condition Ready: 1 while it is true,
    #: else 0 (default: none).
    ready_metric: ClassVar[str] = ""

    @abstractmethod
    async def observe(self, ctx: Context[T]) -> Outcome:
        """Look, and say what to do next. Must not write."""

    async def finalize(self, ctx: Context[T]) -> Outcome:
        """Clean up outside Kubernetes; ``InSync`` means done, and removes the finalizer.

        Must not write either, but return steps; each shows in the conditions before it is taken.
        """
        return InSync("nothing to clean up")

    def finalizes(self, obj: T) -> bool:
        """Whether this object gets the finalizer: something outside Kubernetes is to be cleaned up after it."""
        return True

    def manages(self, obj: T) -> bool:
        """Whether this object is ours to manage (scopes)."""
        return True

    def refused(self, ctx: Context[T], why: Wait) -> None:
        """The API server did not accept a step; the conditions are about to say so, ``ctx.show`` may add to them."""

    def forget(self, key: Key) -> None:
        """The object is gone: drop what is kept about it in memory (connections, metrics)."""

    def deleted(self, obj: T) -> None:
        """The object is gone; ``obj`` is what this process looked at last. For Events, which need its UID."""


def run_actor(
    actor: Actor[T],
    manager: Manager,
    *,
    namespaces: Sequence[str] = (),
    workers: int = 8,
    on_effect: OnEffect | None = None,
) -> None:
    """Register an actor on a manager: its informers, its watches and its controller.

    ``namespaces`` restricts it; none means all. ``on_effect`` is awaited after every effect; a test that lets
    it wait for ever has a process that died there. Raises TypeError for an actor that overrides ``finalize`` and names
    no ``finalizer``: without one its objects are gone before it is called.
    """
    if type(actor).finalize is not Actor.finalize and not actor.finalizer:
        raise TypeError(
            f"{type(actor).__name__} overrides finalize(), which is never called without a finalizer: "
            f'add `finalizer = "example.com/{actor.name}"` to the class, or remove finalize()'
        )
    _Runner(actor, manager, on_effect).register(namespaces, workers)


class _Runner(Generic[T]):
    def __init__(self, actor: Actor[T], manager: Manager, on_effect: OnEffect | None) -> None:
        self._actor = actor
        self._manager = manager
        self._on_effect = on_effect
        self._conditions = tuple(actor.conditions_path.split("."))
        self._memories: dict[Key, tuple[str, Memory]] = {}
        self._repeats = Repeats(manager.clock)
        self._ready: Gauge | None = None
        if actor.ready_metric:
            text = f"1 while a {actor.kind.resource.kind} has the condition Ready, else 0."
            self._ready = manager.metrics.gauge(actor.ready_metric, text, ["namespace", "name"])
        self._client: CachedClient = manager.client.as_manager(f"mooring-{actor.name}")
        self._controller = Controller(actor.name, self.reconcile)

    def register(self, namespaces: Sequence[str], workers: int) -> None:
        actor, informers = self._actor, self._manager.informers
        self._controller = Controller(actor.name, self.reconcile, workers=workers)
        primaries = [informers.of(actor.kind, namespace=namespace) for namespace in namespaces or ("",)]
        for number, dependency in enumerate(actor.dependencies):
            for primary in primaries:
                primary.ensure_index(_index(actor, number), dependency.index)
        for namespace, primary in zip(namespaces or ("",), primaries, strict=True):
            self._controller.watch(primary, predicate=meaningful_change)
            for number, dependency in enumerate(actor.dependencies):
                self._controller.watch(
                    informers.of(dependency.kind, namespace=namespace),
                    map=_dependants(primaries, _index(actor, number)),
                )
            for kind in (*actor.owns, *(metadata_of(one) for one in actor.owns_by_metadata)):
                # An action is followed by a look at the caches: its own writes need no further pass.
                self._controller.owns(informers.of(kind, namespace=namespace), actor.kind, own_writes=False)
            for related in actor.related:
                self._controller.watch(
                    informers.of(related.kind, namespace=namespace, label_selector=related.label_selector),
                    map=related.keys,
                    predicate=related.changed,
                    own_writes=related.own_writes,
                )
        self._manager.add(self._controller)

    async def reconcile(self, key: Key) -> Result:
        """One turn: as many steps as there are to take now, within reason."""
        try:
            obj = self._client.find(self._actor.kind, key.name, namespace=key.namespace)
        except BadObject as bad:
            await self._report_undecodable(key, bad)
            return Done()
        if obj is None:
            _, memory = self._memories.pop(key, ("", None))
            self._repeats.forget(key)
            self._unmeasured(key)
            self._actor.forget(key)
            if memory is not None and memory.owner is not None:
                self._actor.deleted(cast("T", memory.owner))
            return Done()
        if not self._actor.manages(obj):
            self._memories.pop(key, None)
            self._unmeasured(key)
            return Done()
        if obj.metadata.deletion_timestamp:
            return await self._clean_up(obj)
        if self._lacks_finalizer(obj):
            obj = await add_finalizer(self._client, obj, self._actor.finalizer)
            await self._told(obj, "add finalizer")
        return await self._take_steps(obj, self._actor.observe)

    def _lacks_finalizer(self, obj: T) -> bool:
        finalizer = self._actor.finalizer
        return bool(finalizer) and finalizer not in _finalizers(obj) and self._actor.finalizes(obj)

    async def _take_steps(self, obj: T, observe: Callable[[Context[T]], Any]) -> Result:
        for _ in range(STEPS_PER_TURN):
            ctx = self._context(obj)
            try:
                with observing(ctx.key):
                    outcome: Outcome = await observe(ctx)
            except (BadRequest, Forbidden, Invalid) as error:
                raise await self._report_refusal(ctx, error, step="observe") from error
            except (KubeError, FenceLost):
                raise
            except Exception as error:
                await self._report_failure(ctx, error)
                raise
            leaves = obj.metadata.deletion_timestamp is not None
            if isinstance(outcome, InSync):
                self._repeats.forget(ctx.key)
            elif isinstance(outcome, Act):
                outcome = self._repeats.held(ctx.key, outcome) or outcome
            if not isinstance(outcome, Act):
                if leaves and isinstance(outcome, InSync):
                    return Done()  # also where it asked for another look; the object is gone in a moment
                await self._flush(ctx, outcome)
                return _result(outcome)
            if outcome.record or leaves:
                await self._flush(ctx, outcome)
            ctx.guard.step = outcome.name
            ctx.log.debug("step", step=outcome.name)
            try:
                done = await outcome.run()
            except (BadRequest, Forbidden, Invalid) as error:
                raise await self._report_refusal(ctx, error, step=outcome.name) from error
            except (KubeError, FenceLost):
                raise
            except Exception as error:
                await self._report_failure(ctx, error, step=outcome.name)
                raise
            if done is not False and self._repeats.taken(
                ctx.key, outcome, generation=obj.metadata.generation
            ):
                self._controller.stats.repeated_steps += 1
                ctx.log.warning("a step repeats and changes nothing", step=outcome.name)
            now = self._client.find(self._actor.kind, ctx.key.name, namespace=ctx.key.namespace)
            if now is None or now.metadata.uid != obj.metadata.uid:
                return After(0.0)
            if not leaves and (now.metadata.deletion_timestamp or self._lacks_finalizer(now)):
                return After(0.0)  # the next turn adds it before anything is made that it guards
            obj = now
        await self._flush(ctx, outcome)
        return After(0.0)

    async def _clean_up(self, obj: T) -> Result:
        if not self._actor.finalizer or self._actor.finalizer not in _finalizers(obj):
            return Done()
        result = await self._take_steps(obj, self._actor.finalize)
        current = self._client.find(
            self._actor.kind, obj.metadata.name or "", namespace=key_of(obj).namespace
        )
        if isinstance(result, Done) and current is not None and self._actor.finalizer in _finalizers(current):
            await remove_finalizer(self._client, current, self._actor.finalizer)
            await self._told(current, "remove finalizer")
        return result

    def _context(self, obj: T) -> Context[T]:
        async def flush(ctx: Context[T]) -> None:
            await self._flush(ctx, None)

        return Context(
            obj,
            began=_plain(getattr(obj, "status", None)),
            guard=Guard(self._client, key_of(obj), self._on_effect),
            owns=self._actor.owns,
            owns_by_metadata=self._actor.owns_by_metadata,
            memory=self._memory(obj),
            dependencies=self._actor.dependencies,
            events=self._manager.events,
            clock=self._manager.clock,
            fence=self._manager.fence.check,
            flush=flush,
        )

    def _memory(self, obj: T) -> Memory:
        """What was left for this very object."""
        uid = obj.metadata.uid or ""
        known, memory = self._memories.get(key_of(obj), ("", None))
        if memory is None or known != uid:
            memory = Memory()
            self._memories[key_of(obj)] = uid, memory
        memory.owner = obj
        return memory

    def _measure(self, key: Key, ready: ConditionState) -> None:
        if self._ready is not None:
            self._ready.labels(*key).set(1.0 if ready.status else 0.0)

    def _unmeasured(self, key: Key) -> None:
        if self._ready is not None:
            with suppress(KeyError):
                self._ready.remove(*key)

    # --- status

    async def _flush(self, ctx: Context[T], outcome: Outcome | None) -> None:
        """Write the status if it differs; with ``outcome`` its conditions too."""
        live = self._client.find(self._actor.kind, ctx.key.name, namespace=ctx.key.namespace)
        if live is None or live.metadata.uid != ctx.obj.metadata.uid:
            return
        present = _plain(getattr(live, "status", None))
        if present != ctx.began:
            # Decided from a status that a late cache still showed: what is there now must not be taken back.
            raise Conflict(
                "the status is another one than this pass began with", status=409, reason="Conflict"
            )
        wanted = _plain(ctx.status)
        have = _at(present, self._conditions)
        others = [entry for entry in _at(wanted, self._conditions) if entry.get("type") not in STANDARD]
        states = conclude(outcome, ctx.readiness) if outcome is not None else _states(have)
        if outcome is not None and ctx.obj.metadata.deletion_timestamp:
            states = leaving(states)
        if outcome is not None:
            self._measure(ctx.key, states[READY])
        generation = ctx.obj.metadata.generation if self._actor.status_subresource else None
        conditions = merged(have, states, generation=generation, now=ctx.now(), others=others)
        if conditions:
            wanted = _with(wanted, self._conditions, conditions)
        if outcome is not None and generation is not None:
            wanted["observedGeneration"] = generation
        patch = merge_diff(present, wanted)
        if not patch:
            return
        if outcome is not None:
            self._announce(ctx, have, states)
        written = await self._client.patch(
            self._actor.kind,
            ctx.key.name,
            MergePatch({"metadata": {"resourceVersion": live.metadata.resource_version}, "status": patch}),
            namespace=ctx.key.namespace,
            subresource=self._actor.status_subresource,
        )
        ctx.began = _plain(getattr(written, "status", None))
        await ctx.did("patch status")

    def _announce(
        self, ctx: Context[T], have: Iterable[dict[str, Any]], states: dict[str, ConditionState]
    ) -> None:
        """One Warning when the object gets stuck, or stuck for another reason."""
        stalled = states.get(STALLED)
        if stalled is None or not stalled.status:
            return
        old = next((entry for entry in have if entry.get("type") == STALLED), {})
        if old.get("status") != "True" or old.get("reason") != stalled.reason:
            ctx.events.warning(ctx.obj, stalled.reason, stalled.message)

    async def _report_failure(self, ctx: Context[T], error: Exception, *, step: str = "observe") -> None:
        """Show an unforeseen failure in the conditions; its text may hold anything, so only its type is."""
        ctx.log.warning("failed", step=step, error=type(error).__name__, exc_info=True)
        message = f"{step} failed with {type(error).__name__}; it is retried; the operator's log says more"
        try:
            await self._flush(ctx, Wait("StepFailed", message))
        except KubeError as second:
            ctx.log.warning("cannot report a failure", error=str(second))

    async def _report_refusal(self, ctx: Context[T], error: ApiError, *, step: str) -> Exception:
        """Show what the API server does not accept; what to raise then.

        What is invalid stays so until somebody changes something, and no backoff helps. What is forbidden may be
        allowed at any moment, by a role or a quota that no watch of ours shows: that is tried again.
        """
        text = redact(f"{step}: the API server refused it: {error}; correct what it names")
        forbidden = isinstance(error, Forbidden)
        try:
            why = Wait("Forbidden" if forbidden else "InvalidSpec", text, stalled=True)
            self._actor.refused(ctx, why)
            await self._flush(ctx, why)
        except KubeError as second:
            ctx.log.warning("cannot report a refusal", error=str(second))
        return error if forbidden else Refusal(text, again=INVALID_SECONDS)

    async def _report_undecodable(self, key: Key, bad: BadObject) -> None:
        """Say on the object itself that it cannot be read; nothing that runs is touched."""
        resource = self._actor.kind.resource
        message = f"{bad}; correct the field and apply again"
        states = {
            READY: ConditionState(None, "Undecodable", message),
            STALLED: ConditionState(True, "Undecodable", message),
        }
        self._measure(key, states[READY])
        path = resource.path(namespace=key.namespace, name=key.name)
        try:
            raw = msgspec.json.decode((await self._client.live.request("GET", path)).body)
            have = _at(raw.get("status") or {}, self._conditions)
            if any(entry.get("type") == STALLED and entry.get("message") == message for entry in have):
                return
            now = self._manager.clock.now()
            conditions = merged(have, states, generation=None, now=now, others=have)
            status = _with({}, self._conditions, conditions)
            version = {"resourceVersion": raw["metadata"]["resourceVersion"]}
            await self._client.live.request(
                "PATCH",
                f"{path}/status",
                query={"fieldManager": self._client.live.field_manager},
                body=MergePatch({"metadata": version, "status": status}).encode(),
                content_type=MergePatch.content_type,
            )
        except KubeError as error:
            log.warning("cannot report an undecodable object", key=str(key), error=str(error))
            return
        meta = ObjectMeta(name=key.name, namespace=key.namespace or None, uid=raw["metadata"].get("uid"))
        self._manager.events.warning(self._actor.kind(metadata=meta), "Undecodable", message)

    async def _told(self, obj: T, what: str) -> None:
        await Guard(self._client, key_of(obj), self._on_effect).did(what)


def _result(outcome: InSync | Wait | Terminal) -> Result:
    if isinstance(outcome, Wait):
        return After(outcome.after)
    if isinstance(outcome, InSync) and outcome.again is not None:
        return After(outcome.again)
    return Done()


def _finalizers(obj: Object) -> Sequence[str]:
    return obj.metadata.finalizers or ()


def _plain(status: Any) -> dict[str, Any]:
    return msgspec.to_builtins(status) if status is not None else {}


def _index(actor: Actor[Any], number: int) -> str:
    return f"{actor.name} dependency {number}"


def _dependants(primaries: Sequence[Informer[Any]], index: str) -> Callable[[Object], list[Key]]:
    """From a dependency to the objects that refer to it."""

    def keys(dependency: Object) -> list[Key]:
        value = str(key_of(dependency))
        return [key_of(obj) for primary in primaries for obj in primary.by_index(index, value)]

    return keys


def _at(status: Mapping[str, Any], path: Sequence[str]) -> list[dict[str, Any]]:
    """The list at a path of a status; empty when there is none."""
    found: Any = status
    for name in path:
        found = found.get(name) if isinstance(found, Mapping) else None
    return found if isinstance(found, list) else []


def _with(status: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """The status with a value at a path."""
    name, *below = path
    inner = status.get(name)
    return {
        **status,
        name: _with(inner if isinstance(inner, Mapping) else {}, below, value) if below else value,
    }


def _states(conditions: Iterable[dict[str, Any]]) -> dict[str, ConditionState]:
    return {
        entry["type"]: ConditionState(
            {"True": True, "False": False}.get(entry.get("status") or ""),
            entry.get("reason") or "",
            entry.get("message") or "",
        )
        for entry in conditions
        if entry.get("type") in STANDARD
    }
