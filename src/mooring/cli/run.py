"""``mooring run``: the operators alone, against any cluster."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import structlog

from mooring.cli.legacy import add_legacy_options, apply_legacy_options
from mooring.kube import Client, Config, Forbidden, HttpTransport
from mooring.operators.host import Operate, Webhooks, apply_crds, operate
from mooring.operators.registry import OPERATORS, Operator, choose
from mooring.operators.workload.scope import SCOPES
from mooring.runtime import configure_logging

__all__ = ["add_operator_options", "add_parser", "chosen", "until_signalled"]

log = structlog.get_logger("mooring.cli")


def add_operator_options(parser: argparse.ArgumentParser) -> None:
    """The options that ``run`` and ``up`` share."""
    marks = sorted({one.removal.annotation for one in OPERATORS.values() if one.removal is not None})
    parser.add_argument(
        "--operators", default="*", metavar="LIST|*|none", help="which operators to run (default: all)"
    )
    parser.add_argument(
        "--scope",
        choices=SCOPES,
        default="all",
        help=f"cluster: only objects annotated {' or '.join(marks)}: cluster-scoped; namespaced: only those without, "
        "in --namespaces; all: both (default)",
    )
    parser.add_argument(
        "--namespaces",
        default=os.environ.get("WATCH_NAMESPACE", ""),
        metavar="A,B",
        help="namespaces to watch (default: $WATCH_NAMESPACE, else all)",
    )
    # UCloud's spelling is accepted, so that its manifests work.
    parser.add_argument(
        "--workers",
        "--ctr-maxconcurrent",
        type=int,
        default=8,
        metavar="N",
        help="objects worked on at once (default: 8)",
    )
    for option in (one for operator in OPERATORS.values() for one in operator.options):
        parser.add_argument(
            *option.flags,
            dest=option.attribute,
            type=option.parse,
            default=option.default,
            metavar=option.metavar,
            help=f"{option.doc} (default: {option.default})",
        )
    parser.add_argument("--log-level", default="info", choices=["debug", "info", "warning", "error"])
    parser.add_argument("--log-format", choices=["json", "console"], help="default: console on a terminal")


def chosen(options: argparse.Namespace) -> tuple[list[Operator], tuple[str, ...]]:
    """The operators and namespaces of these options; raises :class:`ValueError` naming what is wrong."""
    settings = {
        one.name: {option.keyword: getattr(options, option.attribute) for option in one.options}
        for one in OPERATORS.values()
    }
    operators = choose(options.operators, options=settings)
    namespaces = tuple(filter(None, (part.strip() for part in options.namespaces.split(","))))
    if options.scope == "namespaced" and not namespaces:
        raise ValueError(
            "--scope=namespaced needs --namespaces (or WATCH_NAMESPACE): the namespaces to manage"
        )
    if options.workers < 1:
        raise ValueError(f"--workers {options.workers}: must be at least 1")
    return operators, namespaces


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("run", help="run the operators alone, against any Kubernetes cluster")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, ~/.kube/config, the pod's account"
    )
    parser.add_argument("--context", help="context of the kubeconfig")
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE", "mooring-system"),
        help="namespace of the Leases (default: $POD_NAMESPACE, else mooring-system)",
    )
    parser.add_argument(
        "--no-leader-election", action="store_true", help="act at once; only for a lone process"
    )
    parser.add_argument("--no-crds", action="store_true", help="do not apply the custom resource definitions")
    parser.add_argument("--bind", default="0.0.0.0", help="address of metrics and probes")  # noqa: S104
    parser.add_argument("--metrics-port", type=int, default=8080, help="0: any, -1: none (default: 8080)")
    parser.add_argument("--probe-port", type=int, help="0: any, -1: none (default: 8081)")
    parser.add_argument(
        "--webhooks",
        default="none",
        metavar="none|SERVICE|URL",
        help="serve admission webhooks, reached by a Service in --namespace or by https://HOST:PORT (default: none)",
    )
    parser.add_argument("--webhook-port", type=int, default=9443, help="where they listen (default: 9443)")
    parser.add_argument(
        "--no-webhook-configurations",
        action="store_true",
        help="do not apply the webhook configurations; only put the CA bundle into those present",
    )
    add_operator_options(parser)
    add_legacy_options(parser)
    parser.set_defaults(run=run)


def _webhooks(options: argparse.Namespace) -> Webhooks | None:
    """What these options say of webhooks; raises :class:`ValueError` naming what is wrong."""
    where = options.webhooks
    if where in ("none", ""):
        return None
    if options.scope == "namespaced":
        raise ValueError(
            "--webhooks: a webhook configuration belongs to the whole cluster; leave it out with --scope=namespaced"
        )
    by_url = "/" in where or ":" in where
    made = Webhooks(
        service="" if by_url else where,
        url=where if by_url else "",
        host=options.bind,
        port=options.webhook_port,
        inject_only=options.no_webhook_configurations,
    )
    made.registration("checked", namespace=options.namespace, port=made.port)
    return made


def _times(options: argparse.Namespace) -> dict[str, float]:
    """How long a Lease lasts, where that is said."""
    names = ("lease_duration", "renew_deadline", "retry_period")
    given = {name: getattr(options, f"leader_elect_{name}") for name in names}
    return {name: value for name, value in given.items() if value is not None}


def run(options: argparse.Namespace) -> int:
    """Run until SIGTERM or SIGINT."""
    json = None if options.log_format is None else options.log_format == "json"
    configure_logging(level=options.log_level, json=json)
    apply_legacy_options(options)
    operators, namespaces = chosen(options)
    if not operators:
        raise ValueError("--operators none: there is nothing to run; name one, or leave the option out")
    how = Operate(
        operators=operators,
        scope=options.scope,
        namespace=options.namespace,
        namespaces=namespaces,
        workers=options.workers,
        host=options.bind,
        metrics_port=options.metrics_port if options.metrics_port >= 0 else None,
        probe_port=options.probe_port if options.probe_port >= 0 else None,
        elect=not options.no_leader_election,
        webhooks=_webhooks(options),
        election=_times(options),
    )
    config = Config.load(options.kubeconfig, options.context)
    client = Client(HttpTransport(replace(config, server=options.master) if options.master else config))

    async def serve() -> None:
        try:
            if not options.no_crds:
                try:
                    await apply_crds(client, operators)
                except Forbidden as error:
                    log.info(
                        "may not apply the custom resource definitions; using those present", error=str(error)
                    )
            await operate(client, how)
        finally:
            await client.close()

    asyncio.run(until_signalled(serve()))
    return 0


async def until_signalled(work: Coroutine[Any, Any, None]) -> bool:
    """Run a coroutine; SIGTERM, SIGINT or SIGHUP cancels it, and its orderly end is awaited.

    Further signals do not cut that end short: it is bounded, and SIGKILL leaves nothing alive either.
    Returns whether a signal ended it.
    """
    task = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    signalled = False

    def stop() -> None:
        nonlocal signalled
        if not signalled:
            signalled = True
            task.cancel()

    # nohup sets SIGHUP to be ignored, and means it.
    numbers = [
        n for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP) if signal.getsignal(n) != signal.SIG_IGN
    ]
    for number in numbers:
        loop.add_signal_handler(number, stop)
    try:
        await task
    except asyncio.CancelledError:
        current = asyncio.current_task()
        if current is not None and current.cancelling():
            raise
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
    return signalled
