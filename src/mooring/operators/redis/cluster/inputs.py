"""What a cluster is decided from, gathered: its declaration, what it refers to, its pods, and its servers' word."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from mooring.kube.object import Object
from mooring.kube.objects import apps, core
from mooring.operators.redis.cluster.migration import immovable
from mooring.operators.redis.cluster.names import Names
from mooring.operators.redis.cluster.passwords import PasswordMove, next_password, read_keys
from mooring.operators.redis.cluster.placement import Place
from mooring.operators.redis.cluster.slots import ALL, parse
from mooring.operators.redis.cluster.snapshot import Recorded, Snapshot, Wanted
from mooring.operators.redis.cluster.specs import Found, Specs
from mooring.operators.redis.cluster.topology import Seen, read_nodes
from mooring.operators.redis.cluster.types import (
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
)
from mooring.operators.redis.cluster.validate import FOREGROUND, invalid_scaling, validate
from mooring.operators.redis.dial import Dial
from mooring.operators.redis.versions import file_format, image_format
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.pods import Pod, main_container, pods_of
from mooring.operators.workload.trouble import SIDECAR
from mooring.runtime import secrets

__all__ = ["Around", "Blocked", "Gathering"]

T = TypeVar("T", bound=Object)
IMAGE = "correct spec.pod[0].middlewareImage, or spec.repository and spec.version"
REMEDIES = {
    "ImagePullBackOff": IMAGE,
    "ErrImagePull": IMAGE,
    "InvalidImageName": IMAGE,
    "ErrImageNeverPull": f"{IMAGE}, or spec.pod[0].imagePullPolicy",
    "CrashLoopBackOff": "its log says why; check spec.pod[0].configmap, env and resources",
    "Unschedulable": "check spec.pod[0].resources and affinity against the nodes there are",
    "UnboundClaim": "provide a volume or the storage class that the claim names; a claim stays as it was made",
    SIDECAR: "correct spec.pod[0].monitorImage",
}
"""Which field to look at, by what keeps a pod from running."""
ZONE = "topology.kubernetes.io/zone"


class Around(Protocol):
    """The objects around one cluster."""

    def find(self, kind: type[T], name: str) -> T | None:
        """The object of that name in the cluster's namespace."""
        ...

    def pods(self) -> list[core.Pod]:
        """The cluster's pods."""
        ...

    def node(self, name: str) -> core.Node | None:
        """A node of the Kubernetes cluster, if nodes may be read."""
        ...


@dataclass(frozen=True, kw_only=True)
class Blocked:
    """Why the declaration is not carried out, while what runs is looked after."""

    reason: str
    message: str


