"""What a run does in its pod: make a backup, restore one, try one out, delete some.

Everything here may be killed at any moment and begun again. A backup is one when its manifest is there, which is written
last. A restore writes only into a path that was empty when it began, and never again once it was done.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
from asyncmy.connection import Connection
from asyncmy.cursors import Cursor
from asyncmy.errors import MySQLError
from msgspec.structs import replace

from mooring.cache.clock import Clock, SystemClock
from mooring.objectstore import (
    AlreadyExists,
    Corrupt,
    CredentialsRejected,
    NotFound,
    ObjectStoreError,
    Store,
    TargetInvalid,
    mounted_secrets,
    open_store,
)
from mooring.operators.backup.agent import Beside, DataFailed, Result, delete, failure
from mooring.operators.backup.layout import MANIFEST, is_backup_id, made_at
from mooring.operators.backup.manifest import (
    Manifest,
    ManifestError,
    StoredPart,
    decode_manifest,
    encode_manifest,
)
from mooring.operators.matrixone.backup import catalog
from mooring.operators.matrixone.backup.chain import (
    FULL_BECAUSE,
    Broken,
    Held,
    based_on,
    chain_of,
    held_below,
    stands,
)
from mooring.operators.matrixone.backup.contents import Contents, inspect
from mooring.operators.matrixone.backup.places import (
    DONE,
    MARK,
    in_volume,
    restored_name,
    same_kind,
    scratch_of,
    shown,
    target_for,
    within,
)
from mooring.operators.matrixone.backup.request import Request
from mooring.operators.matrixone.backup.scratch import GO, STOP
from mooring.operators.matrixone.backup.statement import Keys, StatementError, backup_statement, masked
from mooring.operators.matrixone.backup.verification import CLEAN
from mooring.operators.matrixone.types import SharedStorageProvider

__all__ = ["Refused", "outcome", "run"]

ABANDONED: Final = timedelta(days=1)
"""What has no manifest and is older was left behind by a run that was killed."""
CLEAN_UP: Final = 20.0
"""Seconds that a failed backup may take to delete what it wrote."""
CONNECT: Final = 15.0
"""Seconds until a connection has to be there."""
BOOT: Final = 900.0
"""Seconds until a throw-away server has to serve."""
DENIED: Final = 60.0
"""Seconds for which such a server may not know its users yet."""
ENDS: Final = 60.0
"""Seconds in which it has to end."""
LOOK: Final = 0.5
"""Seconds between two looks at it."""
RUN: Final = Path("/mooring/run")
"""The directory that both containers of a test restore share."""
_ENTRIES: Final = {"AWS_ACCESS_KEY_ID": "accessKeyId", "AWS_SECRET_ACCESS_KEY": "secretAccessKey"}
_DENIED: Final = frozenset({1044, 1045})
_AT_ONCE: Final = 4


class Refused(Exception):
    """The run cannot be done; the text has no secrets."""

    def __init__(self, reason: str, message: str, *, remedy: str, again: bool = False) -> None:
        super().__init__(message)
        self.reason, self.remedy, self.again = reason, remedy, again


async def outcome(request: Request, secrets: Path, *, beside: Path = RUN) -> Result:
    """Run it; a failure is a result too."""
    try:
        return await run(request, secrets, beside=beside)
    except Exception as error:
        return _failed(_first(error))


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _failed(error: BaseException) -> Result:
    if isinstance(error, Refused):
        return Result(
            ok=False,
            reason=error.reason,
            message=str(error)[:1500],
            remedy=error.remedy,
            again=error.again,
        )
    return failure(error)


async def run(request: Request, secrets: Path, *, clock: Clock | None = None, beside: Path = RUN) -> Result:
    """Run it. ``secrets`` has a directory for each Secret. Raises `ObjectStoreError` and `Refused`.

    ``beside`` is what a backup shares with its tool, and a test restore with its server.
    """
    match request.action:
        case "backup":
            async with _tool(request, beside) as tool:
                return await _backup(request, secrets, clock or SystemClock(), tool)
        case "restore":
            return await _restore(request, secrets, clock or SystemClock())
        case "verify":
            return await _verify(request, secrets, beside)
        case "delete":
            async with _opened(request.root, secrets) as store:
                return await delete(store, prefixes=request.places)


# --- a backup ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def _tool(request: Request, run: Path) -> AsyncIterator[Beside | None]:
    """The tool beside, if the backup is to be written by one; it ends with this process, and has to end well."""
    if not request.tool:
        yield None
        return
    beside, status = Beside(run=run), 1
    beside.open([])
    try:
        yield beside
        if not (run / "ready").exists():  # the backup was there already
            (run / STOP).touch()
            beside.begin()
            await beside.finish()
        status = 0
    finally:
        beside.end(status)


async def _backup(request: Request, secrets: Path, clock: Clock, tool: Beside | None) -> Result:
    place = request.places[-1]
    async with _opened(request.root, secrets, make=True) as store:
        check = await store.check()
        if not check.ok:
            raise Refused(check.reason, check.message, remedy=check.remedy)
        for earlier in request.places:
            if (manifest := await _manifest(store, earlier)) is not None:
                return _result(manifest, earlier)
        if await _any(store, place):
            text = f"something is at {place} already, and it is no backup"
            raise Refused("PlaceTaken", text, remedy="make another BackupJob", again=True)
        await delete(store, prefixes=request.places[:-1])
        await _clean(store, place, clock)
        began = clock.now()
        try:
            found, facts = await _written(request, store, place, secrets, tool)
            manifest = Manifest(
                id=place.rpartition("/")[2],
                operator="matrixone",
                method="physical",
                flavor="bucket" if request.root.s3 is not None else "directory",
                cluster=request.origin,
                began=began,
                finished=clock.now(),
                parts=list(found.parts),
                facts={**found.facts, **facts, **({"tool": request.tool} if tool is not None else {})},
            )
            await store.create(f"{place}/{MANIFEST}", encode_manifest(manifest))
        except BaseException:
            with contextlib.suppress(ObjectStoreError, TimeoutError):
                async with asyncio.timeout(CLEAN_UP):
                    await delete(store, prefixes=[place])
            raise
    return _result(manifest, place)


async def _written(
    request: Request, store: Store, place: str, secrets: Path, tool: Beside | None
) -> tuple[Contents, dict[str, str]]:
    """Have it written, and read it: on top of its base, or in full where that cannot be; with its further facts."""
    blocks, why = request.root.s3 is None, request.full_because
    if request.base:
        try:
            links = await chain_of(store, request.base)
            facts = await _execute(request, place, secrets, since=await stands(store, links))
            found = await inspect(store, place, blocks=blocks)
            held_below(links, found.borrowed)
            if found.facts.get("version") != links[0].manifest.facts.get("version"):
                raise Broken(f"the backup {links[0].manifest.id} was made by another version of the server")
            return found, {**facts, **based_on(links[0])}
        except (Broken, Refused) as error:
            if isinstance(error, Refused) and error.reason != "BackupRefused":
                raise
            why = str(error)
        await delete(store, prefixes=[place])
    if tool is not None:
        facts = await _by_tool(request, secrets, tool)
    else:
        facts = await _execute(request, place, secrets)
    found = await inspect(store, place, blocks=blocks)
    return found, {**facts, FULL_BECAUSE: why[:300]} if why else facts


async def _execute(request: Request, place: str, secrets: Path, *, since: str = "") -> dict[str, str]:
    """Have the server write the backup, which may take hours; the tables that are in it, as `catalog.facts_of` has them."""
    location, keys = within(request.root, place), _keys(request.root, secrets)
    try:
        identity = place.rpartition("/")[2]
        text = backup_statement(identity, location, keys, parallelism=request.parallelism, since=since)
    except StatementError as error:
        raise Refused("TargetInvalid", str(error), remedy="correct spec.target or its Secret") from None
    async with _session(request, secrets, keys) as cursor:
        before = await _tables(cursor)
        await cursor.execute(text)
        after = await _tables(cursor)
    return _tables_facts(before, after)


async def _by_tool(request: Request, secrets: Path, tool: Beside) -> dict[str, str]:
    """Have the tool write the backup; the same facts."""
    keys = _keys(request.root, secrets)
    async with _session(request, secrets, keys) as cursor:
        before = await _tables(cursor)
    tool.begin()
    try:
        await tool.finish()
    except DataFailed as error:
        lost = error.reason == "DataLost"
        remedy = "correct spec.image or its pull secrets" if lost else "see the log of the container data"
        reason = error.reason if lost else "ToolFailed"
        raise Refused(reason, str(error), remedy=remedy, again=error.again) from None
    async with _session(request, secrets, keys) as cursor:
        after = await _tables(cursor)
    return _tables_facts(before, after)


_Tables = dict[catalog.Table, tuple[str, int]] | None
"""``None`` where the user may not list them: a backup without a list is one, too."""


def _tables_facts(before: _Tables, after: _Tables) -> dict[str, str]:
    return catalog.facts_of(before, after) if before is not None and after is not None else {}


@asynccontextmanager
async def _session(request: Request, secrets: Path, keys: Keys) -> AsyncIterator[Cursor]:
    """A session with the server; what it says is told without the keys."""
    where = f"{request.host}:{request.port}"
    connection = await _connected(request, secrets, where)
    try:
        async with connection.cursor() as cursor:
            yield cursor
    except MySQLError as error:
        code, said = _said(error)
        lost = code in catalog.LOST
        raise Refused(
            "SessionLost" if lost else "BackupRefused",
            f"the server at {where} said: {masked(said, keys)}",
            remedy="make another BackupJob" if lost else "correct what the server names",
            again=lost,
        ) from None
    except (OSError, EOFError) as error:
        text = f"the session with {where} ended: {type(error).__name__}"
        raise Refused("SessionLost", text, remedy="make another BackupJob", again=True) from None
    finally:
        connection.close()


async def _tables(cursor: Cursor) -> _Tables:
    try:
        return await catalog.listed(cursor)
    except MySQLError as error:
        if _said(error)[0] in catalog.LOST:
            raise
        return None


async def _connected(request: Request, secrets: Path, where: str) -> Connection:
    login = mounted_secrets(secrets)(request.login)
    connection = Connection(  # type: ignore[no-untyped-call]
        host=request.host,
        port=request.port,
        user=_entry(login, request.login, "username"),
        password=_entry(login, request.login, "password"),
        autocommit=True,
        connect_timeout=CONNECT,
    )
    try:
        async with asyncio.timeout(CONNECT):
            await connection.connect()
    except MySQLError as error:
        code, said = _said(error)
        if code in _DENIED:
            raise Refused(
                "LoginRejected",
                f"the server at {where} does not let the user of the Secret {request.login} in",
                remedy="correct the Secret, or name another one in spec.source.secretRef",
            ) from None
        text = f"cannot connect to {where}: {said[:200]}"
        raise Refused("ServerUnreachable", text, remedy="see the cluster's conditions", again=True) from None
    except (OSError, EOFError, TimeoutError) as error:
        text = f"cannot connect to {where}: {type(error).__name__}"
        raise Refused("ServerUnreachable", text, remedy="see the cluster's conditions", again=True) from None
    return connection


async def _clean(store: Store, place: str, clock: Clock) -> None:
    """Delete what runs that were killed left among the backups of this cluster."""
    parent = place.rpartition("/")[0]
    after = ""
    while True:
        name = ""
        async with aclosing(store.list(parent, after=after)) as objects:
            async for one in objects:
                name = one.name
                break
        if not name:
            return
        identity = name.removeprefix(f"{parent}/").partition("/")[0]
        after = f"{parent}/{identity}0"  # the character after the slash: behind everything of it
        if not is_backup_id(identity) or clock.now() - made_at(identity) < ABANDONED:
            continue
        if await _manifest(store, f"{parent}/{identity}") is None:
            await delete(store, prefixes=[f"{parent}/{identity}"])


# --- a restore ---------------------------------------------------------------------------------------------


class _Mark(msgspec.Struct, frozen=True, kw_only=True):
    """Whose a path is that a restore fills."""

    owner: str
    backup: str


async def _restore(request: Request, secrets: Path, clock: Clock) -> Result:
    target, place = request.target, request.places[0]
    assert target is not None
    if not same_kind(request.root, target):
        raise Refused(
            "OtherStorage",
            "the backup is in a bucket and the cluster's data in a directory, or the other way round",
            remedy="choose storage of the same kind for the cluster; the server stores files of a directory in another form",
        )
    async with _opened(request.root, secrets) as source, _opened(target, secrets, make=True) as into:
        mark = _Mark(owner=request.owner, backup=place)
        if (done := await _read(into, DONE)) is not None:
            return await _done_before(source, place, done, mark, target)
        whole = await _verified(source, request.root, place)
        wanted = _wanted(whole, target)
        await _take(into, mark, wanted, target)
        await _fill(source, into, wanted)
        await into.create(DONE, msgspec.json.encode(mark))
    return Result(
        ok=True,
        size=sum(one.part.size for one in wanted.values()),
        objects=len(wanted),
        facts=_short(whole.facts),
    )


@dataclass(frozen=True, kw_only=True)
class _Whole:
    """All objects of a backup, those of its chain among them."""

    objects: Sequence[Held]
    facts: Mapping[str, str]


def _wanted(whole: _Whole, target: SharedStorageProvider) -> dict[str, Held]:
    """What of a backup a cluster needs, by its name in the cluster's path."""
    return {
        name: one
        for one in whole.objects
        if (name := restored_name(one.part.name, bucket=target.s3 is not None))
    }


