"""The declaration of a cluster with all it refers to, and the snapshot that a decision is made from; reads only.

A running operator takes the objects from its caches, ``mooring why`` from the API server: see `references`.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property, partial

import msgspec

from mooring.actor import Dependency, Terminal, Wait
from mooring.kube.object import Key, metadata_of
from mooring.kube.objects import apps, core
from mooring.kube.quantity import parse_quantity
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.parameters import SECRET_KEYS, canonical
from mooring.operators.redis.passwords.seen import unusable
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.sentinel.names import INPUTS, Component, Names
from mooring.operators.redis.sentinel.settings import wanted_of
from mooring.operators.redis.sentinel.snapshot import Observed, Recorded, Snapshot, Wanted
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.redis.sentinel.topology import read_topology
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    SentinelTls,
    spec_of,
)
from mooring.operators.redis.sentinel.validate import validate
from mooring.operators.redis.tls import (
    Held,
    Ports,
    TlsProgress,
    TlsState,
    Transport,
    hold,
    next_ports,
    open_ports,
    ports_of,
    remaining,
)
from mooring.operators.redis.users.accounts import SENTINEL as ACCOUNTS
from mooring.operators.redis.users.held import Held as HeldUsers
from mooring.operators.redis.users.inputs import accounts_in, declares, read_access, secrets_of
from mooring.operators.redis.users.plan import state_of as users_state
from mooring.operators.redis.users.template import ready
from mooring.operators.workload.autogrow import Filling
from mooring.operators.workload.claims import claim_name, is_older
from mooring.operators.workload.configuration import parse_keys
from mooring.operators.workload.credentials import Kept, PasswordState, secret_value
from mooring.operators.workload.last_words import BAD_CONFIGURATION, OUT_OF_MEMORY
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.network import operator_namespace
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.rollout import SetState
from mooring.operators.workload.statefulset import image_in, replicas_of, state_of
from mooring.operators.workload.surroundings import Reference, Surroundings
from mooring.operators.workload.trouble import SIDECAR
from mooring.operators.workload.volumes import Growth, awaiting_volumes
from mooring.runtime import secrets

__all__ = ["DEPENDENCIES", "Inputs", "read_inputs", "read_snapshot", "references", "secret_names"]

_IMAGE = "correct spec{part}.image, or give spec{part}.imagePullSecrets"
_REMEDIES = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": "correct spec{part}.image",
    "ErrImageNeverPull": "correct spec{part}.image or spec{part}.imagePullPolicy",
    "CrashLoopBackOff": "check spec{part}.image (a version that cannot read the files of the one before "
    "ends like this), spec{part}.command and spec{part}.resources",
    OUT_OF_MEMORY: "raise the memory in spec{part}.resources.limits",
    "Unschedulable": "check spec{part}.resources, affinity and nodeSelector against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class; or correct spec.storage.persistentVolumeClaim "
    "(storageClassName, size) and recreate the cluster without these claims: one that is not bound stays as it was created",
    "redis-exporter": "correct spec.exporter.image",
    SIDECAR: "correct its image in spec{part}.podTemplate",
}
_READS_FIRST = ("slave-priority", "min-slaves-to-write")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside the databases."""

    cluster: RedisCluster = field(repr=False)
    around: Surroundings = field(repr=False)
    wanted: Wanted
    found: Found
    password: PasswordState
    declared: str | None = field(default=None, repr=False)
    """The declared password; ``None`` while it cannot be used."""
    blocked: Wait | Terminal | None = None
    """What keeps the declaration from being met; the cluster runs on as it is."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Why claims cannot have the declared size, by name."""
    filling: Filling = field(default_factory=Filling)
    """What was decided about claims that grow by themselves."""

    @property
    def growth(self) -> Growth:
        """The sizes of the claims."""
        return self.specs.growth(self.around.claims, self.refused)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How to connect to servers that take TLS."""
        return self.found.tls.context if self.found.tls is not None else None

    @property
    def status(self) -> RedisClusterStatus:
        """The status of earlier passes."""
        return self.cluster.status or RedisClusterStatus()

    @cached_property
    def specs(self) -> Specs:
        """The child objects as they are to be."""
        return Specs(self.cluster, self.found)

    def holding(self, held: HeldUsers) -> Specs:
        """The child objects with what servers accepted of the users."""
        return Specs(self.cluster, replace(self.found, access=replace(self.found.access, held=held)))

    def ordered(self, orders: Orders) -> Specs:
        """The child objects with what a move changes about them."""
        return Specs(self.cluster, self.found, orders)


def _given_secrets(cluster: RedisCluster) -> list[Key]:
    """The user's Secrets with passwords and the certificate, where they are named."""
    spec = spec_of(cluster)
    given = [
        spec.password_secret.name if spec.password_secret else None,
        spec.tls.secret_name if spec.tls else None,
        *secrets_of(spec.users),
    ]
    return [key for name in given for key in _keys(cluster, name)]


