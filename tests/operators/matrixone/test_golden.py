"""Pods, files and Services beside those that upstream's operator makes of the same declarations.

Each file in ``golden`` was written by upstream's own builders (release 1.3.0-alpha.3, commit 2301e3b) from a case of
`golden_cases`, with the defaults of its webhooks; ``final`` is the configuration that its start script gives a pod. Where we
differ, `DIFFERENCES` says why and nothing else may.
"""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from tests.operators.matrixone.builders import typed
from tests.operators.matrixone.golden_cases import CASES

from mooring.kube.object import to_dict
from mooring.kube.objects import apps, core
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.identity import log_uuid, tn_uuid
from mooring.operators.matrixone.names import CN_UUID, INPUTS, SAFE_TO_EVICT, STORE_ID
from mooring.operators.matrixone.quantities import canonical
from mooring.operators.matrixone.specs import (
    CNSpecs,
    Credential,
    DNSpecs,
    LogService,
    LogSpecs,
    ProxySpecs,
    UISpecs,
)

GOLDEN: Final = Path(__file__).parent / "golden"
STORE: Final = "abcde"
Json = dict[str, Any]


class Made:
    """What we make of a case."""

    def __init__(self, name: str) -> None:
        case = CASES[name]
        self.kind = case.kind
        owner = typed(case.kind, **case.changes)
        log = LogService.of(typed("LogSet", **case.log))
        make: Mapping[str, Callable[[], Any]] = {
            "LogSet": lambda: LogSpecs(owner),
            "DNSet": lambda: DNSpecs(owner, log),
            "CNSet": lambda: CNSpecs(owner, log),
            "ProxySet": lambda: ProxySpecs(owner, log),
            "WebUI": lambda: UISpecs(owner, Credential(username="dump", password="111"), group="mo-tp"),
        }
        specs = self.specs = make[case.kind]()
        self.objects: list[Any] = specs.objects()
        self.files: Mapping[str, str] = {"config.toml": specs.file} if case.kind == "WebUI" else specs.files
        workloads: list[Any] = [
            one for one in self.objects if isinstance(one, (apps.StatefulSet, apps.Deployment))
        ]
        self.workload: Any = next(iter(workloads), None)
        self.pod: Any = specs.pod(STORE) if case.kind == "CNSet" else workloads[0].spec.template

    @property
    def claims(self) -> list[Json]:
        if self.kind == "CNSet":
            prefix = f"-{self.specs.names.main}-{STORE}"
            found = self.specs.claims(STORE)
            return [
                {"name": one.metadata.name.removesuffix(prefix), "spec": to_dict(one.spec)} for one in found
            ]
        templates = getattr(self.workload.spec, "volume_claim_templates", None) or []
        return [{"name": one.metadata.name, "spec": to_dict(one.spec)} for one in templates]

    @property
    def services(self) -> dict[str, Json]:
        found = [one for one in self.objects if isinstance(one, core.Service)]
        return {one.metadata.name or "": to_dict(one) for one in found}


@pytest.fixture(params=list(CASES))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def made(name: str) -> Made:
    return Made(name)


@pytest.fixture
def golden(name: str) -> Json:
    found: Json = json.loads((GOLDEN / f"{name}.json").read_text())
    return found


# --- where we differ, and why ------------------------------------------------------------------------------

DIFFERENCES: Final = {
    "region": "a declared region stands in the file too: without it each start asks amazonaws.com for the bucket's",
    "no region": "a server of one's own gets no AWS_REGION that nobody declared: a wrong one is refused at the start",
    "one ConfigMap": "gossip and bootstrap files are in the one content-named ConfigMap, so that pods restart with their own",
    "no suffix": "a ConfigMap is named by its content, so no annotation says which of its keys counts",
    "no kruise": "OpenKruise's readiness gates need OpenKruise",
    "grace": "60 s to stop: exits of 11 to 18 s are normal, and a proxy waits up to 30 s for its clients",
    "no token": "MatrixOne does not talk to the API server",
    "identity": "the operator knows a compute node's UUID and passes it, rather than have the script compute it",
    "own pods": "compute nodes are pods of their own, with claims by name and a host name",
    "sweep": "a draining pod that somebody deletes waits until the proxies have moved its sessions",
    "leaves": "a proxy that is to end serves until no node finds it any more, and half a minute for its clients to leave",
    "secret": "the dashboard's file holds a password, so it is in a Secret",
    "fixed labels": "labels that select pods cannot be overlaid",
    "startup": "upstream checks an overlay's startup probe and then forgets it",
    "last words": "the end of the log of a process that failed is kept in the pod's status, so that conditions can quote it",
    "modes": "files are read-only by mode too",
}


