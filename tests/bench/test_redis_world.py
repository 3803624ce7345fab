"""The model of Redis answers as redis-server and redis-sentinel 7.0 do, command by command.

Three servers and three sentinels run beside three and three of the model, at the same addresses. Every command is
sent to both through the operators' own `Dial`. What a real one does in its own time (a link comes up, sentinels hear
of each other) is waited for; what has to differ (ids, offsets, seconds) is masked, ids one for one.
"""

from __future__ import annotations

import asyncio
import random
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from time import monotonic
from typing import Any

import pytest
from bench.redis_model import Connection
from bench.redis_world import CONFIG, Sentinel, Server, World

from mooring.operators.redis.dial import Address, Dial, DialError, Login, Refused
from mooring.operators.redis.info import pairs, parse_info
from mooring.operators.redis.sentinel.topology import GATE

pytestmark = [
    pytest.mark.embedded,
    pytest.mark.skipif(not shutil.which("redis-server"), reason="no redis-server here"),
]

ROOT = Path(__file__).resolve().parents[2]
#: Seconds that a real server may take to come to what the model is at once.
DEADLINE = 8.0
NAMES = ("redis-0", "redis-1", "redis-2", "sentinel-0", "sentinel-1", "sentinel-2")
START = {"repl-diskless-sync-delay": "0", "save": "", "replica-priority": "0", "hz": "100"}
QUICK = "SENTINEL DEBUG INFO-PERIOD 100 PING-PERIOD 100 PUBLISH-PERIOD 500 ASK-PERIOD 100"

#: What the operator reads of INFO and of what sentinels tell; everything else is nobody's business.
FIELDS = re.compile(
    "redis_version|run_id|loading|async_loading|master_replid2?|second_repl_offset|(master|slave)_repl_offset|role|"
    "master_(host|port)|master_link_status|master_sync_in_progress|slave_priority|master_link_down_since_seconds|"
    "rdb_bgsave_in_progress|aof_rewrite_in_progress|connected_slaves|(slave|db)[0-9]+|"
    "name|ip|port|flags|runid|config-epoch|quorum|down-after-milliseconds|failover-timeout|parallel-syncs|num-slaves|"
    "num-other-sentinels|role-reported|master-link-status|master-(host|port)|slave-priority"
)
OFFSETS = re.compile(r"_offset|down_since")
ID = re.compile(r"[0-9a-f]{40}")
WAITED_FOR = (
    "INFO",
    "ROLE",
    "GET",
    "DBSIZE",
    "SENTINEL MASTERS",
    "SENTINEL SLAVES",
    "SENTINEL SENTINELS",
    "SENTINEL CKQUORUM",
)


class Both:
    """The real ones and the model, asked alike."""

    def __init__(self, world: World, ips: dict[str, str]) -> None:
        self.ips = ips
        self.compared: Counter[str] = Counter()
        self._real, self._model = Dial(connect_timeout=10.0, reply_timeout=10.0), _ModelDial(world)
        self._ids: dict[str, str] = {}

    async def say(self, who: str, command: str, *, password: str | Sequence[Login] = "") -> None:
        """Send one command to both and compare what they answer; {redis-0} stands for its address."""
        words = ["" if word == "''" else word.format_map(_Ips(self.ips)) for word in command.split()]
        head = _head(words)
        self.compared[head] += 1
        model = _comparable(words, await _ask(self._model, self._address(who), words, password))
        deadline = monotonic() + (DEADLINE if head in WAITED_FOR else 0.0)
        while True:
            real = _comparable(words, await self._really(who, words, password))
            if (ids := self._alike(real, model)) is not None:
                self._ids |= ids
                return
            if monotonic() > deadline:
                raise AssertionError(f"{who}: {command}\n  real:  {real}\n  model: {model}")
            await asyncio.sleep(0.05)

    async def _really(self, who: str, words: list[str], password: str | Sequence[Login]) -> Any:
        if _head(words) == "CLIENT KILL":
            return await _killed(self._real, self._address(who), words, password)
        return await _ask(self._real, self._address(who), words, password)

    def _address(self, who: str) -> Address:
        return Address(self.ips[who], 26379 if who.startswith("sentinel") else 6379)

    def _alike(self, real: Any, model: Any) -> dict[str, str] | None:
        """The ids that stand for each other when the answers are equal but for them, else None."""
        ours, theirs = repr(model), repr(real)
        if ID.sub("<id>", ours) != ID.sub("<id>", theirs):
            return None
        found = dict(self._ids)
        for one, other in zip(ID.findall(ours), ID.findall(theirs), strict=True):
            if found.setdefault(one, other) != other:
                return None
        return found if len(set(found.values())) == len(found) else None

    async def look(self, names: Sequence[str] = NAMES, *, password: str | Sequence[Login] = "") -> None:
        """Ask everything that the operator looks at."""
        for who in names:
            for question in LOOK["sentinel" if who.startswith("sentinel") else "redis"]:
                await self.say(who, question, password=password if who.startswith("redis") else "")


