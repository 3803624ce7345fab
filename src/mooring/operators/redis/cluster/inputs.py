"""What a cluster is decided from: its declaration, what it refers to, its pods, and the servers' own view.

The operator reads it from its caches; `mooring why` reads the same from the API server.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Protocol

from mooring.actor import Dependency, Terminal, Wait
from mooring.kube.object import Key, key_of, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.quantity import parse_quantity
from mooring.operators.backup.restores import Look
from mooring.operators.backup.types import RestoreStatus
from mooring.operators.redis.cluster.migration import immovable
from mooring.operators.redis.cluster.names import Names
from mooring.operators.redis.cluster.placement import Place
from mooring.operators.redis.cluster.slots import ALL, parse
from mooring.operators.redis.cluster.snapshot import Blocked, Recorded, Scaling, Snapshot, Wanted
from mooring.operators.redis.cluster.specs import Found, Orders, Specs
from mooring.operators.redis.cluster.topology import Seen, read_nodes
from mooring.operators.redis.cluster.types import (
    BY_SIZE,
    COOLDOWN,
    NAMED,
    POD_MISSING,
    SLOWEST,
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    password_of,
    pipeline_of,
    pod_of,
    rate_of,
    size_of,
)
from mooring.operators.redis.cluster.validate import FOREGROUND, invalid_scaling, validate
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.tls import CHANGED, Held, TlsSpec, TlsState, encrypted, hold
from mooring.operators.redis.users.accounts import CLUSTER as ACCOUNTS
from mooring.operators.redis.users.accounts import REPLICA
from mooring.operators.redis.users.inputs import accounts_in, declares, read_access, secrets_of
from mooring.operators.redis.users.plan import state_of
from mooring.operators.redis.users.status import refused_by
from mooring.operators.redis.users.template import ready
from mooring.operators.redis.versions import unread, version_in, why_unread
from mooring.operators.workload.autogrow import Filling
from mooring.operators.workload.autoscale import policy_of
from mooring.operators.workload.credentials import PasswordState, kept_in, secret_value
from mooring.operators.workload.last_words import BAD_CONFIGURATION, OUT_OF_MEMORY
from mooring.operators.workload.network import operator_namespace
from mooring.operators.workload.pods import Pod, ordinal_of, pods_of
from mooring.operators.workload.statefulset import image_in, pending, replicas_of
from mooring.operators.workload.surroundings import Reference, Surroundings
from mooring.operators.workload.trouble import SIDECAR
from mooring.operators.workload.volumes import Growth, awaiting_volumes
from mooring.runtime import secrets

__all__ = [
    "DEPENDENCIES",
    "Inputs",
    "read_inputs",
    "read_snapshot",
    "references",
    "secret_names",
    "users_of",
    "zones_of",
]

IMAGE = "correct spec.pod[0].middlewareImage, or spec.repository and spec.version"
REMEDIES = {
    "ImagePullBackOff": IMAGE,
    "ErrImagePull": IMAGE,
    "InvalidImageName": IMAGE,
    "ErrImageNeverPull": f"{IMAGE}, or spec.pod[0].imagePullPolicy",
    "CrashLoopBackOff": "check the image (a version that cannot read the files of the one before ends "
    "like this), spec.pod[0].configmap, env and resources",
    BAD_CONFIGURATION: "correct spec.pod[0].configmap",
    OUT_OF_MEMORY: "raise the memory in spec.pod[0].resources.limits",
    "Unschedulable": "check spec.pod[0].resources and affinity against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class that the claim names; one that is not bound stays as it was made",
    "redis-exporter": "correct spec.pod[0].monitorImage",
    SIDECAR: "correct its image in spec.podTemplate",
}
"""Which field to look at, by what keeps a pod from running."""
ZONE = "topology.kubernetes.io/zone"


def references(cluster: RedisCluster) -> list[Reference]:
    """The single objects that a decision about a cluster reads, beside its pods."""
    names, configmap = (
        Names(cluster.metadata.name or ""),
        pod_of(cluster.spec or RedisClusterSpec()).configmap,
    )
    found: list[Reference] = [
        (apps.StatefulSet, names.cluster),
        (core.Service, names.service),
        *((core.Secret, name) for name in secret_names(cluster)),
    ]
    return [*found, (core.ConfigMap, configmap)] if configmap else found


def secret_names(cluster: RedisCluster) -> list[str]:
    """The Secrets that are read: the cluster's own, and the user's."""
    names = Names(cluster.metadata.name or "")
    own = [names.password, names.tls, names.tls_authority]
    return [*own, *(key.name for key in _given_secrets(cluster))]


def _given_secrets(cluster: RedisCluster) -> list[Key]:
    """The user's Secrets with the certificate and with passwords of users, where they are named."""
    spec = cluster.spec or RedisClusterSpec()
    names = [spec.tls.secret_name if spec.tls is not None else None, *secrets_of(spec.users)]
    return [Key(cluster.metadata.namespace or "", name) for name in names if name]