def without_region(table: Json) -> Json:
    """[region]"""
    services = [
        {**one, "s3": {key: value for key, value in one["s3"].items() if key != "region"}}
        if "s3" in one
        else one
        for one in table.get("fileservice", ())
    ]
    return {**table, "fileservice": services} if services else table


def expected_pod(pod: Json, kind: str, name: str) -> Json:
    """Upstream's pod with our differences: [no kruise], [one ConfigMap], [no suffix], [grace], [no token], [last words]."""
    out = dict(pod)
    out.pop("readinessGates", None)
    out.setdefault("terminationGracePeriodSeconds", 60) if kind != "WebUI" else None
    out["automountServiceAccountToken"] = bool(pod.get("serviceAccountName"))
    gone = {"bootstrap", "gossip"}
    out["volumes"] = {one["name"]: one for one in pod.get("volumes", ()) if one["name"] not in gone}
    containers = {}
    for one in pod["containers"]:
        env = {each["name"]: each for each in one.get("env", ()) if each["name"] != "CONFIG_SUFFIX"}
        if one["name"] == "main" and kind == "CNSet":
            path = {"fieldRef": {"fieldPath": f"metadata.labels['{CN_UUID}']"}}
            env["CN_UUID"] = {"name": "CN_UUID", "valueFrom": path}
        mounts = {each["name"]: each for each in one.get("volumeMounts", ()) if each["name"] not in gone}
        if one["name"] in ("main", "python-udf"):
            one = {**one, "terminationMessagePolicy": "FallbackToLogsOnError"}
        containers[one["name"]] = {**one, "env": env, "volumeMounts": mounts}
    out["containers"] = containers
    return out


def our_pod(pod: Json) -> Json:
    out = dict(pod)
    out["volumes"] = {one["name"]: one for one in pod.get("volumes", ())}
    out["containers"] = {
        one["name"]: {
            **one,
            "env": {each["name"]: each for each in one.get("env", ())},
            "volumeMounts": {each["name"]: each for each in one.get("volumeMounts", ())},
        }
        for one in pod["containers"]
    }
    return out


def plain(value: Any) -> Any:
    """Without what an API server would not tell apart: empty parts, the version of a field, quantities' spellings."""
    if isinstance(value, dict):
        if set(value) == {"apiVersion", "fieldPath"}:
            return {"fieldPath": value["fieldPath"]}
        if set(value) == {"storage"}:
            return {"storage": canonical(value["storage"])}
        kept = {key: plain(one) for key, one in value.items()}
        kept.pop("protocol", None) if "containerPort" in kept else None
        return {key: one for key, one in kept.items() if one not in (None, {}, [], "")}
    return [plain(one) for one in value] if isinstance(value, list) else value


# --- the comparison ----------------------------------------------------------------------------------------


def test_every_file_is_upstreams_byte_by_byte_but_for_a_declared_region(made: Made, golden: Json) -> None:
    wanted = golden["files"]
    assert set(made.files) - {"start.sh"} == set(wanted)
    for file, text in wanted.items():
        assert toml.render(without_region(tomllib.loads(made.files[file]))) == text
        assert toml.render(tomllib.loads(made.files[file])) == made.files[file]


def test_a_pod_starts_with_upstreams_configuration(made: Made, golden: Json, tmp_path: Path) -> None:
    if golden["final"] is None:
        return
    assert without_region(started(made, tmp_path)) == golden["final"]


