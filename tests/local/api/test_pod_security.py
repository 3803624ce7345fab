"""Pod Security admission: what each level forbids, in a real server's words, and what labels of a namespace do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.local.api.conftest import Client
from tests.local.api.test_audit import audited, events

from mooring.local.api.admission.podstandards import Level, described, violations

Json = Any

GOOD = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}


def spec(*contexts: Json, **pod: Json) -> Json:
    containers = [
        {"name": f"c{n}", "securityContext": context} for n, context in enumerate(contexts or ({},))
    ]
    return {"containers": containers, **pod}


def found(level: Level, pod: Json, *, minor: int = 99, annotations: Json = None) -> str:
    return described(violations({"annotations": annotations}, pod, level=level, minor=minor))


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (spec(), ""),
        (
            spec({"appArmorProfile": {"type": "Unconfined"}}, {}),
            'forbidden AppArmor profile (container "c0" must not set AppArmor profile type to "Unconfined")',
        ),
        (
            spec({"capabilities": {"add": ["CHOWN", "SYS_ADMIN"]}}, {"capabilities": {"add": ["NET_RAW"]}}),
            (
                'non-default capabilities (containers "c0", "c1" must not include "NET_RAW", "SYS_ADMIN" in '
                "securityContext.capabilities.add)"
            ),
        ),
        (
            spec(hostNetwork=True, hostPID=True, hostIPC=True),
            "host namespaces (hostNetwork=true, hostPID=true, hostIPC=true)",
        ),
        (
            spec(
                volumes=[{"name": "a", "hostPath": {"path": "/"}}, {"name": "b", "hostPath": {"path": "/x"}}]
            ),
            'hostPath volumes (volumes "a", "b")',
        ),
        (
            {
                "containers": [
                    {"name": "a", "ports": [{"hostPort": 80}, {"hostPort": 443}, {"containerPort": 1}]}
                ]
            },
            'hostPort (container "a" uses hostPorts 443, 80)',
        ),
        (
            {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"host": "1.2.3.4"}}}]},
            'probe or lifecycle host (container "a" uses probe or lifecycle host "1.2.3.4")',
        ),
        (
            {"containers": [], "initContainers": [{"name": "i", "securityContext": {"privileged": True}}]},
            'privileged (container "i" must not set securityContext.privileged=true)',
        ),
        (
            spec({"procMount": "Unmasked"}),
            'procMount (container "c0" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            spec({"seLinuxOptions": {"type": "x_t"}}, securityContext={"seLinuxOptions": {"user": "u"}}),
            (
                'seLinuxOptions (pod and container "c0" set forbidden securityContext.seLinuxOptions: type "x_t"; '
                "user may not be set)"
            ),
        ),
        (
            spec(securityContext={"seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (pod must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            spec(securityContext={"sysctls": [{"name": "kernel.msgmax"}, {"name": "net.ipv4.tcp_rmem"}]}),
            "forbidden sysctls (kernel.msgmax)",
        ),
        (
            spec({"windowsOptions": {"hostProcess": True}}),
            'hostProcess (container "c0" must not set securityContext.windowsOptions.hostProcess=true)',
        ),
        (
            spec({"privileged": True}, hostPID=True),
            (
                'host namespaces (hostPID=true), privileged (container "c0" must not set '
                "securityContext.privileged=true)"
            ),
        ),
        (spec({"procMount": "Unmasked"}, hostUsers=False), ""),
    ],
)
def test_baseline_forbids(pod: Json, told: str) -> None:
    assert found("baseline", pod) == told
    assert found("privileged", pod) == ""


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        (spec(GOOD), ""),
        (
            spec({}, {}),
            (
                'allowPrivilegeEscalation != false (containers "c0", "c1" must set '
                "securityContext.allowPrivilegeEscalation=false), unrestricted capabilities "
                '(containers "c0", "c1" must set securityContext.capabilities.drop=["ALL"]), runAsNonRoot != true '
                '(pod or containers "c0", "c1" must set securityContext.runAsNonRoot=true), seccompProfile '
                '(pod or containers "c0", "c1" must set securityContext.seccompProfile.type to "RuntimeDefault" or '
                '"Localhost")'
            ),
        ),
        (
            spec({**GOOD, "capabilities": {"add": ["CHOWN", "NET_BIND_SERVICE"]}}),
            (
                'unrestricted capabilities (container "c0" must set securityContext.capabilities.drop=["ALL"]; '
                'container "c0" must not include "CHOWN" in securityContext.capabilities.add)'
            ),
        ),
        (
            spec(GOOD, volumes=[{"name": "h", "hostPath": {"path": "/"}}, {"name": "e", "emptyDir": {}}]),
            'restricted volume types (volume "h" uses restricted volume type "hostPath")',
        ),
        (
            spec({**GOOD, "runAsNonRoot": False, "runAsUser": 0}),
            (
                'runAsNonRoot != true (container "c0" must not set securityContext.runAsNonRoot=false), runAsUser=0 '
                '(container "c0" must not set runAsUser=0)'
            ),
        ),
        (spec({**GOOD, "runAsNonRoot": False, "runAsUser": 0}, hostUsers=False), ""),
        (
            spec({**GOOD, "procMount": "Unmasked"}, hostUsers=False),
            'procMount (container "c0" must not set securityContext.procMount to "Unmasked")',
        ),
        (
            spec({**GOOD, "seccompProfile": {"type": "Unconfined"}}),
            'seccompProfile (container "c0" must not set securityContext.seccompProfile.type to "Unconfined")',
        ),
        (
            spec(
                {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}},
            ),
            "",
        ),
        (spec({"runAsNonRoot": True}, os={"name": "windows"}), ""),
    ],
)
def test_restricted_forbids(pod: Json, told: str) -> None:
    assert found("restricted", pod) == told


def test_a_version_of_the_standards_keeps_its_rules() -> None:
    as_root, local = (
        {**GOOD, "runAsUser": 0},
        spec(securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem"}]}),
    )
    assert found("restricted", spec(as_root), minor=22) == ""
    assert (
        found("restricted", spec(as_root), minor=23)
        == 'runAsUser=0 (container "c0" must not set runAsUser=0)'
    )
    assert found("baseline", local, minor=31) == "forbidden sysctls (net.ipv4.tcp_rmem)"
    assert found("restricted", spec(), minor=7).startswith("runAsNonRoot != true")


def test_annotations_of_old_pods_count() -> None:
    key = "container.apparmor.security.beta.kubernetes.io/c0"
    told = 'forbidden AppArmor profile (annotation must not set AppArmor profile type to "'
    assert found("baseline", spec(), annotations={key: "unconfined"}).startswith(told)
    assert found("baseline", spec(), annotations={key: "localhost/x"}) == ""
    key = "seccomp.security.alpha.kubernetes.io/pod"
    assert found("baseline", spec(), minor=18, annotations={key: "unconfined"}) == (
        'seccompProfile (forbidden annotation seccomp.security.alpha.kubernetes.io/pod="unconfined")'
    )
    assert found("baseline", spec(), annotations={key: "unconfined"}) == ""


# --- namespaces -----------------------------------------------------------------------------------------

PREFIX = "pod-security.kubernetes.io/"
HOST_PATH = {"name": "h", "hostPath": {"path": "/"}}


async def namespace(api: Client, name: str = "shop", **labels: str) -> None:
    keys = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    await api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": keys}})


def pod(name: str, context: Json | None = None, **spec: Json) -> Json:
    container = {"name": "c", "image": "redis:7", **({"securityContext": context} if context else {})}
    return {"metadata": {"name": name}, "spec": {"containers": [container], **spec}}


PODS = "/api/v1/namespaces/shop/pods"


async def test_a_pod_that_its_namespace_does_not_allow_is_refused(api: Client) -> None:
    await namespace(api, enforce="restricted")
    bad = pod("bad", {**GOOD, "privileged": True, "allowPrivilegeEscalation": True}, volumes=[HOST_PATH])
    status = await api.refused(403, "POST", PODS, bad)
    assert status["message"] == (
        'pods "bad" is forbidden: violates PodSecurity "restricted:latest": privileged (container "c" must not set '
        'securityContext.privileged=true), allowPrivilegeEscalation != false (container "c" must set '
        'securityContext.allowPrivilegeEscalation=false), restricted volume types (volume "h" uses restricted '
        'volume type "hostPath")'
    )
    assert (await api.send("POST", PODS, pod("good", GOOD))).headers.get("Warning") is None
    assert (await api.send("POST", "/api/v1/namespaces/default/pods", bad)).status == 201


async def test_a_workload_is_taken_with_a_warning(api: Client) -> None:
    await namespace(api, enforce="baseline", enforce_version="v1.30")
    labels = {"matchLabels": {"app": "a"}}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": pod("", volumes=[HOST_PATH])["spec"]}
    deployment = {"metadata": {"name": "d"}, "spec": {"selector": labels, "template": template}}
    answer = await api.send("POST", "/apis/apps/v1/namespaces/shop/deployments", deployment)
    assert answer.status == 201
    assert answer.headers["Warning"] == (
        '299 - "would violate PodSecurity \\"baseline:v1.30\\": hostPath volumes (volume \\"h\\")"'
    )
    job = {"template": {"spec": {**template["spec"], "restartPolicy": "Never"}}}
    cron = {"metadata": {"name": "c"}, "spec": {"schedule": "0 0 1 1 *", "jobTemplate": {"spec": job}}}
    answer = await api.send("POST", "/apis/batch/v1/namespaces/shop/cronjobs", cron)
    assert answer.status == 201
    assert "hostPath" in answer.headers["Warning"]


async def test_a_pod_is_taken_with_a_warning_where_that_is_all_the_labels_say(api: Client) -> None:
    await namespace(api, warn="restricted", enforce="baseline")
    answer = await api.send("POST", PODS, pod("p"))
    assert answer.status == 201
    assert answer.headers["Warning"].startswith(
        '299 - "would violate PodSecurity \\"restricted:latest\\": allow'
    )
    for change in ({"metadata": {"labels": {"a": "b"}}}, {"metadata": {"finalizers": ["example.com/x"]}}):
        kind = "application/merge-patch+json"
        assert "Warning" not in (await api.send("PATCH", f"{PODS}/p", change, content_type=kind)).headers
    image = {"spec": {"containers": [{"name": "c", "image": "redis:8"}]}}
    kind = "application/strategic-merge-patch+json"
    assert "Warning" in (await api.send("PATCH", f"{PODS}/p", image, content_type=kind)).headers


async def test_labels_that_cannot_be_read_are_refused(api: Client) -> None:
    labels = {f"{PREFIX}enforce": "strict", f"{PREFIX}warn-version": "1.30"}
    status = await api.refused(
        422, "POST", "/api/v1/namespaces", {"metadata": {"name": "shop", "labels": labels}}
    )
    assert status["message"] == (
        'Namespace "shop" is invalid: [metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: "strict": '
        "must be one of privileged, baseline, restricted, "
        'metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: "1.30": must be "latest" or "v1.x"]'
    )


async def test_a_stricter_label_names_the_pods_that_violate_it(api: Client) -> None:
    await namespace(api)
    for name in ("b", "a"):
        await api.create(PODS, pod(name, volumes=[HOST_PATH]))
    await api.create(PODS, pod("fine"))
    change = msgspec.json.encode({"metadata": {"labels": {f"{PREFIX}enforce": "baseline"}}})
    answer = await api.send(
        "PATCH", "/api/v1/namespaces/shop", change, content_type="application/merge-patch+json"
    )
    assert answer.headers["Warning"] == (
        '299 - "existing pods in namespace \\"shop\\" violate the new PodSecurity enforce level '
        '\\"baseline:latest\\"", 299 - "a (and 1 other pod): hostPath volumes"'
    )


async def test_the_audit_log_knows_what_was_enforced(tmp_path: Path) -> None:
    log = tmp_path / "audit.jsonl"
    async with audited(
        log, {"level": "Metadata", "resources": [{"group": "", "resources": ["pods"]}]}
    ) as server:
        api = Client(server.transport())
        await namespace(api, enforce="baseline", audit="restricted")
        await api.create(PODS, pod("p", {**GOOD, "runAsNonRoot": False}))
    told = events(log)[-1]["annotations"]
    assert told[f"{PREFIX}enforce-policy"] == "baseline:latest"
    assert told[f"{PREFIX}audit-violations"].startswith(
        'would violate PodSecurity "restricted:latest": runAsNonRoot'
    )
