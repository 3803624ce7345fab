"""Backups in Chromium: made, scheduled, deleted, restored into a new cluster.

On a real Redis to its end; what cannot be waited for on the definitions of CloudNativePG.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from tests.browser.conftest import CORE, REDIS, Page, Plane, narrow, stubbed

pytestmark = [pytest.mark.browser, pytest.mark.timeout(180)]

DEFINITIONS = Path(__file__).parents[1] / "catalog" / "definitions"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
API = "/apis/postgresql.cnpg.io/v1/namespaces/default"
ROUTE = "instances/default/cnpg-postgres/shop?tab=backups"


@pytest.fixture
def postgres(signed_in: Page, plane: Plane) -> Iterator[Page]:
    """The browser at the backups of a cluster."""
    for name in ("cnpg-postgres", "cnpg-backup", "cnpg-scheduledbackup"):
        plane.send("POST", CRDS, yaml.safe_load((DEFINITIONS / f"{name}.yaml").read_text()))
    for plural in ("clusters", "backups", "scheduledbackups"):
        signed_in.until(partial(plane.served, f"{API}/{plural}"))
    spec = {"instances": 3, "storage": {"size": "7Gi"}}
    body = {
        "apiVersion": "postgresql.cnpg.io/v1",
        "kind": "Cluster",
        "metadata": {"name": "shop"},
        "spec": spec,
    }
    plane.send("POST", f"{API}/clusters", body)
    yield signed_in
    for plural in ("scheduledbackups", "backups", "clusters"):
        plane.delete(f"{CRDS}/{plural}.postgresql.cnpg.io")


def test_backups_are_made_restored_and_deleted(postgres: Page, plane: Plane, axe: str) -> None:
    page = postgres
    page.open("instances/default/cnpg-postgres/shop")
    page.until(lambda: page.driver.find_elements(By.ID, "tab-backups"), 20)
    page.driver.find_element(By.ID, "tab-backups").click()
    page.until(lambda: "There is none yet." in page.text("collection-backups"))
    assert page.axe(axe) == []
    page.find("make-backups").click()
    page.until(lambda: "kind: Backup" in page.text("make-manifest"))
    page.type("related", "Not a name")
    page.until(lambda: not page.find("confirm-make").is_enabled())
    page.type("related", "shop-first")
    page.until(
        lambda: "name: shop-first" in page.text("make-manifest") and page.find("confirm-make").is_enabled()
    )
    assert page.axe(axe) == []
    page.find("confirm-make").click()
    page.until(lambda: "under way" in page.text("related-shop-first"))
    assert plane.send("GET", f"{API}/backups/shop-first")["spec"]["cluster"]["name"] == "shop"
    assert not page.there("restore-shop-first"), "it is not complete yet"
    done = {"status": {"phase": "completed", "startedAt": "2026-01-01T00:00:00Z"}}
    plane.send("PATCH", f"{API}/backups/shop-first/status", done)
    page.until(lambda: page.there("restore-shop-first"))
    assert "complete" in page.text("related-shop-first")
    assert page.axe(axe) == []
    assert narrow(page) <= 390
    page.press("中文")
    page.until(lambda: "恢复为新实例" in page.text("related-shop-first"))
    assert page.axe(axe) == []
    page.press("English")

    page.find("restore-shop-first").click()
    page.until(lambda: "shop-first" in page.text("restoring") and page.shows("The cluster accepts this."))
    assert page.field("storage").get_attribute("value") == "7Gi", "the new one begins as the old one is"
    assert not page.field("namespace").is_enabled()
    assert "recovery:" in page.text("manifest")
    page.type("name", "shop-again")
    page.until(
        lambda: "name: shop-again" in page.text("manifest") and page.shows("The cluster accepts this.")
    )
    page.find("submit").click()
    page.until(lambda: page.driver.current_url.endswith("/cnpg-postgres/shop-again"))
    made = plane.send("GET", f"{API}/clusters/shop-again")["spec"]
    assert made["bootstrap"] == {"recovery": {"backup": {"name": "shop-first"}}}

    page.open(ROUTE)
    page.find("related-shop-first").find_element(By.CSS_SELECTOR, "button.danger").click()
    page.find("remove-dialog")
    assert page.axe(axe) == []
    page.find("confirm-remove").click()
    page.until(lambda: not page.there("related-shop-first"))
    assert plane.send("GET", f"{API}/backups")["items"] == []
    assert page.complaints() == []


def test_what_cannot_be_listed_is_said(postgres: Page, plane: Plane, axe: str) -> None:
    page = postgres
    plane.delete(f"{CRDS}/scheduledbackups.postgresql.cnpg.io")
    page.open(ROUTE)
    page.until(lambda: "does not serve this kind" in page.text("collection-schedules"))
    shown: dict[str, Any] = {
        "name": "backups",
        "title": {"en": "Backups", "zh": "备份"},
        "description": {"en": "Copies.", "zh": "副本。"},
        "columns": [],
        "create": None,
        "mayCreate": "denied",
        "mayDelete": "denied",
        "values": {},
        "entry": "",
        "restore": None,
        "state": "denied",
        "rows": [],
        "truncated": True,
    }
    with stubbed(page, "/collections", {"collections": [shown]}):
        page.reopen(ROUTE)
        page.until(lambda: "You may not list: Backups." in page.text("collection-backups"))
        assert "some are not shown" in page.text("collection-backups")
        assert page.axe(axe) == []
    failed = {"code": "NoAnswer", "detail": "stopped for a test", "requestId": "r"}
    with stubbed(page, "/collections", failed, status=504):
        page.reopen(ROUTE)
        page.until(lambda: page.shows("stopped for a test"))
        assert page.axe(axe) == []
    plane.send("POST", CRDS, yaml.safe_load((DEFINITIONS / "cnpg-scheduledbackup.yaml").read_text()))


#: Seconds until a backup is complete and verified, until a cluster runs.
COMPLETE, HEALTHY = 120.0, 90.0
RBK = "/apis/redis.mooring.dev/v1alpha1/namespaces/default"


@pytest.fixture
def shop(signed_in: Page, plane: Plane) -> Iterator[Page]:
    """The browser, a running Redis and a claim for its backups."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    plane.send("POST", f"{CORE}/persistentvolumeclaims", {"metadata": {"name": "kept"}, "spec": claim})
    storage = {"metadata": {"name": "redis-data"}, "spec": claim}
    sentinel = {"replicas": 3, "image": "redis:7.0"}
    plane.redis(
        "shop",
        paused=False,
        size=3,
        image="redis:7.0",
        sentinel=sentinel,
        storage={"persistentVolumeClaim": storage},
    )
    yield signed_in
    for plural in ("redisbackupschedules", "redisbackups"):
        for item in plane.send("GET", f"{RBK}/{plural}")["items"]:
            plane.delete(f"{RBK}/{plural}/{item['metadata']['name']}")
    for item in plane.send("GET", REDIS.format("default"))["items"]:
        plane.delete(f"{REDIS.format('default')}/{item['metadata']['name']}")


