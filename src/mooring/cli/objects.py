"""``mooring objects``: put, get, check, delete and list backups of a store; what the Jobs of backups run."""

from __future__ import annotations

import argparse
import asyncio
import sys
from pathlib import Path

import msgspec

from mooring.kube.quantity import parse_quantity
from mooring.objectstore import Target, leave, mounted_secrets, open_store
from mooring.operators.backup import agent

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("objects", help="put, get, check, delete or list backups of a store")
    parser.add_argument("action", choices=("put", "get", "check", "delete", "list"))
    parser.add_argument("--target", type=Path, required=True, metavar="FILE", help="the target, as JSON")
    parser.add_argument("--prefix", action="append", default=[], help="where the backup is in the target")
    parser.add_argument(
        "--part", action="append", default=[], metavar="NAME", help="an object of it; a FIFO in --shared"
    )
    parser.add_argument(
        "--manifest", type=Path, metavar="FILE", help="put: what is known of the backup, as JSON"
    )
    parser.add_argument("--bandwidth", default="", metavar="QUANTITY", help="bytes per second at most")
    directories = (
        ("--secrets", "/mooring/secrets", "a directory for each Secret"),
        ("--mounted", "/mooring/target", "where the target's claim is mounted"),
        ("--shared", "/mooring/run", "shared with the script that reads or writes the data"),
    )
    for flag, default, what in directories:
        parser.add_argument(flag, type=Path, default=Path(default), metavar="DIR", help=f"{what}; {default}")
    parser.add_argument("--report", type=Path, metavar="FILE", help="where the result goes as well")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Do it, and print the result as one JSON object; status 1 where it failed."""
    try:
        result = asyncio.run(_act(options))
    except Exception as error:
        result = agent.failure(error)
        if result.reason == "AgentFailed":
            print(f"{type(error).__name__}: {error}", file=sys.stderr)
    if not result.ok and options.action in ("put", "get"):
        agent.give_up(options.shared)
    text = result.encoded()
    if options.report is not None:
        options.report.write_bytes(text)
    print(text.decode())
    leave(0 if result.ok else 1)


async def _act(options: argparse.Namespace) -> agent.Result:
    target = msgspec.json.decode(options.target.read_bytes(), type=Target)
    bandwidth = float(parse_quantity(options.bandwidth)) if options.bandwidth else 0.0
    secrets = mounted_secrets(options.secrets)
    async with open_store(target, secrets=secrets, mounted=options.mounted) as store:
        if options.action == "list":
            return await agent.listed(store, prefix=_one(options, default=""), show=print)
        if options.action == "delete":
            return await agent.delete(store, prefixes=options.prefix)
        prefix = _one(options)
        if options.action == "check":
            return await agent.check(store, prefix=prefix, bandwidth=bandwidth)
        if options.action == "get":
            return await agent.get(
                store, prefix=prefix, parts=options.part, run=options.shared, bandwidth=bandwidth
            )
        if options.manifest is None or not options.part:
            raise ValueError("put needs --manifest and --part")
        draft = msgspec.json.decode(options.manifest.read_bytes(), type=agent.Draft)
        return await agent.put(
            store,
            prefix=prefix,
            parts=options.part,
            draft=draft,
            run=options.shared,
            bandwidth=bandwidth,
            show=lambda text: print(text, file=sys.stderr, flush=True),
        )


def _one(options: argparse.Namespace, default: str | None = None) -> str:
    if len(options.prefix) == 1:
        return str(options.prefix[0])
    if not options.prefix and default is not None:
        return default
    raise ValueError(f"{options.action} needs one --prefix")
