"""The child objects of a cluster: pure functions of its declaration and of what is there already.

A pod refers only to a content-named, immutable ConfigMap and to the Secret with the password. A template that exists is
left as it is until the planner writes it, and changes only when the user's inputs do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from mooring.actor import differs, digest
from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta, networking, policy
from mooring.operators.backup.run import BY
from mooring.operators.redis.address import TLS_PORT
from mooring.operators.redis.cluster import scripts
from mooring.operators.redis.cluster.names import (
    BUS_PORT,
    INPUTS,
    LINK,
    REDIS_PORT,
    REFUSED,
    Names,
    selector_of,
)
from mooring.operators.redis.cluster.overlay import GRACE_SECONDS, OURS, ours
from mooring.operators.redis.cluster.types import (
    RedisCluster,
    RedisClusterPod,
    RedisClusterSpec,
    image_of,
    pod_of,
    volumes_of,
)
from mooring.operators.redis.parameters import canonical, classify
from mooring.operators.redis.pods import (
    AUTH_FILES,
    DATA,
    EXPORTER_PORT,
    auth_volume,
    exporter,
    password_entries,
    server,
)
from mooring.operators.redis.shell import REDIS_LIVE
from mooring.operators.redis.tls import MARK, MOUNT, Held
from mooring.operators.redis.tls import volume as tls_volume
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.inputs import closes
from mooring.operators.redis.users.template import inputs_of
from mooring.operators.workload.autogrow import in_force
from mooring.operators.workload.containers import apart, config_volume, field_value, memory_volume
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.network import allow, of_labels, of_namespace
from mooring.operators.workload.network import policy as policy_of
from mooring.operators.workload.overlay import declared as declared_of
from mooring.operators.workload.overlay import overlaid
from mooring.operators.workload.statefulset import is_current, kept_or_written, on_delete, replicas_of
from mooring.operators.workload.volumes import Growth, claimed_volumes, claims_to_make, size_of, with_size

__all__ = ["DEFAULTS", "FORCED", "Found", "Orders", "Specs", "template_lines"]

HOST_PATH: Final = "/var/lib/redis-cluster"
DEFAULTS: Final = """\
tcp-keepalive 60
cluster-node-timeout 15000
cluster-require-full-coverage no
appendonly yes
auto-aof-rewrite-percentage 100
auto-aof-rewrite-min-size 64mb
repl-diskless-sync-delay 0
stop-writes-on-bgsave-error no
"""
"""What a template may say otherwise."""
FORCED: Final = """\
port 6379
protected-mode no
daemonize no
"""
_USERS: Final = frozenset(
    {"cluster-node-timeout", "cluster-require-full-coverage", "cluster-replica-validity-factor"}
)
BACKUP: Final = "redis-cluster-backup"
"""The actor whose Jobs read servers."""
RESTORE: Final = "redis-cluster-restore"
"""Whose Jobs load a backup into servers."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is there already, as far as it shapes what is wanted."""

    live: apps.StatefulSet | None = None
    shown_at: str = ""
    """The address of the Service that gives pods their names, where HarmonyCloud's operator made one for clients."""
    template: str = ""
    """The user's redis.conf."""
    kept: Kept = field(default_factory=Kept)
    """The passwords: the one in force, and those that are being exchanged."""
    access: Access = field(default_factory=Access, repr=False)
    """The users of servers."""
    tls: Held | None = field(default=None, repr=False)
    """The certificates, where servers take TLS."""
    published: str = ""
    """When the one in force came into force, as RFC 3339, while the one before is valid too."""
    operator: str = ""
    """The operator's namespace."""
    restoring: bool = False
    """The cluster begins with a backup and does not have its keys yet: there are no Services that clients could use."""