def started(made: Made, place: Path, *, pod: str = "") -> Json:
    """The configuration that the start script hands to the server, in a pod of the case."""
    script = made.files["start.sh"]
    for file, text in made.files.items():
        (place / file).write_text(text)
    for path in ("/etc/logservice", "/etc/matrixone/config"):
        script = script.replace(path, str(place))
    server = place / "mo-service"
    server.write_text('#!/bin/sh\n[ "$1" = -cfg ]\nexec cat "$2"\n')
    (place / "getent").write_text("#!/bin/sh\nexit 0\n")
    (place / "timeout").write_text("#!/bin/sh\nexit 0\n")
    for one in ("mo-service", "getent", "timeout"):
        (place / one).chmod(0o755)
    pods = {"LogSet": "mo-log-1", "DNSet": "mo-dn-0", "CNSet": f"mo-cn-{STORE}", "ProxySet": "mo-proxy-x-y"}
    env = {
        "PATH": f"{place}:/usr/bin:/bin",
        "POD_NAME": pod or pods[made.kind],
        "NAMESPACE": "default",
        "POD_IP": "10.0.0.9",
    }
    env |= {
        "MO_BIN_PATH": str(place / "memory"),
        "CN_UUID": (made.pod.metadata.labels or {}).get(CN_UUID, ""),
    }
    (main,) = [one for one in made.pod.spec.containers if one.name == "main"]
    env |= {one.name: one.value for one in main.env if one.name in ("HEADLESS_SERVICE_NAME", "HOSTNAME_UUID")}
    text = script.replace("server=/mo-service", f"server={server}")
    done = subprocess.run(
        ["/bin/sh", "-c", text, "start.sh"], env=env, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 0, done.stderr
    return tomllib.loads(done.stdout)


@pytest.mark.parametrize(
    ("name", "pod", "uuid"), [("log", "mo-log-17", log_uuid(17)), ("dn", "mo-dn-10", tn_uuid(10))]
)
def test_a_store_is_known_by_its_ordinal_in_hexadecimal(
    name: str, pod: str, uuid: str, tmp_path: Path
) -> None:
    table = started(Made(name), tmp_path, pod=pod)
    assert uuid in (toml.get(table, "logservice", "uuid"), toml.get(table, "dn", "uuid"))


def test_pods_are_upstreams_but_where_a_reason_is_given(made: Made, golden: Json, name: str) -> None:
    wanted, ours = expected_pod(golden["pod"], made.kind, name), our_pod(to_dict(made.pod.spec))
    for difference in POD_DIFFERENCES:
        difference(made, wanted, ours)
    assert plain(ours) == plain(wanted)


def drop_region(made: Made, wanted: Json, ours: Json) -> None:
    """[no region]"""
    storage = getattr(made.specs, "_log", None)
    for one in wanted["containers"].values():
        if "AWS_REGION" in one["env"] and "AWS_REGION" not in ours["containers"][one["name"]]["env"]:
            assert storage is None or storage.storage is not None
            assert one["env"].pop("AWS_REGION")["value"] == "us-west-2"


def own_pod(made: Made, wanted: Json, ours: Json) -> None:
    """[own pods], [sweep]: host name, claims as volumes, our readiness gate and the wait before a stop."""
    if made.kind != "CNSet":
        return
    assert ours.pop("hostname") == made.pod.metadata.name
    assert ours.pop("readinessGates") == [{"conditionType": "matrixorigin.io/cn-store"}]
    for claim in made.claims:
        found = ours["volumes"].pop(claim["name"])
        assert found["persistentVolumeClaim"]["claimName"] == f"{claim['name']}-mo-cn-{STORE}"
    main = ours["containers"]["main"]
    if made.specs.drains:
        assert main.pop("lifecycle") == {"preStop": {"exec": {"command": ["sleep", "20"]}}}


def config_volume(made: Made, wanted: Json, ours: Json) -> None:
    """[modes], [secret]: the files are mounted read-only from what we name by content."""
    found = ours["volumes"].pop("config")
    source = found.get("configMap") or found.get("secret") or {}
    assert source.get("defaultMode") == 0o444
    named = [one.metadata.name for one in made.objects if isinstance(one, (core.ConfigMap, core.Secret))]
    assert named == [source.get("name") or source.get("secretName")]
    wanted["volumes"].pop("config", None)


def leaves(made: Made, wanted: Json, ours: Json) -> None:
    """[leaves]"""
    if made.kind == "ProxySet":
        hook = ours["containers"]["main"].pop("lifecycle")
        assert set(hook) == {"preStop"}
        assert hook["preStop"]["exec"]["command"][:2] == ["/bin/sh", "-c"]


POD_DIFFERENCES: Final[tuple[Callable[[Made, Json, Json], None], ...]] = (
    drop_region,
    own_pod,
    config_volume,
    leaves,
)


def test_labels_annotations_and_selector_are_upstreams(made: Made, golden: Json) -> None:
    labels, annotations = dict(made.pod.metadata.labels or {}), dict(made.pod.metadata.annotations or {})
    if made.kind == "CNSet":
        assert labels.pop(STORE_ID) == STORE
        assert labels.pop(CN_UUID) == golden["uuid"]
        assert annotations.pop(SAFE_TO_EVICT) == "true"
        assert annotations.pop(INPUTS) == made.specs.inputs()
    golden["annotations"].pop("matrixorigin.io/config-suffix", None)  # [no suffix]
    assert labels == golden["labels"]
    assert annotations == golden["annotations"]
    selectors: list[Any] = [one["spec"]["selector"] for one in made.services.values()]
    if made.workload is not None:
        selectors.append(made.workload.spec.selector.match_labels)
        assert made.workload.spec.replicas == golden["replicas"]
        assert (made.workload.spec.min_ready_seconds or 0) == golden.get("minReadySeconds", 0)
    assert all(one == golden["selector"] for one in selectors)


def test_claims_are_upstreams(made: Made, golden: Json) -> None:
    if made.kind in ("LogSet", "DNSet", "CNSet"):
        assert plain(made.claims) == plain(golden["claims"])


def test_services_are_upstreams(made: Made, golden: Json) -> None:
    ours = made.services
    for wanted in golden["services"]:
        found = ours[wanted["name"]]
        assert found["metadata"]["labels"] == wanted["labels"]
        assert found["metadata"].get("annotations", {}) == (wanted["annotations"] or {})
        spec = {"type": "ClusterIP", **found["spec"]}
        for port in spec.get("ports", ()):
            assert port.pop("targetPort") == port["port"]
            assert port.pop("protocol") == "TCP"
        for port in wanted["spec"].get("ports", ()):
            port.pop("targetPort", None)
        assert plain(spec) == plain({"type": "ClusterIP", **wanted["spec"]})
    extra = set(ours) - {one["name"] for one in golden["services"]}
    assert all(one.endswith("-metric") for one in extra)
    assert not extra or made.specs._spec.export_to_prometheus


def test_stateful_sets_are_parallel_and_keep_claims_as_upstream_does(made: Made, golden: Json) -> None:
    if made.kind not in ("LogSet", "DNSet"):
        return
    spec = to_dict(made.workload)["spec"]
    for name in ("serviceName", "podManagementPolicy", "persistentVolumeClaimRetentionPolicy"):
        assert spec[name] == golden[name]
    assert spec["updateStrategy"] == {"type": "OnDelete"}


def test_every_difference_is_listed_with_its_reason() -> None:
    named = set(re.findall(r"\[([a-z][A-Za-z ]+)\]", Path(__file__).read_text()))
    assert set(DIFFERENCES) <= named


def test_an_overlay_sets_the_startup_probe_and_no_label_that_selects_pods() -> None:
    """[startup], [fixed labels], [identity]"""
    overlay = {
        "startupProbe": {"tcpSocket": {"port": 1}},
        "podLabels": {"matrixorigin.io/instance": "other", "team": "data"},
    }
    owner = typed("CNSet", spec__overlay=overlay)
    pod = CNSpecs(owner, LogService.of(typed("LogSet"))).pod(STORE)
    assert pod.spec is not None
    assert pod.spec.containers is not None
    assert pod.spec.containers[0].startup_probe is not None
    assert (pod.metadata.labels or {})["matrixorigin.io/instance"] == "mo"
    assert (pod.metadata.labels or {})["team"] == "data"


def test_every_case_has_its_file_and_no_file_is_left_over() -> None:
    assert {one.stem for one in GOLDEN.glob("*.json")} == set(CASES)
    assert len(CASES) >= 40
