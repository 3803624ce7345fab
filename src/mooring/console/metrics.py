"""What is measured of an instance: charts from a Prometheus, else what metrics.k8s.io says now, and figures of its status.

Prometheus is asked with the console's own credential, which sees every namespace. So only queries of entries that are
offered to everybody are sent, for instances that the user may read in namespaces whose pods they may list.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from mooring.cache import Clock
from mooring.catalog import Entry, pointer
from mooring.console.problems import Problem
from mooring.console.settings import Prometheus
from mooring.diagnosis import pods_of, safe
from mooring.kube import Client, Forbidden, KubeError, NotFound
from mooring.kube.quantity import parse_quantity

__all__ = ["RANGES", "Queries", "figures_of", "filled", "usage_of"]

#: Seconds of each range that can be asked for.
RANGES: Final = {"15m": 900, "1h": 3600, "6h": 21_600, "24h": 86_400, "7d": 604_800}
#: Points of a line, lines of a chart, bytes of an answer, seconds until one must be there.
POINTS, LINES, ANSWER_LIMIT, ANSWER_SECONDS = 120, 50, 4 * 2**20, 10.0
_STRING: Final = re.compile(r"""([=!]~\s*)?("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`)""")
Json = dict[str, Any]


class PrometheusAway(Exception):
    """Prometheus does not answer, or not with what was asked for."""


class Queries:
    """Range queries to one Prometheus."""

    def __init__(self, settings: Prometheus, clock: Clock) -> None:
        """Raises `OSError` for files that cannot be read."""
        self._settings = settings
        self._clock = clock
        self._tls: ssl.SSLContext | bool = (
            ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else True
        )
        if settings.token_file:
            Path(settings.token_file).read_text()
        self._http: aiohttp.ClientSession | None = None

    async def charts(self, entry: Entry, *, namespace: str, name: str, span: str) -> list[Json]:
        """The charts of an entry for an instance; raises `Problem`."""
        seconds = RANGES[span]
        end = self._clock.now().timestamp()
        step = max(15, seconds // POINTS)
        charts = entry.spec.metrics.charts
        try:
            lines = await asyncio.gather(
                *(
                    self._query(
                        filled(each.query, namespace=namespace, name=name),
                        begin=end - seconds,
                        end=end,
                        step=step,
                        legend=each.legend,
                    )
                    for each in charts
                )
            )
        except PrometheusAway as error:
            raise Problem(502, "PrometheusAway", f"Prometheus does not answer: {error}.") from error
        return [
            {"title": msgspec.to_builtins(chart.title), "unit": chart.unit, "lines": found}
            for chart, found in zip(charts, lines, strict=True)
        ]

    async def _query(self, query: str, *, begin: float, end: float, step: int, legend: str) -> list[Json]:
        if self._http is None:
            self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_SECONDS))
        form = {"query": query, "start": f"{begin:.0f}", "end": f"{end:.0f}", "step": str(step)}
        headers = await asyncio.to_thread(self._headers)
        place = f"{self._settings.url.rstrip('/')}/api/v1/query_range"
        try:
            async with self._http.post(
                place, data=form, headers=headers, ssl=self._tls, allow_redirects=False
            ) as answer:
                body = await answer.content.read(ANSWER_LIMIT)
                while len(body) < ANSWER_LIMIT and (more := await answer.content.read(ANSWER_LIMIT)):
                    body += more
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise PrometheusAway("no connection") from error
        try:
            found = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError as error:
            raise PrometheusAway(f"status {answer.status}") from error
        if found.status != "success":
            raise PrometheusAway(found.error[:200] or f"status {answer.status}")
        return sorted(
            (
                {
                    "name": str(each.metric.get(legend) or ""),
                    "points": [[when, float(value)] for when, value in each.values],
                }
                for each in found.data.result[:LINES]
            ),
            key=lambda line: str(line["name"]),
        )

    def _headers(self) -> dict[str, str]:
        # Read for each query: tokens of service accounts are renewed in their file.
        file = self._settings.token_file
        return {"Authorization": f"Bearer {Path(file).read_text().strip()}"} if file else {}

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()


def filled(query: str, *, namespace: str, name: str) -> str:
    """A query with the names in place; in a regular expression a dot of a name is that dot."""

    def put(found: re.Match[str]) -> str:
        # [.] is the same in every kind of string; the other characters of names mean nothing in any of them.
        known = name.replace(".", "[.]") if found[1] else name
        return found[0].replace("$namespace", namespace).replace("$name", known)

    return _STRING.sub(put, query)


class _Series(msgspec.Struct, frozen=True):
    metric: dict[str, str] = {}
    values: list[tuple[float, str]] = []


class _Result(msgspec.Struct, frozen=True):
    result: list[_Series] = []


class _Answer(msgspec.Struct, frozen=True):
    status: str = ""
    error: str = ""
    data: _Result = msgspec.field(default_factory=_Result)


async def usage_of(
    client: Client, obj: Any, *, namespace: str, select: Mapping[str, str] | None = None
) -> list[Json] | None:
    """CPU (cores) and memory (bytes) of each pod now, read as the user; None where metrics.k8s.io is not there.

    ``select`` as for `mooring.diagnosis.gather`. Raises `Forbidden` for a user who may not read it.
    """
    path = f"/apis/metrics.k8s.io/v1beta1/namespaces/{namespace}/pods"
    try:
        answer = msgspec.json.decode((await client.request("GET", path)).body)
    except Forbidden:
        raise
    except NotFound:
        return None
    except KubeError:
        return None
    pods = await pods_of(client, obj, namespace=namespace, select=select)
    names = {pod["metadata"].get("name") for pod in pods or ()}
    return sorted(
        (_usage(item) for item in answer.get("items") or () if item["metadata"].get("name") in names),
        key=lambda row: str(row["pod"]),
    )


def _usage(item: Mapping[str, Any]) -> Json:
    used = [one.get("usage") or {} for one in item.get("containers") or ()]
    total = {
        resource: float(sum(parse_quantity(one.get(resource) or 0) for one in used))
        for resource in ("cpu", "memory")
    }
    return {"pod": item["metadata"].get("name"), **total}


def figures_of(entry: Entry, obj: Any) -> list[Json]:
    """What the status says, of the figures that the entry names; those that are not there are left out."""
    found = []
    for figure in entry.spec.metrics.figures:
        value = pointer.get(obj, figure.path)
        if value is None or isinstance(value, (dict, list)):
            continue
        shown = value if isinstance(value, (int, float)) and not isinstance(value, bool) else safe(str(value))
        found.append({"title": msgspec.to_builtins(figure.title), "unit": figure.unit, "value": shown})
    return found
