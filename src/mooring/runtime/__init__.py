"""What every controller needs: queue, workers, a client that reads its own writes, Lease, events, metrics.

A controller in full:

    async def reconcile(key: Key) -> Result:
        owner = manager.client.find(Widget, key.name, namespace=key.namespace)
        ...
        return Done()

    manager = Manager(client, name="widgets", election=Election("mooring-widgets-all", "mooring-system"))
    controller = Controller("widgets", reconcile, workers=8)
    controller.watch(manager.informers.of(Widget), predicate=meaningful_change)
    controller.owns(manager.informers.of(ConfigMap), Widget)
    manager.add(controller)
    await manager.run()

CRDs from types are in `crd`, log set-up and redaction in `log`. Stands on `mooring.cache` and `mooring.kube`.
"""

from mooring.runtime.backoff import KeyedBackoff, StreamBackoff
from mooring.runtime.client import CachedClient
from mooring.runtime.clock import Clock, SystemClock, rfc3339
from mooring.runtime.context import Pass, current_pass, span
from mooring.runtime.controller import After, Controller, Done, Reconcile, Result, Terminal, owner_key
from mooring.runtime.crd import (
    F,
    PrinterColumn,
    Rule,
    Scale,
    SchemaError,
    check_crds,
    crd,
    defaulted,
    render_crd,
    rules,
    unknown_fields,
    write_crds,
)
from mooring.runtime.events import EventRecorder
from mooring.runtime.finalizers import add_finalizer, remove_finalizer
from mooring.runtime.http import Health, ProbeServer
from mooring.runtime.lease import (
    Election,
    Elector,
    Fence,
    FencedTransport,
    FenceLost,
    LeaseLost,
    OpenFence,
)
from mooring.runtime.log import configure_logging, redact, secrets
from mooring.runtime.metrics import MeteredTransport, Metrics
from mooring.runtime.predicates import (
    Predicate,
    any_of,
    generation_changed,
    label_changed,
    meaningful_change,
    status_changed,
)
from mooring.runtime.process import Manager
from mooring.runtime.queue import HIGH, LOW, NORMAL, QueueClosed, WorkQueue

__all__ = [
    "HIGH",
    "LOW",
    "NORMAL",
    "After",
    "CachedClient",
    "Clock",
    "Controller",
    "Done",
    "Election",
    "Elector",
    "EventRecorder",
    "F",
    "Fence",
    "FenceLost",
    "FencedTransport",
    "Health",
    "KeyedBackoff",
    "LeaseLost",
    "Manager",
    "MeteredTransport",
    "Metrics",
    "OpenFence",
    "Pass",
    "Predicate",
    "PrinterColumn",
    "ProbeServer",
    "QueueClosed",
    "Reconcile",
    "Result",
    "Rule",
    "Scale",
    "SchemaError",
    "StreamBackoff",
    "SystemClock",
    "Terminal",
    "WorkQueue",
    "add_finalizer",
    "any_of",
    "check_crds",
    "configure_logging",
    "crd",
    "current_pass",
    "defaulted",
    "generation_changed",
    "label_changed",
    "meaningful_change",
    "owner_key",
    "redact",
    "remove_finalizer",
    "render_crd",
    "rfc3339",
    "rules",
    "secrets",
    "span",
    "status_changed",
    "unknown_fields",
    "write_crds",
]
