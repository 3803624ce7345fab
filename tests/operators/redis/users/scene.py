"""A cluster's users as data: what is declared, what its servers show, and steps carried out on both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import structs

from mooring.kube.objects.core import Secret
from mooring.operators.redis.users.accounts import DEFAULT, REPLICA, SENTINEL
from mooring.operators.redis.users.held import Access, Held, after, digest_of
from mooring.operators.redis.users.inputs import read_access
from mooring.operators.redis.users.moves import (
    PresentAccount,
    RemoveUsers,
    SetUsers,
    UsersDone,
    UsersMove,
)
from mooring.operators.redis.users.plan import ServerUsers, next_users, state_of
from mooring.operators.redis.users.seen import SeenUsers, read_users, rules_shown
from mooring.operators.redis.users.types import DefaultUserSpec, UserSecret, UserSpec
from mooring.operators.workload.containers import encoded

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
ACCOUNTS = {name: f"of-{name}" for name in SENTINEL}
OFF = DefaultUserSpec(mode="Off")


def declared(name: str = "app", *rules: str, key: str = "one", **more: Any) -> UserSpec:
    ref = UserSecret(name="given", key=key)
    made = UserSpec(name=name, rules=list(rules or ("~*", "+@read")), password_secrets=[ref])
    return structs.replace(made, **more)


@dataclass
class Line:
    """A user as a server has it."""

    on: bool = True
    hashes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    nopass: bool = False

    def text(self, name: str) -> str:
        words = ["user", name, "on" if self.on else "off", *(["nopass"] if self.nopass else [])]
        return " ".join([*words, *(f"#{one}" for one in self.hashes), *self.rules])


@dataclass
class Server:
    """One server; before 6.0 it has no users."""

    version: str = "7.0.15"
    presents: bool = False
    users: dict[str, Line] = field(
        default_factory=lambda: {DEFAULT: Line(nopass=True, rules=("~*", "&*", "+@all"))}
    )

    def seen(self, access: Access) -> SeenUsers | None:
        if self.version < "6":
            return None
        auth = [["masteruser", REPLICA if self.presents else ""], ["masterauth", ACCOUNTS[REPLICA]]]
        lines = [line.text(name) for name, line in self.users.items()]
        return read_users(access, self.version, ACCOUNTS[REPLICA], [lines, *auth])


@dataclass
class Scene:
    """What `next_users` reads, and a place to carry out what it decides."""

    users: Sequence[UserSpec] = ()
    default: DefaultUserSpec | None = None
    texts: Mapping[str, str] = field(default_factory=lambda: {"one": "first"})
    servers: dict[str, Server] = field(default_factory=lambda: {"a": Server(), "b": Server()})
    held: Held = field(default_factory=Held)
    ready: bool = True
    calm: bool = True
    refused: dict[str, str] = field(default_factory=dict)
    now: datetime = NOW

    @property
    def access(self) -> Access:
        secret = Secret(data={key: encoded(text) for key, text in self.texts.items()})
        made = read_access(
            self.users,
            self.default,
            secret=None,
            find=lambda name: secret if name == "given" else None,
            accounts=ACCOUNTS,
            fresh=False,
        )
        return replace(made, held=self.held)

    @property
    def answering(self) -> list[ServerUsers]:
        return [
            ServerUsers(name=name, version=one.version, users=one.seen(self.access))
            for name, one in self.servers.items()
        ]

    def decide(self) -> UsersMove | None:
        return next_users(
            state_of(self.access, ready=self.ready, grace=60.0),
            self.answering,
            now=self.now,
            refused=self.refused,
            sentinels=True,
            calm=self.calm,
        )

    def carry_out(self, move: UsersMove, *, refusing: Callable[[str], str] = lambda name: "") -> UsersDone:
        """As a step does: servers first, then what the Secret keeps."""
        access, shown, refused = self.access, dict[str, dict[str, str]](), dict[str, str]()
        settle = isinstance(move, SetUsers) and move.settle
        for name in move.targets:
            server = self.servers[name]
            for one in move.users if isinstance(move, SetUsers) else ():
                if said := refusing(one.name):
                    refused[one.name] = said
                    continue
                spare = () if settle else access.spare(one.name)
                hashes = (*access.valid(one.name), *spare)
                server.users[one.name] = Line(on=one.enabled, hashes=hashes, rules=one.rules)
                rules = {server.version: rules_shown(server.version, one.rules)}
                shown.setdefault(one.name, {}).update(rules)
            for gone in move.names if isinstance(move, RemoveUsers) else ():
                server.users.pop(gone, None)
            server.presents = server.presents or isinstance(move, PresentAccount)
        done = UsersDone(shown=shown, refused=refused)
        self.held = after(access, move, done, now=self.now)
        return done

    def settle(self) -> list[UsersMove]:
        """Carry out everything there is to do; the steps that were taken."""
        taken: list[UsersMove] = []
        while (move := self.decide()) is not None:
            assert len(taken) < 12, [one.why for one in taken]
            taken.append(move)
            self.carry_out(move)
        return taken

    def later(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def takes(self, name: str) -> list[set[str]]:
        """Hashes that each server takes of a user."""
        return [set(one.users[name].hashes) if name in one.users else set() for one in self.servers.values()]


def hashes(*texts: str) -> set[str]:
    return {digest_of(text) for text in texts}
