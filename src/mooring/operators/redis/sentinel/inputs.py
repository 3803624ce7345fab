"""What a cluster is decided from, gathered: its declaration, what it refers to, its pods, and its servers' word.

The operator gathers from its caches; a person who asks why gathers the same from the API server.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as changed
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

from mooring.actor import Terminal, Wait
from mooring.kube.object import Object
from mooring.kube.objects import apps, core
from mooring.kube.quantity import parse_quantity
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.parameters import SECRET_KEYS, canonical
from mooring.operators.redis.passwords import unusable
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.sentinel.names import INPUTS, Component, Names
from mooring.operators.redis.sentinel.settings import parse_live, wanted_of
from mooring.operators.redis.sentinel.snapshot import Observed, Recorded, SetState, Wanted
from mooring.operators.redis.sentinel.specs import Found, Specs
from mooring.operators.redis.sentinel.status import learning_since, unreachable_since
from mooring.operators.redis.sentinel.topology import read_topology
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisClusterStatus,
    spec_of,
    validate,
)
from mooring.operators.workload.claims import claim_name, is_older
from mooring.operators.workload.credentials import Kept, PasswordState
from mooring.operators.workload.pods import Pod, pods_of
from mooring.operators.workload.trouble import SIDECAR
from mooring.runtime import secrets

__all__ = ["Around", "Gathering", "Inputs"]

T = TypeVar("T", bound=Object)
_IMAGE = "correct spec{part}.image, or give spec{part}.imagePullSecrets"
_REMEDIES = {
    "ImagePullBackOff": _IMAGE,
    "ErrImagePull": _IMAGE,
    "InvalidImageName": "correct spec{part}.image",
    "ErrImageNeverPull": "correct spec{part}.image or spec{part}.imagePullPolicy",
    "CrashLoopBackOff": "its log says why; check spec{part}.image, spec{part}.command and spec{part}.resources",
    "Unschedulable": "check spec{part}.resources, affinity and nodeSelector against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class; or correct spec.storage.persistentVolumeClaim "
    "(storageClassName, size) and make the cluster anew without these claims: a claim stays as it was made",
    SIDECAR: "correct spec.exporter.image",
}
_READS_FIRST = ("slave-priority", "min-slaves-to-write")


class Around(Protocol):
    """The objects around one cluster."""

    def find(self, kind: type[T], name: str) -> T | None:
        """The object of that name in the cluster's namespace."""
        ...

    def pods(self) -> list[core.Pod]:
        """The cluster's pods."""
        ...

    def claims(self) -> list[core.PersistentVolumeClaim]:
        """The cluster's claims."""
        ...


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What a pass found outside the databases; ``blocked`` is what keeps the declaration from being met."""

    wanted: Wanted
    found: Found
    claims: dict[str, core.PersistentVolumeClaim]
    password: PasswordState
    blocked: Wait | Terminal | None = None


class Gathering:
    """Everything about one cluster at one moment."""

    def __init__(self, cluster: RedisCluster, around: Around, status: RedisClusterStatus) -> None:
        self._cluster = cluster
        self._around = around
        self._status = status

    def secrets(self) -> list[str]:
        """Names of the Secrets that have to be at hand: the cluster's own, and the user's where one is named."""
        reference = spec_of(self._cluster).password_secret
        own = Names(self._cluster.metadata.name or "").password
        return [own, *([reference.name] if reference is not None and reference.name else [])]

    def inputs(self) -> Inputs | Wait | Terminal:
        """The declaration with all it refers to; a bad one leaves a running cluster as it runs."""
        names = Names(self._cluster.metadata.name or "")
        redis = self._around.find(apps.StatefulSet, names.redis)
        sentinel = self._around.find(apps.StatefulSet, names.sentinel)
        problems = validate(self._cluster)
        blocked: Wait | Terminal | None = None
        if problems:
            blocked = Terminal("InvalidSpec", "; ".join(str(problem) for problem in problems))
        kept, state, trouble = self._passwords(names)
        blocked = blocked or trouble
        shutdown, trouble = self._shutdown()
        blocked = blocked or trouble
        if blocked is not None and redis is None:
            return blocked
        for secret in (*kept.keys, kept.sentinel):
            secrets.add(secret)
        live = self._around.find(core.ConfigMap, names.live)
        text = (live.data or {}).get("live.conf") if live is not None else None
        memory = _memory(spec_of(self._cluster), self._around.pods())
        results = self._status.config or {}
        found = Found(
            redis=redis,
            sentinel=sentinel,
            live=text,
            read_at_start=frozenset(key for key, result in results.items() if result.restart),
            memory=memory,
            kept=kept,
            shutdown=shutdown,
            lineage=self._status.lineage,
            lineage_kept=self._around.find(core.ConfigMap, names.lineage) is not None,
        )
        held = None if redis is None else parse_live(text or "")
        wanted = wanted_of(self._cluster, memory=memory, held=held)
        if isinstance(blocked, Terminal):
            wanted = changed(
                wanted,
                size=_replicas(redis) or wanted.size,
                sentinels=_replicas(sentinel) or wanted.sentinels,
                roll=False,
            )
        elif blocked is not None:
            wanted = changed(wanted, roll=False)
        claims = {claim.metadata.name or "": claim for claim in self._around.claims()}
        if redis is None and (why := self._left_behind(Specs(self._cluster, found), claims)):
            return Wait("StorageChanged", why, after=30.0, stalled=True)
        return Inputs(wanted=wanted, found=found, claims=claims, password=state, blocked=blocked)

    def _left_behind(self, specs: Specs, claims: Mapping[str, core.PersistentVolumeClaim]) -> str:
        """Claims with this cluster's data that a set made anew, as declared now, would not mount; or ""."""
        lineage = self._status.lineage
        homes = {one.volume: one.pod for one in lineage.members} if lineage is not None else {}
        for name, claim in sorted(claims.items()):
            pod = homes.get(claim.metadata.uid or "")
            if pod and (not specs.claimed or name != claim_name(specs.volume_name, pod)):
                return (
                    f"spec.storage.persistentVolumeClaim: the data is on the claim {name}, which pods made as declared "
                    "now would not mount; put it back as it was, or delete the claims if their data may go"
                )
        return ""

    def _passwords(self, names: Names) -> tuple[Kept, PasswordState, Wait | None]:
        """Those of the cluster's Secret; for a new or an adopted cluster the declared one."""
        spec = spec_of(self._cluster)
        declared, trouble = self.declared_password()
        secret = self._around.find(core.Secret, names.password)
        sentinel = (_secret_value(secret, "sentinel") if secret is not None else "") or os.urandom(16).hex()
        grace = float(60 if spec.password_grace_seconds is None else spec.password_grace_seconds)
        if secret is None:
            return Kept(password=declared or "", sentinel=sentinel), PasswordState(grace=grace), trouble
        have = secret.data or {}
        texts = {name: _secret_value(secret, name) for name in ("next", "previous") if name in have}
        kept = Kept(password=_secret_value(secret, "password"), sentinel=sentinel, **texts)
        target = kept.next if kept.next is not None else declared
        state = PasswordState(
            staged=kept.next is not None,
            differs=declared is not None and declared != kept.published().password,
            open=not kept.password or not target,
            grace=grace,
        )
        return kept, state, trouble

    def declared_password(self) -> tuple[str | None, Wait | None]:
        """The declared password, None while it cannot be used."""
        spec = spec_of(self._cluster)
        reference = spec.password_secret
        key = (reference.key or "password") if reference else ""
        if reference is None:
            text, where = spec.password or "", "spec.password"
        else:
            given = self._around.find(core.Secret, reference.name or "")
            text, where = (_secret_value(given, key) if given is not None else ""), "spec.passwordSecret"
            if not text:
                return None, Wait(
                    "PasswordSecretMissing",
                    f"{where}: Secret {reference.name} with a key {key} does not exist; create it",
                    after=30.0,
                    stalled=True,
                )
        if why := unusable(text):
            return None, Wait("PasswordUnusable", f"{where}: {why}; choose another", after=30.0, stalled=True)
        return text, None

    def _shutdown(self) -> tuple[str | None, Wait | None]:
        name = spec_of(self._cluster).shutdown_config_map
        if not name:
            return None, None
        given = self._around.find(core.ConfigMap, name)
        script = (given.data or {}).get("shutdown.sh") if given is not None else None
        if script:
            return script, None
        return None, Wait(
            "ShutdownConfigMapMissing",
            f"spec.shutdownConfigMap: ConfigMap {name} with a key shutdown.sh does not exist; create it or remove "
            "the field",
            after=30.0,
            stalled=True,
        )

    async def snapshot(self, dial: Dial, specs: Specs, inputs: Inputs) -> tuple[Observed, Recorded]:
        status, found = self._status, inputs.found
        born = _time(self._cluster.metadata.creation_timestamp)
        all_pods = self._around.pods()

        def of(component: Component, owner: apps.StatefulSet | None) -> list[Pod]:
            uid = (owner.metadata.uid if owner is not None else None) or ""
            return pods_of(
                all_pods,
                component=component,
                owner_uid=uid,
                claims=inputs.claims,
                born=born,
                remedies=_remedies(component),
            )

        redis, sentinels = of("redis", found.redis), of("sentinel", found.sentinel)
        topology = await read_topology(
            dial,
            redis=redis,
            sentinels=sentinels,
            kept=found.kept,
            keys=[
                key
                for key in (*_READS_FIRST, *inputs.wanted.config, *(status.config or {}))
                if canonical(key) not in SECRET_KEYS
            ],
        )
        volumes, old = self._volumes(specs, inputs, born)
        observed = Observed(
            topology=topology,
            redis_set=_set_state(found.redis, specs, "redis"),
            sentinel_set=_set_state(found.sentinel, specs, "sentinel"),
            published=parse_live(found.live or ""),
            password=inputs.password,
            volumes=volumes,
            old_claims=old,
        )
        recorded = Recorded(
            lineage=status.lineage or self._kept_lineage(specs.names, volumes),
            operation=status.operation,
            last_failover=status.last_failover,
            unreachable_since=unreachable_since(status),
            learning_since=learning_since(status),
            config=status.config or {},
            rolls=status.rolls or {},
            password=status.password,
            quarantined=frozenset(status.quarantined or ()),
        )
        return observed, recorded

    def _volumes(
        self, specs: Specs, inputs: Inputs, born: datetime | None
    ) -> tuple[dict[str, str], frozenset[str]]:
        """Claim UIDs by pod name, and the pods whose claim is older than the cluster."""
        volumes: dict[str, str] = {}
        old: set[str] = set()
        for ordinal in range(inputs.wanted.size):
            pod = specs.names.pod("redis", ordinal)
            there = inputs.claims.get(claim_name(specs.volume_name, pod))
            if there is not None:
                volumes[pod] = there.metadata.uid or ""
                if is_older(there, born):
                    old.add(pod)
        return volumes, frozenset(old)

    def _kept_lineage(self, names: Names, volumes: dict[str, str]) -> Lineage | None:
        """What an earlier cluster of this name left beside its claims, if those are still the claims."""
        kept = self._around.find(core.ConfigMap, names.lineage)
        text = (kept.data or {}).get("lineage.json") if kept is not None else None
        if not text:
            return None
        try:
            lineage = msgspec.json.decode(text, type=Lineage)
        except msgspec.MsgspecError:
            return None
        return lineage if any(one.volume in volumes.values() for one in lineage.members) else None