def _given_config_maps(cluster: RedisCluster) -> list[Key]:
    """The user's ConfigMap with shutdown.sh, where one is named."""
    return _keys(cluster, spec_of(cluster).shutdown_config_map)


DEPENDENCIES = (
    Dependency(metadata_of(core.Secret), _given_secrets),
    Dependency(core.ConfigMap, _given_config_maps),
)
"""Objects of the user's whose changes bring a cluster back."""


def _keys(cluster: RedisCluster, name: str | None) -> list[Key]:
    return [Key(cluster.metadata.namespace or "", name)] if name else []


def secret_names(cluster: RedisCluster) -> list[str]:
    """The Secrets that are read: the cluster's own, and the user's."""
    names = Names(cluster.metadata.name or "")
    own = [names.password, names.tls, names.tls_authority]
    return [*own, *(key.name for key in _given_secrets(cluster))]


def references(cluster: RedisCluster) -> list[Reference]:
    """The objects that are read beside pods and claims."""
    names = Names(cluster.metadata.name or "")
    given = [key.name for key in _given_config_maps(cluster)]
    return [
        *((apps.StatefulSet, name) for name in (names.redis, names.sentinel)),
        *((core.ConfigMap, name) for name in (names.live, names.lineage, *given)),
        *((core.Secret, name) for name in secret_names(cluster)),
    ]


def read_inputs(
    cluster: RedisCluster, around: Surroundings, *, now: datetime, hindrance: Wait | None = None
) -> Inputs | Wait | Terminal:
    """Resolve the declaration; ``now`` is what certificates are renewed by, ``hindrance`` what is in the way of child objects.

    A faulty one leaves a running cluster as it runs (`Inputs.blocked`); where nothing runs yet it is the answer.
    """
    spec, status = spec_of(cluster), cluster.status or RedisClusterStatus()
    names = Names(cluster.metadata.name or "")
    redis, sentinel = (around.find(apps.StatefulSet, name) for name in (names.redis, names.sentinel))
    declared, no_password = _declared_password(spec, around)
    secret = around.find(core.Secret, names.password)
    problems = "; ".join(str(problem) for problem in validate(cluster))
    kept, password = _passwords(spec, names.password, secret, declared, users=not problems)
    shutdown, no_shutdown = _shutdown(spec, around)
    sets = [one for one in (redis, sentinel) if one is not None]
    tls, no_tls = _certificates(cluster, around, sets, now)
    blocked = (
        (Terminal("InvalidSpec", problems) if problems else None)
        or no_password
        or no_shutdown
        or no_tls
        or hindrance
    )
    if blocked is not None and redis is None:
        return blocked
    for text in (*kept.keys, kept.sentinel, *kept.accounts.values()):
        secrets.add(text)
    live = around.find(core.ConfigMap, names.live)
    memory = _memory(spec, around.pods)
    found = Found(
        redis=redis,
        sentinel=sentinel,
        live=(live.data or {}).get("live.conf") if live is not None else None,
        read_at_start=frozenset(key for key, result in (status.config or {}).items() if result.restart),
        memory=memory,
        kept=kept,
        shutdown=shutdown,
        tls=tls,
        access=read_access(
            spec.users,
            spec.default_user,
            secret=secret,
            find=partial(around.find, core.Secret),
            accounts=kept.accounts,
            fresh=redis is None,
            sound=not problems,
        ),
        transport=_transport(spec, status, redis),
        ports=_next_ports(spec, status, redis) if tls is not None else "plain",
        open=_open_ports(around, sets) if sets else _declared_ports(spec),
        operator=operator_namespace(),
        lineage=status.lineage,
        lineage_kept=around.find(core.ConfigMap, names.lineage) is not None,
    )
    wanted = wanted_of(cluster, memory=memory, held=None if redis is None else parse_keys(found.live or ""))
    if isinstance(blocked, Terminal) or hindrance is not None:
        size, sentinels = replicas_of(redis) or wanted.size, replicas_of(sentinel) or wanted.sentinels
        wanted = replace(wanted, size=size, sentinels=sentinels)
    if blocked is not None:
        wanted = replace(wanted, roll=False)
    inputs = Inputs(
        cluster=cluster,
        around=around,
        wanted=wanted,
        found=found,
        password=password,
        declared=declared,
        blocked=blocked,
    )
    if redis is None and (why := _left_behind(inputs)):
        return Wait("StorageChanged", why, after=30.0, stalled=True)
    return inputs


