"""The rules, in the order in which they count: what is nearest to the cause comes first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from mooring.diagnosis.facts import Diagnosis, Facts, Object, at
from mooring.diagnosis.operators import alive, managers, scope_of
from mooring.diagnosis.safe import safe
from mooring.kube.quantity import parse_quantity

__all__ = ["diagnose"]

#: Restarts that make a loop; how long a refusal counts while its workload lacks pods; how long a deletion may take.
LOOP, RECENT, DELETING = 3, timedelta(minutes=15), timedelta(seconds=60)

_IMAGE: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ImageInspectError"}
)
#: What Mooring's embedded node says of an image: it asks no registry.
_EMBEDDED: Final = re.compile(
    r"this node's catalog|cannot be made on this node|which this machine lacks|mooring image (?:load|make)"
)
_QUOTA: Final = re.compile(r"exceeded quota: ([^,\s]+), requested: (.+), used: (.+), limited: ([^\n]+)")
_WEBHOOK: Final = re.compile(r'admission webhook "([^"]+)" denied the request')
_POLICY: Final = re.compile(r"ValidatingAdmissionPolicy '([^']+)'")
_SHORT: Final = re.compile(r"Insufficient ([-\w./]*\w)|Too many (pods)")
_NO_CLAIM: Final = re.compile(r'persistentvolumeclaim "([^"]+)" not found')
_NO_SOURCE: Final = re.compile(r'(configmap|secret) "([^"]+)" not found', re.IGNORECASE)
#: A path of a node that a kubelet, a container runtime or the embedded node does not find, or not as what it should be.
_NO_PATH: Final = re.compile(
    r"(?:hostPath type check failed: |hostPath |local path )(/\S+) is not an? "
    r'|path "(/[^"]+)" does not exist|failed to stat "(/[^"]+)"'
)
_IN_USE: Final = re.compile(r"(?i)multi-attach error|in use by|already used by|ReadWriteOncePod access mode")
_NOT_MADE: Final = frozenset({"CreateContainerConfigError", "CreateContainerError", "RunContainerError"})
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"


def diagnose(facts: Facts) -> Diagnosis | None:
    """The cause that is nearest to the truth, None if nothing is wrong."""
    for rule in _RULES:
        for found in rule(facts):
            return found
    return None


def _missing(facts: Facts) -> Iterator[Diagnosis]:
    if not facts.served:
        yield Diagnosis(code="DefinitionMissing", params={"kind": facts.kind, "group": facts.group})
    elif facts.obj is None:
        yield Diagnosis(code="NotFound", params={"kind": facts.kind})


def _deleting(facts: Facts) -> Iterator[Diagnosis]:
    since = at(facts.obj, "metadata", "deletionTimestamp")
    finalizers = at(facts.obj, "metadata", "finalizers") or ()
    if since and finalizers and facts.now - _time(since, facts.now) > DELETING:
        yield _about(facts.obj, facts, "DeletionHeld", {"finalizers": ", ".join(finalizers)}, since=since)


# --- pods


def _images(facts: Facts) -> Iterator[Diagnosis]:
    for pod, status in _containers(facts):
        waiting = at(status, "state", "waiting") or {}
        if waiting.get("reason") not in _IMAGE:
            continue
        said = " ".join([waiting.get("message") or "", *_notes(facts, pod, "Failed")])
        code = "ImageNotPulled"
        if _EMBEDDED.search(said):
            code = "ImageNotHere"
        elif re.search(r"(?i)not found|manifest unknown|does not exist|no such image", said) or waiting[
            "reason"
        ] in (
            "InvalidImageName",
            "ErrImageNeverPull",
        ):
            code = "ImageMissing"
        elif re.search(r"(?i)unauthorized|denied|authentication required|forbidden", said):
            code = "ImageForbidden"
        image = safe(status.get("image") or "")
        params = {"image": image, "pod": _name(pod), "container": str(status.get("name") or "")}
        yield _about(pod, facts, code, params, raw=waiting.get("message") or waiting["reason"])


def _sources(facts: Facts) -> Iterator[Diagnosis]:
    """Pods that wait for a Secret or a ConfigMap."""
    for pod in facts.pods:
        if at(pod, "status", "phase") != "Pending":
            continue
        waits = [
            at(s, "state", "waiting", "message") or ""
            for p, s in _containers(facts)
            if p is pod and at(s, "state", "waiting", "reason") == "CreateContainerConfigError"
        ]
        for text in [*waits, *_notes(facts, pod, "FailedMount")]:
            if found := _NO_SOURCE.search(text):
                kind = {"configmap": "ConfigMap", "secret": "Secret"}[found.group(1).lower()]
                params = {"kind": kind, "name": found.group(2).rpartition("/")[2], "pod": _name(pod)}
                yield _about(pod, facts, "SourceMissing", params, raw=text)


def _mounts(facts: Facts) -> Iterator[Diagnosis]:
    """Pods whose volumes cannot be mounted, or whose containers cannot be made: the newest event says why."""
    for pod in facts.pods:
        if at(pod, "status", "phase") != "Pending":
            continue
        node = str(at(pod, "spec", "nodeName") or "")
        texts = [
            at(status, "state", "waiting", "message") or str(at(status, "state", "waiting", "reason"))
            for one, status in _containers(facts)
            if one is pod and at(status, "state", "waiting", "reason") in _NOT_MADE
        ]
        code, params = "ContainerNotMade", {"pod": _name(pod), "node": node or "?"}
        if notes := _notes(facts, pod, "FailedMount", "FailedAttachVolume"):
            code, texts = "MountFailed", [*texts, notes[-1]]
        for text in texts:
            if found := _NO_PATH.search(text):
                code, params["path"] = "PathMissing", next(filter(None, found.groups()))
            elif _IN_USE.search(text):
                code = "VolumeInUse"
            yield _about(pod, facts, code, params, raw=text)


def _crashes(facts: Facts) -> Iterator[Diagnosis]:
    for pod, status in _containers(facts):
        looping = at(status, "state", "waiting", "reason") == "CrashLoopBackOff"
        last = at(status, "lastState", "terminated") or at(status, "state", "terminated") or {}
        often = (status.get("restartCount") or 0) >= LOOP and not status.get("ready")
        if not (looping or (often and last)):
            continue
        container = str(status.get("name") or "")
        namespace = at(pod, "metadata", "namespace") or "default"
        params = {
            "pod": _name(pod),
            "container": container,
            "times": str(status.get("restartCount") or 0),
            "exit": str(last.get("exitCode", "?")),
            # The place of the last lines, never the lines: they may hold anything.
            "logs": f"kubectl -n {namespace} logs {_name(pod)} -c {container} --previous --tail=20",
        }
        raw = f"{last.get('reason') or 'Error'}, exit code {last.get('exitCode', '?')}, {last.get('finishedAt') or ''}"
        if last.get("reason") == "OOMKilled":
            limit = _limit(pod, container)
            yield _about(pod, facts, "OutOfMemory", {**params, "limit": limit}, raw=raw)
        else:
            yield _about(pod, facts, "CrashLoop", params, raw=raw)


def _limit(pod: Object, container: str) -> str:
    for one in at(pod, "spec", "containers") or ():
        if one.get("name") == container:
            return str(at(one, "resources", "limits", "memory") or "?")
    return "?"


def _claims(facts: Facts) -> Iterator[Diagnosis]:
    names = {_name(one) for one in facts.classes}
    for claim in facts.claims:
        if at(claim, "status", "phase") == "Lost":
            yield _about(claim, facts, "ClaimLost", {"claim": _name(claim)})
        if at(claim, "status", "phase") not in ("Pending", None):
            continue
        wanted = at(claim, "spec", "storageClassName")
        params = {"claim": _name(claim), "class": str(wanted or "")}
        notes = _notes(facts, claim, "ProvisioningFailed")
        if "storageclasses" not in facts.unseen:
            if wanted and wanted not in names and not at(claim, "spec", "volumeName"):
                params["classes"] = ", ".join(sorted(names)) or "-"
                yield _about(claim, facts, "ClassMissing", params, raw="; ".join(notes[-1:]))
                continue
            if wanted is None and not any(
                at(one, "metadata", "annotations", _DEFAULT_CLASS) == "true" for one in facts.classes
            ):
                yield _about(claim, facts, "NoDefaultClass", params, raw="; ".join(notes[-1:]))
                continue
        if notes:
            yield _about(claim, facts, "ProvisioningFailed", params, raw=notes[-1])
        elif not _waits_for_pod(facts, claim, wanted):
            yield _about(claim, facts, "ClaimUnbound", params)


def _waits_for_pod(facts: Facts, claim: Object, wanted: object) -> bool:
    """Whether a claim is bound only when its pod has a node: then the pod is what to look at."""
    binding = next((one.get("volumeBindingMode") for one in facts.classes if _name(one) == wanted), None)
    return binding == "WaitForFirstConsumer" or bool(_notes(facts, claim, "WaitForFirstConsumer"))


def _unschedulable(facts: Facts) -> Iterator[Diagnosis]:
    for pod in facts.pods:
        condition = _condition(at(pod, "status", "conditions") or (), "PodScheduled")
        if condition.get("status") != "False" or at(pod, "status", "phase") != "Pending":
            continue
        text = str(condition.get("message") or "")
        since = str(condition.get("lastTransitionTime") or "")
        params = {"pod": _name(pod)}
        code = "Unschedulable"
        if found := _NO_CLAIM.search(text):
            code, params["claim"] = "ClaimMissing", found.group(1)
            if any(one.get("kind") == "Job" for one in at(pod, "metadata", "ownerReferences") or ()):
                code = "SourceMissing"  # a run uses a claim that is there; no pod of it made one
                params |= {"kind": "PersistentVolumeClaim", "name": found.group(1)}
        elif found := _SHORT.search(text):
            code = "NoRoom"
            resource = found.group(1) or found.group(2)
            params |= {"resource": resource, "asked": _asked(pod, resource), "free": _free(facts, resource)}
        elif _IN_USE.search(text):
            code = "VolumeInUse"
        elif "taint" in text:
            code = "Tainted"
        elif "unbound" in text and "PersistentVolumeClaim" in text:
            code = "ClaimUnbound"
            params["claim"] = ""
        elif re.search(r"affinity|selector|topology", text):
            code = "NoMatchingNode"
        yield _about(pod, facts, code, params, since=since, raw=text)


def _asked(pod: Object, resource: str) -> str:
    if resource == "pods":
        return "1"
    amounts = [at(one, "resources", "requests", resource) for one in at(pod, "spec", "containers") or ()]
    total = sum((_amount(one) for one in amounts if one is not None), Decimal(0))
    only = [one for one in amounts if one is not None]
    return str(only[0]) if len(only) == 1 else _written(total, resource)


def _free(facts: Facts, resource: str) -> str:
    """The most that a node could give to a pod if it ran nothing else, "?" when nodes could not be read."""
    most = [_amount(at(node, "status", "allocatable", resource) or "0") for node in facts.nodes]
    return _written(max(most), resource) if most else "?"


def _amount(value: object) -> Decimal:
    try:
        return Decimal(parse_quantity(str(value)))
    except ValueError:
        return Decimal(0)


def _written(amount: Decimal, resource: str) -> str:
    if resource in ("memory", "ephemeral-storage") and amount >= 2**20:
        unit, size = ("Gi", 2**30) if amount >= 2**30 else ("Mi", 2**20)
        return f"{float(amount / size):.3g}{unit}"
    return f"{float(amount):g}"


# --- refusals


def _refusals(facts: Facts) -> Iterator[Diagnosis]:
    """Pods and claims that could not be made: a quota, a webhook, a policy is in the way."""
    lacking = {at(one, "metadata", "uid") for one in facts.workloads if _lacks(one)}
    for event in reversed(_by_time(facts)):
        subject = _subject(event)
        mine = subject.get("uid") in lacking or subject.get("uid") == at(facts.obj, "metadata", "uid")
        if event.get("type") != "Warning" or not mine or facts.now - _last(event, facts.now) > RECENT:
            continue
        text, since = _note(event), _last(event, facts.now).isoformat().replace("+00:00", "Z")
        params: dict[str, str] = {"kind": str(subject.get("kind")), "name": str(subject.get("name"))}
        if found := _QUOTA.search(text):
            quota, requested, used, limited = found.groups()
            params |= {"quota": quota, "requested": requested, "used": used, "limited": limited.strip()}
            code = "QuotaExceeded"
        elif found := _WEBHOOK.search(text) or _POLICY.search(text):
            params["by"], code = found.group(1), "AdmissionRefused"
        elif "violates PodSecurity" in text:
            params["by"], code = "PodSecurity", "AdmissionRefused"
        elif re.search(r"FailedCreate", str(event.get("reason"))) and "forbidden" in text:
            params["by"], code = "-", "AdmissionRefused"
        else:
            continue
        yield Diagnosis(
            code=code,
            params={key: safe(value) for key, value in params.items()},
            kind=params["kind"],
            name=params["name"],
            since=since,
            raw=safe(text),
        )


def _lacks(workload: Object) -> bool:
    wanted = at(workload, "spec", "replicas")
    wanted = at(workload, "spec", "parallelism") if wanted is None else wanted
    there = at(workload, "status", "replicas")
    there = at(workload, "status", "active") if there is None else there
    return int(there or 0) < int(1 if wanted is None else wanted)


# --- operators


def _operator(facts: Facts) -> Iterator[Diagnosis]:
    if facts.obj is None:
        return
    observed = at(facts.obj, "status", "observedGeneration")
    behind = observed is not None and observed < (at(facts.obj, "metadata", "generation") or 0)
    if facts.conditions and not behind:
        return
    since = str(at(facts.obj, "metadata", "creationTimestamp") or "") if not behind else ""
    params = {"kind": facts.kind}
    if facts.hint is None or "leases" in facts.unseen:
        yield _about(facts.obj, facts, "NotObserved", params, since=since)
        return
    working = managers(facts.hint, facts.obj, facts.leases, facts.now)
    other = [one for one in facts.leases if scope_of(facts.hint, one) and alive(one, facts.now)]
    if working:
        yield _about(facts.obj, facts, "NotYetSeen", {**params, "operator": _name(working[0])}, since=since)
    elif other:
        params |= {"operator": _name(other[0]), "annotation": facts.hint.annotation or "-"}
        yield _about(facts.obj, facts, "OtherScope", params, since=since)
    else:
        yield _about(facts.obj, facts, "NoOperator", {**params, "operator": facts.hint.lease}, since=since)


def _told(facts: Facts) -> Iterator[Diagnosis]:
    """What the operator itself says: it needs a person, it waits, or it is not ready."""
    ready = next(
        (
            found
            for name in ("Ready", "Available", "Healthy")
            if (found := _condition(facts.conditions, name))
        ),
        {},
    )
    stalled, progressing = (_condition(facts.conditions, name) for name in ("Stalled", "Progressing"))
    if stalled.get("status") == "True":
        yield _quoted(facts, "Stalled", stalled)
    elif ready.get("status") != "True" or progressing.get("status") == "True":
        if progressing.get("status") == "True":
            yield _quoted(facts, "Waits", progressing)
        elif ready:
            yield _quoted(facts, "NotReady", ready)


def _quoted(facts: Facts, code: str, condition: Object) -> Diagnosis:
    params = {"reason": safe(condition.get("reason")), "message": safe(condition.get("message"))}
    return _about(facts.obj, facts, code, params, since=str(condition.get("lastTransitionTime") or ""))


_RULES: Final[tuple[Callable[[Facts], Iterator[Diagnosis]], ...]] = (
    _missing,
    _deleting,
    _images,
    _crashes,
    _sources,
    _mounts,
    _claims,
    _unschedulable,
    _refusals,
    _operator,
    _told,
)


# --- reading objects


def _about(
    obj: Object | None, facts: Facts, code: str, params: Mapping[str, str], *, since: str = "", raw: str = ""
) -> Diagnosis:
    return Diagnosis(
        code=code,
        params={key: safe(value) for key, value in params.items()},
        kind=str(at(obj, "kind") or (facts.kind if obj is facts.obj else "")),
        name=_name(obj),
        since=since or (str(at(obj, "metadata", "creationTimestamp") or "") if obj is not facts.obj else ""),
        raw=safe(raw),
    )


def _name(obj: Object | None) -> str:
    return str(at(obj, "metadata", "name") or "")


def _containers(facts: Facts) -> Iterator[tuple[Object, Any]]:
    for pod in facts.pods:
        for group in ("initContainerStatuses", "containerStatuses"):
            for status in at(pod, "status", group) or ():
                yield pod, status


def _condition(conditions: Any, kind: str) -> Object:
    return next((one for one in conditions if one.get("type") == kind), {})


def _subject(event: Object) -> Object:
    return event.get("regarding") or event.get("involvedObject") or {}


def _note(event: Object) -> str:
    return str(event.get("note") or event.get("message") or "")


def _last(event: Object, now: datetime) -> datetime:
    found = (
        at(event, "series", "lastObservedTime")
        or event.get("lastTimestamp")
        or event.get("deprecatedLastTimestamp")
        or event.get("eventTime")
        or at(event, "metadata", "creationTimestamp")
    )
    return _time(found, now)


def _time(text: object, now: datetime) -> datetime:
    try:
        return datetime.fromisoformat(str(text)) if text else now
    except ValueError:
        return now


def _by_time(facts: Facts) -> list[Object]:
    return sorted(facts.events, key=lambda one: _last(one, facts.now))


def _notes(facts: Facts, obj: Object, *reasons: str) -> list[str]:
    """What the events of an object with one of these reasons say, oldest first."""
    uid = at(obj, "metadata", "uid")
    return [
        _note(one)
        for one in _by_time(facts)
        if _subject(one).get("uid") == uid and one.get("reason") in reasons
    ]
