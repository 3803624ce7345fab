"""What a user may do, asked of the API server as that user, and remembered for half a minute."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from mooring.cache import Clock
from mooring.console.session import Session
from mooring.console.upstream import Upstream
from mooring.kube import KubeError, Resource, Unauthorized
from mooring.kube.objects.authorization import (
    ResourceAttributes,
    SelfSubjectAccessReview,
    SelfSubjectAccessReviewSpec,
)

__all__ = ["EVERYWHERE", "Access", "Decision"]

Decision = Literal["allowed", "denied", "unknown"]
"""``unknown``: the question got no answer; nothing is shown then, and nothing is called forbidden either."""

#: The namespace that stands for all of them.
EVERYWHERE: Final = ""
#: Seconds a decision counts, decisions kept, questions at once.
FRESH, MOST, AT_ONCE = 30.0, 20_000, 20


@dataclass(frozen=True, slots=True)
class _Question:
    identity: str
    verb: str
    group: str
    plural: str
    namespace: str
    subresource: str


class Access:
    """Decisions by SelfSubjectAccessReview."""

    def __init__(self, upstream: Upstream, clock: Clock) -> None:
        self._upstream = upstream
        self._clock = clock
        self._known: OrderedDict[_Question, tuple[float, Decision]] = OrderedDict()
        self._asking: dict[_Question, asyncio.Task[Decision]] = {}
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def decide(
        self, session: Session, verb: str, resource: Resource, namespace: str, *, subresource: str = ""
    ) -> Decision:
        """Whether the user may; raises `Unauthorized` when the credential is no longer accepted."""
        question = _Question(session.identity, verb, resource.group, resource.plural, namespace, subresource)
        known = self._known.get(question)
        if known is not None and self._clock.monotonic() - known[0] < FRESH:
            return known[1]
        task = self._asking.get(question)
        if task is None:
            task = self._asking[question] = asyncio.create_task(self._ask(session, question))
            task.add_done_callback(lambda _: self._asking.pop(question, None))
            # Who asked may be gone when the answer comes; others may wait for the same.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(task)

    async def allowed(self, session: Session, verb: str, resource: Resource, namespace: str) -> bool:
        """Whether the user surely may."""
        return await self.decide(session, verb, resource, namespace) == "allowed"

    async def namespaces(
        self, session: Session, resource: Resource, candidates: Iterable[str], *verbs: str
    ) -> frozenset[str] | None:
        """Where the user may do all of ``verbs``: None for everywhere, else those of the candidates."""
        if all(await asyncio.gather(*(self.allowed(session, verb, resource, EVERYWHERE) for verb in verbs))):
            return None
        names = list(candidates)
        answers = await asyncio.gather(
            *(self.allowed(session, verb, resource, name) for name in names for verb in verbs)
        )
        count = len(verbs)
        return frozenset(
            name for index, name in enumerate(names) if all(answers[index * count : (index + 1) * count])
        )

    def forget(self, session: Session) -> None:
        """Forget what is known of a user, who has signed out."""
        for question in [q for q in self._known if q.identity == session.identity]:
            del self._known[question]

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, session: Session, question: _Question) -> Decision:
        attributes = ResourceAttributes(
            verb=question.verb,
            group=question.group,
            resource=question.plural,
            namespace=question.namespace or None,
            subresource=question.subresource or None,
        )
        review = SelfSubjectAccessReview(spec=SelfSubjectAccessReviewSpec(resource_attributes=attributes))
        try:
            async with self._slots:
                answer = await self._upstream.client(session).create(review)
        except Unauthorized:
            raise
        except KubeError:
            return "unknown"
        decision: Decision = "allowed" if answer.status is not None and answer.status.allowed else "denied"
        self._known[question] = (self._clock.monotonic(), decision)
        self._known.move_to_end(question)
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return decision