def _certificates(
    cluster: RedisCluster, around: Surroundings, sets: Sequence[apps.StatefulSet], now: datetime
) -> tuple[Held | None, Wait | None]:
    """The certificates of a cluster that takes TLS or is to, and what keeps TLS from being as it is declared."""
    spec, names = spec_of(cluster).tls or SentinelTls(), Names(cluster.metadata.name or "")
    there, made = around.find(core.Secret, names.tls), around.find(core.Secret, names.tls_authority)
    unused = _open_ports(around, sets) == "plain"
    if not spec.enabled:
        if unused:
            return None, None
        if (held := remaining(there, made)) is not None:
            return held, None
    named = (spec.secret_name if spec.enabled else None) or ""
    held, why = hold(
        mine=around.find(core.Secret, named) if named else None,
        named=named,
        there=there,
        made=made,
        hosts=[*names.hosts(cluster.metadata.namespace or ""), *_addresses(around.pods)],
        now=now,
        unused=unused,
    )
    if not why:
        return held, None
    return held, Wait("CertificateUnusable", f"spec.tls.secretName: {why}", after=30.0, stalled=True)


def _declared_ports(spec: RedisClusterSpec) -> Ports:
    return spec.tls.ports if spec.tls is not None else "plain"


def _ports_in(one: apps.StatefulSet | None) -> Ports:
    """Which ports the template in place opens."""
    template = one.spec.template if one is not None and one.spec is not None else None
    metadata = template.metadata if template is not None else None
    return ports_of(metadata.annotations if metadata is not None else None)


def _open_ports(around: Surroundings, sets: Sequence[apps.StatefulSet]) -> Ports:
    """Which ports any pod has open, or will have."""
    pods = [ports_of(one.metadata.annotations) for one in around.pods]
    return open_ports([*pods, *map(_ports_in, sets)])


def _transport(
    spec: RedisClusterSpec, status: RedisClusterStatus, redis: apps.StatefulSet | None
) -> Transport:
    """What servers and sentinels use among themselves: where a template leaves the choice, what is recorded."""
    recorded, declared = status.tls or TlsProgress(), _declared_ports(spec)
    if redis is not None and (there := _ports_in(redis)) != "both":
        return there
    if redis is not None and recorded.transport:
        return "tls" if recorded.transport == "tls" else "plain"
    return "plain" if declared == "plain" else "tls"


def _next_ports(spec: RedisClusterSpec, status: RedisClusterStatus, redis: apps.StatefulSet | None) -> Ports:
    """Which ports the next template opens."""
    moving = redis is not None and status.tls is not None and status.tls.phase == "Moving"
    return next_ports(
        declared=_declared_ports(spec), transport=_transport(spec, status, redis), moving=moving
    )


def _addresses(pods: Sequence[core.Pod]) -> list[str]:
    """Sentinels name servers to clients by address."""
    return sorted({pod.status.pod_ip for pod in pods if pod.status and pod.status.pod_ip})