def test_a_redis_is_backed_up_and_a_new_one_begins_with_it(shop: Page, plane: Plane, axe: str) -> None:
    page = shop
    page.open("instances/default/redis-sentinel/shop?tab=backups")
    page.until(lambda: "There is none yet." in page.text("collection-backups"), 20)
    page.until(lambda: page.phase() == "Running", HEALTHY)
    page.find("make-backups").send_keys(Keys.ENTER)
    page.until(lambda: page.shows("Give a claim or a bucket, one of the two."))
    page.type("related", "shop-first")
    page.type("claim", "kept")
    page.field("verify").send_keys(Keys.SPACE)
    page.until(lambda: "name: kept" in page.text("make-manifest") and page.find("confirm-make").is_enabled())
    assert page.axe(axe) == []
    page.find("confirm-make").send_keys(Keys.ENTER)
    page.until(lambda: "complete" in page.text("related-shop-first"), COMPLETE)
    page.until(lambda: "yes" in page.text("related-shop-first"), COMPLETE)
    assert "KiB" in page.text("related-shop-first") or " B" in page.text("related-shop-first")

    page.find("make-schedules").click()
    page.type("related", "shop-nightly")
    page.type("claim", "kept")
    page.until(lambda: page.find("confirm-make").is_enabled())
    page.find("confirm-make").click()
    page.until(lambda: "in " in page.text("related-shop-nightly"))
    assert page.axe(axe) == []
    assert narrow(page) <= 390

    page.find("related-shop-first").find_element(By.LINK_TEXT, "shop-first").click()
    page.until(lambda: page.driver.current_url.endswith("/redis-backup/shop-first"))
    page.until(lambda: page.phase() == "Succeeded")
    page.press("Metrics")
    page.until(lambda: page.shows("Size") and page.shows("7.0"))
    assert page.axe(axe) == []
    page.press("中文")
    page.until(lambda: "恢复到新集群" in page.text("restore-redis-sentinel"))
    assert page.axe(axe) == []
    page.press("English")
    page.find("restore-redis-sentinel").click()
    page.until(lambda: "shop-first" in page.text("restoring"))
    page.type("name", "again")
    page.until(
        lambda: "backup: shop-first" in page.text("manifest") and "name: again" in page.text("manifest")
    )
    page.until(lambda: page.shows("The cluster accepts this."))
    page.find("submit").click()
    page.until(lambda: page.driver.current_url.endswith("/redis-sentinel/again"))
    page.until(lambda: page.phase() == "Running", HEALTHY)
    restored = plane.send("GET", f"{REDIS.format('default')}/again")["status"]["restore"]
    assert (restored["phase"], restored["backup"]) == ("Succeeded", "shop-first")

    page.open("instances")
    page.until(lambda: page.there("row-again") and page.there("row-shop"))
    assert not page.there("row-shop-first"), "services alone, at first"
    page.open("instances?show=companions")
    page.until(lambda: page.there("row-shop-first") and page.there("row-shop-nightly"))
    assert not page.there("row-shop")
    page.open("catalog")
    page.until(lambda: "Backup of Redis" in page.text("companions"))
    assert page.axe(axe) == []
    assert page.complaints() == []
