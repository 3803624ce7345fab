"""Options of the operators whose APIs are taken over: accepted where they stood, so that old manifests start.

What still has a meaning is put into the option it has here; of the rest a line in the log says that it has none.
"""

from __future__ import annotations

import argparse
from typing import Final

import structlog

from mooring.cli.main import shown_version
from mooring.operators.operator import seconds
from mooring.operators.registry import OPERATORS

__all__ = ["add_legacy_options", "apply_legacy_options"]

log = structlog.get_logger("mooring.cli")

_NO_EFFECT: Final = {
    "ctr_reconciletime": "changes are watched, nothing is polled",
    "operator_start_interval": "all operators start at once",
    "kube_api_qps": "the API server's own fairness limits requests",
    "kube_api_burst": "the API server's own fairness limits requests",
    "kube_api_content_type": "JSON is spoken",
    "leader_elect_resource_lock": "the lock is a Lease",
    "contention_profiling": "there is no profiler",
    "logtostderr": "the log goes to standard error",
    "alsologtostderr": "the log goes to standard error",
    "stderrthreshold": "the log goes to standard error",
    "log_dir": "the log goes to standard error",
    "log_backtrace_at": "errors are logged with where they come from",
    "log_flush_frequency": "the log is not held back",
    "vmodule": "all parts log alike",
    "profiling": "there is no profiler; /debug/tasks on the metrics port shows what is being done",
    "revisionHistoryLimit": "the StatefulSet keeps its revisions",
    "kibanaDomainName": "logs go to standard output",
    "cluster.local": "the cluster's DNS names are not needed",
    "feature_gates": "there are none",
    "skip_headers": "the log has a form of its own",
    "skip_log_headers": "the log has a form of its own",
    "add_dir_header": "the log has a form of its own",
    "one_output": "the log goes to standard error",
    "log_file": "the log goes to standard error",
    "log_file_max_size": "the log goes to standard error",
}
PROBES: Final = 8081
"""Where probes are answered unless another port is named."""
DETAILS: Final = 4
"""The verbosity from which on every step is logged: their levels are Kubernetes'."""


def add_legacy_options(parser: argparse.ArgumentParser) -> None:
    """Declare them; ``--help`` does not list them, docs/operations.md does."""

    def hidden(*names: str, **how: object) -> None:
        # Their flags may be written with underscores, too.
        spelled = dict.fromkeys(way for name in names for way in (name, f"--{name[2:].replace('-', '_')}"))
        parser.add_argument(*spelled, help=argparse.SUPPRESS, **how)  # type: ignore[arg-type]

    hidden("--master", default="")
    hidden("--address", default="")
    hidden("--port", type=int)
    hidden("--leader-elect", nargs="?", const="true", type=_boolean)
    hidden("--metrics-bind-address", type=_bound)
    hidden("--health-probe-bind-address", type=_bound)
    for option in (one for operator in OPERATORS.values() for one in operator.options):
        underscored = option.flags[0].replace("-", "_").replace("__", "--", 1)
        how = {"dest": option.attribute, "type": option.parse, "default": argparse.SUPPRESS}
        parser.add_argument(underscored, help=argparse.SUPPRESS, **how)  # type: ignore[arg-type]
    hidden("--version", action="version", version=f"mooring {shown_version()}")
    parser.add_argument("-v", "--v", type=int, dest="verbosity", help=argparse.SUPPRESS)
    for name in ("lease-duration", "renew-deadline", "retry-period"):
        hidden(f"--leader-elect-{name}", type=seconds)
    for name in _NO_EFFECT:
        hidden(_option(name), nargs="?", const="true")


def apply_legacy_options(options: argparse.Namespace) -> None:
    """Put them where they belong, and say which have no effect."""
    if options.address:
        options.bind = options.address
    if options.port is not None:  # theirs served everything on one port, and their manifests probe it there
        options.metrics_port = options.port
        if options.probe_port is None:
            options.probe_port = options.port
    if options.metrics_bind_address is not None:
        host, options.metrics_port = options.metrics_bind_address
        options.bind = host or options.bind
    if options.health_probe_bind_address is not None:
        host, options.probe_port = options.health_probe_bind_address
        options.bind = host or options.bind
    if options.probe_port is None:
        options.probe_port = PROBES
    if options.verbosity is not None and options.verbosity >= DETAILS:
        options.log_level = "debug"
    if options.leader_elect == "false":
        options.no_leader_election = True
    for name, why in _NO_EFFECT.items():
        if getattr(options, name) is not None:
            log.info("this option has no effect", option=_option(name), why=why)


def _bound(text: str) -> tuple[str, int]:
    """An address as Go binds it, ``:8080`` or ``127.0.0.1:8080``; ``0`` for none."""
    host, colon, port = text.rpartition(":")
    if text != "0" and not (colon and port.isdigit() and int(port) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no address; write :8080 or 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def _boolean(text: str) -> str:
    """What Go takes for a truth value, as ``true`` or ``false``."""
    if text.lower() in ("1", "t", "true"):
        return "true"
    if text.lower() in ("0", "f", "false"):
        return "false"
    raise argparse.ArgumentTypeError(f"{text!r} is neither true nor false")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