def _left_behind(inputs: Inputs) -> str:
    """Claims with this cluster's data that a new set, as declared now, would not mount; or ""."""
    lineage, specs = inputs.status.lineage, inputs.specs
    homes = {one.volume: one.pod for one in lineage.members} if lineage is not None else {}
    for name, claim in sorted(inputs.around.claims.items()):
        pod = homes.get(claim.metadata.uid or "")
        if pod and (not specs.claimed or name != claim_name(specs.volume_name, pod)):
            return (
                f"spec.storage.persistentVolumeClaim: the data is on the claim {name}, which pods made as declared "
                "now would not mount; put it back as it was, or delete the claims if their data may go"
            )
    return ""


def _passwords(
    spec: RedisClusterSpec, name: str, secret: core.Secret | None, declared: str | None, *, users: bool
) -> tuple[Kept, PasswordState]:
    """Those of the cluster's Secret of that name; for a new or an adopted cluster, and where the Secret lost its own, the declared one.

    ``users``: declared users are to be made, and need the operator's accounts.
    """
    sentinel = _text(secret, "sentinel") or os.urandom(16).hex()
    accounts = accounts_in(secret, ACCOUNTS, declared=users and declares(spec.users, spec.default_user))
    grace = float(60 if spec.password_grace_seconds is None else spec.password_grace_seconds)
    if secret is None or "password" not in (secret.data or {}):
        return Kept(password=declared or "", sentinel=sentinel, accounts=accounts), PasswordState(
            grace=grace, secret=name
        )
    texts = {name: _text(secret, name) for name in ("next", "previous") if name in (secret.data or {})}
    kept = Kept(password=_text(secret, "password"), sentinel=sentinel, accounts=accounts, **texts)
    target = kept.next if kept.next is not None else declared
    state = PasswordState(
        staged=kept.next is not None,
        differs=declared is not None and declared != kept.published().password,
        open=not kept.password or not target,
        grace=grace,
        secret=name,
    )
    return kept, state


def _declared_password(spec: RedisClusterSpec, around: Surroundings) -> tuple[str | None, Wait | None]:
    """The declared password, ``None`` while it cannot be used."""
    reference = spec.password_secret
    if reference is None:
        text, where = spec.password or "", "spec.password"
    else:
        key = reference.key or "password"
        text, where = _text(around.find(core.Secret, reference.name or ""), key), "spec.passwordSecret"
        if not text:
            why = f"{where}: Secret {reference.name} with a key {key} does not exist; create it"
            return None, Wait("PasswordSecretMissing", why, after=30.0, stalled=True)
    if why := unusable(text):
        return None, Wait("PasswordUnusable", f"{where}: {why}; choose another", after=30.0, stalled=True)
    return text, None


def _shutdown(spec: RedisClusterSpec, around: Surroundings) -> tuple[str | None, Wait | None]:
    """The user's shutdown.sh."""
    name = spec.shutdown_config_map
    if not name:
        return None, None
    given = around.find(core.ConfigMap, name)
    script = (given.data or {}).get("shutdown.sh") if given is not None else None
    if script:
        return script, None
    why = (
        f"spec.shutdownConfigMap: ConfigMap {name} with a key shutdown.sh does not exist; create it or remove "
        "the field"
    )
    return None, Wait("ShutdownConfigMapMissing", why, after=30.0, stalled=True)


# --- the snapshot ----------------------------------------------------------------------------------------


