"""``mooring switchover KIND/NAME``: a planned change of the master or primary, and how long it took."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from mooring.cli.why import full_name, kinds_of
from mooring.kube import Client, Config, HttpTransport, NotFound
from mooring.kube.object import Object
from mooring.operators.operator import Handover
from mooring.operators.registry import OPERATORS

__all__ = ["add_parser", "handing"]

_EVERY = 0.1
_SAID_AFTER = 2.0
"""Seconds after which it says what it waits for."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "switchover",
        help="let another server lead: a planned change of the master or primary",
        description="Lets another server lead, without losing a write, and waits until it does. Of Redis the pod of the "
        "master is evicted: it hands over, restarts and follows. Of MySQL and MariaDB no pod restarts.",
    )
    parser.add_argument(
        "object",
        metavar="KIND/NAME",
        help="for example mysqlcluster/demo; demo alone where only one is called so",
    )
    parser.add_argument("--to", default="", metavar="POD", help="the pod that is to lead (MySQL and MariaDB)")
    parser.add_argument(
        "--from", dest="leader", default="", metavar="POD", help="the one that leads; needed where several do"
    )
    parser.add_argument("--namespace", "-n", default="", help="default: the context's namespace")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="how long to wait (default: 60)"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask for it and wait; status 1 where nobody else led in time."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    config = Config.load(options.kubeconfig, options.context)
    client = Client(HttpTransport(config), field_manager="mooring-cli")
    try:
        path, handover, raw = await _found(client, options, options.namespace or config.namespace)
        leader = _leader(handover.leaders(raw), options.leader)
        began = time.monotonic()
        await handover.ask(client, raw, leader, options.to)
        now = await _awaited(client, path, handover, leader, options)
        new = [one for one in handover.leaders(now) if one not in handover.leaders(raw)]
        print(f"{', '.join(new)} leads instead of {leader}, after {time.monotonic() - began:.1f} s")
    finally:
        await client.close()
    return 0


def handing() -> dict[type[Object], Handover]:
    """The kinds that have a master or primary, and how each hands over."""
    return {
        kind: one.handover
        for one in OPERATORS.values()
        for kind in one.kinds
        if one.handover is not None and kind not in one.backups
    }


async def _found(
    client: Client, options: argparse.Namespace, namespace: str
) -> tuple[str, Handover, Mapping[str, Any]]:
    """The object that is meant, where it is, and how it hands over; raises `ValueError`."""
    known = handing()
    kinds, name = kinds_of(options.object, among=list(known), bare=True)
    found = []
    for kind in kinds:
        path = kind.resource.path(namespace=namespace, name=name)
        with suppress(NotFound):
            found.append((kind, path, await _read(client, path)))
    if not found:
        names = ", ".join(map(full_name, known))
        raise ValueError(
            f"there is no {options.object} in {namespace}; these kinds have a switchover: {names}"
        )
    if len(found) > 1:
        several = ", ".join(f"{full_name(kind)}/{name}" for kind, _, _ in found)
        raise ValueError(f"several are called {name}: name one with its kind: {several}")
    kind, path, raw = found[0]
    return path, known[kind], raw


async def _read(client: Client, path: str) -> Mapping[str, Any]:
    found: dict[str, Any] = msgspec.json.decode((await client.request("GET", path)).body)
    return found


def _leader(leaders: Any, wanted: str) -> str:
    """The pod that is to hand over; raises `ValueError`."""
    known = list(leaders)
    if not known:
        raise ValueError("no server leads at present, so there is nothing to hand over; see mooring why")
    if wanted and wanted not in known:
        raise ValueError(f"--from: {wanted} does not lead; these do: {', '.join(known)}")
    if not wanted and len(known) > 1:
        raise ValueError(f"several lead: name one with --from: {', '.join(known)}")
    return wanted or str(known[0])


async def _awaited(
    client: Client, path: str, handover: Handover, leader: str, options: argparse.Namespace
) -> Mapping[str, Any]:
    """The object once another one leads; raises `ValueError` after the timeout."""
    began, said = time.monotonic(), False
    while True:
        raw = await _read(client, path)
        leaders = handover.leaders(raw)
        if leaders and leader not in leaders and (not options.to or options.to in leaders):
            return raw
        passed = time.monotonic() - began
        if passed > options.timeout:
            raise ValueError(
                f"{leader} still leads after {passed:.0f} s; mooring why {options.object} says what is in the way"
            )
        if passed > _SAID_AFTER and not said:
            said = True
            print(f"mooring: waiting until another one than {leader} leads", file=sys.stderr, flush=True)
        await asyncio.sleep(_EVERY)