class Gathering:
    """Everything about one cluster at one moment."""

    def __init__(self, cluster: RedisCluster, around: Around, status: RedisClusterStatus) -> None:
        self._cluster = cluster
        self._around = around
        self._status = status
        self.spec = cluster.spec or RedisClusterSpec()
        self.names = Names(cluster.metadata.name or "")
        self.live = around.find(apps.StatefulSet, self.names.cluster)
        self.blocked = self._blocked()
        self.found = self._found()

    @property
    def specs(self) -> Specs:
        """The child objects, as things are."""
        return Specs(self._cluster, self.found)

    @property
    def paused(self) -> bool:
        """Nothing is to be changed."""
        return bool(self.spec.pause)

    @property
    def formed(self) -> bool:
        """All slots have had an owner."""
        return bool(self._status.formed_cluster_before)

    @property
    def claims_go(self) -> bool:
        """The claims are deleted with the cluster."""
        return (self.spec.finalizers or "").lower() == FOREGROUND

    @property
    def there(self) -> int:
        """Pods the StatefulSet has now."""
        return (self.live.spec.replicas if self.live and self.live.spec else None) or 0

    def _blocked(self) -> Blocked | None:
        if problems := validate(self._cluster):
            return Blocked(reason="InvalidArgs", message="; ".join(map(str, problems)))
        name = pod_of(self.spec).configmap
        if name and not self._template(name):
            return Blocked(
                reason="InvalidArgs",
                message=f"spec.pod[0].configmap: ConfigMap {name} with a key redis.conf does not exist; create it",
            )
        return None

    def _template(self, name: str | None) -> str:
        given = self._around.find(core.ConfigMap, name) if name else None
        return (given.data or {}).get("redis.conf", "") if given is not None else ""

    def _found(self) -> Found:
        kept, published = self._kept()
        for one in kept.keys:
            secrets.add(one)
        replicas = None
        if self.live is None and self._status.formed_cluster_before:
            # A StatefulSet that was deleted comes back whole: slots are taken out before pods, never by a deletion.
            replicas = max(self.spec.replicas or 0, len(self._status.conditions or ()))
        return Found(
            live=self.live,
            shown_at=self._shown_at(),
            replicas=replicas,
            template=self._template(pod_of(self.spec).configmap),
            kept=kept,
            published=published,
        )

    def _shown_at(self) -> str:
        found = self._around.find(core.Service, self.names.service)
        address = (found.spec.cluster_ip if found is not None and found.spec else None) or ""
        return "" if address == "None" else address

    def _kept(self) -> tuple[Kept, str]:
        """The passwords of the cluster's Secret, of a new cluster the declared one; and when it came into force."""
        secret = self._around.find(core.Secret, self.names.password)
        if secret is None:
            return Kept(password=password_of(self.spec)), ""
        have = secret.data or {}
        texts = {name: _secret_value(secret, name) for name in ("next", "previous") if name in have}
        kept = Kept(password=_secret_value(secret, "password"), **texts)
        return kept, _secret_value(secret, "published")

    @property
    def password_differs(self) -> bool:
        """Another password is declared than is in force."""
        return self.found.kept.password != password_of(self.spec)

    @property
    def password_changing(self) -> bool:
        """A change was begun and has not ended."""
        return self.found.kept.next is not None or self.found.kept.previous is not None

    async def next_password(
        self, dial: Dial, seen: Seen, now: datetime, *, grace: float
    ) -> PasswordMove | None:
        """The next step of a change of the password, as far as the servers are with it."""
        servers = await read_keys(dial, seen.nodes, self.found.kept)
        published = self.found.published
        seconds = (now - datetime.fromisoformat(published)).total_seconds() if published else 0.0
        declared = self.found.kept.password if self.blocked is not None else password_of(self.spec)
        return next_password(
            self.found.kept, declared=declared, servers=servers, seconds=seconds, grace=grace
        )

    # --- the look ------------------------------------------------------------------------------------------

    async def snapshot(self, dial: Dial, now: datetime) -> Snapshot:
        """Ask the servers, and put everything together."""
        pods = self._pods()
        seen = await read_nodes(dial, pods, password=self.found.kept.password)
        wanted = self._wanted(seen)
        ids = {one.name or "": one.node_id or "" for one in self._status.conditions or () if one.node_id}
        slots = {
            one.node_id: parse(one.slots)
            for one in self._status.conditions or ()
            if one.node_id and one.slots
        }
        recorded = Recorded(
            formed=bool(self._status.formed_cluster_before),
            plan=self._status.slot_plan,
            ids=ids,
            slots=slots,
            leader=self._status.leader or "",
            missing={
                one.name or "": datetime.fromisoformat(one.last_transition_time)
                for one in self._status.conditions or ()
                if one.reason == POD_MISSING and one.last_transition_time
            },
        )
        places = {pod.name: self._place(pod) for pod in pods}
        return Snapshot(wanted=wanted, seen=seen, recorded=recorded, places=places, now=now)

    def _pods(self) -> list[Pod]:
        uid = (self.live.metadata.uid if self.live is not None else None) or ""
        return pods_of(
            self._around.pods(), component="redis", owner_uid=uid, claims={}, born=None, remedies=REMEDIES
        )

    def _place(self, pod: Pod) -> Place:
        node = self._around.node(pod.node) if pod.node else None
        zone = ((node.metadata.labels or {}) if node is not None else {}).get(ZONE, "")
        return Place(name=pod.name, ordinal=pod.ordinal, node=pod.node, zone=zone)

    def _wanted(self, seen: Seen) -> Wanted:
        """The declaration; what cannot be carried out leaves as many nodes as there are."""
        spec, strategy = self.spec, self.spec.update_strategy
        nodes = spec.replicas or self.there
        if self.blocked is None and self.there and nodes != self.there:
            nodes = self._resized(seen, nodes)
        if self.blocked is None and (why := self._unreadable(seen)):
            self.blocked = Blocked(reason="UpgradeFailed", message=why)
        if self.blocked is not None:
            nodes = self.there or nodes
        status = self.live.status if self.live is not None else None
        template = pod_of(spec).update_strategy
        return Wanted(
            nodes=nodes,
            pods=self.there,
            named=bool(strategy and strategy.type == NAMED),
            strategies=tuple((strategy.assign_strategies if strategy else None) or ()),
            pipeline=pipeline_of(spec),
            rate=self._rate(),
            stale_template=self.blocked is None and not self.specs.current(),
            revision=(status.update_revision if status else None) or "",
            pending=self._pending(),
            rolls=template is None or template.type != "OnDelete",
        )

    def _pending(self) -> bool:
        if self.live is None:
            return False
        taken_up = (self.live.status.observed_generation if self.live.status else None) or 0
        return taken_up < (self.live.metadata.generation or 0)

    def _rate(self) -> float:
        """What cannot be read held moving back before, most likely."""
        try:
            return rate_of(self._cluster)
        except ValueError:
            return SLOWEST

    def _unreadable(self, seen: Seen) -> str:
        """Why the declared version is not rolled out: it could not read the files there are."""
        image = self.specs.image
        versions = (one.server.version for one in seen.nodes if one.server is not None)
        newest = max(versions, key=file_format, default="")
        kept = file_format(newest) if newest else self._format_last_run()
        if self.specs.current() or not 0 < image_format(image) < kept:
            return ""
        newest = newest or self._image_in_place()
        field = "spec.pod[0].middlewareImage" if pod_of(self.spec).middleware_image else "spec.version"
        return (
            f"{field}: {image} cannot read the files of {newest}, which runs; nothing was changed. Give {newest} or a "
            "later version; to go back, make a new cluster and copy the data"
        )

    def _format_last_run(self) -> int:
        """What the files of a cluster are of in which nobody answers, as far as an image tells; 0 for unknown."""
        return image_format(self._image_in_place()) if self.formed else 0

    def _image_in_place(self) -> str:
        template = self.live.spec.template if self.live is not None and self.live.spec is not None else None
        return (main_container(template.spec, "redis").image if template and template.spec else None) or ""

    def _resized(self, seen: Seen, nodes: int) -> int:
        """Whether the slots can be moved as declared is known before any pod is made."""
        if self._status.slot_plan is not None:
            return nodes
        whole = bool(self._status.formed_cluster_before) and seen.covered == ALL
        if whole or 2 in (nodes, self.there):
            names = [one.id for one in seen.live]
            why = invalid_scaling(self.spec, nodes=self.there, owned=seen.owners, names=names)
            if why := why or immovable(seen, nodes=nodes, password=self.found.kept.password):
                self.blocked = Blocked(reason="InvalidArgs", message=why)
                return self.there
            return nodes
        # Unknown for now: nothing is added, and what is being taken out stays on its way.
        return min(nodes, self.there) if self._status.formed_cluster_before else nodes


def _secret_value(secret: core.Secret, key: str) -> str:
    try:
        return base64.b64decode((secret.data or {}).get(key, "")).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
