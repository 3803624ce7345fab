"""One idempotent effect on the servers each; every one may be repeated after a crash at any point."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Final

from mooring.actor import StepFailed
from mooring.cache import SystemClock
from mooring.operators.redis.cluster.certificates import ReadCertificates
from mooring.operators.redis.cluster.mover import MoveFailed, Mover
from mooring.operators.redis.cluster.moves import (
    Attach,
    Claim,
    Expel,
    Follow,
    Forget,
    HandOver,
    Meet,
    Move,
    MoveSlots,
    Promote,
    Release,
    Retire,
    Settle,
    Target,
    Unfollow,
)
from mooring.operators.redis.cluster.slots import Slots, each
from mooring.operators.redis.cluster.topology import SILENCE, UNHEARD, Peer, outranked, read_node
from mooring.operators.redis.dial import Dial, DialError, Link, Refused, Unreachable
from mooring.operators.redis.info import pairs, parse_info
from mooring.operators.redis.passwords.moves import (
    AddPassword,
    PasswordMove,
    PresentPassword,
    ServerAuth,
    SetPassword,
    SwitchPassword,
)
from mooring.operators.redis.passwords.seen import logins
from mooring.operators.redis.passwords.steps import change_password
from mooring.operators.redis.tls import shown_leaf
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.moves import UsersDone, UsersMove
from mooring.operators.redis.users.steps import change_users, together
from mooring.operators.redis.versions import capabilities, server_version
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod

__all__ = ["Steps", "is_database_move"]

AS_IS: Final = 1
FRESH: Final = 2
FOUNDING: Final = 1
HAND_OVER_MS: Final = 3000
"""Milliseconds in which a pair's leader must have handed over; else it goes on leading."""
NODE_TIMEOUT_MS: Final = 15000
"""The default of cluster-node-timeout: a master that hears from no other one serves no longer than that."""
REFUSED: Final = 10000
"""Added to the replicas that a master demands for a write, before 6.2, while it is to take none."""
_POD: Final = Pod(name="", ordinal=0)
_HANDLED: Final = (
    *(Attach, Claim, Expel, Follow, Forget, HandOver, Meet, MoveSlots, Promote, ReadCertificates, Release),
    *(Retire, Settle, Unfollow, AddPassword, PresentPassword, SetPassword, SwitchPassword),
)


def is_database_move(move: Move) -> bool:
    """Whether a move is carried out on the servers, and not in Kubernetes."""
    return isinstance(move, _HANDLED)


