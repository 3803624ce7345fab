"""What the server tells of itself, and how its answers end."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest
from tests.local.api.conftest import CM, Client, config_map, reader

from mooring.local.api import ApiServer, User


async def text(api: Client, path: str, status: int = 200, **query: str) -> str:
    answer = await api.send("GET", f"{path}?{urlencode(query)}" if query else path)
    assert answer.status == status
    return answer.body.decode()


async def test_verbose_health_lists_the_checks(api: Client) -> None:
    shown = (await text(api, "/readyz", verbose="")).splitlines()
    assert {"[+]ping ok", "[+]etcd ok", "[+]informer-sync ok", "[+]shutdown ok"} < set(shown)
    assert shown[-1] == "readyz check passed"
    assert (await text(api, "/livez", verbose="")).endswith(
        "[+]poststarthook/scheduling/bootstrap-system-priority-classes ok\nlivez check passed\n"
    )
    assert "[+]ping excluded: ok\n" in await text(api, "/healthz", verbose="", exclude="ping")
    assert 'no matches for "nonsense"' in await text(api, "/livez", verbose="", exclude="nonsense")
    assert await text(api, "/readyz", exclude="ping") == "ok"


async def test_each_check_has_a_path_and_no_other_has_one(api: Client) -> None:
    assert (
        await text(api, "/readyz/ping")
        == await text(api, "/livez/poststarthook/rbac/bootstrap-roles")
        == "ok"
    )
    await text(api, "/readyz/nothing", 404)
    await text(api, "/livez/informer-sync", 404)


async def test_a_server_that_stops_is_not_ready_and_says_which_check_fails(
    api: Client, server: ApiServer
) -> None:
    server.cluster.closing.set()
    server._ready = False
    assert "[-]shutdown failed: reason withheld\n" in await text(api, "/readyz", 500)
    assert await text(api, "/livez") == "ok"
    assert "readyz check failed" in await text(api, "/readyz", 500, exclude="ping")
    assert await text(api, "/readyz", exclude="shutdown") == "ok"
    server.cluster.closing.clear()


async def test_metrics_count_requests_and_objects_for_those_who_may_read_them(
    api: Client, server: ApiServer
) -> None:
    await api.create(CM, config_map("a"))
    await api.refused(404, "GET", f"{CM}/none")
    for number in range(3):
        await api.refused(404, "GET", f"{CM}/a/made-up-{number}")
    shown = await text(api, "/metrics")
    labels = 'group="",version="v1",resource="configmaps",subresource=""'
    assert f'apiserver_request_total{{verb="create",{labels},code="201"}} 1\n' in shown
    assert f'apiserver_request_total{{verb="get",{labels},code="404"}} 4\n' in shown
    assert 'apiserver_storage_objects{resource="configmaps"} 1\n' in shown
    assert re.search(r"^process_resident_memory_bytes [1-9]\d{6,}$", shown, re.MULTILINE)
    assert "made-up" not in shown
    nobody = Client(server.transport(user=User("nobody", groups=("system:authenticated",))))
    await nobody.refused(403, "GET", "/metrics")
    view = await reader(api, server)
    await view.refused(403, "GET", "/metrics")


@pytest.mark.parametrize(
    ("path", "accept", "ends"),
    [
        (f"{CM}/a", "application/json", b"}\n"),
        (f"{CM}/none", "application/json", b"}\n"),
        (CM, "application/json", b"]}\n"),
        (CM, "application/json;as=Table;v=v1;g=meta.k8s.io", b"]}\n"),
        (f"{CM}?pretty=true", "application/json", b"]\n}"),
        ("/apis", "application/json", b"]}\n"),
        ("/api/v1", "application/json", b"]}\n"),
        ("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList", b"]}\n"),
        ("/version", "application/json", b'"\n}'),
        ("/", "application/json", b"]\n}"),
    ],
)
async def test_answers_end_their_line_where_those_of_a_real_server_do(
    api: Client, path: str, accept: str, ends: bytes
) -> None:
    await api.create(CM, config_map("a"))
    answer = await api.send("GET", path, headers={"Accept": accept})
    assert answer.body.endswith(ends)
    assert not answer.body.endswith(b"\n\n")