class _ModelDial(Dial):
    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def _connection(self, address: Address, reply_timeout: float, **_: Any) -> Any:
        return Connection(self._world, address)


class _Ips(dict[str, str]):
    def __missing__(self, key: str) -> str:
        raise KeyError(f"no server is called {key}")


LOOK = {
    "redis": (
        *(f"INFO {section}" for section in ("server", "replication", "persistence", "keyspace")),
        *("ROLE", "DBSIZE", "CONFIG GET slave-priority", "CONFIG GET requirepass", "CONFIG GET masterauth"),
        "ACL GETUSER default",
    ),
    "sentinel": (
        *("SENTINEL MASTERS", "SENTINEL SLAVES mymaster", "SENTINEL SENTINELS mymaster"),
        *("SENTINEL CKQUORUM mymaster", "SENTINEL MYID", "INFO server", "SENTINEL DEBUG"),
    ),
}


def _head(words: list[str]) -> str:
    return (
        " ".join(words[:2]).upper()
        if words[0].upper() in ("SENTINEL", "CONFIG", "CLIENT", "ACL")
        else words[0].upper()
    )


async def _ask(dial: Dial, address: Address, words: list[str], password: str | Sequence[Login]) -> Any:
    try:
        async with dial.link(address, password=password) as link:
            return await link.call(*words)
    except Refused as error:
        return f"refused: {error.reply}"
    except DialError:
        return "unreachable"


async def _killed(dial: Dial, address: Address, words: list[str], password: str | Sequence[Login]) -> Any:
    """How many more clients were ended than are there in spite of us.

    A real server may still have the connection of the command before, and that of a replica which introduces itself.
    """
    async with dial.link(address, password=password) as link:
        there, ended = await link.pipeline([("CLIENT", "LIST", "TYPE", "normal"), words])
    return ended - (len(there.splitlines()) - 1)


def _comparable(words: list[str], answer: Any) -> Any:
    """An answer without what nobody reads, and with a word for what has to differ."""
    if isinstance(answer, str):
        return _fields(parse_info(answer)) if words[0].upper() == "INFO" else answer
    match _head(words):
        case "ROLE" if answer[0] == "master":
            return ["master", sorted((ip, port) for ip, port, _ in answer[2])]
        case "ROLE":  # connect, connecting, handshake ...
            return [*answer[:3], answer[3] == "connected"]
        case "SENTINEL MASTERS" | "SENTINEL SLAVES" | "SENTINEL SENTINELS":
            return sorted((_fields(pairs(one)) for one in answer), key=lambda one: one.get("ip", ""))
        case "ACL LIST":
            return sorted(
                (name, state, "nopass" in rest, sorted(one for one in rest if one[0] == "#"))
                for _, name, state, *rest in (str(line).split() for line in answer)
            )
        case "ACL GETUSER":
            shown = {name: answer[answer.index(name) + 1] for name in ("flags", "passwords")}
            # That is as it always is, and shown only where it was set once.
            return {name: sorted(set(words) - {"sanitize-payload"}) for name, words in shown.items()}
    return answer