async def _fill(source: Store, into: Store, wanted: Mapping[str, Held]) -> None:
    limit = asyncio.Semaphore(_AT_ONCE)

    async def copy(name: str, one: Held) -> None:
        async with limit:
            await _copy(source, _named(one.place, one.part.name), into, name, one.part)

    async with asyncio.TaskGroup() as group:
        for name, one in wanted.items():
            group.create_task(copy(name, one))


async def _done_before(
    source: Store, place: str, done: bytes, mark: _Mark, target: SharedStorageProvider
) -> Result:
    """It is restored already; where that was for somebody else, it is their data."""
    if _whose(done) != mark:
        raise _in_use(target)
    manifest = await _manifest(source, place)
    return Result(
        ok=True,
        size=manifest.size if manifest is not None else 0,
        objects=len(manifest.parts) if manifest is not None else 0,
        facts=_short(manifest.facts) if manifest is not None else {},
    )


async def _take(
    into: Store, mark: _Mark, wanted: Mapping[str, object], target: SharedStorageProvider
) -> None:
    """Make the path ours; raises `Refused` where anything is in it but what this very restore wrote before."""
    held = await _read(into, MARK)
    if held is None:
        if await _any(into, ""):
            raise _in_use(target)
        try:
            await into.create(MARK, msgspec.json.encode(mark))
        except AlreadyExists:
            raise _in_use(target) from None
    elif _whose(held) != mark:
        raise _in_use(target)
    # This finds another writer, and what a server wrote there meanwhile.
    async with aclosing(into.list()) as objects:
        async for one in objects:
            if one.name != MARK and one.name not in wanted:
                raise _in_use(target)


