"""One cause and one next step, from what the cluster says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from mooring.diagnosis import CODES, Diagnosis, Facts, OperatorHint, cause, diagnose, safe, step
from mooring.diagnosis.facts import family
from mooring.diagnosis.words import _WORDS
from mooring.local.node.images import Catalog
from mooring.local.node.packages import PackageImages
from mooring.local.node.references import ImageError

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)
OLD, FRESH = "2026-01-01T10:00:00Z", "2026-01-01T11:59:50Z"
SECRET = "s3cret-word"
Json = dict[str, Any]


def named(kind: str, name: str, **fields: Any) -> Json:
    metadata = {"name": name, "namespace": "shop", "uid": f"{kind}/{name}", "creationTimestamp": OLD}
    return {"kind": kind, "metadata": metadata, **fields}


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Json:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": OLD}


READY, RESTS = condition("Ready", "True", "Serving"), condition("Progressing", "False", "InSync")
WAITS = condition("Progressing", "True", "PodStarting", "cart-0 is not up yet")
UNREADY = condition("Ready", "False", "NoMaster", "no server leads")


def instance(**metadata: Any) -> Json:
    made = named("RedisCluster", "cart", status={})
    made["metadata"] |= metadata
    return made


def facts(*conditions: Json, obj: Json | None = None, **more: Any) -> Facts:
    return Facts(
        kind="RedisCluster", group="redis.kun", now=NOW, obj=obj or instance(), conditions=conditions, **more
    )


def pod(name: str = "cart-0", *, asks: Json | None = None, phase: str = "Pending", **status: Any) -> Json:
    container = {"name": "redis", "resources": {"requests": asks or {}, "limits": {"memory": "256Mi"}}}
    return named("Pod", name, spec={"containers": [container]}, status={"phase": phase, **status})


def waiting(reason: str, message: str = "", **more: Any) -> Json:
    state = {"waiting": {"reason": reason, "message": message}}
    return pod(containerStatuses=[{"name": "redis", "image": "redis:9", "state": state, **more}])


def unschedulable(message: str, **more: Any) -> Json:
    return pod(conditions=[condition("PodScheduled", "False", "Unschedulable", message)], **more)


def of_a_job(one: Json) -> Json:
    return {**one, "metadata": {**one["metadata"], "ownerReferences": [{"kind": "Job", "uid": "Job/a"}]}}


def event(about: Json, reason: str, text: str, *, last: str = FRESH) -> Json:
    subject = {"kind": about["kind"], "name": about["metadata"]["name"], "uid": about["metadata"]["uid"]}
    return {
        "type": "Warning",
        "reason": reason,
        "message": text,
        "involvedObject": subject,
        "lastTimestamp": last,
    }


def claim(**spec: Any) -> Json:
    return named("PersistentVolumeClaim", "data-cart-0", spec=spec, status={"phase": "Pending"})


def workload(wanted: int, there: int) -> Json:
    return named("StatefulSet", "cart", spec={"replicas": wanted}, status={"replicas": there})


def lease(name: str, *, namespace: str = "mooring", renewed: str = FRESH, holder: str = "x") -> Json:
    made = named(
        "Lease", name, spec={"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}
    )
    made["metadata"]["namespace"] = namespace
    return made


def said_by_the_node(reference: str) -> str:
    with pytest.raises(ImageError) as refused:
        Catalog(packages=PackageImages(Path("/nonexistent"))).to_make(reference)
    return str(refused.value)


UNBUILT = (
    'ErrImagePull: image "mo:1" needs /x/mo-service, which this machine lacks: build it; the pod then starts'
)
HINT = OperatorHint(lease="mooring-redis-sentinel", annotation="redis.kun/scope")
NODES = [named("Node", "a", status={"allocatable": {"cpu": "2", "memory": "4Gi"}})]
FAST = named("StorageClass", "fast", volumeBindingMode="Immediate")
LATE = named("StorageClass", "late", volumeBindingMode="WaitForFirstConsumer")
DEFAULT = named("StorageClass", "usual")
DEFAULT["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
QUOTA = "create Pod cart-2 failed: exceeded quota: team, requested: cpu=2, used: cpu=7, limited: cpu=8"

CASES: dict[str, tuple[Facts, str, dict[str, str]]] = {
    "no definition": (
        Facts(kind="X", group="g", now=NOW, served=False),
        "DefinitionMissing",
        {"kind": "X", "group": "g"},
    ),
    "no object": (Facts(kind="X", now=NOW), "NotFound", {"kind": "X"}),
    "finalizer": (
        facts(READY, RESTS, obj=instance(deletionTimestamp=OLD, finalizers=["a/b"])),
        "DeletionHeld",
        {"finalizers": "a/b"},
    ),
    "image name": (
        facts(WAITS, pods=[waiting("InvalidImageName")]),
        "ImageMissing",
        {"image": "redis:9", "pod": "cart-0"},
    ),
    "image not there": (facts(WAITS, pods=[waiting("ErrImagePull", "manifest unknown")]), "ImageMissing", {}),
    "image denied": (facts(WAITS, pods=[waiting("ErrImagePull", "401 Unauthorized")]), "ImageForbidden", {}),
    "image time-out": (facts(WAITS, pods=[waiting("ImagePullBackOff", "i/o timeout")]), "ImageNotPulled", {}),
    "image that the embedded node cannot make": (
        facts(WAITS, pods=[waiting("ErrImagePull", said_by_the_node("mysql:8.4"))]),
        "ImageNotHere",
        {"image": "redis:9", "pod": "cart-0"},
    ),
    "image that the embedded node does not know": (
        facts(WAITS, pods=[waiting("ImagePullBackOff", said_by_the_node("nonsense:1"))]),
        "ImageNotHere",
        {},
    ),
    "image of a program that is not built": (
        facts(WAITS, pods=[waiting("ImagePullBackOff", UNBUILT)]),
        "ImageNotHere",
        {},
    ),
    "image by event": (
        facts(
            WAITS, pods=[waiting("ImagePullBackOff")], events=[event(pod(), "Failed", "redis:9: not found")]
        ),
        "ImageMissing",
        {},
    ),
    "crash": (
        facts(
            UNREADY,
            pods=[waiting("CrashLoopBackOff", restartCount=4, lastState={"terminated": {"exitCode": 1}})],
        ),
        "CrashLoop",
        {"times": "4", "exit": "1", "logs": "kubectl -n shop logs cart-0 -c redis --previous --tail=20"},
    ),
    "out of memory": (
        facts(
            UNREADY,
            pods=[
                waiting(
                    "CrashLoopBackOff",
                    restartCount=1,
                    lastState={"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
                )
            ],
        ),
        "OutOfMemory",
        {"limit": "256Mi"},
    ),
    "secret missing": (
        facts(WAITS, pods=[waiting("CreateContainerConfigError", 'secret "auth" not found')]),
        "SourceMissing",
        {"kind": "Secret", "name": "auth", "pod": "cart-0"},
    ),
    "config map missing": (
        facts(WAITS, pods=[pod()], events=[event(pod(), "FailedMount", 'configmap "shop/conf" not found')]),
        "SourceMissing",
        {"kind": "ConfigMap", "name": "conf"},
    ),
    "directory of the node missing, as the embedded node says": (
        facts(
            WAITS,
            pods=[pod()],
            events=[
                event(
                    pod(),
                    "FailedMount",
                    'MountVolume.SetUp failed: volume "target": hostPath /srv/b is not a Directory',
                )
            ],
        ),
        "PathMissing",
        {"path": "/srv/b", "pod": "cart-0"},
    ),
    "directory of the node missing, as a kubelet says": (
        facts(
            WAITS,
            pods=[pod()],
            events=[
                event(
                    pod(),
                    "FailedMount",
                    'MountVolume.SetUp failed for volume "target" : hostPath type check failed: /srv/b is not a directory',
                )
            ],
        ),
        "PathMissing",
        {"path": "/srv/b"},
    ),
    "directory of the node missing, as a container runtime says": (
        facts(
            WAITS,
            pods=[
                waiting(
                    "CreateContainerError", 'failed to generate spec: failed to stat "/srv/b": no such file'
                )
            ],
        ),
        "PathMissing",
        {"path": "/srv/b"},
    ),
    "container that cannot be made": (
        facts(WAITS, pods=[waiting("RunContainerError", "exec format error")]),
        "ContainerNotMade",
        {},
    ),
    "volume in use, as the embedded node says": (
        facts(
            WAITS,
            pods=[pod()],
            events=[
                event(
                    pod(),
                    "FailedMount",
                    'MountVolume.SetUp failed: volume "pvc-1" is still in use by the processes of another pod',
                )
            ],
        ),
        "VolumeInUse",
        {"pod": "cart-0"},
    ),
    "volume in use on another node": (
        facts(
            WAITS,
            pods=[pod()],
            events=[
                event(
                    pod(),
                    "FailedAttachVolume",
                    'Multi-Attach error for volume "pvc-1" Volume is already used by pod(s) cart-9',
                )
            ],
        ),
        "VolumeInUse",
        {},
    ),
    "volume in use, as a scheduler says": (
        facts(
            WAITS,
            pods=[
                unschedulable(
                    "1 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"
                )
            ],
        ),
        "VolumeInUse",
        {},
    ),
    "volume that cannot be mounted": (
        facts(
            WAITS,
            pods=[pod()],
            events=[
                event(pod(), "FailedMount", "volume in use by another pod", last=OLD),
                event(pod(), "FailedMount", "wrong fs type"),
            ],
        ),
        "MountFailed",
        {},
    ),
    "volume that was mounted at last": (
        facts(WAITS, pods=[pod(phase="Running")], events=[event(pod(), "FailedMount", "wrong fs type")]),
        "Waits",
        {},
    ),
    "class missing": (
        facts(WAITS, claims=[claim(storageClassName="slow")], classes=[FAST]),
        "ClassMissing",
        {"class": "slow", "classes": "fast", "claim": "data-cart-0"},
    ),
    "no default class": (facts(WAITS, claims=[claim()], classes=[FAST]), "NoDefaultClass", {}),
    "unbound": (facts(WAITS, claims=[claim()], classes=[DEFAULT]), "ClaimUnbound", {"claim": "data-cart-0"}),
    "provisioning": (
        facts(
            WAITS,
            claims=[claim()],
            classes=[DEFAULT],
            events=[event(claim(), "ProvisioningFailed", "no space")],
        ),
        "ProvisioningFailed",
        {},
    ),
    "claim that waits for its pod": (
        facts(
            WAITS,
            claims=[claim(storageClassName="late")],
            classes=[LATE],
            pods=[unschedulable("0/1 nodes are available: 1 Insufficient cpu.", asks={"cpu": "3"})],
            nodes=NODES,
        ),
        "NoRoom",
        {"resource": "cpu", "asked": "3", "free": "2"},
    ),
    "no memory": (
        facts(
            WAITS,
            pods=[unschedulable("0/1 nodes are available: 1 Insufficient memory.", asks={"memory": "9Gi"})],
            nodes=NODES,
        ),
        "NoRoom",
        {"resource": "memory", "asked": "9Gi", "free": "4Gi"},
    ),
    "too many pods": (
        facts(WAITS, pods=[unschedulable("1 Too many pods.")]),
        "NoRoom",
        {"resource": "pods", "free": "?"},
    ),
    "taint": (facts(WAITS, pods=[unschedulable("1 node(s) had untolerated taint {a: b}")]), "Tainted", {}),
    "affinity": (
        facts(WAITS, pods=[unschedulable("1 node(s) didn't match pod anti-affinity rules")]),
        "NoMatchingNode",
        {},
    ),
    "claim missing": (
        facts(WAITS, pods=[unschedulable('persistentvolumeclaim "data" not found')]),
        "ClaimMissing",
        {"claim": "data"},
    ),
    "claim of a run missing": (
        facts(WAITS, pods=[of_a_job(unschedulable('persistentvolumeclaim "backups" not found'))]),
        "SourceMissing",
        {"kind": "PersistentVolumeClaim", "name": "backups"},
    ),
    "other scheduling": (facts(WAITS, pods=[unschedulable("odd")]), "Unschedulable", {}),
    "quota": (
        facts(WAITS, workloads=[workload(3, 2)], events=[event(workload(3, 2), "FailedCreate", QUOTA)]),
        "QuotaExceeded",
        {"quota": "team", "requested": "cpu=2", "used": "cpu=7", "limited": "cpu=8"},
    ),
    "webhook": (
        facts(
            WAITS,
            workloads=[workload(3, 2)],
            events=[event(workload(3, 2), "FailedCreate", 'admission webhook "x.y" denied the request: no')],
        ),
        "AdmissionRefused",
        {"by": "x.y"},
    ),
    "pod security": (
        facts(
            WAITS,
            workloads=[workload(3, 2)],
            events=[event(workload(3, 2), "FailedCreate", 'violates PodSecurity "restricted:latest"')],
        ),
        "AdmissionRefused",
        {"by": "PodSecurity"},
    ),
    "nobody looked, unknown why": (facts(), "NotObserved", {}),
    "nobody runs": (facts(hint=HINT), "NoOperator", {"operator": "mooring-redis-sentinel"}),
    "a lease ran out": (
        facts(hint=HINT, leases=[lease("mooring-redis-sentinel-all", renewed=OLD)]),
        "NoOperator",
        {},
    ),
    "a lease was given back": (
        facts(hint=HINT, leases=[lease("mooring-redis-sentinel-all", holder="")]),
        "NoOperator",
        {},
    ),
    "just made": (facts(hint=HINT, leases=[lease("mooring-redis-sentinel-all")]), "NotYetSeen", {}),
    "namespaced operator elsewhere": (
        facts(hint=HINT, leases=[lease("mooring-redis-sentinel-namespaced", namespace="other")]),
        "OtherScope",
        {"annotation": "redis.kun/scope"},
    ),
    "namespaced operator here": (
        facts(hint=HINT, leases=[lease("mooring-redis-sentinel-namespaced", namespace="shop")]),
        "NotYetSeen",
        {},
    ),
    "cluster operator, no annotation": (
        facts(hint=HINT, leases=[lease("mooring-redis-sentinel-cluster")]),
        "OtherScope",
        {},
    ),
    "cluster operator, annotated": (
        facts(
            obj=instance(annotations={"redis.kun/scope": "cluster-scoped"}),
            hint=HINT,
            leases=[lease("mooring-redis-sentinel-cluster")],
        ),
        "NotYetSeen",
        {},
    ),
    "leases unseen": (facts(hint=HINT, unseen=frozenset({"leases"})), "NotObserved", {}),
    "stalled": (
        facts(READY, condition("Stalled", "True", "InvalidArgs", "spec.size is too small")),
        "Stalled",
        {"reason": "InvalidArgs", "message": "spec.size is too small"},
    ),
    "waits": (facts(UNREADY, WAITS), "Waits", {"reason": "PodStarting"}),
    "rolls": (facts(READY, WAITS), "Waits", {}),
    "not ready": (facts(UNREADY, RESTS), "NotReady", {"message": "no server leads"}),
}


@pytest.mark.parametrize(("given", "code", "params"), CASES.values(), ids=CASES)
def test_the_cause_is_found(given: Facts, code: str, params: dict[str, str]) -> None:
    found = diagnose(given)
    assert found is not None
    assert found.code == code
    assert params.items() <= found.params.items()
    for language in ("en", "zh"):
        for text in (cause(found, language), step(found, language)):
            assert text
            assert "?}" not in text
            assert "{" not in text


def test_every_code_has_a_case() -> None:
    assert {code for _, code, _ in CASES.values()} | {"ClaimLost"} == set(CODES)
    lost = named("PersistentVolumeClaim", "c", spec={"storageClassName": "fast"}, status={"phase": "Lost"})
    found = diagnose(facts(WAITS, claims=[lost], classes=[FAST]))
    assert found is not None
    assert found.code == "ClaimLost"


@pytest.mark.parametrize(
    "given",
    [
        facts(READY, RESTS),
        facts(
            READY, RESTS, workloads=[workload(3, 3)], events=[event(workload(3, 3), "FailedCreate", QUOTA)]
        ),
        facts(
            READY, RESTS, pods=[pod(phase="Running", containerStatuses=[{"restartCount": 9, "ready": True}])]
        ),
        facts(READY, RESTS, events=[event(pod(), "FailedMount", 'secret "auth" not found')]),
    ],
)
def test_what_is_well_has_no_cause(given: Facts) -> None:
    assert diagnose(given) is None


def test_a_refusal_of_long_ago_is_no_cause() -> None:
    old = event(workload(3, 2), "FailedCreate", QUOTA, last=OLD)
    found = diagnose(facts(UNREADY, WAITS, workloads=[workload(3, 2)], events=[old]))
    assert found is not None
    assert found.code == "Waits"


def test_both_languages_say_the_same_with_the_same_parameters() -> None:
    for code, words in _WORDS.items():
        assert all(words), code
        for english, chinese in ((words.cause_en, words.cause_zh), (words.step_en, words.step_zh)):
            assert set(re.findall(r"\{\w+\}", english)) == set(re.findall(r"\{\w+\}", chinese)), code
            assert re.search(r"[\u4e00-\u9fff]", chinese), code
            assert not re.search(r"[\u4e00-\u9fff]", english), code


def test_what_a_parameter_holds_is_a_text_and_no_place() -> None:
    found = Diagnosis(code="Stalled", params={"message": "{reason} {message}", "reason": "R"})
    assert cause(found) == "The operator needs you: {reason} {message} (R)"


@pytest.mark.parametrize(
    "text",
    [
        f"pull https://user:{SECRET}@registry/x",
        f"args: --requirepass {SECRET} --port 1",
        f"password={SECRET}, other",
        f'{{"password": "{SECRET}"}}',
        f"Authorization: Bearer {SECRET}",
        f"REDIS_PASSWORD={SECRET}",
        f"token: '{SECRET}'",
    ],
)
def test_no_secret_is_in_a_diagnosis(text: str) -> None:
    for given in (
        facts(UNREADY, condition("Progressing", "True", "R", text)),
        facts(WAITS, pods=[waiting("ErrImagePull", text)]),
        facts(WAITS, pods=[unschedulable(text)]),
    ):
        assert SECRET not in str(diagnose(given))
    assert "••" in safe(text)


def test_a_message_without_a_secret_stays_as_it_is() -> None:
    for text in ('secret "auth" not found', "cart-2 does not come up; correct spec.image", "no token bucket"):
        assert safe(text) == text
    assert len(safe("x" * 10_000)) == 600


def test_a_family_is_found_through_owners_of_owners() -> None:
    def owned(name: str, by: str) -> Json:
        made = named("X", name)
        made["metadata"]["ownerReferences"] = [{"uid": by}]
        return made

    objects = [owned("pod", "X/set"), owned("set", "root"), owned("other", "X/stranger"), named("X", "none")]
    assert [one["metadata"]["name"] for one in family("root", objects)] == ["pod", "set"]