def _fields(found: dict[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in found.items() if FIELDS.fullmatch(name)}
    plain = {
        name: "-1" if value == "-1" else "<number>" if OFFSETS.search(name) else value
        for name, value in kept.items()
    }
    followers = sorted(
        re.sub(r"offset=\d+,lag=\d+", "", plain.pop(name))
        for name in list(plain)
        if re.fullmatch(r"slave\d+", name)
    )
    if "master_link_down_since_seconds" in plain:
        plain["master_link_down_since_seconds"] = "<number>"
    flags = {"flags": ",".join(sorted(plain["flags"].split(",")))} if "flags" in plain else {}
    keyspace = {name: value.split(",")[0] for name, value in plain.items() if name.startswith("db")}
    return dict(sorted({**plain, **flags, **keyspace, "followers": str(followers)}.items()))


@pytest.fixture
async def both(tmp_path: Path) -> AsyncIterator[Both]:
    network = f"127.{random.randint(10, 250)}.{random.randint(1, 250)}"
    ips = {name: f"{network}.{number}" for number, name in enumerate(NAMES, 1)}
    world = World()
    async with AsyncExitStack() as stack:
        for name, ip in ips.items():
            home = tmp_path / name
            home.mkdir()
            await _start(stack, name, ip, home)
            if name.startswith("sentinel"):
                world.sentinels[ip] = Sentinel("default/demo", ip)
            else:
                world.servers[ip] = Server("default/demo", ip, dict(START))
        pair = Both(world, ips)
        for name in NAMES:
            await _listens(Address(ips[name], 26379 if name.startswith("sentinel") else 6379))
        yield pair


async def _start(stack: AsyncExitStack, name: str, ip: str, home: Path) -> None:
    sentinel = name.startswith("sentinel")
    lines = [
        f"port {26379 if sentinel else 6379}",
        f"bind {ip}",
        "protected-mode no",
        f'dir "{home}"',
        "loglevel warning",
    ]
    if not sentinel:
        lines += [f"{key} {value or chr(34) * 2}" for key, value in START.items()]
        lines += [f"slaveof {GATE.ip} {GATE.port}", f"slave-announce-ip {ip}"]
    else:
        lines += [f"sentinel announce-ip {ip}"]
    conf = home / "redis.conf"
    conf.write_text("\n".join(lines) + "\n")
    process = await asyncio.create_subprocess_exec(
        *("redis-server", str(conf), *(["--sentinel"] if sentinel else [])),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )

    async def end() -> None:
        process.kill()
        await process.wait()

    stack.push_async_callback(end)


async def _listens(address: Address) -> None:
    deadline = monotonic() + DEADLINE
    while await _ask(Dial(), address, ["PING"], "") != "PONG":
        assert monotonic() < deadline, f"{address} does not listen"
        await asyncio.sleep(0.02)


# --- sequences: a name and what is said to it; "look" asks everything of everybody, "as" sets the password to try, "login" the user

BIRTH = """
look
redis-0 CONFIG SET slave-priority 1
redis-0 SLAVEOF NO ONE
redis-0 SLAVEOF NO ONE
redis-0 SET first write
redis-1 SET first write
redis-1 SLAVEOF {redis-0} 6379
redis-2 SLAVEOF {redis-0} 6379
redis-2 SLAVEOF {redis-0} 6379
redis-1 GET first
redis-2 GET first
look
redis-1 CONFIG SET slave-priority 1
redis-2 CONFIG SET slave-priority 1
"""
WATCH = f"""
sentinel-0 {QUICK}
sentinel-1 {QUICK}
sentinel-2 {QUICK}
sentinel-0 SENTINEL REMOVE mymaster
sentinel-0 SENTINEL MONITOR mymaster {{redis-0}} 6379 2
sentinel-1 SENTINEL MONITOR mymaster {{redis-0}} 6379 2
sentinel-2 SENTINEL MONITOR mymaster {{redis-0}} 6379 2
sentinel-2 SENTINEL MONITOR mymaster {{redis-0}} 6379 2
sentinel-0 SENTINEL SET mymaster down-after-milliseconds 5000
sentinel-1 SENTINEL SET mymaster down-after-milliseconds 5000
sentinel-2 SENTINEL SET mymaster down-after-milliseconds 5000
"""
SEQUENCES = {
    "a replica is promoted, and the master before follows it": BIRTH
    + """
redis-1 SLAVEOF NO ONE
redis-1 SET second write
look
redis-0 CONFIG SET slave-priority 0
redis-0 SLAVEOF {redis-1} 6379
redis-0 CLIENT KILL TYPE normal SKIPME yes
redis-2 SLAVEOF {redis-1} 6379
redis-0 GET second
redis-2 GET second
look
""",
    "a server is set aside, and comes back": BIRTH
    + """
redis-0 SLAVEOF 192.0.2.1 6379
redis-0 BGSAVE
redis-0 GET first
redis-0 SET third write
look
redis-0 SLAVEOF NO ONE
redis-0 SET third write
look
""",
    "writes wait, or are refused, for a planned switch": BIRTH
    + """
redis-0 CLIENT PAUSE 200 WRITE
redis-0 CLIENT UNPAUSE
redis-0 CONFIG SET min-slaves-max-lag 10
redis-0 CONFIG SET min-slaves-to-write 99
redis-0 SET refused write
redis-0 CONFIG SET min-slaves-to-write 1
redis-0 SET taken write
redis-2 GET taken
""",
    "a master and its replica change places": BIRTH
    + """
redis-1 FAILOVER TO {redis-0} 6379 TIMEOUT 3000
redis-0 FAILOVER TO {redis-0} 6379 TIMEOUT 3000
redis-2 SLAVEOF NO ONE
redis-2 FAILOVER TO {redis-1} 6379 TIMEOUT 3000
redis-0 FAILOVER TO {redis-1} 6379 TIMEOUT 3000
redis-1 ROLE
redis-0 ROLE
redis-1 SET second write
redis-0 GET second
redis-0 INFO replication
redis-1 INFO replication
""",
    "sentinels hear of replicas and of each other, and fail over": BIRTH
    + WATCH
    + f"""
look
redis-2 CONFIG SET slave-priority 0
sentinel-0 SENTINEL SLAVES mymaster
sentinel-1 SENTINEL SLAVES mymaster
sentinel-2 SENTINEL SLAVES mymaster
sentinel-0 SENTINEL DEBUG INFO-PERIOD 2000 PING-PERIOD 1000
sentinel-0 SENTINEL CONFIG SET announce-port 26379
sentinel-0 SENTINEL FAILOVER mymaster
redis-1 ROLE
sentinel-0 {QUICK}
redis-0 SET lost write
redis-0 SLAVEOF {{redis-1}} 6379
redis-0 ROLE
redis-2 ROLE
redis-0 DBSIZE
look-at-sentinels
sentinel-1 SENTINEL REMOVE mymaster
sentinel-1 SENTINEL MASTERS
sentinel-1 SENTINEL CKQUORUM mymaster
""",
    "what a sentinel refuses": WATCH
    + """
sentinel-0 SENTINEL FAILOVER mymaster
sentinel-0 SENTINEL MONITOR other {redis-0} 6379 0
sentinel-0 SENTINEL SET mymaster nonsense 3
sentinel-0 SENTINEL SET mymaster quorum 0
sentinel-0 SENTINEL SET mymaster failover-timeout soon
sentinel-0 SENTINEL SET nobody quorum 2
sentinel-0 SENTINEL DEBUG nonsense 3
sentinel-0 SENTINEL DEBUG nonsense
sentinel-0 SENTINEL CKQUORUM nobody
sentinel-0 SENTINEL nonsense
sentinel-0 CONFIG GET hz
sentinel-0 PUBLISH __sentinel__:hello nonsense
""",
    "a password is set, exchanged and taken away": BIRTH
    + """
redis-0 AUTH early
redis-0 CONFIG SET masterauth one
redis-1 CONFIG SET masterauth one
redis-2 CONFIG SET masterauth one
redis-0 CONFIG SET requirepass one
redis-1 CONFIG SET requirepass one
redis-2 CONFIG SET requirepass one
redis-0 PING
redis-0 SLAVEOF NO ONE
as wrong
redis-0 PING
as one
redis-0 PING
redis-0 ACL SETUSER default >two
redis-1 ACL SETUSER default >two
redis-2 ACL SETUSER default >two
as two
look
redis-1 CONFIG SET masterauth two
redis-2 CONFIG SET masterauth two
redis-0 CONFIG SET masterauth two
redis-0 CONFIG SET requirepass two
redis-1 CONFIG SET requirepass two
redis-2 CONFIG SET requirepass two
as one
redis-0 PING
as two
redis-2 SLAVEOF {redis-1} 6379
redis-2 SLAVEOF {redis-0} 6379
redis-0 SET later write
redis-2 GET later
look
redis-0 ACL SETUSER default >one
redis-0 CONFIG SET requirepass two
redis-0 ACL GETUSER default
redis-0 ACL SETUSER default resetpass >two
redis-0 ACL GETUSER default
redis-0 CONFIG SET requirepass ''
redis-0 ACL SETUSER default nopass
redis-0 ACL SETUSER default >two
redis-0 AUTH two
""",
    "users come in by their passwords, and the default user only while it is on": BIRTH
    + """
redis-0 ACL SETUSER app reset on >one ~* +@all
redis-0 ACL SETUSER gone reset off >one ~* +@all
redis-0 ACL LIST
redis-0 CONFIG SET masteruser app
redis-0 CONFIG SET masterauth two
redis-0 CONFIG GET masteruser
redis-0 ACL SETUSER default reset off
redis-0 PING
login app one
redis-0 PING
redis-0 ACL GETUSER default
redis-0 ACL LIST
login app two
redis-0 PING
login gone one
redis-0 PING
login app one
redis-0 ACL SETUSER app >two
login app two
redis-0 PING
redis-0 ACL DELUSER gone
redis-0 ACL LIST
redis-0 ACL SETUSER default reset on nopass ~* +@all
login nobody at-all
redis-0 PING
redis-0 ACL LIST
""",
    "sentinels that know the password see, and others do not": BIRTH
    + """
redis-0 CONFIG SET masterauth one
redis-1 CONFIG SET masterauth one
redis-2 CONFIG SET masterauth one
redis-0 CONFIG SET requirepass one
redis-1 CONFIG SET requirepass one
redis-2 CONFIG SET requirepass one
"""
    + WATCH
    + """
sentinel-0 SENTINEL SET mymaster auth-pass one
sentinel-1 SENTINEL SET mymaster auth-pass one
sentinel-2 SENTINEL SET mymaster auth-pass one
as one
look
""",
    "what is no command is refused": """
redis-0 NONSENSE
redis-0 NONSENSE with words
redis-0 SLAVEOF somewhere nowhere
""",
}


async def follow(both: Both, sequence: str) -> None:
    password: str | Sequence[Login] = ""
    for line in filter(None, sequence.splitlines()):
        who, _, command = line.partition(" ")
        if line == "look":
            await both.look(password=password)
        elif line == "look-at-sentinels":  # how far real ones got in between is nobody's to say
            await both.look(NAMES[3:])
        elif who == "as":
            password = command
        elif who == "login":
            name, _, text = command.partition(" ")
            password = [(name, text)]
        else:
            await both.say(who, command, password=password)


@pytest.mark.parametrize("name", SEQUENCES)
async def test_the_model_answers_as_real_servers_do(both: Both, name: str) -> None:
    await follow(both, SEQUENCES[name])


def values(key: str, start: str) -> Iterator[str]:
    """What may be said of a key: as it is, at bounds, beyond them, and nonsense."""
    yield from (
        start.replace(" ", "_") or "x",
        "0",
        "1",
        "-1",
        "-2",
        "7",
        "501",
        "100mb",
        "1k",
        "4294967296",
    )
    yield from ("yes", "NO", "maybe", "1.5", "always", "allkeys-lru", "noeviction", "Everysec")


async def test_the_model_makes_of_every_configuration_key_what_a_real_server_does(both: Both) -> None:
    others = ("masterauth", "requirepass", "appendonly", "maxclients", "notify-keyspace-events")
    keys = [key for key in CONFIG if key not in others]
    old = [key.replace("replica", "slave") for key in keys if "replica" in key]

    for key in [*keys, *old]:
        await both.say("redis-0", f"CONFIG GET {key}")
        for value in values(key, CONFIG.get(key, ("0", str))[0]):
            await both.say("redis-0", f"CONFIG SET {key} {value}")
        await both.say("redis-0", f"CONFIG GET {key}")
    for command in ("CONFIG GET nonsense", "CONFIG SET nonsense 1", "CONFIG SET Appendonly maybe"):
        await both.say("redis-0", command)


@pytest.mark.parametrize(
    "seed", [1, pytest.param(2, marks=pytest.mark.full), pytest.param(3, marks=pytest.mark.full)]
)
async def test_the_model_goes_the_way_of_real_servers_when_told_at_random(both: Both, seed: int) -> None:
    dice = random.Random(seed)
    servers = NAMES[:3]

    for number in range(25):
        who, whom = dice.sample(servers, 2)
        where = dice.choice([f"{{{whom}}} 6379", "NO ONE", "NO ONE", "192.0.2.1 6379"])
        if dice.random() < 0.6:
            await both.say(who, f"SLAVEOF {where}")
        else:
            await both.say(who, f"SET key-{number} written")
        for one in servers:
            for question in ("ROLE", "INFO replication", "INFO keyspace"):
                await both.say(one, question)


def test_every_command_that_the_operator_sends_is_compared() -> None:
    sent: set[str] = set()
    for file in ("sentinel/steps.py", "sentinel/topology.py", "passwords/steps.py", "passwords/seen.py"):
        text = (ROOT / "src/mooring/operators/redis" / file).read_text()
        for first, second in re.findall(r'(?<!with)\(\s*"([A-Z]{3,})"(?:, "([A-Z]+)")?', text):
            sent.add(_head([first, second]).strip() if second else first)
    said = [line.partition(" ")[2] for text in SEQUENCES.values() for line in text.splitlines()]
    said += [*LOOK["redis"], *LOOK["sentinel"]]

    assert len(sent) > 15
    sent.remove("SHUTDOWN")  # it has no answer
    assert sent <= {_head(command.split(" ")) for command in said if command}