DEPENDENCIES = (Dependency(metadata_of(core.Secret), _given_secrets),)
"""Objects of the user's whose changes bring a cluster back."""


def users_of(config_map: core.ConfigMap, clusters: Iterable[RedisCluster]) -> list[Key]:
    """Which of these clusters have their redis.conf in this ConfigMap."""
    name = config_map.metadata.name
    return [key_of(one) for one in clusters if pod_of(one.spec or RedisClusterSpec()).configmap == name]


class Nodes(Protocol):
    """The nodes of the Kubernetes cluster, as an informer has them."""

    def get(self, key: Key) -> core.Node | None:
        """One of them."""
        ...


def zones_of(pods: Iterable[core.Pod], nodes: Nodes | None) -> dict[str, str]:
    """The zones of the nodes that these pods run on, by name; none where nodes may not be read."""
    if nodes is None:
        return {}
    names = {(pod.spec.node_name if pod.spec else None) or "" for pod in pods} - {""}
    found = ((name, nodes.get(Key("", name))) for name in sorted(names))
    return {name: (one.metadata.labels or {}).get(ZONE, "") for name, one in found if one is not None}


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What is declared and what is there of one cluster, at one moment."""

    cluster: RedisCluster
    status: RedisClusterStatus
    found: Found
    orders: Orders = field(default_factory=Orders)
    """What applies to every pass: a StatefulSet that was deleted comes back whole."""
    pods: tuple[core.Pod, ...] = ()
    places: Mapping[str, Place] = field(default_factory=dict)
    blocked: Blocked | None = None
    unknown: tuple[str, ...] = ()
    """Fields of the declaration that do not exist."""
    claims: tuple[core.PersistentVolumeClaim, ...] = ()
    """Those of the cluster, whether its pods mount them or not: they may hold data."""
    restore: Look | None = None
    """The restore that the cluster begins with, until it succeeded."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why claims cannot have the declared size, by name."""
    filling: Filling = field(default_factory=Filling)
    """What was decided about claims that grow by themselves."""

    @property
    def growth(self) -> Growth:
        """The sizes of the claims."""
        return self.specs.growth(self.claims_by_name, self.refused)

    @property
    def claims_by_name(self) -> dict[str, core.PersistentVolumeClaim]:
        """The claims there are."""
        return {one.metadata.name or "": one for one in self.claims}

    @property
    def spec(self) -> RedisClusterSpec:
        """The declaration."""
        return self.cluster.spec or RedisClusterSpec()

    @property
    def names(self) -> Names:
        """The names of its objects."""
        return Names(self.cluster.metadata.name or "")

    @property
    def live(self) -> apps.StatefulSet | None:
        """The StatefulSet there is."""
        return self.found.live

    @property
    def specs(self) -> Specs:
        """The child objects, as things are."""
        return Specs(self.cluster, self.found, self.orders)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How to connect to servers that take TLS."""
        return self.found.tls.context if self.found.tls is not None else None

    @property
    def paused(self) -> bool:
        """Nothing is to be changed."""
        return bool(self.spec.pause)

    @property
    def formed(self) -> bool:
        """All slots have had an owner."""
        return bool(self.status.formed_cluster_before)

    @property
    def claims_go(self) -> bool:
        """The claims are deleted with the cluster."""
        return (self.spec.finalizers or "").lower() == FOREGROUND

    @property
    def there(self) -> int:
        """Pods the StatefulSet has now."""
        return replicas_of(self.live)


def read_inputs(
    cluster: RedisCluster,
    around: Surroundings,
    status: RedisClusterStatus,
    *,
    zones: Mapping[str, str] | None = None,
    unknown: tuple[str, ...] = (),
    hindrance: Wait | None = None,
    restore: Look | None = None,
    now: datetime,
) -> Inputs:
    """All of it from the objects `references` names; a wrong declaration is in ``blocked``.

    ``zones`` are those of the nodes, by name, where nodes may be read. ``hindrance`` is what is in the way of child objects. ``now`` is what certificates are renewed by.
    """
    spec, names = cluster.spec or RedisClusterSpec(), Names(cluster.metadata.name or "")
    live = around.find(apps.StatefulSet, names.cluster)
    configmap = pod_of(spec).configmap
    given = around.find(core.ConfigMap, configmap) if configmap else None
    template = (given.data or {}).get("redis.conf", "") if given is not None else ""
    secret = around.find(core.Secret, names.password)
    # Of a new cluster the declared one is in force from the beginning.
    kept = kept_in(secret, password_of(spec))
    blocked = _blocked(cluster, template=template)
    declared = blocked is None and declares(spec.users, spec.default_user)
    kept = replace(kept, accounts=accounts_in(secret, ACCOUNTS, declared=declared))
    for one in (*kept.keys, *kept.accounts.values()):
        secrets.add(one)
    orders = Orders()
    if live is None and status.formed_cluster_before:
        # A StatefulSet that was deleted comes back whole: slots are taken out before pods, never by a deletion.
        orders = Orders(replicas=max(size_of(spec, status), len(status.conditions or ())))
    elif live is None and spec.autoscale is not None:
        orders = Orders(replicas=size_of(spec, status))
    pods = tuple(around.pods)
    tls, no_tls = _certificates(cluster, around, live, now)
    held = Blocked(reason=hindrance.reason, message=hindrance.message) if hindrance is not None else None
    return Inputs(
        cluster=cluster,
        status=status,
        found=Found(
            live=live,
            shown_at=_shown_at(around.find(core.Service, names.service)),
            template=template,
            kept=kept,
            tls=tls,
            access=read_access(
                spec.users,
                spec.default_user,
                secret=secret,
                find=partial(around.find, core.Secret),
                accounts=kept.accounts,
                fresh=live is None and not status.formed_cluster_before,
                sound=blocked is None,
            ),
            published=secret_value(secret, "published"),
            operator=operator_namespace(),
            restoring=restore is not None,
        ),
        orders=orders,
        pods=pods,
        places={one.metadata.name or "": _place(one, zones or {}) for one in pods},
        blocked=blocked or no_tls or held,
        unknown=unknown,
        claims=tuple(around.claims.values()),
        restore=restore,
    )


def _certificates(
    cluster: RedisCluster, around: Surroundings, live: apps.StatefulSet | None, now: datetime
) -> tuple[Held | None, Blocked | None]:
    """The certificates of a cluster that takes TLS, and what keeps TLS from being as it is declared."""
    spec, names = (cluster.spec or RedisClusterSpec()).tls or TlsSpec(), Names(cluster.metadata.name or "")
    wanted = bool(spec.enabled)
    there = encrypted(live.spec.template if live.spec else None) if live is not None else wanted
    changed = Blocked(reason="InvalidArgs", message=CHANGED) if wanted is not there else None
    if not there:
        return None, changed
    named = (spec.secret_name if wanted else None) or ""
    held, why = hold(
        mine=around.find(core.Secret, named) if named else None,
        named=named,
        there=around.find(core.Secret, names.tls),
        made=around.find(core.Secret, names.tls_authority),
        hosts=[*names.hosts(cluster.metadata.namespace or ""), *_addresses(around.pods)],
        now=now,
        bus=True,
    )
    wrong = Blocked(reason="InvalidArgs", message=f"spec.tls.secretName: {why}") if why else None
    return held, changed or wrong


def _addresses(pods: Iterable[core.Pod]) -> list[str]:
    """Nodes name one another to clients by address."""
    return sorted({pod.status.pod_ip for pod in pods if pod.status and pod.status.pod_ip})


def _shown_at(service: core.Service | None) -> str:
    address = (service.spec.cluster_ip if service is not None and service.spec else None) or ""
    return "" if address == "None" else address


def _blocked(cluster: RedisCluster, *, template: str) -> Blocked | None:
    if problems := validate(cluster):
        return Blocked(reason="InvalidArgs", message="; ".join(map(str, problems)))
    name = pod_of(cluster.spec or RedisClusterSpec()).configmap
    if name and not template:
        message = f"spec.pod[0].configmap: ConfigMap {name} with a key redis.conf does not exist; create it"
        return Blocked(reason="InvalidArgs", message=message)
    return None


def _place(pod: core.Pod, zones: Mapping[str, str]) -> Place:
    name, node = pod.metadata.name or "", (pod.spec.node_name if pod.spec else None) or ""
    return Place(name=name, ordinal=ordinal_of(name), node=node, zone=zones.get(node, ""))


# --- the snapshot ------------------------------------------------------------------------------------------


async def read_snapshot(inputs: Inputs, dial: Dial, now: datetime, *, grace: float) -> Snapshot:
    """Ask the servers, and put everything together; ``grace`` is in seconds (see `PasswordState`)."""
    uid = (inputs.live.metadata.uid if inputs.live is not None else None) or ""
    pods = pods_of(
        inputs.pods,
        component="redis",
        owner_uid=uid,
        claims={},
        born=None,
        remedies=REMEDIES,
        roles=True,
    )
    pods = awaiting_volumes(pods, inputs.growth.volumes)
    kept, status, restore = inputs.found.kept, inputs.status, inputs.restore
    password = _password_state(inputs, blocked=inputs.blocked, grace=grace)
    asks = inputs.formed and not inputs.paused and (password.changing or password.differs)
    seen = await read_nodes(
        dial,
        pods,
        password=kept.password,
        kept=kept if asks else None,
        access=inputs.found.access,
        account=kept.accounts.get(REPLICA, ""),
        tls=inputs.tls is not None,
        load=inputs.spec.autoscale is not None,
    )
    wanted, blocked = _wanted(inputs, seen, pods)
    conditions = status.conditions or ()
    recorded = Recorded(
        formed=inputs.formed,
        plan=status.slot_plan,
        ids={one.name or "": one.node_id or "" for one in conditions if one.node_id},
        slots={one.node_id: parse(one.slots) for one in conditions if one.node_id and one.slots},
        leader=status.leader or "",
        missing={
            one.name or "": datetime.fromisoformat(one.last_transition_time)
            for one in conditions
            if one.reason == POD_MISSING and one.last_transition_time
        },
        refused_users=refused_by(status.users),
        retry=status.retry,
        autoscale=status.autoscale,
    )
    return Snapshot(
        wanted=wanted,
        seen=seen,
        recorded=recorded,
        places={pod.name: inputs.places[pod.name] for pod in pods if pod.name in inputs.places},
        now=now,
        password=_password_state(inputs, blocked=blocked, grace=grace),
        users=state_of(inputs.found.access, ready=ready(inputs.live, pods), grace=grace),
        tls=inputs.found.tls.state if inputs.found.tls is not None else TlsState(),
        blocked=blocked,
        restore=restore.seen(status.restore or RestoreStatus(), now=now) if restore is not None else None,
        restore_held=_held(inputs),
    )


def _held(inputs: Inputs) -> Wait | None:
    """Why no try of the restore can begin now."""
    if inputs.restore is None:
        return None
    held = inputs.restore.held(inputs.status.restore or RestoreStatus())
    return Wait(held.reason, held.message, after=30.0, stalled=True) if isinstance(held, Terminal) else held


def _password_state(inputs: Inputs, *, blocked: Blocked | None, grace: float) -> PasswordState:
    kept, published = inputs.found.kept, inputs.found.published
    return PasswordState(
        staged=kept.next is not None,
        retired=kept.previous is not None,
        differs=blocked is None and kept.password != password_of(inputs.spec),
        open=not all(kept.named().values()),
        grace=grace,
        published=datetime.fromisoformat(published) if published else None,
        secret=inputs.names.password,
    )


def _wanted(inputs: Inputs, seen: Seen, pods: list[Pod]) -> tuple[Wanted, Blocked | None]:
    """The declaration; what cannot be carried out leaves as many nodes as there are."""
    spec, strategy, blocked = inputs.spec, inputs.spec.update_strategy, inputs.blocked
    nodes = size_of(spec, inputs.status) or inputs.there
    if blocked is None and inputs.there and nodes != inputs.there:
        nodes, blocked = _resized(inputs, seen, nodes)
    if blocked is None and (why := _unreadable(inputs, seen)):
        blocked = Blocked(reason="UpgradeFailed", message=why)
    if blocked is not None:
        nodes = inputs.there or nodes
    status = inputs.live.status if inputs.live is not None else None
    template = pod_of(spec).update_strategy
    wanted = Wanted(
        nodes=nodes,
        pods=inputs.there,
        named=bool(strategy and strategy.type == NAMED),
        strategies=tuple((strategy.assign_strategies if strategy else None) or ()),
        pipeline=pipeline_of(spec),
        rate=_rate(inputs.cluster),
        stale_template=blocked is None and not inputs.specs.current(),
        revision=(status.update_revision if status else None) or "",
        pending=pending(inputs.live),
        rolls=template is None or template.type != "OnDelete",
        paused=inputs.paused,
        ephemeral=bool(pods) and all(one.ephemeral for one in pods) and not inputs.claims,
        scaling=_scaling(spec) if blocked is None else None,
        by_size=spec.balance == BY_SIZE,
    )
    return wanted, blocked


def _scaling(spec: RedisClusterSpec) -> Scaling | None:
    """What the load decides by, where it does."""
    declared = spec.autoscale
    if declared is None:
        return None
    limits = (resources.limits if (resources := pod_of(spec).resources) is not None else None) or {}
    cooldown = declared.cooldown_seconds
    return Scaling(
        policy=policy_of(declared),
        targets={one.type: one.target for one in declared.metrics},
        cooldown_s=COOLDOWN if cooldown is None else cooldown,
        limit=int(parse_quantity(limits.get("memory") or 0)),
    )


def _rate(cluster: RedisCluster) -> float:
    """What cannot be read held moving back before, most likely."""
    try:
        return rate_of(cluster)
    except ValueError:
        return SLOWEST


def _unreadable(inputs: Inputs, seen: Seen) -> str:
    """Why the declared version is not rolled out: it could not read the files there are."""
    image = inputs.specs.image
    versions = [one.server.version for one in seen.nodes if one.server is not None]
    if not versions and inputs.formed:
        versions = [version_in(image_in(inputs.live, "redis"))]
    newest = unread(image, versions)
    if inputs.specs.current() or not newest:
        return ""
    field = "spec.pod[0].middlewareImage" if pod_of(inputs.spec).middleware_image else "spec.version"
    return f"{field}: {why_unread(image, newest, back='make a new cluster and copy the data')}"


def _resized(inputs: Inputs, seen: Seen, nodes: int) -> tuple[int, Blocked | None]:
    """Whether the slots can be moved as declared is known before any pod is made."""
    if inputs.status.slot_plan is not None:
        return nodes, None
    if (inputs.formed and seen.covered == ALL) or 2 in (nodes, inputs.there):
        names = [one.id for one in seen.live]
        why = invalid_scaling(inputs.spec, nodes=inputs.there, wanted=nodes, owned=seen.owners, names=names)
        if why := why or immovable(seen, nodes=nodes, password=inputs.found.kept.password):
            return inputs.there, Blocked(reason="InvalidArgs", message=why)
        return nodes, None
    # Unknown for now: nothing is added, and what is being taken out stays on its way.
    return (min(nodes, inputs.there) if inputs.formed else nodes), None