# --- small readings ---


def _replicas(one: apps.StatefulSet | None) -> int:
    return (one.spec.replicas if one is not None and one.spec is not None else None) or 0


def _set_state(one: apps.StatefulSet | None, specs: Specs, component: Component) -> SetState:
    if one is None:
        return SetState()
    status = one.status or apps.StatefulSetStatus()
    stale = status.observed_generation != one.metadata.generation
    return SetState(
        replicas=_replicas(one),
        update_revision="" if stale else status.update_revision or "",
        current=specs.current(component),
        inputs=(one.metadata.annotations or {}).get(INPUTS, ""),
        asked=specs.inputs(component),
        image=_image(one, component),
    )


def _image(one: apps.StatefulSet, component: Component) -> str:
    template = one.spec.template if one.spec else None
    containers = (template.spec.containers if template and template.spec else None) or ()
    return next((container.image or "" for container in containers if container.name == component), "")


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


def _secret_value(secret: core.Secret, key: str) -> str:
    encoded = (secret.data or {}).get(key, "")
    try:
        return base64.b64decode(encoded).decode().rstrip("\n")
    except (binascii.Error, UnicodeDecodeError):
        return ""


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text else None


def _remedies(component: Component) -> dict[str, str]:
    part = ".sentinel" if component == "sentinel" else ""
    return {reason: text.format(part=part) for reason, text in _REMEDIES.items()}
