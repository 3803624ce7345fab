"""``mooring why KIND/NAME``: what an operator does, what it waits for, and what would unblock it."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from mooring.kube import Client, Config, HttpTransport
from mooring.kube.object import Object, decode
from mooring.operators.redis.sentinel import RedisCluster
from mooring.operators.redis.sentinel.saved import gather
from mooring.operators.registry import OPERATORS
from mooring.runtime.crd import crd_of

__all__ = ["add_parser", "explained", "kind_of"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "why", help="what an operator waits for, since when, and what would unblock it"
    )
    parser.add_argument("object", metavar="KIND/NAME", help="for example rediscluster/demo")
    parser.add_argument("--namespace", "-n", default="default", help="default: default")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--save",
        type=Path,
        metavar="FILE",
        help="also ask the servers themselves and write down what is decided from, for mooring replay; run it where "
        "pods can be reached (mooring enter, or in a pod)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answer; with ``--save`` write the decision's inputs too."""
    return asyncio.run(_run(options))


async def _run(options: argparse.Namespace) -> int:
    kind, name = kind_of(options.object)
    client = Client(HttpTransport(Config.load(options.kubeconfig, options.context)))
    try:
        path = kind.resource.path(namespace=options.namespace, name=name)
        body = (await client.request("GET", path)).body
        raw = msgspec.json.decode(body)
        print("\n".join(explained(raw, await _warnings(client, raw))))
        if options.save:
            await _save(client, decode(raw, kind), options.save)
    finally:
        await client.close()
    return 0


def kind_of(text: str) -> tuple[type[Object], str]:
    """The kind and the name of ``rediscluster/demo``, ``rec/demo`` or ``redisclusters.redis.kun/demo``."""
    word, _, name = text.partition("/")
    known = [kind for operator in OPERATORS.values() for kind in operator.kinds]
    for kind in known:
        plain = {kind.resource.kind.lower(), kind.resource.plural, *crd_of(kind).short_names}
        if name and word.lower() in plain | {f"{one}.{kind.resource.group}" for one in plain}:
            return kind, name
    kinds = ", ".join(f"{kind.resource.plural}.{kind.resource.group}" for kind in known)
    raise ValueError(f"{text!r}: give KIND/NAME; the kinds are {kinds}")


async def _warnings(client: Client, raw: Mapping[str, Any]) -> list[str]:
    """The latest Warnings about the object."""
    meta = raw["metadata"]
    path = f"/apis/events.k8s.io/v1/namespaces/{meta['namespace']}/events"
    listed = msgspec.json.decode((await client.request("GET", path)).body)
    ours = [
        one
        for one in listed.get("items") or ()
        if one.get("type") == "Warning" and (one.get("regarding") or {}).get("uid") == meta.get("uid")
    ]
    latest = sorted(
        ours, key=lambda one: str(one.get("eventTime") or one["metadata"].get("creationTimestamp"))
    )
    return [f"{one.get('reason')}: {one.get('note')}" for one in latest[-5:]]


async def _save(client: Client, cluster: Object, file: Path) -> None:
    if not isinstance(cluster, RedisCluster):
        raise ValueError(f"--save: decisions about a {cluster.resource.kind} cannot be saved yet")
    saved = await gather(client, cluster, now=datetime.now(UTC))
    await asyncio.to_thread(file.write_bytes, saved.dump())
    topology = saved.observed.topology
    silent = [one.name for one in topology.members if one.server is None]
    silent += [one.name for one in topology.watchers if one.sentinel is None]
    if silent:
        print(f"No answer from here: {', '.join(silent)}; that is how they are saved.", file=sys.stderr)
    print(f"Saved to {file}; mooring replay {file} decides from it again.")


# --- the answer ------------------------------------------------------------------------------------------


