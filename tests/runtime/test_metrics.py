"""Existing dashboards work: the names and labels are those of controller-runtime and client-go."""

from __future__ import annotations

from tests.cache.fake_api import FakeApi

from mooring.cache import InformerSet
from mooring.kube import Client
from mooring.runtime import Metrics, WorkQueue
from mooring.runtime.metrics import ControllerStats, QueueStats
from mooring.runtime.webhooks import WebhookMetrics

NAMES = {
    *(
        f"controller_runtime_{name}"
        for name in (
            "reconcile_total",
            "reconcile_errors_total",
            "terminal_reconcile_errors_total",
            "reconcile_panics_total",
            "reconcile_timeouts_total",
            "reconcile_time_seconds",
            "max_concurrent_reconciles",
            "active_workers",
            "webhook_requests_total",
            "webhook_latency_seconds",
            "webhook_requests_in_flight",
            "webhook_panics_total",
        )
    ),
    *(
        f"workqueue_{name}"
        for name in (
            "depth",
            "adds_total",
            "queue_duration_seconds",
            "work_duration_seconds",
            "unfinished_work_seconds",
            "longest_running_processor_seconds",
            "retries_total",
        )
    ),
    "rest_client_requests_total",
    "rest_client_request_duration_seconds",
    "leader_election_master_status",
    "certwatcher_read_certificate_total",
    "certwatcher_read_certificate_errors_total",
    "informer_objects",
    "informer_last_rv_age_seconds",
    "informer_relists_total",
    "informer_decode_errors_total",
    "loop_lag_seconds",
    "stale_sync_skips_total",
}


def test_every_name_is_there() -> None:
    metrics = Metrics()
    metrics.controller(ControllerStats("pods", 8))
    queue: WorkQueue[str] = WorkQueue()
    metrics.queue(QueueStats("pods"), queue)
    informers = InformerSet(Client(FakeApi()))
    metrics.informers("op", informers)
    WebhookMetrics().register(metrics.registry)

    said = {line.split()[2] for line in metrics.text().decode().splitlines() if line.startswith("# TYPE")}

    assert not NAMES - said


def test_results_are_counted_by_controller_and_result() -> None:
    metrics = Metrics()
    metrics.controller(ControllerStats("pods", 3))
    text = metrics.text().decode()
    for result in ("success", "error", "requeue", "requeue_after"):
        assert f'controller_runtime_reconcile_total{{controller="pods",result="{result}"}} 0.0' in text
    assert 'controller_runtime_max_concurrent_reconciles{controller="pods"} 3.0' in text


def test_a_gauge_that_is_asked_for_again_knows_nothing_of_who_was_there_before() -> None:
    metrics = Metrics()
    metrics.gauge("shops_open", "Shops.", ["name"]).labels("closed since").set(1)

    metrics.gauge("shops_open", "Shops.", ["name"]).labels("new").set(1)

    said = [line for line in metrics.text().decode().splitlines() if line.startswith("shops_open")]
    assert said == ['shops_open{name="new"} 1.0']
