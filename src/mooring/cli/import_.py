"""``mooring import``: makes a database that runs elsewhere a backup, which a new cluster begins with."""

from __future__ import annotations

import argparse
import asyncio
import ssl
import sys
from pathlib import Path
from typing import Any

import msgspec

from mooring.kube.quantity import parse_quantity
from mooring.objectstore import Target, leave, mounted_secrets, open_store
from mooring.operators.backup import agent
from mooring.operators.operator import Importer
from mooring.operators.registry import OPERATORS

__all__ = ["add_parser"]


def _importers() -> dict[str, Importer]:
    return {one.importer.name: one.importer for one in OPERATORS.values() if one.importer is not None}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    known = _importers()
    parser = commands.add_parser(
        "import",
        help="make a database that runs elsewhere a backup, which a new cluster begins with",
        description="Reads a database that runs elsewhere, or its file, and stores it as a backup. A new cluster begins with it: "
        "spec.restoreFrom with the same target and prefix. Nothing is written to the source.",
    )
    parser.add_argument("what", choices=list(known), help="the kind of database")
    sources = "; ".join(f"{name}: {one.doc}" for name, one in known.items())
    parser.add_argument("source", metavar="SOURCE", help=sources)
    parser.add_argument(
        "--target", type=Path, required=True, metavar="FILE", help="where to, as YAML or JSON"
    )
    parser.add_argument("--prefix", required=True, help="where the backup is in the target")
    parser.add_argument("--user", default="", help="account of the source (default: the default user)")
    parser.add_argument("--password-file", type=Path, metavar="FILE", help="file that holds its password")
    parser.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="connect to the source by TLS, trusting this authority"
    )
    parser.add_argument("--bandwidth", default="", metavar="QUANTITY", help="bytes per second at most")
    parser.add_argument(
        "--secrets",
        type=Path,
        default=Path("/mooring/secrets"),
        metavar="DIR",
        help="a directory for each Secret that the target names (default: %(default)s)",
    )
    parser.add_argument(
        "--mounted",
        type=Path,
        default=Path("/mooring/target"),
        metavar="DIR",
        help="where the target's claim is mounted (default: %(default)s)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Import it, and say how the new cluster begins with it."""
    result = asyncio.run(_import(options))
    if not result.ok:
        remedy = f"; {result.remedy}" if result.remedy else ""
        print(f"mooring: {result.message}{remedy}", file=sys.stderr, flush=True)
        status = 1
    else:
        facts = ", ".join(
            f"{name} {result.facts[name]}" for name in ("version", "position") if name in result.facts
        )
        print(f"imported: {result.size} bytes in {result.objects - 1} parts at {options.prefix} ({facts})")
        print(
            f"A new cluster begins with it: spec.restoreFrom, with this target and prefix: {options.prefix}"
        )
        status = 0
    leave(status)


async def _import(options: argparse.Namespace) -> Any:
    try:
        target = msgspec.yaml.decode(options.target.read_bytes(), type=Target)
        password = options.password_file.read_text().rstrip("\n") if options.password_file else ""
        importer = _importers()[options.what]
        secrets = mounted_secrets(options.secrets)
        async with open_store(target, secrets=secrets, mounted=options.mounted) as store:
            return await importer.run(
                store,
                prefix=options.prefix,
                source=options.source,
                user=options.user,
                password=password,
                tls=ssl.create_default_context(cafile=str(options.tls_ca)) if options.tls_ca else None,
                bandwidth=float(parse_quantity(options.bandwidth)) if options.bandwidth else 0.0,
                show=lambda text: print(text, file=sys.stderr, flush=True),
            )
    except Exception as error:
        found = agent.failure(error)
        if found.reason != "AgentFailed":
            return found
        raise