async def _verified(source: Store, root: SharedStorageProvider, place: str) -> _Whole:
    """All of a backup and of its chain, read and compared before a single byte of it is written anywhere."""
    try:
        manifest = await _manifest(source, place)
    except ManifestError as error:
        raise Refused("ManifestUnusable", str(error), remedy="use another backup") from None
    found = await inspect(source, place, blocks=root.s3 is None)
    if manifest is None:
        if place:
            raise NotFound(
                f"there is no complete backup at {place} in {source!r}",
                remedy="correct the location, or use another backup",
            )
        if found.borrowed:
            raise _chain_broken("it is incremental, and no manifest names its base")
        # Made by other tools: the server's own lists have to do.
        return _Whole(objects=[Held(place=place, part=part) for part in found.parts], facts=found.facts)
    have = {part.name: part for part in found.parts}
    for part in manifest.parts:
        if part.name not in have or have[part.name].sha256 != part.sha256:
            raise Corrupt(
                f"{part.name} of the backup {manifest.id} is not what its manifest says",
                remedy="use another backup; this one was changed in the store",
            )
    try:
        links = await chain_of(source, place)
        below = held_below(links[1:], found.borrowed)
    except Broken as error:
        raise _chain_broken(str(error)) from None
    await _compared(source, below)
    mine = [Held(place=place, part=part) for part in manifest.parts]
    return _Whole(objects=[*mine, *below.values()], facts=manifest.facts)


