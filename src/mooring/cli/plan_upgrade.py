"""``mooring plan-upgrade``: what this version would roll with a user's next change, for every cluster."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mooring.cli.listing import add_output_option, show
from mooring.kube import Client, Config, HttpTransport, NotFound
from mooring.kube.object import Object
from mooring.operators.backup.types import BackupObject, ScheduleObject
from mooring.operators.registry import OPERATORS
from mooring.operators.workload.upgrade import Planned

__all__ = ["Plan", "add_parser", "told", "upgrade_plans"]

Plan = Callable[[Client, Any], Awaitable[Sequence[Planned]]]
"""What the next change of an object brings along; see `Operator.plan_upgrade`."""


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "plan-upgrade",
        help="what this version of the operator would roll with the next change of each cluster",
        description="An upgrade of the operator restarts nothing. The next change of a cluster's pods brings along "
        "what this version renders differently; run this command of the new version before upgrading.",
    )
    parser.add_argument("--namespace", "-n", default="", help="default: all")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    add_output_option(parser)
    parser.set_defaults(run=run)


def upgrade_plans() -> Iterator[tuple[type[Object], Plan]]:
    """The kinds whose pods an upgrade may roll, each with what tells of one object."""
    for operator in OPERATORS.values():
        if (plan := operator.plan_upgrade) is None:
            continue
        for kind in operator.kinds:
            if not issubclass(kind, BackupObject | ScheduleObject):  # made of Jobs, which no upgrade rolls
                yield kind, plan


def run(options: argparse.Namespace) -> int:
    """Print the plan."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    client = Client(HttpTransport(Config.load(options.kubeconfig, options.context)))
    try:
        rows: list[dict[str, Any]] = []
        for kind, plan_upgrade in upgrade_plans():
            for one in await _all(client, kind, options.namespace):
                for planned in await plan_upgrade(client, one):
                    cluster = f"{one.metadata.namespace}/{one.metadata.name}"
                    rows.append({"kind": kind.resource.kind, "cluster": cluster, **asdict(planned)})
                    if options.output == "table":
                        print(told(cluster, planned))
        if options.output != "table":
            show(rows, {}, output=options.output, name="plans")
        elif not rows:
            print("There is no cluster.")
    finally:
        await client.close()
    return 0


async def _all(client: Client, kind: type[Object], namespace: str) -> list[Object]:
    try:
        return list((await client.list(kind, namespace=namespace)).items)
    except NotFound:  # the kind is not defined here
        return []


def told(cluster: str, planned: Planned) -> str:
    """One component's line, and one for each field."""
    head = f"{cluster} {planned.component}"
    if planned.trouble:
        return f"{head}: {planned.trouble}"
    steps = [f"  {number}. {step}" for number, step in enumerate(planned.steps, 1)]
    if not planned.fields:
        return "\n".join([f"{head}: the next change rolls for itself alone", *steps])
    when = "a change waits, which brings along" if planned.waiting else "the next change brings along"
    return "\n".join([f"{head}: {when}", *(f"  {field}" for field in planned.fields), *steps])