async def read_snapshot(inputs: Inputs, dial: Dial, *, now: Callable[[], datetime]) -> Snapshot:
    """Ask every server and sentinel; pods that did not answer before are given less time."""
    status, found, specs = inputs.status, inputs.found, inputs.specs
    born = _time(inputs.cluster.metadata.creation_timestamp)

    def of(component: Component, owner: apps.StatefulSet | None) -> list[Pod]:
        pods = pods_of(
            inputs.around.pods,
            component=component,
            owner_uid=(owner.metadata.uid if owner is not None else None) or "",
            claims=inputs.around.claims,
            born=born,
            remedies=_remedies(component),
            roles=component == "redis",
        )
        return awaiting_volumes(pods, inputs.growth.volumes)

    silent = Recorded.of(status).unreachable_since
    keys = (
        *_READS_FIRST,
        *(["tls-ca-cert-file", "tls-replication"] if found.tls is not None else []),
        *inputs.wanted.config,
        *(status.config or {}),
    )
    topology = await read_topology(
        dial,
        redis=of("redis", found.redis),
        sentinels=of("sentinel", found.sentinel),
        kept=found.kept,
        access=found.access,
        keys=[key for key in keys if canonical(key) not in SECRET_KEYS],
        silent=silent.keys(),
        tls=found.transport == "tls",
        ports={one.metadata.name or "": ports_of(one.metadata.annotations) for one in inputs.around.pods},
        tries_other=found.transport != inputs.wanted.transport,
    )
    volumes, old = _volumes(inputs, born)
    observed = Observed(
        topology=topology,
        redis_set=_set_state(found.redis, specs, "redis"),
        sentinel_set=_set_state(found.sentinel, specs, "sentinel"),
        published=parse_keys(found.live or ""),
        password=inputs.password,
        users=users_state(
            found.access,
            ready=ready(found.redis, [one.pod for one in topology.members]),
            grace=inputs.password.grace,
        ),
        tls=found.tls.state if found.tls is not None else TlsState(),
        transport=found.transport,
        ports=_ports_in(found.redis),
        volumes=volumes,
        old_claims=old,
    )
    recorded = Recorded.of(status, lineage=_kept_lineage(inputs, volumes))
    return Snapshot(inputs.wanted, observed, recorded, now())


def _volumes(inputs: Inputs, born: datetime | None) -> tuple[dict[str, str], frozenset[str]]:
    """Claim UIDs by pod name, and the pods whose claim is older than the cluster."""
    claims, specs = inputs.around.claims, inputs.specs
    volumes: dict[str, str] = {}
    old: set[str] = set()
    for ordinal in range(inputs.wanted.size):
        pod = specs.names.pod("redis", ordinal)
        there = claims.get(claim_name(specs.volume_name, pod))
        if there is not None:
            volumes[pod] = there.metadata.uid or ""
            restored = ordinal == 0 and inputs.status.restore is not None and inputs.status.lineage is None
            if restored or is_older(there, born):
                old.add(pod)
    return volumes, frozenset(old)


def _kept_lineage(inputs: Inputs, volumes: Mapping[str, str]) -> Lineage | None:
    """What an earlier cluster of this name left beside its claims, if those are still the claims."""
    kept = inputs.around.find(core.ConfigMap, inputs.specs.names.lineage)
    text = (kept.data or {}).get("lineage.json") if kept is not None else None
    if not text:
        return None
    try:
        lineage = msgspec.json.decode(text, type=Lineage)
    except msgspec.MsgspecError:
        return None
    return lineage if any(one.volume in volumes.values() for one in lineage.members) else None


# --- small readings ---


def _set_state(one: apps.StatefulSet | None, specs: Specs, component: Component) -> SetState:
    if one is None:
        return SetState()
    state = state_of(one, replicas=replicas_of(one), asked=specs.inputs(component), annotation=INPUTS)
    return replace(state, current=specs.current(component), image=image_in(one, component))


def _memory(spec: RedisClusterSpec, pods: Sequence[core.Pod]) -> int:
    """Bytes that every redis container may use: what is declared, or less where a pod still runs with less."""
    resources = [spec.resources]
    for pod in pods:
        containers = (pod.spec.containers if pod.spec else None) or ()
        resources += [one.resources for one in containers if one.name == "redis"]
    declared = (spec.resources.limits if spec.resources else None) or {}
    if "memory" not in declared:
        return 0
    limits = [(one.limits or {}).get("memory") for one in resources if one is not None]
    return min(int(parse_quantity(text)) for text in limits if text)


def _text(secret: core.Secret | None, key: str) -> str:
    """A password without the line end that an editor left."""
    return secret_value(secret, key).rstrip("\n")


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _remedies(component: Component) -> dict[str, str]:
    part = ".sentinel" if component == "sentinel" else ""
    config = "correct spec.sentinel.customConfig" if part else "correct spec.config"
    return {reason: text.format(part=part) for reason, text in _REMEDIES.items()} | {
        BAD_CONFIGURATION: config
    }