async def _compared(source: Store, below: Mapping[str, Held]) -> None:
    """Read the objects of earlier backups; raises `Corrupt` with the object and the backup."""
    limit = asyncio.Semaphore(_AT_ONCE)

    async def compare(one: Held) -> None:
        digest = hashlib.sha256()
        identity = one.place.rpartition("/")[2]
        async with limit:
            try:
                async with aclosing(source.download(_named(one.place, one.part.name))) as data:
                    async for piece in data:
                        digest.update(piece)
            except NotFound:
                raise _chain_broken(f"{one.part.name} of the backup {identity} is gone") from None
        if digest.hexdigest() != one.part.sha256:
            raise Corrupt(
                f"{one.part.name} of the backup {identity} is not what its manifest says",
                remedy="use a full backup, or one that does not build on it; this one was changed in the store",
            )

    async with asyncio.TaskGroup() as group:
        for one in below.values():
            group.create_task(compare(one))


def _chain_broken(what: str) -> Refused:
    return Refused(
        "ChainBroken",
        f"the backup cannot be restored: {what}",
        remedy="use a full backup, or one whose chain is whole",
    )


async def _copy(source: Store, name: str, into: Store, to: str, part: StoredPart) -> None:
    digest = hashlib.sha256()

    async def pieces() -> AsyncIterator[bytes]:
        async with aclosing(source.download(name)) as data:
            async for piece in data:
                digest.update(piece)
                yield piece
        if digest.hexdigest() != part.sha256:
            raise Corrupt(f"{part.name} changed while it was copied", remedy="use another backup")

    await into.upload(to, pieces(), expected_size=part.size)