class Steps:
    """Carries moves out."""

    def __init__(self, dial: Dial, *, kept: Kept | None = None, access: Access | None = None) -> None:
        self._dial = dial
        self._kept = kept or Kept()
        self._access = access or Access()
        self._password = self._kept.password

    async def run(self, move: Move) -> None:
        """Carry one out; raises `StepFailed` or `DialError` when it failed."""
        try:
            await self._run(move)
        except MoveFailed as error:
            raise StepFailed(str(error)) from error

    async def users(self, move: UsersMove) -> UsersDone:
        """On every server at once; what servers refuse of a user is in the result."""
        done: list[UsersDone] = []

        async def one(target: Target) -> None:
            async with self._link(target) as link:
                done.append(await change_users(link, move, access=self._access, kept=self._kept))

        await _each([one(target) for target in move.targets])
        return together(done)

    async def _run(self, move: Move) -> None:
        match move:
            case Release():
                await _each([self._release(one, AS_IS, move.founding) for one in move.as_is])
                await _each([self._release(one, FRESH, move.founding) for one in move.fresh])
            case Meet():
                await self._meet(move)
            case Claim():
                await _each([self._claim(target, list(each(slots))) for target, slots in move.parts])
            case Attach():
                await _each([self._attach(target, master) for target, master in move.pairs])
            case Promote():
                await self._promote(move)
            case Forget():
                await self._forget(move.targets, move.ids)
            case Expel():
                await self._forget(move.targets, move.ids)
                await _each([self._take_back(target, slots) for target, slots in move.back])
            case Retire():
                await self._retire(move)
            case Unfollow():
                await self._one(move.target, "CLUSTER", "RESET", "SOFT")
            case Settle():
                await Mover(dial=self._dial, password=self._password).settle(move)
            case MoveSlots():
                await Mover(dial=self._dial, password=self._password).move(move)
            case HandOver():
                await self._hand_over(move)
            case Follow():
                await self._follow(move)
            case ReadCertificates():
                await _each([self._read_certificates(target, move) for target in move.targets])
            case PasswordMove():
                await _each([self._change_password(move, one) for one in move.targets])
            case _:
                raise StepFailed(f"{move.name} is no step of a server")

    async def _read_certificates(self, target: Target, move: ReadCertificates) -> None:
        """CONFIG SET of the files; a pod's files follow the Secret within about a minute."""
        late = f"{target.name} has not received the new certificate yet"
        try:
            async with self._link(target) as link:
                await link.call("CONFIG", "SET", "tls-ca-cert-file", f"/mooring/tls/{move.authority}")
                await link.call("CONFIG", "SET", "tls-cert-file", "/mooring/tls/tls.crt")
        except Refused as error:
            raise StepFailed(late) from error
        # A connection shows the certificate that it began with.
        async with self._link(target) as link:
            if shown_leaf(link.certificate) != move.leaf:
                raise StepFailed(late)

    async def _change_password(self, move: PasswordMove, server: ServerAuth) -> None:
        async with self._link(server.target) as link:
            account = self._access.held.presents
            await change_password(link, move, server, kept=self._kept, account=account)

    @asynccontextmanager
    async def _link(self, target: Target) -> AsyncIterator[Link]:
        """A link to exactly this node: an address may belong to somebody else by now."""
        async with self._dial.link(target.address, password=logins(self._kept)) as link:
            if target.id:
                found = await link.call("CLUSTER", "MYID")
                if found != target.id:
                    raise StepFailed(f"{target.name} is not {target.id} any more")
            yield link

    async def _one(self, target: Target, *words: str | int) -> None:
        async with self._link(target) as link:
            await link.call(*words)

    async def _release(self, target: Target, how: int, founding: bool) -> None:
        """The order goes to the very process that was seen: its configuration file bears the pod's name."""
        async with self._dial.link(target.address, password=self._password) as link:
            node = await read_node(link, Pod(name=target.name, ordinal=0))
            if node.gate is None or node.gate.id != target.id:
                return
            config = await link.call("INFO", "server")
            if f"/held/{target.name}." not in str(config):
                raise StepFailed(f"{target.address} is not {target.name} any more")
            await link.call("CONFIG", "SET", "slave-priority", how)
            if founding:
                await link.call("CONFIG", "SET", "slowlog-max-len", FOUNDING)
            await link.call("CONFIG", "REWRITE")
            with contextlib.suppress(Unreachable):
                await link.call("SHUTDOWN", "NOSAVE")

    async def _meet(self, move: Meet) -> None:
        by_target: dict[Target, list[tuple[str, str, str, int]]] = {}
        for target, address in move.pairs:
            by_target.setdefault(target, []).append(("CLUSTER", "MEET", address.ip, address.port))

        async def send(target: Target, commands: Sequence[tuple[str | int, ...]]) -> None:
            async with self._link(target) as link:
                await link.pipeline(commands)

        if move.number:
            # All of them before anybody is introduced: a node that knows somebody refuses it. On a second attempt some
            # do, and that is fine.
            numbers = [("CLUSTER", "SET-CONFIG-EPOCH", at + 1) for at in range(len(by_target))]
            await _each([send(target, [number]) for target, number in zip(by_target, numbers, strict=True)])
        await _each([send(target, commands) for target, commands in by_target.items()])

    async def _claim(self, target: Target, slots: Sequence[int]) -> None:
        await self._one(target, "CLUSTER", "ADDSLOTS", *slots)

    async def _attach(self, target: Target, master: str) -> None:
        await self._one(target, "CLUSTER", "REPLICATE", master)

    async def _promote(self, move: Promote) -> None:
        if (move.failed or move.how == "BUMPEPOCH") and not await self._still_alone(move):
            raise StepFailed(f"the master of {move.target.name} is not lost any more")
        if move.hung and await self._hears(move.target):
            raise StepFailed(f"{move.target.name} hears its master again")
        if move.how == "":
            await self._take_over_in_agreement(move)
            await self._until_master(move)
            return
        await self._fail_over(move.target, move.how)
        try:
            await self._until_master(move)
        except StepFailed:
            # A vote was lost, or had been given away: who voted in a shard gives none for it for two node timeouts. One
            # whose master is known not to serve needs none.
            if move.how != "FORCE" or not await self._still_alone(move):
                raise
            await self._fail_over(move.target, "TAKEOVER")
            await self._until_master(move)

    async def _take_over_in_agreement(self, move: Promote) -> None:
        """What the servers do once they have the votes: writes wait, the replica has them all, and takes over.

        Without votes (CLUSTER FAILOVER): for four node timeouts a replica counts those of its last election again. It
        would be a master for some milliseconds by a number lower than its master's, and lose what it accepts meanwhile.
        """
        async with self._link(move.target) as new:
            heir = (await read_node(new, _POD)).server
            peer = heir.peers.get(move.owner) if heir is not None else None
            if heir is None or peer is None or heir.me.master != move.owner:
                raise StepFailed(f"{move.target.name} does not follow {move.owner} any more")
            if peer.slots & ~move.slots:
                raise StepFailed(f"{move.target.name} has not heard who has slots that its master gave away")
            former = Target(name=f"the master of {move.target.name}", address=peer.address, id=move.owner)
            began = SystemClock().boottime()
            async with AsyncExitStack() as stack:
                old = await stack.enter_async_context(self._link(former))
                # Not the replica's: where versions are rolled it has the new one already.
                version = server_version(parse_info(await old.call("INFO", "server")))
                hold = await stack.enter_async_context(_no_writes(old, version))
                await _caught_up(old, new, move.target.name)
                if SystemClock().boottime() - began > HAND_OVER_MS / 1000:
                    raise StepFailed(f"{move.target.name} took so long that its master may take writes again")
                # From here on it may be a master, also when its answer is lost: the former one must not take writes.
                hold.stays = True
                try:
                    await new.call("CLUSTER", "FAILOVER", "TAKEOVER")
                except Refused:
                    hold.stays = False
                    raise
                await self._until_role(old, "slave", former.name)
                hold.stays = False

    async def _still_alone(self, move: Promote) -> bool:
        """It follows that master still, or stands in for it, and claims no slot that somebody else serves.

        A master that may be running still does not answer it, nor say to us that it serves.
        """
        async with self._link(move.target) as link:
            server = (await read_node(link, _POD)).server
        master = server.peers.get(move.owner) if server is not None else None
        if server is None or master is None or master.slots & ~move.slots:
            return False
        if move.how == "BUMPEPOCH":
            alone = outranked(server, move.owner)
        else:
            alone = server.me.master == move.owner
        lost = not move.failed or server.silence(move.owner) > SILENCE
        if move.hung and server.last_io < UNHEARD:
            return False
        return alone and lost and not ((move.failed or move.hung) and await self._serves(master))

    async def _hears(self, target: Target) -> bool:
        """A replica has had something from its master lately, or lost the connection: then the next pass decides."""
        async with self._link(target) as link:
            server = (await read_node(link, _POD)).server
        return server is None or server.last_io < UNHEARD

    async def _serves(self, peer: Peer) -> bool:
        """It answers, and says so."""
        try:
            async with self._dial.link(peer.address, password=self._password) as link:
                server = (await read_node(link, _POD)).server
        except DialError:
            return False
        return server is not None and server.me.id == peer.id and server.covered

    async def _fail_over(self, target: Target, how: str) -> None:
        words = [how] if how == "BUMPEPOCH" else ["FAILOVER", how]
        await self._one(target, "CLUSTER", *words)

    async def _until_master(self, move: Promote) -> None:
        """A fail-over takes some tens of milliseconds; another step before it is through would disturb it.

        One that claims the slots by a lower number than their former owner's is taken back at once. Clients wait
        meanwhile, so it is given up soon.
        """
        for _ in range(20):
            async with self._link(move.target) as link:
                server = (await read_node(link, _POD)).server
            if server is not None and server.me.is_master and not outranked(server, move.owner):
                return
            await asyncio.sleep(0.05)
        raise StepFailed(f"{move.target.name} has not become a master within a second")

    async def _forget(self, targets: Sequence[Target], ids: Sequence[str]) -> None:
        async def one(target: Target) -> None:
            async with self._link(target) as link:
                answers = await link.pipeline([("CLUSTER", "FORGET", id) for id in ids if id != target.id])
            said = [
                str(one) for one in answers if isinstance(one, Refused) and "nknown node" not in one.reply
            ]
            if said:
                raise StepFailed("; ".join(said))

        await _each([one(target) for target in targets])

    async def _take_back(self, target: Target, slots: Slots) -> None:
        """Slots that no node has any more; a higher epoch convinces the nodes that could not be told to forget."""
        async with self._link(target) as link:
            server = (await read_node(link, _POD)).server
            if server is None or not server.me.is_master:
                raise StepFailed(f"{target.name} is no master any more")
            for peer in server.peers.values():
                slots &= ~peer.slots
            if slots:
                await link.call("CLUSTER", "ADDSLOTS", *each(slots))
            await link.call("CLUSTER", "BUMPEPOCH")

    async def _retire(self, move: Retire) -> None:
        """Looked at once more on the nodes themselves: what has slots, or a master with keys, is not given up."""
        for target in move.leavers:
            async with self._link(target) as link:
                node = await read_node(link, Pod(name=target.name, ordinal=0))
            server = node.server
            if server is None or server.me.slots or (server.me.is_master and server.keys):
                raise StepFailed(f"{target.name} has slots or keys of its own; it is not taken out")
        await self._forget(move.rest, [one.id for one in move.leavers])

    async def _hand_over(self, move: HandOver) -> None:
        """Hold writes until the heir has them all, let the two change places, and make clients look for the leader again.

        From 6.2 the servers do it themselves (FAILOVER).
        """
        async with (
            self._dial.link(move.leader.address, password=self._password) as old,
            self._dial.link(move.heir.address, password=self._password) as new,
        ):
            if capabilities(move.version).pause_writes:
                await old.call("FAILOVER", "TO", *move.heir.address, "TIMEOUT", HAND_OVER_MS)
            else:
                async with _no_writes(old, move.version):
                    await _caught_up(old, new, move.heir.name)
                    await new.call("SLAVEOF", "NO", "ONE")
                    await old.call("SLAVEOF", *move.heir.address)
            await self._until_role(new, "master", move.heir.name)
            await new.call("CONFIG", "SET", "slave-priority", 100)
            await old.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    async def _until_role(self, link: Link, role: str, name: str) -> None:
        for _ in range(HAND_OVER_MS // 50):
            if (await link.call("ROLE"))[0] == role:
                return
            await asyncio.sleep(0.05)
        raise StepFailed(f"{name} has not become {role} within {HAND_OVER_MS / 1000:.0f} s")

    async def _follow(self, move: Follow) -> None:
        async with self._dial.link(move.target.address, password=self._password) as link:
            if move.leader is None:
                await link.call("SLAVEOF", "NO", "ONE")
                await link.call("CONFIG", "SET", "slave-priority", 100)
            else:
                await link.call("SLAVEOF", move.leader.ip, move.leader.port)


@dataclass
class _Hold:
    """What becomes of the writes that wait, at the end."""

    stays: bool = False
    """They wait on: the slots may be somebody else's, and the former master has not heard so."""


@asynccontextmanager
async def _no_writes(master: Link, version: str) -> AsyncIterator[_Hold]:
    """Writes wait, at most twice as long as a hand-over may take; before 6.2 they are refused.

    That is by a demand for more replicas than there are: an error that clients see, in place of a write that is
    acknowledged and lost. A `_Hold` that stays lasts as long as a master serves that hears from nobody; before 6.2 until
    the next hand-over, or the next start.
    """
    hold = _Hold()
    if capabilities(version).pause_writes:
        await master.call("CLIENT", "PAUSE", 2 * HAND_OVER_MS, "WRITE")
        try:
            yield hold
        finally:
            if hold.stays:
                await master.call("CLIENT", "PAUSE", NODE_TIMEOUT_MS, "WRITE")
            else:
                await master.call("CLIENT", "UNPAUSE")
        return
    found = int(pairs(await master.call("CONFIG", "GET", "min-slaves-to-write"))["min-slaves-to-write"])
    # A hand-over that broke off may have left its demand, which tells what was there before.
    kept = found % REFUSED
    await master.call("CONFIG", "SET", "min-slaves-to-write", REFUSED + kept)
    try:
        yield hold
    finally:
        if not hold.stays:
            await master.call("CONFIG", "SET", "min-slaves-to-write", kept)


async def _caught_up(old: Link, new: Link, name: str) -> None:
    """The replica has all that its master has, which takes no writes meanwhile."""
    master = (await read_node(old, _POD)).server
    for _ in range(HAND_OVER_MS // 50):
        heir = (await read_node(new, _POD)).server
        if master is not None and heir is not None and heir.offset >= master.offset:
            return
        await asyncio.sleep(0.05)
    raise StepFailed(f"{name} does not catch up with its master")


async def _each(steps: Sequence[object]) -> None:
    """All at once; the first failure is raised after all have ended."""
    answers = await asyncio.gather(*steps, return_exceptions=True)  # type: ignore[call-overload]
    failed = [one for one in answers if isinstance(one, BaseException)]
    for one in failed:
        if not isinstance(one, (DialError, StepFailed)):
            raise one
    if failed:
        raise failed[0]
