"""The page of metrics: a Prometheus, metrics.k8s.io, or the status alone, and who may see which."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from tests.charts.prometheus import served, until
from tests.console.bed import ADMIN, ANN, bound
from tests.console.served import Browser, Cluster, cluster

from mooring.cache import SystemClock
from mooring.catalog import packaged
from mooring.console import Prometheus
from mooring.console.metrics import RANGES, Queries, filled
from mooring.kube import MergePatch

ONE = "namespaces/team-a/instances/redis-sentinel/cache/metrics"


@dataclass
class Source:
    """Answers queries as a Prometheus does, and keeps them."""

    url: str = ""
    asked: list[dict[str, str]] = field(default_factory=list)
    headers: list[str] = field(default_factory=list)
    status: int = 200
    body: Any = None

    async def answer(self, request: web.Request) -> web.Response:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.asked.append(form)
        self.headers.append(request.headers.get("Authorization", ""))
        end = float(form["end"])
        series = {"metric": {"pod": "redis-cluster-cache-0"}, "values": [[end - 15, "1.5"], [end, "NaN"]]}
        good = {"status": "success", "data": {"resultType": "matrix", "result": [series]}}
        return web.json_response(self.body or good, status=self.status)


@pytest.fixture
async def source() -> AsyncIterator[Source]:
    made = Source()
    app = web.Application()
    app.router.add_post("/prom/api/v1/query_range", made.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = bound()
    await web.SockSite(runner, sock).start()
    made.url = f"http://127.0.0.1:{sock.getsockname()[1]}/prom"
    yield made
    await runner.cleanup()


@pytest.fixture
async def made(tmp_path: Path) -> AsyncIterator[Cluster]:
    async with cluster(tmp_path) as found:
        await found.redis("team-a", "cache", size=3)
        body = MergePatch({"status": {"size": 3, "master": "redis-cluster-cache-0"}})
        path = "/apis/redis.kun/v1beta1/namespaces/team-a/redisclusters/cache/status"
        await found.admin.request("PATCH", path, body=body.encode(), content_type=body.content_type)
        await found.grant("team-a", ["get", "list"], user="ann")
        yield found


async def ann_of(made: Cluster, **settings: Any) -> Browser:
    return await made.browser(await made.console(**settings)).signed_in(ANN)


async def test_charts_come_from_prometheus_and_name_the_instance(
    made: Cluster, source: Source, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("prom-token\n")
    prometheus = Prometheus(url=source.url, token_file=str(tmp_path / "token"))
    await made.grant("team-a", ["list"], user="ann", resource="pods")
    ann = await ann_of(made, prometheus=prometheus)
    found = (await ann.send("GET", f"{ONE}?range=6h")).json
    assert found["source"] == "prometheus"
    assert [chart["title"]["en"] for chart in found["charts"]][:2] == [
        "Memory of the data",
        "Memory of the container",
    ]
    [line] = found["charts"][0]["lines"]
    assert line["name"] == "redis-cluster-cache-0"
    assert [value for _, value in line["points"]] == [1.5, None], "NaN is no number in JSON"
    assert {figure["title"]["en"]: figure["value"] for figure in found["figures"]} == {
        "Redis servers": 3,
        "Master": "redis-cluster-cache-0",
    }
    for form in source.asked:
        assert 'namespace="team-a"' in form["query"]
        assert "redis-cluster-cache-" in form["query"]
        assert "$" not in form["query"]
        assert float(form["end"]) - float(form["start"]) == 6 * 3600
    assert set(source.headers) == {"Bearer prom-token"}
    assert (await ann.send("GET", f"{ONE}?range=1y")).status == 400


async def test_who_may_not_list_pods_sees_no_chart(made: Cluster, source: Source) -> None:
    ann = await ann_of(made, prometheus=Prometheus(url=source.url))
    found = (await ann.send("GET", ONE)).json
    assert (found["source"], found["charts"]) == ("denied", [])
    assert source.asked == []
    other = ONE.replace("team-a", "team-b")
    assert (await ann.send("GET", other)).status == 403
    assert source.asked == []


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (400, {"status": "error", "error": "bad query"}, "bad query"),
        (302, "elsewhere", "status 302"),
        (200, ["not an answer"], "status 200"),
    ],
)
async def test_a_prometheus_that_fails_is_said_to(
    made: Cluster, source: Source, status: int, body: Any, said: str
) -> None:
    source.status, source.body = status, body
    root = await made.browser(await made.console(prometheus=Prometheus(url=source.url))).signed_in(ADMIN)
    reply = await root.send("GET", ONE)
    assert (reply.status, reply.json["code"]) == (502, "PrometheusAway")
    assert said in reply.json["detail"]


async def test_a_prometheus_that_is_not_there_is_said_to_be_away(made: Cluster) -> None:
    root = await made.browser(await made.console(prometheus=Prometheus(url="http://127.0.0.1:9"))).signed_in(
        ADMIN
    )
    assert (await root.send("GET", ONE)).json["code"] == "PrometheusAway"


async def test_without_any_source_the_status_is_what_there_is(made: Cluster) -> None:
    ann = await ann_of(made)
    found = (await ann.send("GET", ONE)).json
    assert found["source"] in ("none", "denied")
    assert [figure["value"] for figure in found["figures"]] == [3, "redis-cluster-cache-0"]
    root = await made.browser(await made.console()).signed_in(ADMIN)
    found = (await root.send("GET", ONE)).json
    assert found["source"] in ("none", "metrics.k8s.io")
    assert found["usage"] == []


def test_a_dot_of_a_name_is_that_dot_in_a_regular_expression() -> None:
    query = """up{namespace="$namespace",pod=~"$name-[0-9]+",a!~'$name',b="$name",c=~`$name`} > 1"""
    assert filled(query, namespace="team-a", name="a.b") == (
        """up{namespace="team-a",pod=~"a[.]b-[0-9]+",a!~'a[.]b',b="a.b",c=~`a[.]b`} > 1"""
    )


#: What two exporters say, one of an instance of another namespace and one whose name only begins alike.
_EXPORTED = "".join(
    f"redis_memory_used_bytes{{namespace={namespace!r},pod={pod!r}}} {value}\n".replace("'", '"')
    for namespace, pod, value in (
        ("team-a", "redis-cluster-cache-0", "1024"),
        ("team-a", "redis-cluster-cache-1", "NaN"),
        ("team-a", "redis-cluster-cache-old-0", "7"),
        ("team-b", "redis-cluster-cache-0", "7"),
    )
)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
async def test_a_real_prometheus_answers_every_query_of_the_catalog(made: Cluster, tmp_path: Path) -> None:
    async def exported(_: web.Request) -> web.Response:
        return web.Response(text=_EXPORTED, headers={"Content-Type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.router.add_get("/metrics", exported)
    runner = web.AppRunner(app)
    await runner.setup()
    sock = bound()
    await web.SockSite(runner, sock).start()
    target = f"127.0.0.1:{sock.getsockname()[1]}"
    scrape = {"job_name": "redis", "honor_labels": True, "static_configs": [{"targets": [target]}]}
    try:
        async with served(tmp_path / "prometheus", [scrape]) as prometheus:
            settings = Prometheus(url=prometheus.url)
            root = await made.browser(await made.console(prometheus=settings)).signed_in(ADMIN)

            async def shown() -> Any:
                found = (await root.send("GET", f"{ONE}?range=7d")).json
                assert found["source"] == "prometheus"
                return found["charts"][0]["lines"]

            lines = await until(shown, "the figures are there")
            assert [line["name"] for line in lines] == ["redis-cluster-cache-0", "redis-cluster-cache-1"]
            assert [value for _, value in lines[0]["points"]] == [1024.0] * len(lines[0]["points"])
            assert {value for _, value in lines[1]["points"]} == {None}

            queries = Queries(settings, SystemClock())
            for entry in packaged():
                for span in RANGES:
                    charts = await queries.charts(entry, namespace="team-a", name="a.b", span=span)
                    assert len(charts) == len(entry.spec.metrics.charts)
            await queries.close()
    finally:
        await runner.cleanup()
