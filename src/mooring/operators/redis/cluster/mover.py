"""Slots move with their keys: marked on both sides, emptied, given away, verified, a few slots at a time.

Nothing is kept here: where a slot stands is read from the two nodes, so that any process can continue. A key that is on
both sides after a crash is the source's as long as the source owns the slot, for its clients wrote there last.
Keys travel in batches bounded by number and by bytes, since MIGRATE holds up both servers while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, TypeVar

from mooring.operators.redis.cluster.moves import MoveSlots, Settle, Target
from mooring.operators.redis.cluster.slots import each
from mooring.operators.redis.cluster.topology import Peer, parse_nodes
from mooring.operators.redis.dial import Dial, DialError, Link, Login, Refused

__all__ = ["BATCH_BYTES", "MoveFailed", "Mover", "batches"]

T = TypeVar("T")
CHUNK: Final = 128
"""Slots that are marked, emptied and given away together."""
BATCH_BYTES: Final = 1 << 20
"""Keys of more memory than this together do not travel in one MIGRATE; a larger one travels alone."""
WIDTH: Final = 16
"""MIGRATEs sent at once; other clients of the source wait for all of them."""
BATCH_TIMEOUT: Final = 20_000
"""Milliseconds for one MIGRATE; a key of a hundred megabytes takes about a second on a local network."""
TURN: Final = 1.0
"""Seconds until the cluster is looked at again."""


class MoveFailed(Exception):
    """A slot could not be moved; it stays with its owner, and the next pass decides again."""


@dataclass(kw_only=True)
class Mover:
    """Moves slots from one node to another."""

    dial: Dial
    password: str = field(default="", repr=False)
    logins: dict[str, Login] = field(default_factory=dict, repr=False)
    """What nodes took, by name, where that was an account of the operator's."""

    async def move(self, step: MoveSlots) -> int:
        """Move for about a second; how many slots are done."""
        slots = list(each(step.transfer.slots))
        done = 0
        async with AsyncExitStack() as stack:
            links = await self._open(stack, step.source, step.target, step.masters)
            # Before it owns a slot no replica would take over from it; so the first one goes alone.
            chunk = 1 if step.rate else CHUNK
            size = chunk if await _owns(links.target) else 1
            until = monotonic() + TURN
            while done < len(slots) and monotonic() < until:
                part = slots[done : done + size]
                await self._chunk(links, part, step.pipeline, step.rate)
                done, size = done + len(part), chunk
        return done

    async def settle(self, step: Settle, pipeline: int = 10) -> None:
        """Bring half-way slots together, at the one that clients are sent to if it has keys, else at their owner.

        The marks alone do not tell where keys are: a replica that took over from a target that died has its keys and
        not its marks, so every master is asked.
        """
        owner, slots = step.owner, list(each(step.slots))
        async with AsyncExitStack() as stack:
            links = {one: await self._link(stack, one) for one in step.masters}
            keys = {
                one: await self._with_keys(link, slots) for one, link in links.items() if one.id != owner.id
            }
            meant = next((one for one in keys if one.id == step.meant), None)
            forward = [slot for slot in slots if meant is not None and slot in keys[meant]]
            for place, part in ((meant, forward), (owner, [slot for slot in slots if slot not in forward])):
                if place is None or not part:
                    continue
                others = [one for one in links if one not in (owner, place)]
                if place is not owner:
                    rest = [links[one] for one in others]
                    ids = (owner, place)
                    await self._chunk(
                        _Links(source=links[owner], target=links[place], others=rest, ids=ids), part, pipeline
                    )
                await _quiet(links[place], part)
                for one in others:
                    await self._bring(
                        links[one], place, [slot for slot in part if slot in keys[one]], pipeline
                    )
                    await _quiet(links[one], part, owner=place.id)

    async def _with_keys(self, link: Link, slots: Sequence[int]) -> set[int]:
        counts = _all_done(await link.pipeline([("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in slots]))
        return {slot for slot, count in zip(slots, counts, strict=True) if count}

    async def _bring(self, link: Link, owner: Target, slots: Sequence[int], pipeline: int) -> None:
        """Send keys to the owner of their slots, whose own copy is the newer one."""
        for slot in slots:
            # A node takes orders about keys of a slot that is not its own only while it has this mark.
            await link.call(*_setslot(slot, "IMPORTING", owner.id))
            while keys := await link.call("CLUSTER", "GETKEYSINSLOT", slot, pipeline):
                for key in keys:
                    [answer] = await link.pipeline([self._migration(owner, [key])])
                    if isinstance(answer, Refused) and "BUSYKEY" in answer.reply:
                        _all_done(await link.pipeline([("ASKING",), ("DEL", key)]))
                    else:
                        _all_done([answer])

    def _migration(self, target: Target, keys: Sequence[str], *how: str) -> list[str | int]:
        address = target.address
        auth = self._auth(target)
        return ["MIGRATE", address.ip, address.port, "", 0, BATCH_TIMEOUT, *how, *auth, "KEYS", *keys]

    def _auth(self, target: Target) -> list[str]:
        """The source presents to the target what the target took from us."""
        login = self.logins.get(target.name, self.password)
        if isinstance(login, str):
            return ["AUTH", login] if login else []
        return ["AUTH2", *login]

    async def _link(self, stack: AsyncExitStack, one: Target) -> Link:
        opened = await stack.enter_async_context(
            self.dial.link(
                one.address, password=self.password, reply_timeout=BATCH_TIMEOUT / 1000 + 5, exact=True
            )
        )
        found = await opened.call("CLUSTER", "MYID") if one.id else ""
        if found != one.id:
            raise MoveFailed(f"{one.name} is not {one.id} any more; the slots are planned again")
        if not isinstance(opened.login, str):
            self.logins[one.name] = opened.login
        return opened

    async def _open(
        self, stack: AsyncExitStack, source: Target, target: Target, masters: Sequence[Target]
    ) -> _Links:
        others = []
        for one in masters:
            if one.id not in (source.id, target.id):
                try:
                    others.append(await self._link(stack, one))
                except (DialError, MoveFailed):
                    continue  # it learns by gossip
        return _Links(
            source=await self._link(stack, source),
            target=await self._link(stack, target),
            others=others,
            ids=(source, target),
        )

    async def _chunk(self, links: _Links, slots: Sequence[int], pipeline: int, rate: float = 0.0) -> None:
        source, target = links.ids
        await self._outrank(links)
        _all_done(await links.target.pipeline([_setslot(one, "IMPORTING", source.id) for one in slots]))
        _all_done(await links.source.pipeline([_setslot(one, "MIGRATING", target.id) for one in slots]))
        for _ in range(3):
            await self._empty(links, slots, pipeline, rate)
            # The target first: should we die in between, it owns what it holds, and the source follows.
            _all_done(await links.target.pipeline([_setslot(one, "NODE", target.id) for one in slots]))
            answers = await links.source.pipeline([_setslot(one, "NODE", target.id) for one in slots])
            # Who hears of the loss of its last slot before follows the target, and needs no word from us.
            if all("only with masters" in one.reply for one in answers if isinstance(one, Refused)):
                break
        else:
            raise MoveFailed(f"{source.name} keeps keys in slots {slots[0]} to {slots[-1]}")
        for link in links.others:
            try:
                await link.pipeline([_setslot(one, "NODE", target.id) for one in slots])
            except DialError:
                continue  # it learns by gossip
        await self._verify(links, slots)

    async def _outrank(self, links: _Links) -> None:
        """The target's configuration epoch is above the source's.

        A node that takes a slot over raises its own above all that it has heard of. Where it has not heard of the
        source's yet, nodes that have, and do not know of the change, would make it give the slot back, and delete its
        keys.
        """
        source, target = links.ids
        for _ in range(40):
            giver = await _itself(links.source)
            if not giver.is_master or (await _itself(links.target)).epoch > giver.epoch:
                return
            if "BUMPED" not in await links.target.call("CLUSTER", "BUMPEPOCH"):
                await links.source.call("CLUSTER", "MEET", target.address.ip, target.address.port)
                await asyncio.sleep(0.05)
        raise MoveFailed(f"{target.name} has not received {source.name}'s configuration epoch")

    async def _empty(self, links: _Links, slots: Sequence[int], pipeline: int, rate: float) -> None:
        """Send keys until the source has none in these slots."""
        source, left = links.source, list(slots)
        before: dict[int, list[str]] = {}
        while left:
            answers = _all_done(
                await source.pipeline([("CLUSTER", "GETKEYSINSLOT", slot, pipeline) for slot in left])
            )
            held = {slot: keys for slot, keys in zip(left, answers, strict=True) if keys}
            flat = [key for keys in held.values() for key in keys]
            if not flat:
                return
            if held == before:
                raise MoveFailed(
                    f"slot {next(iter(held))}: its keys were sent and are still at {links.ids[0].name}"
                )
            before = held
            sizes = dict(
                zip(
                    flat,
                    map(_size, await source.pipeline([("MEMORY", "USAGE", key) for key in flat])),
                    strict=True,
                )
            )
            bundles = [
                ((slot, batch), sum(sizes[key] for key in batch))
                for slot, keys in held.items()
                for batch in batches([(key, sizes[key]) for key in keys], BATCH_BYTES)
            ]
            for group in batches(bundles, BATCH_BYTES):
                for start in range(0, len(group), WIDTH):
                    part = group[start : start + WIDTH]
                    await self._migrate(links, part)
                    if rate:
                        await asyncio.sleep(sum(sizes[key] for _, keys in part for key in keys) / rate)
            left = list(held)

    async def _migrate(self, links: _Links, groups: Sequence[tuple[int, Sequence[str]]]) -> None:
        """Several MIGRATEs at once, the keys of one slot each."""
        target = links.ids[1]
        answers = await links.source.pipeline([self._migration(target, keys) for _, keys in groups])
        for (slot, keys), answer in zip(groups, answers, strict=True):
            if isinstance(answer, Refused) and "BUSYKEY" in answer.reply:
                # The source owns the slot, so its copy is the newer one.
                [answer] = await links.source.pipeline([self._migration(target, keys, "REPLACE")])
            if isinstance(answer, Refused):
                raise MoveFailed(f"slot {slot}: {answer}") from answer

    async def _verify(self, links: _Links, slots: Sequence[int]) -> None:
        """No key is left behind, and both sides say who owns them."""
        source, target = links.ids
        follows = (await _itself(links.source)).master == target.id
        counts = _all_done(
            await links.source.pipeline([("CLUSTER", "COUNTKEYSINSLOT", one) for one in slots])
        )
        if any(counts) and not follows:
            raise MoveFailed(f"{source.name} still has keys in slots it gave away")
        wanted = sum(1 << slot for slot in slots)
        await self._outrank(links)
        for link, name in ((links.target, target.name), (links.source, source.name)):
            view = parse_nodes(await link.call("CLUSTER", "NODES"))
            owner = next((peer for peer in view if peer.id == target.id), None)
            if owner is None or wanted & ~owner.slots:
                raise MoveFailed(
                    f"{name} does not say that {target.name} owns slots {slots[0]} to {slots[-1]}"
                )


@dataclass(frozen=True, kw_only=True)
class _Links:
    source: Link
    target: Link
    others: Sequence[Link]
    ids: tuple[Target, Target]


def batches(sized: Sequence[tuple[T, int]], limit: int) -> Iterator[list[T]]:
    """Things with their sizes in groups of at most ``limit`` bytes; a larger one is a group by itself."""
    group: list[T] = []
    weight = 0
    for one, size in sized:
        if group and weight + size > limit:
            yield group
            group, weight = [], 0
        group.append(one)
        weight += size
    if group:
        yield group


async def _quiet(link: Link, slots: Sequence[int], *, owner: str = "") -> None:
    """Take a node's marks off, and tell it who owns the slots if it is another."""
    if owner:
        _all_done(await link.pipeline([_setslot(slot, "NODE", owner) for slot in slots]))
    _all_done(await link.pipeline([("CLUSTER", "SETSLOT", slot, "STABLE") for slot in slots]))


async def _owns(link: Link) -> bool:
    """Whether a node says that it has slots."""
    return bool((await _itself(link)).slots)


async def _itself(link: Link) -> Peer:
    """What a node says of itself."""
    view = parse_nodes(await link.call("CLUSTER", "NODES"))
    return next(one for one in view if "myself" in one.flags)


def _setslot(slot: int, state: str, node: str) -> tuple[str, str, int, str, str]:
    return ("CLUSTER", "SETSLOT", slot, state, node)


def _size(answer: Any) -> int:
    """Bytes; a server before 4.0 cannot tell, a key may be gone."""
    return answer if isinstance(answer, int) else 0


def _all_done(answers: Sequence[Any]) -> list[Any]:
    refused = next((one for one in answers if isinstance(one, Refused)), None)
    if refused is not None:
        raise MoveFailed(str(refused)) from refused
    return list(answers)