def _in_use(target: SharedStorageProvider) -> Refused:
    return Refused(
        "TargetInUse",
        f"{shown(target)} is not empty; nothing was written there",
        remedy="choose an empty path: a restore never writes where data is",
    )


def _whose(data: bytes) -> _Mark | None:
    try:
        return msgspec.json.decode(data, type=_Mark)
    except msgspec.MsgspecError:
        return None


# --- a test restore ----------------------------------------------------------------------------------------


async def _verify(request: Request, secrets: Path, run: Path) -> Result:
    """Read the backup, start a throw-away server on a copy of it, compare, and delete the copy, also after a failure.

    The result has the fact `CLEAN` only if nothing of the copy is left.
    """
    place, target = request.places[-1], request.target
    assert target is not None
    assert request.scratch == scratch_of(place)  # what is deleted is never the backup
    beside = Beside(run=run)
    beside.open([])
    beside.begin()
    found, clean = Result(ok=False), False
    try:
        async with _opened(request.root, secrets) as source:
            try:
                found = await _tried(request, secrets, source, beside)
            except Exception as error:
                found = _failed(_first(error))
            with contextlib.suppress(ObjectStoreError):
                if await _stopped(beside):
                    await delete(source, prefixes=[request.scratch])
                    clean = True
    finally:
        beside.end(0 if found.ok else 1)
    facts = {**found.facts, CLEAN: "deleted"} if clean else found.facts
    return replace(found, facts=facts)


async def _tried(request: Request, secrets: Path, source: Store, beside: Beside) -> Result:
    place, target = request.places[-1], request.target
    assert target is not None
    whole = await _verified(source, request.root, place)
    await delete(source, prefixes=[request.scratch])
    wanted = _wanted(whole, target)
    async with _opened(target, secrets, make=True) as into:
        await _fill(source, into, wanted)
    (beside.run / GO).touch()
    try:
        said = await _checked(request, secrets, beside, whole.facts)
    except DataFailed as error:
        raise Refused("ServerEnded", str(error), remedy="see the log of its container", again=True) from None
    except catalog.Differs as error:
        raise Refused(error.reason, str(error), remedy="make another backup", again=error.again) from None
    return Result(
        ok=True,
        size=sum(one.part.size for one in wanted.values()),
        objects=len(wanted),
        facts={"checked": said, "position": whole.facts.get("position", "")},
    )


async def _checked(request: Request, secrets: Path, beside: Beside, facts: Mapping[str, str]) -> str:
    """Wait until the server serves, and compare; raises `DataFailed` where it ends, `Differs` and `Refused`."""
    loop = asyncio.get_running_loop()
    until, denied_until = loop.time() + BOOT, 0.0
    while True:
        if beside.ended:
            await beside.finish()
        try:
            connection = await _connected(request, secrets, "the throw-away server")
        except Refused as error:
            now = loop.time()
            if error.reason == "LoginRejected":
                denied_until = denied_until or now + DENIED
            if now > until or 0 < denied_until < now:
                raise
            await asyncio.sleep(LOOK)
            continue
        try:
            async with connection.cursor() as cursor:
                return await catalog.checked(cursor, facts)
        except (OSError, EOFError, MySQLError) as error:
            if beside.ended:
                await beside.finish()
            text = f"the session with the throw-away server ended: {type(error).__name__}"
            raise Refused("SessionLost", text, remedy="see the log of its container", again=True) from None
        finally:
            connection.close()


