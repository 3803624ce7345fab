"""Templates of the cluster are entries of the catalog, for those who may see them, of custom resources alone."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from tests.catalog.test_catalog import SMALL
from tests.console.bed import ADMIN, ANN, BOB, CRDS, Bed, Browser, Json

from mooring.catalog import CatalogError, packaged
from mooring.catalog.templates import definitions, entry_of
from mooring.cli.main import main
from mooring.console import Upstream
from mooring.console.templates import Catalog
from mooring.kube import Response, TransportError
from mooring.testing import VirtualClock

GROUP = "/apis/catalog.mooring.dev/v1alpha1"
OURS = SMALL.replace(
    "group: example.com, version: v1, kind: Widget, plural: widgets",
    "group: redis.kun, version: v1beta1, kind: RedisCluster, plural: redisclusters",
)


def template(name: str, *, text: str = OURS, **target: Any) -> Json:
    document = yaml.safe_load(text)
    document["metadata"] = {"name": name}
    document["spec"]["target"] |= target
    document["spec"]["render"] = {}
    document["spec"]["parameters"]["properties"]["note"]["x-bind"] = "/spec/image"
    return document


@pytest.fixture
async def defined(bed: Bed) -> Bed:
    for definition in definitions():
        await bed.post(CRDS, definition)
    return bed


async def shared(bed: Bed, document: Json) -> None:
    await bed.post(f"{GROUP}/clusterservicetemplates", {**document, "kind": "ClusterServiceTemplate"})


async def private(bed: Bed, namespace: str, document: Json) -> None:
    await bed.post(
        f"{GROUP}/namespaces/{namespace}/servicetemplates", {**document, "kind": "ServiceTemplate"}
    )


async def names(browser: Browser) -> set[str]:
    return {card["name"] for card in (await browser.ok("GET", "catalog"))["entries"]}


async def test_a_template_of_the_cluster_is_an_entry_for_everybody(
    defined: Bed, browsers: list[Browser]
) -> None:
    await shared(defined, template("tiny"))
    root, bob, _ = browsers
    await root.signed_in(ADMIN)
    await bob.signed_in(BOB)
    assert "tiny" in await names(root)
    assert "tiny" in await names(bob)
    body = {"entry": "tiny", "name": "one", "values": {"size": 4, "note": "redis"}}
    await root.ok("POST", "namespaces/team-a/instances", body)
    one = await root.ok("GET", "namespaces/team-a/instances/tiny/one/form")
    assert one["values"] == {"size": 4, "note": "redis"}
    rows = (await root.ok("GET", "instances"))["rows"]
    assert [(row["entry"], row["name"]) for row in rows] == [("redis-sentinel", "one")], (
        "it is in a list once"
    )


async def test_a_template_of_a_namespace_is_for_those_who_see_it_and_for_that_namespace(
    defined: Bed, browsers: list[Browser]
) -> None:
    await private(defined, "team-a", template("tiny"))
    root, ann, bob = browsers
    await root.signed_in(ADMIN)
    await ann.signed_in(ANN)
    await bob.signed_in(BOB)
    await defined.grant("ann", "team-a", "catalog.mooring.dev", ["servicetemplates"], ["get", "list"])
    assert "team-a.tiny" in await names(root)
    assert "team-a.tiny" in await names(ann)
    assert "tiny" not in str(await bob.ok("GET", "catalog"))
    assert (await bob.send("GET", "catalog/team-a.tiny"))[0] == 403
    assert (await ann.ok("GET", "catalog/team-a.tiny"))["form"]["plans"]
    body = {"entry": "team-a.tiny", "name": "one", "values": {"size": 4, "note": "redis"}}
    assert (await root.send("POST", "namespaces/team-b/instances?dryRun=true", body))[0] == 404
    assert (await root.send("POST", "namespaces/team-a/instances?dryRun=true", body))[0] == 200
    assert (await ann.send("POST", "namespaces/team-a/instances?dryRun=true", body))[0] == 403
    await defined.redis("team-b", "one", size=3)
    for path in ("", "/form", "/diagnosis", "/actions", "/pods"):
        assert (await root.send("GET", f"namespaces/team-b/instances/team-a.tiny/one{path}"))[0] == 404


async def test_a_template_that_cannot_be_used_is_told_and_harms_no_other(
    defined: Bed, browsers: list[Browser]
) -> None:
    await shared(defined, template("sound"))
    await shared(defined, template("redis-cluster"))
    broken = template("broken")
    broken["spec"]["parameters"]["properties"]["size"]["default"] = 9
    await shared(defined, broken)
    root = await browsers[0].signed_in(ADMIN)
    found = await root.ok("GET", "catalog")
    problems = "\n".join(found["problems"])
    assert "ClusterServiceTemplate broken: spec.parameters.properties.size.default" in problems
    assert "redis-cluster: the name is taken" in problems
    assert {"sound", "redis-cluster"} <= await names(root)
    assert (await root.ok("GET", "catalog/redis-cluster"))["display"]["title"]["en"] == "Redis Cluster"


class Away:
    """A transport to an API server that is away while ``away``."""

    def __init__(self, bed: Bed) -> None:
        self.away = False
        self.stream = bed.admin.transport.stream
        self.close = bed.admin.transport.close
        self._request = bed.admin.transport.request

    async def request(self, method: str, path: str, **more: Any) -> Response:
        """See `Transport.request`."""
        if self.away:
            raise TransportError("away")
        return await self._request(method, path, **more)


async def test_entries_stay_known_while_the_api_server_is_away(defined: Bed) -> None:
    await shared(defined, template("tiny"))
    transport, clock = Away(defined), VirtualClock()
    packaged_ones = {entry.name: entry for entry in packaged()}
    catalog = Catalog(Upstream(own=transport, bare=transport), clock, packaged=packaged_ones)
    transport.away = True
    assert set(await catalog.entries()) == set(packaged_ones)
    transport.away = False
    await clock.advance(60)
    assert set(await catalog.entries()) == {*packaged_ones, "tiny"}
    transport.away = True
    await clock.advance(60)
    assert set(await catalog.entries()) == {*packaged_ones, "tiny"}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({"group": ""}, "no group of custom resources"),
        ({"group": "apps"}, "no group of custom resources"),
        ({"group": "rbac.authorization.k8s.io"}, "no group of custom resources"),
        ({"group": "catalog.mooring.dev"}, "no group of custom resources"),
        ({"namespaced": False}, "only kinds in namespaces"),
        ({"color": "red"}, "unknown field"),
    ],
)
def test_a_template_names_custom_resources_alone(target: Json, said: str) -> None:
    entry_of(template("one"))
    with pytest.raises(CatalogError, match=said):
        entry_of(template("one", **target))


def test_the_definitions_are_printed_for_kubectl(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["console", "--print-crds"])
    assert ended.value.code == 0
    printed = list(yaml.safe_load_all(capsys.readouterr().out))
    assert [one["metadata"]["name"].partition(".")[0] for one in printed] == [
        "clusterservicetemplates",
        "servicetemplates",
    ]