@dataclass(frozen=True, kw_only=True)
class Orders:
    """What a move changes about what is there."""

    replicas: int | None = None
    """Pods to have now; None leaves them as they are."""
    rewrite: bool = False
    """Write the pods' template again."""
    good: core.PodTemplateSpec | None = None
    """The template to put back."""
    inputs: str = ""
    """With ``good``: what to record as the inputs it was made from."""
    why: str = ""
    """Why it is put back."""
    turn: bool = False
    """The certificates take their next step."""
    kept: Kept | None = None
    """The passwords from now on; None leaves them as they are."""
    published: str = ""
    """With ``kept``: when the one in force came into force."""


class Specs:
    """The child objects of one cluster."""

    def __init__(self, cluster: RedisCluster, found: Found, orders: Orders | None = None) -> None:
        self._cluster = cluster
        self._found = found
        self._orders = orders or Orders()
        self._spec = cluster.spec or RedisClusterSpec()
        self._pod: RedisClusterPod = pod_of(self._spec)
        self._name = cluster.metadata.name or ""
        self._namespace = cluster.metadata.namespace or ""
        self.names = Names(self._name)
        spec = found.live.spec if found.live is not None else None
        self._selector = (spec and spec.selector and spec.selector.match_labels) or selector_of(self._name)

    @property
    def taken_over(self) -> bool:
        """HarmonyCloud's operator made the StatefulSet: it selects pods by labels of its own, for good."""
        return self._selector != selector_of(self._name)

    @property
    def image(self) -> str:
        """The redis image."""
        given = self._pod.middleware_image
        return self._prefixed(given) if given else image_of(self._spec)

    def _prefixed(self, image: str) -> str:
        """HarmonyCloud's operator put the repository before every image's name; we do where it ends in a slash."""
        before = self._spec.repository or ""
        return before + image if self.taken_over or before.endswith("/") else image

    def objects(self) -> list[Object]:
        """Everything the cluster consists of, in the order in which it is made."""
        services = [
            self._service(self.names.service, headless=not self._found.shown_at),
            self._service(self.names.entry, headless=False),
        ]
        return [
            *([] if self._found.restoring else services),
            self.config(),
            self.secret(),
            *self.tls_secrets(),
            self.stateful_set(),
            self._budget(),
            *self.network_policies(),
        ]

    # --- services, configuration, budget -------------------------------------------------------------------

    def _service(self, name: str, *, headless: bool) -> core.Service:
        own, bus = self._ports["redis"], self._ports["bus"]
        port = own if headless else self._spec.service_port or own
        ports = [core.ServicePort(name="redis", port=port, target_port=own, protocol="TCP")]
        if headless:
            ports.append(core.ServicePort(name="bus", port=bus, target_port=bus, protocol="TCP"))
        return core.Service(
            metadata=self._meta(name),
            spec=core.ServiceSpec(
                type="ClusterIP",
                cluster_ip="None" if headless else None,
                publish_not_ready_addresses=True if headless else None,
                selector=selector_of(self._name),
                ports=ports,
            ),
        )

    @property
    def _encrypted(self) -> bool:
        return self._found.tls is not None

    @property
    def _ports(self) -> dict[str, int]:
        if self._encrypted:
            return {"redis": TLS_PORT, "bus": TLS_PORT + BUS_PORT - REDIS_PORT}
        return {"redis": REDIS_PORT, "bus": BUS_PORT}

    def config(self) -> core.ConfigMap:
        """Scripts and configuration, named by content."""
        files = {
            "start.sh": scripts.START,
            "ready.sh": scripts.READY,
            "live.sh": REDIS_LIVE,
            "stop.sh": scripts.STOP,
            "defaults.conf": DEFAULTS,
            "forced.conf": FORCED,
        }
        if self._found.template:
            files["template.conf"] = "".join(f"{line}\n" for line in template_lines(self._found.template)[0])
        return core.ConfigMap(
            metadata=self._meta(f"{self._name}-{digest(files)[:10]}"), data=files, immutable=True
        )

    def secret(self) -> core.Secret:
        """The password in force; without one an empty one, so that a later one is not taken for it."""
        kept, published = self._found.kept, self._found.published
        if self._orders.kept is not None:
            kept, published = self._orders.kept, self._orders.published
        return core.Secret(
            metadata=self._meta(self.names.password),
            type="Opaque",
            data=password_entries(kept, self._found.access, tls=self._encrypted, published=published),
        )

    def tls_secrets(self) -> list[core.Secret]:
        """The certificate that pods mount, and the operator's authority where it made that."""
        held = self._found.tls
        if held is None:
            return []
        held = held.turned() if self._orders.turn else held
        secrets = [(self.names.tls_authority, held.made), (self.names.tls, held.data)]
        return [
            core.Secret(metadata=self._meta(name), type="Opaque", data=dict(data))
            for name, data in secrets
            if data is not None
        ]

    def _budget(self) -> policy.PodDisruptionBudget:
        """One at a time: a shard may have no more than one replica."""
        return policy.PodDisruptionBudget(
            metadata=self._meta(self._name),
            spec=policy.PodDisruptionBudgetSpec(
                max_unavailable=1, selector=meta.LabelSelector(match_labels=selector_of(self._name))
            ),
        )

    def network_policies(self) -> list[networking.NetworkPolicy]:
        """Who may connect: clients to the servers, and to the bus the nodes alone."""
        access = self._spec.network_policy
        if access is None or not access.enabled:
            return []
        members = of_labels(selector_of(self._name))
        known = [*access.client_peers(), members, of_namespace(self._found.operator)]
        rules = [
            *allow([*known, *(of_labels({BY: one}) for one in (BACKUP, RESTORE))], [REDIS_PORT, TLS_PORT]),
            *allow([members], [BUS_PORT, TLS_PORT + BUS_PORT - REDIS_PORT]),
        ]
        if self._pod.monitor_image:
            rules += access.scraping(EXPORTER_PORT)
        return [policy_of(self._meta(self._name), pods=selector_of(self._name), rules=rules)]

    # --- the StatefulSet -----------------------------------------------------------------------------------

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        pod = self._pod
        parts = (
            *(self.image, pod.image_pull_policy, pod.labels, pod.annotations, pod.env),
            *(pod.affinity, pod.resources, pod.monitor_image, volumes_of(self._spec), self._found.template),
            *(["tls"] if self._encrypted else []),
            *(["host network"] if pod.host_network else []),
            *(
                [{"pod template": added}] if (added := declared_of(self._spec.pod_template)) else []
            ),  # a further part would be a change for everybody
        )
        account = ["exporter account"] if pod.monitor_image and self._found.access.held.presents else []
        return inputs_of(
            [msgspec.to_builtins(one) for one in (*parts, *account)],
            self._found.live,
            INPUTS,
            closes=closes(self._spec.default_user),
        )

    def current(self) -> bool:
        """The template in place was made from the user's present inputs."""
        return bool(self.refused()) or is_current(self._found.live, INPUTS, self.inputs())

    def refused(self) -> str:
        """Why pods as they are declared now did not come up, so that the last good ones run; "" for no such thing."""
        live = self._found.live
        known = ((live.metadata.annotations if live else None) or {}).get(REFUSED, "")
        digest_of, _, why = known.partition(" ")
        return why if digest_of == self.inputs() else ""

    def stateful_set(self) -> apps.StatefulSet:
        """The nodes."""
        live, inputs, orders = self._found.live, self.inputs(), self._orders
        there = live.spec.replicas if live is not None and live.spec is not None else None
        template = kept_or_written(live, self._template(), rewrite=orders.rewrite)
        if live is not None and orders.good is not None:
            inputs, template = orders.inputs, orders.good
        elif live is not None and not orders.rewrite:
            inputs = (live.metadata.annotations or {}).get(INPUTS, inputs)
        wanted = self._orders.replicas if self._orders.replicas is not None else there
        annotations = {INPUTS: inputs, LINK: self._name}
        if refused := self._orders.why or self.refused():
            annotations[REFUSED] = f"{self.inputs()} {refused}"
        return on_delete(
            replace(self._meta(self._name), annotations=annotations),
            replicas=self._spec.replicas if wanted is None else wanted,
            service=self.names.service,
            selector=selector_of(self._name),
            template=template,
            claims=self._claims(),
            found=live,
        )

    def _claims(self) -> list[core.PersistentVolumeClaim] | None:
        """Those of the StatefulSet there is, which nothing can change any more; else the declared ones."""
        live = self._found.live
        if live is not None and live.spec is not None:
            return live.spec.volume_claim_templates
        return self.declared_claims()

    def declared_claims(self) -> list[core.PersistentVolumeClaim] | None:
        """The claims of each pod as declared; the first of them, with the data, may have grown beyond that."""
        made = [
            core.PersistentVolumeClaim(
                metadata=meta.ObjectMeta(
                    name=one.metadata.name or DATA,
                    labels={**(one.metadata.labels or {}), **selector_of(self._name)},
                    annotations=one.metadata.annotations,
                ),
                spec=one.spec,
            )
            for one in self._spec.volume_claim_templates or ()
        ]
        if not made:
            return None
        storage, status = self._spec.storage, self._cluster.status
        given, size = storage.autogrow if storage is not None else None, size_of(made[0])
        grown = in_force(given, status.autogrow if status is not None else None, size)
        return made if grown == size else [with_size(made[0], grown), *made[1:]]

    def growth(
        self, claims: Mapping[str, core.PersistentVolumeClaim], refused: Mapping[str, str] | None = None
    ) -> Growth:
        """The sizes of the claims of all pods, beside the declared ones."""
        kept = {one.metadata.name for one in self._claims() or ()}
        wanted = [one for one in self.declared_claims() or () if one.metadata.name in kept]
        number = max(self._spec.replicas or 0, self._there)
        return Growth(
            where="spec.volumeClaimTemplates",
            autogrow="spec.storage.autogrow",
            data=self._data_volume()[0],
            volumes=claimed_volumes(wanted, [self.names.pod(at) for at in range(number)], claims),
            refused=refused or {},
        )

    def claims_to_make(
        self, replicas: int, claims: Mapping[str, core.PersistentVolumeClaim]
    ) -> list[core.PersistentVolumeClaim]:
        """Claims that pods to come would get too small: the StatefulSet makes them as it was made itself."""
        pods = [self.names.pod(at) for at in range(self._there, replicas)]
        wanted = self.declared_claims() or ()
        return claims_to_make(self._found.live, wanted, pods, claims, namespace=self._namespace)

    @property
    def _there(self) -> int:
        return replicas_of(self._found.live)

    def _template(self) -> core.PodTemplateSpec:
        pod = self._pod
        containers = [self._redis()]
        if pod.monitor_image:
            image, policy = self._prefixed(pod.monitor_image), pod.image_pull_policy or "IfNotPresent"
            account = self._found.access.held.presents
            containers.append(exporter(image, pull_policy=policy, tls=self._encrypted, account=account))
        made = core.PodTemplateSpec(
            metadata=meta.ObjectMeta(
                labels={**(pod.labels or {}), **self._selector, **selector_of(self._name)},
                annotations={**(pod.annotations or {}), MARK: "required"}
                if self._encrypted
                else pod.annotations,
            ),
            spec=core.PodSpec(
                affinity=self._affinity(),
                termination_grace_period_seconds=GRACE_SECONDS,
                host_network=pod.host_network or None,
                dns_policy="ClusterFirstWithHostNet" if pod.host_network else None,
                automount_service_account_token=False,
                containers=containers,
                volumes=self._volumes(),
            ),
        )
        return overlaid(made, self._spec.pod_template, ours(self._spec))

    def _redis(self) -> core.Container:
        pod = self._pod
        data, below = self._data_volume()
        made = server(
            image=self.image,
            pull_policy=pod.image_pull_policy or "IfNotPresent",
            env=[*self._identity(), *(one for one in pod.env or () if one.name not in OURS)],
            ports=self._ports,
            data=core.VolumeMount(name=data, mount_path="/data", sub_path_expr=below),
            stop="stop.sh",
            ready_period=2,
            resources=pod.resources,
        )
        mounts = [*(made.volume_mounts or ()), *([MOUNT] if self._encrypted else [])]
        return replace(made, volume_mounts=mounts)

    def _identity(self) -> list[core.EnvVar]:
        pair = self._spec.replicas == 2
        return [
            core.EnvVar(name="POD_NAME", value_from=field_value("metadata.name")),
            core.EnvVar(name="POD_IP", value_from=field_value("status.podIP")),
            core.EnvVar(name="PODIP", value_from=field_value("status.podIP")),
            core.EnvVar(name="NAMESPACE", value_from=field_value("metadata.namespace")),
            core.EnvVar(name="REDIS_CLUSTER_NAME", value=self._name),
            core.EnvVar(name="DOMAINNAME", value=f"{self.names.service}.{self._namespace}.svc.cluster.local"),
            core.EnvVar(name="MODE", value="pair" if pair else "cluster"),
        ]

    # --- volumes -------------------------------------------------------------------------------------------

    def _data_volume(self) -> tuple[str, str | None]:
        """Name of the volume with the data, and the pod's own directory on it where it is shared."""
        if claims := self._claims():
            return claims[0].metadata.name or DATA, None
        volumes = volumes_of(self._spec)
        shared = volumes is not None and volumes.type in ("hostPath", "nfs")
        return DATA, "$(POD_NAME)" if shared else None

    def data_volume(self) -> core.Volume | None:
        """The volume with the data, unless every pod has a claim for it."""
        return None if self._claims() else self._volumes()[-1]

    def _volumes(self) -> list[core.Volume]:
        made = [
            config_volume("conf", self.config().metadata.name or ""),
            auth_volume(self.names.password, *AUTH_FILES),
            memory_volume(),
            *([tls_volume(self.names.tls)] if self._encrypted else []),
        ]
        if self._claims():
            return made
        volumes = volumes_of(self._spec)
        kind = volumes.type if volumes else None
        if kind == "nfs" and volumes is not None:
            claim = core.PersistentVolumeClaimVolumeSource(
                claim_name=volumes.persistent_volume_claim_name or ""
            )
            return [*made, core.Volume(name=DATA, persistent_volume_claim=claim)]
        if kind == "hostPath":
            path = core.HostPathVolumeSource(
                path=f"{HOST_PATH}/{self._namespace}/{self._name}", type="DirectoryOrCreate"
            )
            return [*made, core.Volume(name=DATA, host_path=path)]
        return [*made, core.Volume(name=DATA, empty_dir=core.EmptyDirVolumeSource())]

    def _affinity(self) -> core.Affinity:
        """The user's, or one host each where possible."""
        if self._pod.affinity is not None and differs(self._pod.affinity, core.Affinity()):
            return self._pod.affinity
        return apart(selector_of(self._name))

    def _meta(self, name: str) -> meta.ObjectMeta:
        labels = {**(self._cluster.metadata.labels or {}), **selector_of(self._name)}
        return meta.ObjectMeta(name=name, namespace=self._namespace, labels=labels)


def template_lines(text: str) -> tuple[list[str], list[str]]:
    """The lines of a redis.conf that count, and the keys in it that the operator decides and leaves out."""
    kept, dropped = [], []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        key = canonical(words[0])
        if key not in _USERS and classify(key) == "forbidden":
            dropped.append(words[0])
        else:
            kept.append(line.strip())
    return kept, dropped
