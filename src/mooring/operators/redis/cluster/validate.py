"""What is wrong with a declaration, each with its field and the remedy.

The schema refuses little: the group was taken over, and what its operator accepted must still be accepted. What
cannot be carried out is said in the status instead, before anything is touched.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec.structs import replace

from mooring.actor import differs
from mooring.kube.objects import apps, core, meta
from mooring.operators.redis.cluster.names import REDIS_PORT
from mooring.operators.redis.cluster.overlay import OURS, ours
from mooring.operators.redis.cluster.slots import Slots, after, take
from mooring.operators.redis.cluster.specs import Specs
from mooring.operators.redis.cluster.types import (
    AUTO,
    AUTOSCALE_TYPES,
    BY_COUNT,
    BY_SIZE,
    LEAST_BY_LOAD,
    MOST_BY_LOAD,
    NAMED,
    RATE_ANNOTATION,
    RedisCluster,
    RedisClusterSpec,
    image_of,
    masters_of,
    pod_of,
    rate_of,
    volumes_of,
)
from mooring.operators.redis.passwords.seen import unusable
from mooring.operators.redis.tls import OLDEST
from mooring.operators.redis.users.validate import users_faults
from mooring.operators.redis.versions import image_version
from mooring.operators.workload.autogrow import autogrow_faults
from mooring.operators.workload.autoscale import autoscale_faults
from mooring.operators.workload.labels import annotation_faults, label_faults
from mooring.operators.workload.overlay_rules import faults
from mooring.operators.workload.problem import Problem
from mooring.operators.workload.resources import claim_size_faults, resource_faults
from mooring.operators.workload.volumes import size_of, sized_as

__all__ = ["FOREGROUND", "invalid_scaling", "unmet", "validate", "warnings"]

FOREGROUND: Final = "foreground"
"""The value of spec.finalizers with which claims go when the cluster is deleted."""

NAME_LIMIT: Final = 52
"""A pod's label ``controller-revision-hash`` is the set's name and eleven characters, at most 63 together."""
_REFERENCE: Final = re.compile(r"^[\w.-]+(:\d+)?(/[\w.-]+)*(:[\w.-]+)?(@sha256:[0-9a-f]{64})?$")
_IS_SAMPLE: Final = "is the sample's placeholder"
_PLACEHOLDERS: Final = frozenset({"string", "name", "pvcname"})


def validate(cluster: RedisCluster) -> list[Problem]:
    """Everything wrong with the declaration by itself."""
    spec = cluster.spec or RedisClusterSpec()
    filled_in = [*_pod(spec), *_volumes(spec)]
    if any(_IS_SAMPLE in one.message for one in filled_in):
        filled_in += _sample_nodes(spec)
    return [
        *_name(cluster.metadata.name or ""),
        *_replicas(spec),
        *_kind(spec),
        *_ports(spec),
        *_tls(spec),
        *users_faults(
            spec.users,
            spec.default_user,
            images={"spec.pod[0].middlewareImage": pod_of(spec).middleware_image or image_of(spec)},
        ),
        *filled_in,
        *label_faults("spec.pod[0].labels", pod_of(spec).labels),
        *annotation_faults("spec.pod[0].annotations", pod_of(spec).annotations),
        *(
            Problem(*fault)
            for at, claim in enumerate(spec.volume_claim_templates or ())
            for fault in claim_size_faults(f"spec.volumeClaimTemplates[{at}]", claim)
        ),
        *_autogrow(spec),
        *_strategy(spec),
        *_autoscale(spec),
        *_balance(spec),
        *_rate(cluster),
        *faults(spec.pod_template, ours(spec)),
    ]


def _autogrow(spec: RedisClusterSpec) -> list[Problem]:
    claims = spec.volume_claim_templates or []
    given = spec.storage.autogrow if spec.storage is not None else None
    declared = size_of(claims[0]) if claims else ""
    faults = autogrow_faults(given, declared=declared, claimed=bool(claims))
    return [Problem(f"spec.storage.autogrow{field}", text) for field, text in faults]


def _tls(spec: RedisClusterSpec) -> list[Problem]:
    """TLS needs a version that has it."""
    if spec.tls is None or not spec.tls.enabled:
        return []
    image = pod_of(spec).middleware_image or image_of(spec)
    version = image_version(image)
    if version is None or version >= OLDEST:
        return []
    text = f"TLS needs Redis 6.2 or later, and the image is {image}; give a later one, or remove spec.tls"
    return [Problem("spec.tls.enabled", text)]


def warnings(cluster: RedisCluster) -> list[str]:
    """What is carried out, but perhaps not as meant."""
    spec = cluster.spec or RedisClusterSpec()
    total, said = spec.replicas or 0, []
    if total > 6 and total % 2:
        said.append(
            f"spec.replicas: {total} is odd: {total // 2} masters, and one replica more than masters; "
            f"{total - 1} or {total + 1} come out even"
        )
    pod, strategy = pod_of(spec), spec.update_strategy
    goes, kept = (spec.finalizers or "").lower(), volumes_of(spec)
    shared = kept is not None and bool(kept.type)
    rolling = pod.update_strategy.rolling_update if pod.update_strategy else None
    notes = {
        "spec.repository": bool(spec.repository and pod.middleware_image)
        and not (spec.repository or "").endswith("/")
        and "not used, since spec.pod[0].middlewareImage names the image; one that ends in / is put before it",
        "spec.pod[0].initImage": bool(pod.init_image)
        and "not needed any more; the redis image fills in the template",
        "spec.finalizers": goes not in ("", FOREGROUND)
        and f"{spec.finalizers!r} is not known and means nothing; {FOREGROUND} lets the claims go with the cluster",
        "spec.pod[0].volumes": shared
        and (
            "the claims of volumeClaimTemplates hold the data, and this is not used; remove one of them"
            if spec.volume_claim_templates
            else goes == FOREGROUND
            and f"the data on {kept.type if kept else ''} stays when the cluster is deleted; remove it there"
        ),
        "spec.pod[0].updateStrategy.rollingUpdate": rolling is not None
        and "not used; replicas are recreated before masters, one shard at a time",
        "spec.pod[0].env": bool(names := sorted({one.name or "" for one in pod.env or ()} & OURS))
        and f"{', '.join(names)} is for the operator to set; remove it",
        "spec.podManagementPolicy": spec.pod_management_policy not in (None, "", "Parallel")
        and "pods start in parallel: if they waited for each other, a cluster that lost all pods would not come back",
        "spec.updateId": bool(spec.update_id)
        and "not used; kubectl rollout history statefulset shows the revisions",
        "spec.sentinel": spec.sentinel is not None
        and not spec.sentinel.enable
        and "not used; a Redis Cluster fails over by its masters' votes",
        "spec.updateStrategy.assignStrategies": strategy is not None
        and strategy.type != NAMED
        and bool(strategy.assign_strategies)
        and f"read with type {NAMED} only",
    }
    return [*said, *(f"{where}: {text}" for where, text in notes.items() if text)]


def unmet(cluster: RedisCluster, specs: Specs, live: apps.StatefulSet | None) -> list[str]:
    """What was changed after the cluster was made and cannot follow any more."""
    there = (live.spec.volume_claim_templates if live and live.spec else None) or []
    wanted = specs.declared_claims() or []
    if specs.taken_over:  # HarmonyCloud's operator left out what is declared beside name and spec
        wanted = [replace(one, metadata=meta.ObjectMeta(name=one.metadata.name)) for one in wanted]
    same = [one.metadata.name for one in there] == [one.metadata.name for one in wanted] and not any(
        differs(_sized_as(one, other), other) for one, other in zip(wanted, there, strict=True)
    )
    if live is None or same:
        return []
    why = (
        "spec.volumeClaimTemplates: of the claims only the size can be changed; put them back, or make a new cluster "
        "and copy the data"
    )
    return [why]


def _sized_as(
    one: core.PersistentVolumeClaim, other: core.PersistentVolumeClaim
) -> core.PersistentVolumeClaim:
    """The declared claim in the size of the other: claims grow, and the template of them stays."""
    if one.spec is None or other.spec is None:
        return one
    return replace(one, spec=sized_as(one.spec, other.spec))


def _name(name: str) -> list[Problem]:
    if len(name) > NAME_LIMIT:
        return [Problem("metadata.name", f"{len(name)} characters, at most {NAME_LIMIT} are possible")]
    if "." in name:
        return [Problem("metadata.name", "has a dot, and no Service could be named after it")]
    return []


def _replicas(spec: RedisClusterSpec) -> list[Problem]:
    total = spec.replicas
    if total is None:
        return [Problem("spec.replicas", "is missing; give 2, or 6 and more")]
    if total == 2 or total >= 6:
        return []
    nearest = "2" if total < 2 else "2 or 6"
    return [
        Problem(
            "spec.replicas",
            f"{total} node{'' if total == 1 else 's'} cannot form a cluster: three masters with a replica each need 6; give {nearest}",
        )
    ]


def _kind(spec: RedisClusterSpec) -> list[Problem]:
    found, pair = [], spec.replicas == 2
    remedy = "a RedisCluster of redis.kun/v1beta1 has sentinels; or give cluster, or 2 nodes and replication"
    if spec.type == "sentinel":
        found.append(Problem("spec.type", f"sentinel is not served by this kind: {remedy}"))
    elif spec.type == "replication" and not pair:
        found.append(Problem("spec.type", "replication is a pair; give 2 replicas, or type cluster"))
    elif spec.type not in (None, "", "cluster", "replication"):
        found.append(Problem("spec.type", f"{spec.type!r} is not known; give cluster or replication"))
    if spec.sentinel is not None and spec.sentinel.enable:
        found.append(Problem("spec.sentinel.enable", f"sentinels are not made here: {remedy}"))
    return found


def _ports(spec: RedisClusterSpec) -> list[Problem]:
    found = []
    if spec.redis_instance_port not in (None, 0, REDIS_PORT):
        found.append(
            Problem(
                "spec.redisInstancePort",
                f"the servers listen on {REDIS_PORT}, each at its own address; remove it, and give "
                "servicePort for what clients connect to",
            )
        )
    if spec.service_port is not None and not 0 <= spec.service_port <= 65535:
        found.append(Problem("spec.servicePort", f"{spec.service_port} is no port; give 6379"))
    return found


def _pod(spec: RedisClusterSpec) -> list[Problem]:
    found, pod = [], pod_of(spec)
    if len(spec.pod or ()) > 1:
        found.append(Problem("spec.pod", "has more than one entry, all nodes are alike; keep one"))
    for name, image in (
        ("middlewareImage", pod.middleware_image),
        ("monitorImage", pod.monitor_image),
        ("initImage", pod.init_image),
    ):
        if image and _is_placeholder(image):
            found.append(
                _placeholder(f"spec.pod[0].{name}", image, "an image as registry/name:tag, or remove it")
            )
        elif image and not _REFERENCE.match(image):
            found.append(Problem(f"spec.pod[0].{name}", f"{image!r} is no image reference; write name:tag"))
    if not image_of(spec):
        found.append(
            Problem("spec.pod[0].middlewareImage", "no image is named; give it, or repository and version")
        )
    if pod.configmap and _is_placeholder(pod.configmap):
        found.append(
            _placeholder(
                "spec.pod[0].configmap", pod.configmap, "a ConfigMap with a key redis.conf, or remove it"
            )
        )
    if pod.image_pull_policy not in (None, "", "Always", "IfNotPresent", "Never"):
        found.append(
            Problem(
                "spec.pod[0].imagePullPolicy",
                f"{pod.image_pull_policy!r} is not known; give Always, IfNotPresent or Never",
            )
        )
    how = pod.update_strategy.type if pod.update_strategy else None
    if how not in (None, "", "RollingUpdate", "OnDelete"):
        found.append(
            Problem(
                "spec.pod[0].updateStrategy.type", f"{how!r} is not known; give RollingUpdate or OnDelete"
            )
        )
    if pod.requirepass and (why := unusable(pod.requirepass)):
        found.append(Problem("spec.pod[0].requirepass", f"{why}; choose another"))
    faults = resource_faults("spec.pod[0].resources", pod.resources)
    return [*found, *(Problem(where, message) for where, message in faults)]


def _volumes(spec: RedisClusterSpec) -> list[Problem]:
    volumes = volumes_of(spec)
    if volumes is None or not volumes.type:
        return []
    where = "spec.pod[0].volumes" if pod_of(spec).volumes else "spec.volumes"
    claim = volumes.persistent_volume_claim_name
    if volumes.type not in ("hostPath", "nfs"):
        return [Problem(f"{where}.type", f"{volumes.type!r} is not known; give hostPath or nfs")]
    if volumes.type == "nfs" and not claim:
        return [Problem(f"{where}.persistentVolumeClaimName", "is missing; type nfs needs a claim")]
    if claim and _is_placeholder(claim):
        return [_placeholder(f"{where}.persistentVolumeClaimName", claim, "a claim that exists")]
    return []


def _strategy(spec: RedisClusterSpec) -> list[Problem]:
    """Whether it can be read; whether it fits is asked when nodes are added."""
    strategy = spec.update_strategy
    if strategy is None:
        return []
    found, where = [], "spec.updateStrategy"
    if strategy.type not in (None, "", AUTO, NAMED):
        found.append(Problem(f"{where}.type", f"{strategy.type!r} is not known; give {AUTO} or {NAMED}"))
    if strategy.pipeline and not (strategy.pipeline.isdigit() and int(strategy.pipeline) > 0):
        found.append(Problem(f"{where}.pipeline", f'{strategy.pipeline!r} is no number of keys; give "10"'))
    return found


def _autoscale(spec: RedisClusterSpec) -> list[Problem]:
    """Whether the load can choose the number of nodes."""
    declared = spec.autoscale
    if declared is None:
        return []
    where = "spec.autoscale"
    found = [
        Problem(f"{where}.{field}", message)
        for field, message in autoscale_faults(
            declared, AUTOSCALE_TYPES, least=LEAST_BY_LOAD, most=MOST_BY_LOAD
        )
    ]
    for field, nodes in (("minReplicas", declared.min_replicas), ("maxReplicas", declared.max_replicas)):
        if nodes % 2:
            text = f"{nodes} is odd, and each master has its replica; give {nodes - 1} or {nodes + 1}"
            found.append(Problem(f"{where}.{field}", text))
    if spec.replicas == 2:
        text = "a pair has one master, whatever its load; remove it, or give 6 replicas or more"
        found.append(Problem(where, text))
    if spec.update_strategy is not None and spec.update_strategy.type == NAMED:
        text = f"{NAMED} names the sources of each change, which a policy cannot; give {AUTO}, or remove it"
        found.append(Problem(where, text))
    return found


def _balance(spec: RedisClusterSpec) -> list[Problem]:
    """Whether sizes can be weighed, and keys reported."""
    image = pod_of(spec).middleware_image or image_of(spec)
    version = image_version(image)
    old = version is not None and version < (4, 0, 0)
    found = []
    if spec.balance not in (None, "", BY_COUNT, BY_SIZE):
        text = f"{spec.balance!r} is not known; give {BY_COUNT} or {BY_SIZE}"
        found.append(Problem("spec.balance", text))
    for field, asked in (("balance", spec.balance == BY_SIZE), ("keyReport", spec.key_report is not None)):
        if asked and spec.replicas == 2:
            found.append(Problem(f"spec.{field}", "is for clusters, and this is a pair; remove it"))
        elif asked and old:
            text = f"needs Redis 4.0 or later (MEMORY USAGE), and the image is {image}; remove it"
            found.append(Problem(f"spec.{field}", text))
    return found


def _rate(cluster: RedisCluster) -> list[Problem]:
    try:
        rate_of(cluster)
    except ValueError as error:
        message = f'{error}; give the bytes a second that moving slots may cost, as "8Mi", or leave it out'
        return [Problem(f"metadata.annotations[{RATE_ANNOTATION}]", message)]
    return []


def invalid_scaling(
    spec: RedisClusterSpec,
    *,
    nodes: int,
    owned: Mapping[str, Slots],
    names: Sequence[str] = (),
    wanted: int | None = None,
) -> str:
    """Why the slots cannot be moved as declared when ``nodes`` become ``wanted``; "" when they can.

    ``owned`` are the slots of every master by id, ``names`` those of further nodes. Nothing is touched before
    this says "". Without ``wanted`` it is ``spec.replicas``.
    """
    wanted = (spec.replicas or 0) if wanted is None else wanted
    strategy = spec.update_strategy
    kind = (strategy.type if strategy else None) or AUTO
    if nodes == 2 or wanted == 2:
        return (
            f"spec.replicas: a pair and a cluster do not turn into one another; put {nodes} back, "
            "or make a new cluster and copy the data"
        )
    more = masters_of(wanted) - len(owned)
    if kind != NAMED or more == 0:
        return ""
    if more < 0:
        return (
            f"spec.updateStrategy.type: {NAMED} does not say where the slots of removed masters go; "
            f"give {AUTO} to take nodes out"
        )
    given = (strategy.assign_strategies if strategy else None) or []
    where = "spec.updateStrategy.assignStrategies"
    if len(given) != more:
        return f"{where}: {len(given)} entries for {more} new masters; give one for each"
    left = dict(owned)
    for at, one in enumerate(given):
        if not one.sources:
            return f"{where}[{at}].fromReplicas: is empty; name the nodes that give slots"
        for name in one.sources:
            if name not in owned:
                what = "is a replica" if name in names else "is not a node of this cluster"
                return f"{where}[{at}].fromReplicas: {name} {what}; status.conditions lists the masters' ids"
        try:
            new = take(left, target=f"new master {at}", number=one.slots or 0, sources=one.sources)
        except ValueError as error:
            return f"{where}[{at}].slots: {error}"
        left = after(left, new)
    return ""


def _sample_nodes(spec: RedisClusterSpec) -> list[Problem]:
    """Named beside other placeholders only: a new cluster has no node ids yet, and does not ask for them."""
    given = (spec.update_strategy.assign_strategies if spec.update_strategy else None) or []
    return [
        Problem(
            f"spec.updateStrategy.assignStrategies[{at}].fromReplicas",
            f"{one.from_replicas!r} {_IS_SAMPLE}; give ids of masters before you add nodes",
        )
        for at, one in enumerate(given)
        if re.search(r"\bnodeId\d", one.from_replicas or "")
    ]


def _is_placeholder(text: str) -> bool:
    """A word of the sample that stands for a value."""
    return text.strip().lower() in _PLACEHOLDERS


def _placeholder(field: str, text: str, remedy: str) -> Problem:
    return Problem(field, f"{text!r} {_IS_SAMPLE}; give {remedy}")
