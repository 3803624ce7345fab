"""The rules of built-in kinds: what is refused, in which words, and what must not be.

That the words are those of a real server is checked against one, in tests/conformance.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.conformance.corpus.kinds import Sample, registry, samples

from mooring.local.api.kinds import Kind
from mooring.local.api.storage import MemoryBackend, Store
from mooring.local.api.strategies import prepare_create
from mooring.local.api.validation.addresses import cidr_errors, endpoint_ip_errors, ip_errors
from mooring.local.api.validation.schedules import schedule_complaint, zone_complaints
from mooring.local.api.world import World

Json = Any


def _now() -> datetime:
    return datetime(2024, 1, 1, tzinfo=UTC)


def complaints(resource: str, spec: Json, *, name: str = "a", old: Json = None) -> list[str]:
    """Return what a server finds wrong with an object, or with its change from another spec."""
    sample = samples()[resource]
    kind = Kind.of(sample.served, registry())
    new = whole(kind, sample, spec, name)
    if old is None:
        return [str(error) for error in kind.validate_create(new)]
    before = new if old is spec else whole(kind, sample, old, name)
    # Like the object that a write decodes: equal to the stored one, and not the same.
    return [str(error) for error in kind.validate_update(copy.deepcopy(new), before)]


def whole(kind: Kind, sample: Sample, part: Json, name: str) -> Json:
    """Return a decoded, defaulted object of the samples, as rules see it."""
    body = filled(sample.body(part, name=name.replace("{ns}", "ns"), uid="u"))
    if sample.served.namespaced:
        body["metadata"]["namespace"] = "ns"
    obj, _ = kind.canonical(body)
    return prepare_create(kind.default(obj), sample.served, World(Store(MemoryBackend()), _now))


def filled(value: Json) -> Json:
    if isinstance(value, str):
        return value.replace("{ns}", "ns")
    if isinstance(value, dict):
        return {filled(key): filled(item) for key, item in value.items()}
    return [filled(item) for item in value] if isinstance(value, list) else value


def merged(old: Json, change: Json) -> Json:
    if not isinstance(change, dict) or not isinstance(old, dict):
        return change
    rest = {key: value for key, value in old.items() if key not in change}
    return {**rest, **{key: merged(old.get(key), v) for key, v in change.items() if v is not None}}


#: What the corpus has among the broken ones, and defaults or a merge make whole.
_DEFAULTED = (
    samples()["apps/v1/deployments"].minimal,
    {"spec": {"matchingPrecedence": 0, "priorityLevelConfiguration": {"name": "global-default"}}},
)


def objects(part: str) -> Iterator[Any]:
    for resource, sample in samples().items():
        if part == "broken":
            specs = (merged(sample.minimal, one) for one in sample.broken)
            yield from (pytest.param(resource, spec) for spec in specs if spec not in _DEFAULTED)
        else:
            yield pytest.param(resource, getattr(sample, part))


@pytest.mark.parametrize(("resource", "spec"), [*objects("minimal"), *objects("rich")])
def test_a_valid_object_of_every_kind_is_accepted(resource: str, spec: Json) -> None:
    assert complaints(resource, spec, name=samples()[resource].name) == []


@pytest.mark.parametrize(("resource", "spec"), list(objects("broken")))
def test_every_rule_of_the_samples_is_kept(resource: str, spec: Json) -> None:
    assert complaints(resource, spec, name=samples()[resource].name)


@pytest.mark.parametrize("part", ["minimal", "rich"])
@pytest.mark.parametrize("resource", sorted(samples()))
def test_an_object_that_stayed_the_same_is_accepted(resource: str, part: str) -> None:
    spec = getattr(samples()[resource], part)
    assert complaints(resource, spec, name=samples()[resource].name, old=spec) == []


def quota(**spec: Json) -> list[str]:
    return complaints("v1/resourcequotas", {"spec": spec})


def test_a_quota_counts_whole_things_of_known_names() -> None:
    assert quota(hard={"pods": "1.5"}) == ['spec.hard[pods]: Invalid value: "1500m": must be an integer']
    assert quota(hard={"count/things.example.com": "1", "requests.cpu": "1500m"}) == []
    assert quota(hard={"nonsense": "1"}) == [
        'spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource type or fully qualified',
        'spec.hard[nonsense]: Invalid value: "nonsense": must be a standard resource for quota',
    ]
    scopes = quota(hard={"pods": "1", "secrets": "2"}, scopes=["BestEffort", "NotBestEffort"])
    assert [text.rpartition(": ")[2] for text in scopes] == [
        "unsupported scope applied to resource", "unsupported scope applied to resource", "conflicting scopes",
    ]  # fmt: skip


def limits(**limit: Json) -> list[str]:
    return complaints("v1/limitranges", {"spec": {"limits": [{"type": "Container", **limit}]}})


def test_the_parts_of_a_limit_fit_to_each_other() -> None:
    assert limits(min={"cpu": "1"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "2"}) == []
    assert limits(min={"cpu": "1"}, max={"cpu": "2"}, maxLimitRequestRatio={"cpu": "3"}) == [
        'spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: "3": ratio 3 is greater than max/min = 2.000000'
    ]
    assert limits(max={"cpu": "1"}, default={"cpu": "2"}) == [
        'spec.limits[0].defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than max value 1',
        'spec.limits[0].default[cpu]: Invalid value: "1": default value 2 is greater than max value 1',
    ]


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("10.0.0.1", []),
        ("2001:db8::1", []),
        ("010.0.0.1", ["must not have leading 0s"]),
        ("::ffff:10.0.0.1", ["must not be an IPv4-mapped IPv6 address"]),
        ("fe80::1%eth0", ["must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"]),
        ("2001:DB8::1", ['must be in canonical form ("2001:db8::1")']),
    ],
)
def test_an_address_has_one_canonical_form(address: str, why: list[str]) -> None:
    assert [error.detail for error in ip_errors(address, "ip", canonical=True)] == why


@pytest.mark.parametrize(
    ("network", "why"),
    [
        ("10.0.0.0/8", []),
        ("10.0.0.1/8", ["must not have bits set beyond the prefix length"]),
        ("10.0.0.0/08", ["must not have leading 0s in IP or prefix length"]),
        ("10.0.0.0", ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
        ("10.0.0.0/33", ["must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"]),
    ],
)
def test_a_range_of_addresses_begins_at_its_first(network: str, why: list[str]) -> None:
    assert [error.detail for error in cidr_errors(network, "cidr")] == why


@pytest.mark.parametrize("address", ["0.0.0.0", "127.0.0.1", "169.254.1.1", "224.0.0.1", "::1", "ff02::1"])
def test_an_endpoint_is_at_an_ordinary_address(address: str) -> None:
    assert len(list(endpoint_ip_errors(address, "ip"))) == 1


@pytest.mark.parametrize(
    ("schedule", "why"),
    [
        ("*/5 0-6,12 1 JAN-mar sun", ""),
        ("@every 1h30m", ""),
        ("TZ=Europe/Berlin 0 0 * * *", ""),
        ("0 0 * *", "expected exactly 5 fields, found 4: [0 0 * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("a * * * *", 'failed to parse int from a: strconv.Atoi: parsing "a": invalid syntax'),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("@every 1.5h", ""),
        ("1,,2 * * * *", ""),
        ("+5 * * * *", ""),
        ("0 0 * * 7", "end of range (7) above maximum (6): 7"),
        (
            "9" * 30 + " * * * *",
            f'failed to parse int from {"9" * 30}: strconv.Atoi: parsing "{"9" * 30}": value out of range',
        ),
        ("@every 1d", 'failed to parse duration @every 1d: time: unknown unit "d" in duration "1d"'),
        ("@every 5", 'failed to parse duration @every 5: time: missing unit in duration "5"'),
        ("TZ=Nowhere/At 0 0 * * *", "provided bad location Nowhere/At: unknown time zone Nowhere/At"),
    ],
)
def test_a_schedule_that_cannot_be_read_is_told_why(schedule: str, why: str) -> None:
    assert schedule_complaint(schedule) == why


def test_a_time_zone_is_one_that_exists() -> None:
    assert zone_complaints("Europe/Berlin") == zone_complaints("Etc/UTC") == []
    assert zone_complaints("No/Where") == ["unknown time zone No/Where"]
    assert zone_complaints("../etc/passwd")


def test_a_suspended_job_may_move_and_a_running_one_may_not() -> None:
    def job(**more: Json) -> Json:
        pod = {"restartPolicy": "Never", "containers": [{"name": "c", "image": "x"}], **more}
        return {"spec": {"suspend": True, "template": {"spec": pod}}}

    moved = job(nodeSelector={"disk": "ssd"})
    assert complaints("batch/v1/jobs", moved, old=job()) == []
    assert complaints("batch/v1/jobs", job(hostNetwork=True), old=job()) != []
    running = {"spec": {**job()["spec"], "suspend": False}}
    assert complaints("batch/v1/jobs", moved, old=running) != []


def test_what_a_network_policy_had_before_may_stay_wrong() -> None:
    def policy(cidr: str, **more: Json) -> Json:
        ingress = [{"from": [{"ipBlock": {"cidr": cidr}}]}]
        return {"spec": {"podSelector": {}, "ingress": ingress, **more}}

    loose, resource = "10.0.0.1/8", "networking.k8s.io/v1/networkpolicies"
    assert complaints(resource, policy(loose)) != []
    assert complaints(resource, policy(loose, policyTypes=["Ingress"]), old=policy(loose)) == []
