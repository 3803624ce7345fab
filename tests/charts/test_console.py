"""The console as the chart installs it: pods that share sessions, and a user who sees what they may see."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from hack.build import helm as helm_program
from hack.released import NAMESPACE
from tests.charts.helm import CHART, Provided
from tests.console.certificates import Authority

from mooring.catalog import KINDS, StoredClusterTemplate, packaged
from mooring.catalog.entry import API_VERSION
from mooring.console import load_settings
from mooring.kube.objects.core import Secret
from mooring.kube.objects.meta import ObjectMeta

HOST = "console.example"
ALL = (
    "console.enabled=true,networkPolicy.enabled=true,console.replicaCount=2,console.tls.secretName=tls,"
    "console.impersonation.enabled=true,console.impersonation.groups={a,b},console.catalogResources=true,"
    "console.oidc.issuer=https://idp.example,console.oidc.clientSecret=s,console.oidc.caConfigMap=ca,"
    "console.proxy.enabled=true,console.proxy.secret=p,console.proxy.sources={10.0.0.0/8},"
    "console.proxy.names={proxy},console.kinds[0].group=g,console.kinds[0].resources={rs},"
    "console.terminal=true,console.prometheus.url=http://prom:9090,console.prometheus.tokenSecret=t,"
    "console.prometheus.caConfigMap=pca,"
    f"console.ingress.enabled=true,console.ingress.host={HOST},console.ingress.tlsSecretName=k"
)
Objects = dict[tuple[str, str], dict[str, Any]]


async def rendered(home: Path, values: str) -> Objects:
    """What the chart makes with these values, by kind and name."""
    program = await asyncio.to_thread(helm_program, 3)
    process = await asyncio.create_subprocess_exec(
        *(program, "template", "x", CHART, "--namespace", "sys", "--kube-version", "1.33.0", "--set", values),
        env={"HOME": str(home)},
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(out) if one}


@pytest.mark.full
async def test_it_is_there_only_when_asked_for_and_no_service_mixes_it_with_the_operator(
    tmp_path: Path,
) -> None:
    off = await rendered(tmp_path, "console.enabled=false")
    assert [key for key in off if "console" in key[1]] == []
    on = await rendered(tmp_path, ALL)
    assert off.keys() < on.keys()
    made = {kind for kind, name in on.keys() - off.keys() if "console" in name}
    assert made >= {
        "Deployment",
        "Service",
        "Ingress",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ServiceAccount",
    }
    labels = {
        name: on["Deployment", name]["spec"]["template"]["metadata"]["labels"]
        for name in ("x-mooring", "x-mooring-console")
    }
    for service in ("x-mooring-metrics", "x-mooring-webhooks", "x-mooring-console"):
        wanted = on["Service", service]["spec"]["selector"].items()
        led = [name for name, found in labels.items() if wanted <= found.items()]
        assert led == ["x-mooring-console" if service.endswith("console") else "x-mooring"]


@pytest.mark.full
async def test_its_account_reads_no_secret_and_acts_as_named_groups_alone(tmp_path: Path) -> None:
    on = await rendered(tmp_path, ALL)
    rules = on["ClusterRole", "sys-x-mooring-console"]["rules"]
    for rule in rules:
        assert not {"secrets", "*"} & set(rule["resources"])
        writes = set(rule["verbs"]) - {"get", "list", "watch", "impersonate"}
        allowed = rule["resources"] == ["events"] and writes == {"create"}
        assert not writes or allowed or all(name.endswith("/status") for name in rule["resources"])
    [groups] = [rule for rule in rules if "groups" in rule["resources"]]
    assert groups["resourceNames"] == ["a", "b", "system:authenticated"]
    plain = await rendered(tmp_path, "console.enabled=true,console.recordActivity=false")
    verbs = {
        verb for rule in plain["ClusterRole", "sys-x-mooring-console"]["rules"] for verb in rule["verbs"]
    }
    assert verbs == {"list", "watch"}
    read = {(group, name) for rule in rules for group in rule["apiGroups"] for name in rule["resources"]}
    kinds = {(entry.spec.target.group, entry.spec.target.plural) for entry in packaged()}
    beside = {("", "events"), ("", "namespaces"), ("coordination.k8s.io", "leases")}
    plain_read = {
        (group, name)
        for rule in plain["ClusterRole", "sys-x-mooring-console"]["rules"]
        for group in rule["apiGroups"]
        for name in rule["resources"]
    }
    assert plain_read == kinds | beside
    assert read - plain_read == {
        ("g", "rs"),
        ("", "users"),
        ("", "groups"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        *(
            ("catalog.mooring.dev", f"{kind.resource.plural}{part}")
            for kind in KINDS
            for part in ("", "/status")
        ),
    }


@pytest.mark.full
async def test_the_settings_that_it_makes_are_those_that_the_console_takes(tmp_path: Path) -> None:
    for values in ("console.enabled=true", ALL):
        made = (await rendered(tmp_path, values))["ConfigMap", "x-mooring-console"]
        file = tmp_path / "console.yaml"
        file.write_text(made["data"]["console.yaml"])
        settings = load_settings(file)
        assert settings.origin == ("http://localhost:8443" if values != ALL else f"https://{HOST}")
        assert settings.terminal is (values == ALL), "nobody opens a shell unless it is asked for"
    assert settings.proxy is not None
    assert settings.proxy.names == ("proxy",)
    assert settings.prometheus is not None
    assert settings.prometheus.url == "http://prom:9090"
    pod = (await rendered(tmp_path, ALL))["Deployment", "x-mooring-console"]["spec"]["template"]["spec"]
    mounted = {each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    for named in (settings.prometheus.token_file, settings.prometheus.ca_file):
        assert str(Path(named).parent) in mounted


async def account_token(provided: Provided, namespace: str, name: str) -> str:
    """A token of an account that may read Redis of its namespace."""
    client = provided.bed.client
    account = {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace},
    }
    await provided.bed.apply(account)
    api = "rbac.authorization.k8s.io"
    rules = [{"apiGroups": ["redis.kun"], "resources": ["redisclusters"], "verbs": ["get", "list", "watch"]}]
    metadata = {"name": name, "namespace": namespace}
    await provided.bed.apply(
        {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": metadata, "rules": rules}
    )
    await provided.bed.apply(
        {
            "apiVersion": f"{api}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": api, "kind": "Role", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
    )
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    made = await client.request("POST", path, body=json.dumps({"spec": {"expirationSeconds": 600}}).encode())
    return str(json.loads(made.body)["status"]["token"])


@pytest.mark.embedded_alone
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(600)
async def test_an_account_signs_in_at_one_pod_and_lists_its_instances_at_the_other(
    provided: Provided,
) -> None:
    bed, helm = provided.bed, provided.helm
    authority = Authority()
    certificate, key = authority.issue(HOST)
    pair = {
        name: base64.b64encode(text).decode() for name, text in (("tls.crt", certificate), ("tls.key", key))
    }
    await bed.client.create(Secret(metadata=ObjectMeta(name="tls", namespace=NAMESPACE), data=pair))
    # No operator runs: what is looked at here is what the console shows.
    values = f"replicaCount=0,console.enabled=true,console.replicaCount=2,console.tls.secretName=tls,console.url=https://{HOST},console.catalogResources=true"
    await helm.install("mooring", "--set", values)
    for namespace in ("team-a", "team-b"):
        await bed.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        await bed.apply(
            {
                "apiVersion": "redis.kun/v1beta1",
                "kind": "RedisCluster",
                "metadata": {"name": f"of-{namespace}", "namespace": namespace},
                "spec": {"size": 3},
            }
        )
    token = await account_token(provided, "team-a", "viewer")

    pods = await bed.pods(NAMESPACE, "app.kubernetes.io/name=mooring-console")
    first, second = (f"https://{pod.status.pod_ip}:8443/api/v1/" for pod in pods if pod.status)
    trust = ssl.create_default_context(cadata=authority.pem)
    sent = {"Host": HOST, "Origin": f"https://{HOST}", "X-Mooring-Csrf": "sign-in"}
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), headers=sent) as http:
        tls: dict[str, Any] = {"ssl": trust, "server_hostname": HOST}
        async with http.post(first + "session", json={"token": token}, **tls) as answer:
            assert answer.status == 200, await answer.text()
            assert (await answer.json())["user"] == "system:serviceaccount:team-a:viewer"
            cookie = "; ".join(
                f"{name}={morsel.value}" for name, morsel in answer.cookies.items() if morsel.value
            )
            assert "Secure" in answer.headers["Set-Cookie"]
        async with http.get(second + "instances", headers={"Cookie": cookie}, **tls) as answer:
            text = await answer.text()
        assert [row["name"] for row in json.loads(text)["rows"]] == ["of-team-a"]
        assert "team-b" not in text
        async with http.get(second + "instances", **tls) as answer:
            assert answer.status == 401
    # The hook has defined the catalog's kinds, and the console's account may watch them and say what it thinks.
    made = {
        "apiVersion": API_VERSION,
        "kind": "ClusterServiceTemplate",
        "metadata": {"name": "wrong"},
        "spec": {},
    }
    await bed.apply(made)

    async def told() -> bool:
        found = await bed.get(StoredClusterTemplate, "wrong", "")
        return found.status is not None and found.status["conditions"][0]["reason"] == "DoesNotLint"

    await bed.until(told, "the console says what is wrong with a template", within=60)