async def _stopped(beside: Beside) -> bool:
    """Whether the server has ended, so that it writes nothing any more."""
    (beside.run / STOP).touch()
    # Also a script that has not begun is waited for: once this process is gone, it would wait for it without end.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDS):
            while not beside.ended:
                await asyncio.sleep(LOOK)
    if beside.ended or (beside.run / GO).exists():
        return beside.ended
    (beside.run / "ready").unlink(missing_ok=True)  # one that begins later finds that it is too late
    await asyncio.sleep(LOOK)
    return True


# --- the stores --------------------------------------------------------------------------------------------


@asynccontextmanager
async def _opened(
    provider: SharedStorageProvider, secrets: Path, *, make: bool = False
) -> AsyncIterator[Store]:
    """The store; ``make`` makes a directory that is missing, if it is in a volume."""
    mounted = mounted_secrets(secrets)

    def read(name: str) -> Mapping[str, bytes]:
        return {_ENTRIES.get(key, key): value for key, value in mounted(name).items()}

    if provider.file_system is not None:
        path = Path(provider.file_system.path or "")
        if not await asyncio.to_thread(_there, path, make=make):
            raise TargetInvalid(
                f"{shown(provider)} is in no volume of the run's pod, or does not exist there",
                remedy="mount its volume with overlay.volumes and overlay.volumeMounts, as in the cluster's pods",
            )
    s3 = provider.s3
    bundle = None
    if s3 is not None and s3.certificate_ref is not None:
        data = mounted(s3.certificate_ref.name or "")
        bundle = "\n".join(data[name].decode() for name in s3.certificate_ref.files or () if name in data)
    async with open_store(target_for(provider, ca_bundle=bundle), secrets=read) as store:
        yield store


def _there(path: Path, *, make: bool) -> bool:
    """The directory exists, made if need be; never in the container's own file system, which goes with it."""
    if make and not path.is_dir() and in_volume(path, Path("/proc/self/mountinfo").read_text()):
        path.mkdir(mode=0o755, parents=True, exist_ok=True)
    return path.is_dir()


def _keys(provider: SharedStorageProvider, secrets: Path) -> Keys:
    s3 = provider.s3
    if s3 is None or s3.secret_ref is None:
        return Keys()
    data, name = mounted_secrets(secrets)(s3.secret_ref.name or ""), s3.secret_ref.name or ""
    return Keys(
        id=_entry(data, name, "AWS_ACCESS_KEY_ID"), secret=_entry(data, name, "AWS_SECRET_ACCESS_KEY")
    )


def _entry(data: Mapping[str, bytes], secret: str, name: str) -> str:
    if not (value := data.get(name)):
        raise CredentialsRejected(
            f"the Secret {secret} has no entry {name}", reason="SecretEntryMissing", remedy="add it"
        )
    return value.decode(errors="replace").strip()


async def _any(store: Store, place: str) -> bool:
    async with aclosing(store.list(place)) as objects:
        async for _ in objects:
            return True
    return False


async def _read(store: Store, name: str) -> bytes | None:
    try:
        return await store.read(name)
    except NotFound:
        return None


async def _manifest(store: Store, place: str) -> Manifest | None:
    data = await _read(store, _named(place, MANIFEST))
    return decode_manifest(data) if data is not None else None


def _named(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _result(manifest: Manifest, place: str) -> Result:
    return Result(
        ok=True,
        size=manifest.size,
        stored=manifest.size,
        objects=len(manifest.parts),
        facts={**_short(manifest.facts), "prefix": place, "began": manifest.began.isoformat()},
    )


def _short(facts: Mapping[str, str]) -> dict[str, str]:
    """The facts that a result has room for: without the tables."""
    return {name: value for name, value in facts.items() if not name.startswith(catalog.PREFIX)}


def _said(error: MySQLError) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, str(error.args[-1])[:800] if error.args else ""
