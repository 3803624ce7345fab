"""The catalog of a running console: the packaged entries, and those that are objects of the cluster.

A ClusterServiceTemplate is offered to all, and takes the place of a packaged entry only if it says so. A ServiceTemplate
is offered in its namespace, to those who may read it there. Both are linted; their status says why one is not offered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import structlog

from mooring.cache import Clock, Informer, Transition
from mooring.catalog import (
    CLUSTER_TEMPLATES,
    TEMPLATES,
    CatalogError,
    Entry,
    StoredClusterTemplate,
    StoredTemplate,
    Target,
    entry_of,
    lint_schema,
)
from mooring.console.access import Access
from mooring.console.session import Session
from mooring.console.upstream import Upstream
from mooring.console.watches import Watches
from mooring.kube import Forbidden, Key, KubeError, MergePatch, NotFound, Object, Resource

__all__ = ["Templates", "distinct"]

log = structlog.get_logger("mooring.console")

#: Seconds between two looks for kinds that are not served yet; entries of the cluster at most; problems in a status.
LOOK_AGAIN, MOST_TEMPLATES, MOST_PROBLEMS = 30.0, 1000, 20
#: Characters of a line in a status.
LINE_LIMIT: Final = 500
_DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Stored = tuple[Resource, Key]


def distinct(entries: Sequence[Entry]) -> list[Entry]:
    """One entry for each kind, the first: an instance is listed once, whatever entries could make it."""
    found: dict[tuple[str, str], Entry] = {}
    private: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        kind = (entry.spec.target.group, entry.spec.target.plural)
        if not entry.namespace:
            found.setdefault(kind, entry)
        else:
            private.setdefault((*kind, entry.namespace), entry)
    return [*found.values(), *(entry for key, entry in private.items() if key[:2] not in found)]


class Templates:
    """Entries by name. Without ``watch`` the packaged ones alone."""

    def __init__(
        self,
        packaged: Mapping[str, Entry],
        *,
        watches: Watches,
        access: Access,
        upstream: Upstream,
        clock: Clock,
        watch: bool,
    ) -> None:
        self._packaged = dict(packaged)
        self._watches = watches
        self._access = access
        self._upstream = upstream
        self._clock = clock
        self._watch = watch
        self._made: dict[Stored, Entry] = {}
        self._wrong: dict[Stored, list[str]] = {}
        self._waiting: dict[Stored, None] = {}
        self._again: set[Stored] = set()
        self._sources: dict[Resource, list[Informer[Any]]] = {}
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to look for entries in the cluster."""
        if self._watch:
            self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._work())]

    async def stop(self) -> None:
        """Stop looking."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- what is offered

    @property
    def shared(self) -> dict[str, Entry]:
        """The entries for all."""
        made = {entry.name: entry for entry in self._made.values() if not entry.namespace}
        return self._packaged | made

    async def visible(self, session: Session) -> dict[str, Entry]:
        """The entries for all, and those of namespaces in which the user may list them."""
        private: dict[str, list[Entry]] = {}
        for entry in self._made.values():
            if entry.namespace:
                private.setdefault(entry.namespace, []).append(entry)
        if not private:
            return self.shared
        where = await self._access.namespaces(session, TEMPLATES, sorted(private), "list")
        shown = [
            entry for name in sorted(private) if where is None or name in where for entry in private[name]
        ]
        return self.shared | {entry.name: entry for entry in sorted(shown, key=lambda each: each.name)}

    async def problems(self, session: Session) -> list[str]:
        """What is wrong with templates, a line each: those for all, and those that the user may list."""
        lines: list[str] = []
        for (resource, key), found in sorted(self._wrong.items(), key=lambda each: str(each[0][1])):
            if key.namespace and not await self._access.allowed(session, "list", resource, key.namespace):
                continue
            lines += [f"{resource.kind} {key}: {problem}" for problem in found]
        return lines

    async def find(self, session: Session, name: str) -> Entry | None:
        """The entry of that name, if there is one that the user may see."""
        namespace, private, _ = name.partition(":")
        if not private:
            return self.shared.get(name)
        found = next((entry for entry in self._made.values() if entry.name == name), None)
        if found is None or not await self._access.allowed(session, "list", TEMPLATES, namespace):
            return None
        return found

    # --- what there is

    async def _follow(self) -> None:
        """Watch both kinds as soon as they are served."""
        kinds = {TEMPLATES: StoredTemplate, CLUSTER_TEMPLATES: StoredClusterTemplate}
        while True:
            for resource, kind in kinds.items():
                if resource not in self._sources:
                    try:
                        await self._start(resource, kind)
                    except KubeError as error:
                        log.warning("templates cannot be watched", kind=resource.kind, reason=str(error))
            self._wait_for(self._again)
            self._again.clear()
            await self._clock.sleep(LOOK_AGAIN)

    async def _start(self, resource: Resource, kind: type[Object]) -> None:
        target = Target(
            group=resource.group, version=resource.version, kind=resource.kind, plural=resource.plural
        )
        if not await self._watches.serves(target):
            return
        informers = await self._watches.follow(kind)
        if not informers:
            return
        self._sources[resource] = informers
        for informer in informers:
            informer.add_handler(lambda change: self._changed(resource, change))

    def _changed(self, resource: Resource, change: Transition[Any]) -> None:
        stored = (resource, change.key)
        if change.new is None:
            self._made.pop(stored, None)
            self._wrong.pop(stored, None)
        self._wait_for([stored])

    def _wait_for(self, some: Any) -> None:
        self._waiting.update(dict.fromkeys(some))
        self._wake.set()

    async def _work(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                stored = next(iter(self._waiting))
                del self._waiting[stored]
                try:
                    await self._look(stored)
                except KubeError as error:
                    log.warning("a template cannot be looked at", key=str(stored[1]), reason=str(error))
                    self._again.add(stored)
                except Exception:
                    # One template must not keep the others from being looked at.
                    self._made.pop(stored, None)
                    self._wrong[stored] = ["the console cannot look at this template; its log says why"]
                    log.exception("a template cannot be looked at", key=str(stored[1]))

    async def _look(self, stored: Stored) -> None:
        """Lint one template; offer it, or say in its status why not."""
        resource, key = stored
        found = next(
            (obj for informer in self._sources[resource] if (obj := informer.peek(key)) is not None), None
        )
        if found is None:
            self._made.pop(stored, None)
            self._wrong.pop(stored, None)
            return
        reason, problems = "Offered", []
        try:
            entry = await asyncio.to_thread(entry_of, found)
            if problems := await self._problems(entry, stored):
                reason = "DoesNotFit"
        except CatalogError as error:
            entry, reason, problems = None, "DoesNotLint", list(error.problems)
        if entry is not None and not problems:
            if not entry.namespace and entry.name in self._packaged and not entry.spec.override:
                reason = "NameTaken"
                problems = ["metadata.name: a packaged entry has it; spec.override: true takes its place"]
            elif stored not in self._made and len(self._made) >= MOST_TEMPLATES:
                reason, problems = "TooMany", [f"the console offers {MOST_TEMPLATES} templates at most"]
        if entry is None or problems:
            self._made.pop(stored, None)
            self._wrong[stored] = problems[:MOST_PROBLEMS]
        else:
            self._wrong.pop(stored, None)
            self._made[stored] = entry
        await self._tell(found, reason, problems)

    async def _problems(self, entry: Entry, stored: Stored) -> list[str]:
        """What does not fit the definition of the kind; nothing where there is none, or the console may not read it."""
        target = entry.spec.target
        try:
            answer = await self._upstream.own.request("GET", f"{_DEFINITIONS}/{target.plural}.{target.group}")
        except NotFound:
            self._again.add(stored)
            return []
        except Forbidden:
            return []
        return lint_schema(entry, msgspec.json.decode(answer.body))

    async def _tell(self, found: Object, reason: str, problems: Sequence[str]) -> None:
        """Write the status, unless it says so already."""
        before = getattr(found, "status", None)
        before = before if isinstance(before, dict) else {}
        generation = found.metadata.generation or 0
        ready = "False" if problems else "True"
        lines = [line[:LINE_LIMIT] for line in problems[:MOST_PROBLEMS]]
        condition: dict[str, Any] = {
            "type": "Ready",
            "status": ready,
            "reason": reason,
            "message": lines[0] if lines else "The console offers it.",
            "observedGeneration": generation,
        }
        old: dict[str, Any] = next(
            (one for one in before.get("conditions") or () if one.get("type") == "Ready"), {}
        )
        same = all(old.get(name) == value for name, value in condition.items())
        if same and before.get("problems", []) == lines and before.get("observedGeneration") == generation:
            return
        changed = old.get("status") != ready or not old.get("lastTransitionTime")
        now = self._clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition["lastTransitionTime"] = now if changed else old["lastTransitionTime"]
        status = {"observedGeneration": generation, "conditions": [condition], "problems": lines or None}
        try:
            await self._upstream.own.patch(
                type(found),
                found.metadata.name or "",
                MergePatch({"status": status}),
                namespace=found.metadata.namespace or "",
                subresource="status",
            )
        except NotFound:
            pass  # it has gone meanwhile
        except Forbidden as error:
            log.warning("the status of a template cannot be written", reason=str(error))
