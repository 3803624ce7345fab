"""Slices of Endpoints that are written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.local.controllers.bed import running
from tests.local.controllers.builders import make

from mooring.kube.objects.core import Endpoints, Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.controllers.endpoints.mirror import MIRROR, mirrored, mirrors_of

LABELS = {"kubernetes.io/service-name": "s", "endpointslice.kubernetes.io/managed-by": MIRROR}


def endpoints(*subsets: dict[str, Any], **metadata: Any) -> Endpoints:
    return make(Endpoints, "s", {"subsets": list(subsets)}, **metadata)


def subset(*ready: str, unready: tuple[str, ...] = (), port: int = 80) -> dict[str, Any]:
    return {
        "addresses": [{"ip": ip} for ip in ready],
        "notReadyAddresses": [{"ip": ip} for ip in unready],
        "ports": [{"port": port, "name": "p"}],
    }


def shape(each: EndpointSlice) -> tuple[str, list[int | None], list[tuple[str, bool | None]]]:
    found = [
        ((e.addresses or [""])[0], e.conditions.ready if e.conditions else None) for e in each.endpoints or ()
    ]
    return each.address_type or "", [p.port for p in each.ports or ()], found


def test_there_is_a_slice_for_each_set_of_ports_and_family() -> None:
    given = endpoints(
        subset("10.0.0.1", unready=("10.0.0.2",)), subset("10.0.0.3", "fd00::1", port=81), labels={"a": "b"}
    )
    plan = mirrors_of(given, [])
    assert sorted(map(shape, plan.create)) == [
        ("IPv4", [80], [("10.0.0.1", True), ("10.0.0.2", False)]),
        ("IPv4", [81], [("10.0.0.3", True)]),
        ("IPv6", [81], [("fd00::1", True)]),
    ]
    assert all(each.metadata.labels == {"a": "b", **LABELS} for each in plan.create)
    owners = [reference.uid for each in plan.create for reference in each.metadata.owner_references or ()]
    assert owners == [given.metadata.uid] * 3
    assert not plan.update
    assert not plan.delete


def test_what_is_right_stays_and_what_changed_keeps_its_name() -> None:
    before = mirrors_of(endpoints(subset("10.0.0.1"), subset("10.0.0.2", port=81), uid="u"), []).create
    after = mirrors_of(endpoints(subset("10.0.0.1"), subset("10.0.0.9", port=81), uid="u"), before)
    [(old, new)] = after.update
    assert shape(new) == ("IPv4", [81], [("10.0.0.9", True)])
    assert new.metadata.name == old.metadata.name
    assert not after.create
    assert not after.delete


def test_ports_that_are_gone_and_doubles_go() -> None:
    [first, second] = mirrors_of(
        endpoints(subset("10.0.0.1"), subset("10.0.0.2", port=81), uid="u"), []
    ).create
    double = make(EndpointSlice, "zz", {"addressType": "IPv4", "ports": [{"port": 80, "name": "p"}]})
    plan = mirrors_of(endpoints(subset("10.0.0.1"), uid="u"), [first, second, double])
    assert {each.metadata.name for each in plan.delete} == {second.metadata.name, "zz"}
    assert {each.metadata.name for each in mirrors_of(None, [first, second]).delete} == {
        first.metadata.name,
        second.metadata.name,
    }


@pytest.mark.parametrize(
    ("metadata", "spec", "wanted"),
    [
        ({}, {}, True),
        ({}, {"selector": {"a": "b"}}, False),
        ({}, None, False),
        ({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}, {}, False),
        ({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}, {}, False),
        ({"deletionTimestamp": "2030-01-01T00:00:00Z"}, {}, False),
    ],
)
def test_only_endpoints_of_services_without_a_selector_are_mirrored(
    metadata: dict[str, Any], spec: dict[str, Any] | None, wanted: bool
) -> None:
    service = None if spec is None else make(Service, "s", {"spec": spec})
    assert mirrored(endpoints(subset("10.0.0.1"), **metadata), service) is wanted


async def test_slices_follow_endpoints_until_a_selector_takes_over(tmp_path: Path) -> None:
    async with running(tmp_path) as (bed, _):
        await bed.create(Service, "s", {"spec": {"ports": [{"port": 80}]}})
        await bed.create(Endpoints, "s", {"subsets": [subset("10.0.0.1")]})

        async def addresses() -> list[str]:
            slices = [
                each
                for each in await bed.list(EndpointSlice)
                if (each.metadata.labels or {}).get("endpointslice.kubernetes.io/managed-by") == MIRROR
            ]
            return [ip for each in slices for e in each.endpoints or () for ip in e.addresses or ()]

        async def are(*wanted: str) -> bool:
            return await addresses() == list(wanted)

        await bed.eventually(lambda: are("10.0.0.1"))
        await bed.patch(Endpoints, "s", {"subsets": [subset("10.0.0.2")]})
        await bed.eventually(lambda: are("10.0.0.2"))
        await bed.patch(Service, "s", {"spec": {"selector": {"app": "x"}}})
        await bed.eventually(are)
        assert await bed.quiet() == 0