def explained(raw: Mapping[str, Any], warnings: Iterable[str] = ()) -> Iterator[str]:
    """The answer, line by line, from the object as the API server gives it."""
    meta, status = raw["metadata"], raw.get("status") or {}
    yield f"{raw.get('kind')} {meta.get('namespace')}/{meta.get('name')}"
    # HarmonyCloud's conditions are one for each redis node; there the standard ones are beside them.
    listed = status.get("standardConditions") or status.get("conditions")
    conditions = {one.get("type"): one for one in listed or ()}
    if "Ready" not in conditions:
        yield "  No operator has looked at it yet: is one running, and does its --scope include this object?"
        return
    seen, there = status.get("observedGeneration"), meta.get("generation")
    if seen != there:
        yield f"  The present declaration (generation {there}) was not looked at yet; what follows is of {seen}."
    ready = conditions["Ready"]
    yield f"  {'Serves' if ready.get('status') == 'True' else 'DOES NOT SERVE'}: {_said(ready)}"
    yield from _held(conditions)
    yield from _under_way(status)
    yield from _parts(status)
    yield from _last(status)
    known = [one.get("message") or "" for one in (conditions.get("Stalled") or {}, ready)]
    for text in warnings:
        if not any(message and message in text for message in known):
            yield f"  Warning: {text}"


def _said(condition: Mapping[str, Any]) -> str:
    return (
        f"{condition.get('message')} ({condition.get('reason')}, since {condition.get('lastTransitionTime')})"
    )


def _held(conditions: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    stalled, progressing = conditions.get("Stalled") or {}, conditions.get("Progressing") or {}
    if stalled.get("status") == "True":
        yield f"  Needs you: {_said(stalled)}"
    elif progressing.get("status") == "True":
        yield f"  Waits or works: {_said(progressing)}"
    else:
        yield f"  Nothing is in the way: {progressing.get('message')}"


def _under_way(status: Mapping[str, Any]) -> Iterator[str]:
    if operation := status.get("operation"):
        since, why = operation.get("since"), operation.get("why")
        yield f"  Under way: {operation.get('kind')} of {operation.get('subject')} since {since}: {why}"
    for component, roll in (status.get("rolls") or {}).items():
        if roll.get("pod"):
            text = f"{roll.get('reason')}: {roll.get('message')}"
            yield f"  Roll-out of the {component} pods stopped at {roll['pod']}: {text}"
        else:
            yield f"  Roll-out of the {component} pods since {roll.get('since')}"
    if plan := status.get("slotPlan"):
        left = f", {plan['secondsLeft']} s left" if plan.get("secondsLeft") is not None else ""
        done = f"{plan.get('moved', 0)} of {plan.get('total')} slots"
        yield f"  {plan.get('kind')} towards {plan.get('replicas')} nodes since {plan.get('since')}: {done}{left}"
    if password := status.get("password"):
        yield f"  Change of the password: {password.get('phase')} since {password.get('since')}"


def _parts(status: Mapping[str, Any]) -> Iterator[str]:
    for one in (*(status.get("nodes") or ()), *(status.get("sentinels") or ())):
        if one.get("state") not in ("Online", "Watching"):
            reason = f" ({one['reason']})" if one.get("reason") else ""
            yield f"  {one.get('name')}: {one.get('state')}{reason} since {one.get('since')}"
    for one in status.get("conditions") or ():
        if "domainName" in one and one.get("status") != "True":
            why = f"{one.get('reason')}: {one.get('message')}"
            yield f"  {one.get('name')}: {one.get('status')} since {one.get('lastTransitionTime')}: {why}"
    for key, result in (status.get("config") or {}).items():
        if result.get("state") != "Applied":
            yield f"  spec.config.{key}: {result.get('state')}: {result.get('message')}"
    for claim in status.get("quarantined") or ():
        yield f"  Foreign data is kept on the volume {claim}"


def _last(status: Mapping[str, Any]) -> Iterator[str]:
    if last := status.get("lastFailover"):
        yield f"  Last change of master: {last.get('at')}, {last.get('old')} -> {last.get('new')}, {last.get('cause')}"
        yield f"    because {last.get('choice')}; gap {last.get('gapSeconds', 0)} s; may be lost: {last.get('lossBound')}"
        if (lost := last.get("lostBytes")) is not None:
            yield f"    the old master came back with {lost} bytes of writes that the new one did not have"
