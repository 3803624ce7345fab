"""Selectors, quantities, errors, patches: the values of the client."""

from __future__ import annotations

from decimal import Decimal

import pytest

from mooring.kube import AlreadyExists, Conflict, Key, Resource, ServerError, decode, encode, to_dict
from mooring.kube.errors import DecodeError, TooManyRequests, api_error
from mooring.kube.objects import core
from mooring.kube.objects.meta import LabelSelector, LabelSelectorRequirement, ObjectMeta
from mooring.kube.quantity import format_bytes, parse_quantity, same_quantity
from mooring.kube.selectors import FieldRequirement, parse_field_selector, parse_selector, selector_of
from mooring.local.api.wire import canonical_quantity, quantity_value

LABELS = {"app": "redis", "tier": "db", "n": "5"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=redis", True),
        ("app==redis,tier!=web", True),
        ("app in (redis, valkey)", True),
        ("app notin (redis)", False),
        ("absent notin (x)", True),
        ("absent!=x", True),
        ("app", True),
        ("!app", False),
        ("!absent", True),
        ("n>4", True),
        ("n<5", False),
        ("app=", False),
    ],
)
def test_a_label_selector_selects(text: str, *, matches: bool) -> None:
    assert parse_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize("text", ["a=b=c", "a in b", "=x", "a,,b", "a in (b", "n>x", "a b"])
def test_a_broken_selector_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unable to parse|must be an integer"):
        parse_selector(text)


@pytest.mark.parametrize("text", ["a=b,c!=d,e in (f,g),!h,x,n>3"])
def test_a_selector_reads_back_as_it_prints(text: str) -> None:
    assert str(parse_selector(str(parse_selector(text)))) == text


def test_no_selector_selects_nothing_and_an_empty_one_everything() -> None:
    assert not selector_of(None).matches(LABELS)
    assert selector_of(LabelSelector()).matches(LABELS)
    requirement = LabelSelectorRequirement(key="tier", operator="In", values=["db"])
    assert selector_of(LabelSelector(match_expressions=[requirement])).matches(LABELS)


def test_field_selectors() -> None:
    assert parse_field_selector("a.b=c,d!=e,f==") == [
        FieldRequirement("a.b", "c"),
        FieldRequirement("d", "e", negated=True),
        FieldRequirement("f", ""),
    ]
    with pytest.raises(ValueError, match="invalid selector"):
        parse_field_selector("nonsense")


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("100m", "0.1"),
        ("4Ki", "4096"),
        ("1Gi", "1073741824"),
        ("1E3", "1000"),
        ("2E", "2e18"),
        ("1.5k", "1500"),
        (3, "3"),
        ("-1", "-1"),
    ],
)
def test_a_quantity_is_an_exact_number(text: str | int, number: str) -> None:
    assert parse_quantity(text) == Decimal(number)


@pytest.mark.parametrize("text", ["", "1 Gi", "Gi", "1Gib", "abc", "1_000", "nan", "infinity"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        parse_quantity(text)
    assert not same_quantity(text, "1")


@pytest.mark.parametrize("text", ["1e3k", "1E3Ki", "\u0663", "1e", "+-1", "."])
def test_what_only_one_reader_took_for_a_quantity_is_none_for_both(text: str) -> None:
    for read in (parse_quantity, canonical_quantity, quantity_value):
        with pytest.raises(ValueError, match="quantit"):
            read(text)


@pytest.mark.parametrize("text", ["9" * 200_000, "1e99999999", "1E-5000", "0." + "0" * 100 + "1"])
def test_a_quantity_without_end_is_refused_at_once(text: str) -> None:
    for read in (parse_quantity, canonical_quantity):
        with pytest.raises(ValueError, match="quantit"):
            read(text)


@pytest.mark.parametrize("text", ["9" * 60, "9" * 60 + "Ei", "1e60", "1E-60", "0." + "9" * 58 + "E"])
def test_the_longest_quantities_are_exact(text: str) -> None:
    assert parse_quantity(text) == quantity_value(text)
    assert canonical_quantity(text)


def test_quantities_compare_by_meaning() -> None:
    assert same_quantity("1Gi", "1024Mi")
    assert same_quantity(0.5, "500m")
    assert not same_quantity("1G", "1Gi")
    assert format_bytes(64 * 2**20) == "64Mi"
    assert format_bytes(1000) == "1000"


def test_an_error_answer_becomes_its_exception() -> None:
    status = {"reason": "AlreadyExists", "message": "m", "details": {"causes": [{"field": "a"}]}}
    assert isinstance(api_error(409, status), AlreadyExists)
    assert api_error(409, status).causes == [{"field": "a"}]
    assert isinstance(api_error(409, {"reason": "Conflict"}), Conflict)
    assert isinstance(api_error(503, b"upstream gone"), ServerError)
    assert str(api_error(503, b"upstream gone")) == "upstream gone"
    slow = api_error(429, b"{}", {"Retry-After": "3"})
    assert isinstance(slow, TooManyRequests)
    assert slow.retry_after == 3.0


def test_an_object_goes_to_json_and_back() -> None:
    pod = core.Pod(metadata=ObjectMeta(name="a", namespace="n"), status=core.PodStatus(pod_ip="10.0.0.1"))
    assert to_dict(pod) == {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "n"},
        "status": {"podIP": "10.0.0.1"},
    }
    again = decode(encode(pod), core.Pod)
    assert to_dict(again) == to_dict(pod)


def test_what_the_type_does_not_know_or_need_is_ignored() -> None:
    raw = b'{"metadata": {"name": "a", "managedFields": [{"manager": "x"}], "creationTimestamp": null}, "new": 1}'
    assert decode(raw, core.Pod).metadata == ObjectMeta(name="a")


def test_an_object_that_does_not_fit_names_the_field() -> None:
    with pytest.raises(DecodeError, match=r"spec\.nodeName"):
        decode(b'{"spec": {"nodeName": 3}}', core.Pod)


def test_paths() -> None:
    pods = Resource("", "v1", "Pod", "pods")
    assert pods.path(namespace="n", name="a", subresource="status") == "/api/v1/namespaces/n/pods/a/status"
    nodes = Resource("", "v1", "Node", "nodes", namespaced=False)
    assert nodes.path(namespace="ignored", name="a") == "/api/v1/nodes/a"
    assert Resource("apps", "v1", "X", "xs").path() == "/apis/apps/v1/xs"
    assert str(Key("", "a")) == "a"


def test_no_part_of_a_path_leads_elsewhere() -> None:
    kind = Resource("../api/v1/secrets?x=a.b", "v1", "K", "ks")
    assert (
        kind.path(namespace="a", name="b#c")
        == "/apis/..%2Fapi%2Fv1%2Fsecrets%3Fx%3Da.b/v1/namespaces/a/ks/b%23c"
    )
    for one in (Resource("a.b", "v1", "K", ".."), Resource("a.b", "", "K", "ks")):
        with pytest.raises(ValueError, match="no part of a path"):
            one.path()
    named = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False)
    assert named.path(name="system:node").endswith("/clusterroles/system:node")
