"""The child objects of a cluster: pure functions of its declaration and of what is there already.

A pod refers only to content-named, immutable ConfigMaps and to two fixed names: the live keys and the password
in force. A template that exists is left as it is until the planner begins a roll, and differs only when the
user's inputs did: an operator upgrade restarts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec
from msgspec.structs import replace

from mooring.actor import differs, digest
from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta, networking, policy
from mooring.operators.backup.run import BY
from mooring.operators.redis.address import SENTINEL_TLS_PORT, TLS_PORT
from mooring.operators.redis.pods import (
    AUTH_FILES,
    DATA,
    EXPORTER_PORT,
    MOUNTS,
    auth_volume,
    exporter,
    password_entries,
    server,
)
from mooring.operators.redis.sentinel import scripts
from mooring.operators.redis.sentinel.lineage import Lineage
from mooring.operators.redis.sentinel.names import INPUTS, ROLE, Component, Names, labels_of, selector_of
from mooring.operators.redis.sentinel.overlay import GRACE_SECONDS, ours, overlay_of
from mooring.operators.redis.sentinel.settings import base_conf, first_live, render_live, restart_keys
from mooring.operators.redis.sentinel.topology import GATE, REDIS_PORT, SENTINEL_PORT
from mooring.operators.redis.sentinel.types import (
    RedisCluster,
    RedisClusterSpec,
    RedisExporter,
    RedisStorage,
    RoleServices,
    SentinelSettings,
    spec_of,
)
from mooring.operators.redis.tls import MARK, MARKS, MOUNT, Held, Ports, Transport
from mooring.operators.redis.tls import volume as tls_volume
from mooring.operators.redis.users.held import Access
from mooring.operators.redis.users.inputs import closes
from mooring.operators.redis.users.template import inputs_of
from mooring.operators.workload.autogrow import in_force
from mooring.operators.workload.claims import claim_name
from mooring.operators.workload.containers import (
    FROM_LOG,
    apart,
    config_volume,
    field_value,
    memory_volume,
    probe,
)
from mooring.operators.workload.credentials import Kept
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.network import allow, of_labels, of_namespace
from mooring.operators.workload.network import policy as policy_of
from mooring.operators.workload.overlay import declared as declared_of
from mooring.operators.workload.overlay import merged, overlaid, read_security
from mooring.operators.workload.services import ServiceSpec
from mooring.operators.workload.statefulset import is_current, on_delete, replicas_of
from mooring.operators.workload.volumes import (
    Growth,
    claimed_volumes,
    claims_to_make,
    size_of,
    sized_as,
    with_size,
)

__all__ = ["Found", "Specs", "gate_arguments"]

_CLAIM = "spec.storage.persistentVolumeClaim"
BACKUP = "redis-sentinel-backup"
"""The actor whose Jobs read servers."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is there already, as far as it shapes what is wanted."""

    redis: apps.StatefulSet | None = None
    sentinel: apps.StatefulSet | None = None
    live: str | None = None
    """Text of the live keys in force."""
    kept: Kept = field(default_factory=Kept)
    """The passwords: as the cluster's Secret has them, or for a new cluster as declared."""
    shutdown: str | None = None
    """The user's shutdown.sh, copied."""
    read_at_start: frozenset[str] = frozenset()
    """Keys of the user's that the servers refused to change live."""
    memory: int = 0
    """Bytes that every redis container may use; 0 without a limit."""
    lineage: Lineage | None = None
    access: Access = field(default_factory=Access, repr=False)
    """The users of servers."""
    tls: Held | None = field(default=None, repr=False)
    """The certificates, where servers take TLS or are to."""
    transport: Transport = "plain"
    """What servers and sentinels use among themselves."""
    ports: Ports = "plain"
    """Which ports the next template opens."""
    open: Ports = "plain"
    """Which ports any pod has open."""
    operator: str = ""
    """The operator's namespace."""
    lineage_kept: bool = False
    """The record beside the claims is there already."""


class Specs:
    """The child objects of one cluster; ``orders`` is what a move changes about them."""

    def __init__(self, cluster: RedisCluster, found: Found, orders: Orders | None = None) -> None:
        self._cluster = cluster
        self._found = found
        self._orders = orders or Orders()
        self._spec: RedisClusterSpec = spec_of(cluster)
        self._sentinel: SentinelSettings = self._spec.sentinel or SentinelSettings()
        self._namespace = cluster.metadata.namespace or ""
        self._name = cluster.metadata.name or ""
        self.names = Names(self._name)

    # --- all of them ---------------------------------------------------------------------------------------

    def objects(self) -> list[Object]:
        """Everything the cluster consists of, in the order in which it is made."""
        made: list[Object] = [
            self.redis_service(),
            self.sentinel_service(),
            self.sentinel_headless_service(),
            self.role_service("master"),
            self.role_service("replica"),
            *self.legacy_config_maps(),
            self.redis_config(),
            self.sentinel_config(),
            self.live_config(),
            self.password_secret(),
            *self.tls_secrets(),
            self.redis_set(),
            self.sentinel_set(),
            self.budget("redis"),
            self.budget("sentinel"),
            *self.network_policies(),
        ]
        if self._found.lineage is not None and (self.keeps_claims or self._found.lineage_kept):
            made.append(self.lineage_record(self._found.lineage))
        return made

    @property
    def keeps_claims(self) -> bool:
        """Claims outlive the cluster: unless the user wrote ``keepAfterDeletion: false``."""
        storage = self._spec.storage or RedisStorage()
        return self.claimed and storage.keep_after_deletion is not False

    def unowned(self) -> list[tuple[type[Object], str]]:
        """Children that stay when the cluster goes: what tells whose data is on kept claims."""
        return [(core.ConfigMap, self.names.lineage)] if self.keeps_claims else []

    # --- services and budgets ------------------------------------------------------------------------------

    @property
    def _encrypted(self) -> bool:
        """The next pods take TLS."""
        return self._found.ports != "plain"

    def redis_service(self) -> core.Service:
        """The data pods, headless."""
        return self._service(self.names.redis, "redis", headless=True)

    def sentinel_service(self) -> core.Service:
        """The clients' entry."""
        return self._service(self.names.sentinel, "sentinel", headless=False)

    def sentinel_headless_service(self) -> core.Service:
        """Gives the sentinel pods their names."""
        return self._service(self.names.sentinel_headless, "sentinel", headless=True)

    def role_service(self, role: Literal["master", "replica"]) -> core.Service:
        """For clients that do not ask sentinels: the master, or all replicas."""
        name = self.names.master if role == "master" else self.names.replica
        services = self._spec.services or RoleServices()
        given = (services.master if role == "master" else services.replica) or ServiceSpec()
        made = self._service(name, "redis", headless=False)
        assert made.spec is not None
        return replace(
            made,
            metadata=replace(made.metadata, annotations=given.annotations),
            spec=replace(
                made.spec,
                type=given.type or "ClusterIP",
                selector={**self._selector("redis"), ROLE: role},
            ),
        )

    def _service(self, name: str, component: Component, *, headless: bool) -> core.Service:
        ports = _ports(component, self._found.open)
        return core.Service(
            metadata=self._meta(name, component),
            spec=core.ServiceSpec(
                type="ClusterIP",
                cluster_ip="None" if headless else None,
                selector=self._selector(component),
                ports=[
                    core.ServicePort(name=name, port=port, target_port=port, protocol="TCP")
                    for name, port in ports.items()
                ],
            ),
        )

    def budget(self, component: Component) -> policy.PodDisruptionBudget:
        """A majority stays; two of three, as it always was."""
        size = (self._spec.size if component == "redis" else self._sentinel.replicas) or 3
        return policy.PodDisruptionBudget(
            metadata=self._meta(self.names.set_of(component), component),
            spec=policy.PodDisruptionBudgetSpec(
                min_available=max(2, size // 2 + 1),
                selector=meta.LabelSelector(match_labels=self._selector(component)),
            ),
        )

    def network_policies(self) -> list[networking.NetworkPolicy]:
        """Who may connect: clients to servers and to the sentinels, which name the master to them."""
        access = self._spec.network_policy
        if access is None or not access.enabled:
            return []
        members = {
            name: text for name, text in self._selector("redis").items() if not name.endswith("/component")
        }
        known = [*access.client_peers(), of_labels(members), of_namespace(self._found.operator)]
        servers = allow([*known, of_labels({BY: BACKUP})], [REDIS_PORT, TLS_PORT])
        if self._exporter is not None:
            servers += access.scraping(EXPORTER_PORT)
        return [
            policy_of(self._meta(self.names.redis, "redis"), pods=self._selector("redis"), rules=servers),
            policy_of(
                self._meta(self.names.sentinel, "sentinel"),
                pods=self._selector("sentinel"),
                rules=allow(known, [SENTINEL_PORT, SENTINEL_TLS_PORT]),
            ),
        ]

    # --- configuration -------------------------------------------------------------------------------------

    def redis_config(self) -> core.ConfigMap:
        """Scripts and restart-only configuration, named by content."""
        return self._content_named(self.names.redis, "redis", self._redis_files())

    def sentinel_config(self) -> core.ConfigMap:
        """The sentinels' scripts and configuration, named by content."""
        return self._content_named(self.names.sentinel, "sentinel", self._sentinel_files())

    def _redis_files(self) -> dict[str, str]:
        return {
            "redis.conf": base_conf(self._spec, self._found.read_at_start),
            "start.sh": scripts.REDIS_START,
            "ready.sh": scripts.REDIS_READY,
            "live.sh": scripts.REDIS_LIVE,
            "shutdown.sh": self._found.shutdown or scripts.PRE_STOP,
        }

    def _sentinel_files(self) -> dict[str, str]:
        return {
            "sentinel.conf": "port 26379\ndaemonize no\nprotected-mode no\ndir /tmp\n",
            "start.sh": scripts.SENTINEL_START,
            "ready.sh": scripts.SENTINEL_READY,
            "live.sh": scripts.SENTINEL_LIVE,
        }

    def _content_named(self, prefix: str, component: Component, files: dict[str, str]) -> core.ConfigMap:
        return core.ConfigMap(
            metadata=self._meta(f"{prefix}-{digest(files)[:10]}", component), data=files, immutable=True
        )

    def live_config(self) -> core.ConfigMap:
        """The live keys in force; what is there stays until servers accepted something else."""
        text = self._found.live if self._orders.live is None else self._orders.live
        if text is None:
            born = self._found.redis is None
            text = render_live(first_live(self._spec, born=born, memory=self._found.memory))
        return core.ConfigMap(metadata=self._meta(self.names.live, "redis"), data={"live.conf": text})

    def password_secret(self) -> core.Secret:
        """The password in force, the same for the exporter, and those of a change."""
        kept = self._orders.kept or self._found.kept
        return core.Secret(
            metadata=self._meta(self.names.password, "redis"),
            type="Opaque",
            data=password_entries(
                kept, self._found.access, tls=self._found.tls is not None, sentinel=kept.sentinel
            ),
        )

    def tls_secrets(self) -> list[core.Secret]:
        """The certificate that pods mount, and the operator's authority where it made that."""
        held = self._found.tls
        if held is None:
            return []
        held = held.turned() if self._orders.turn else held
        secrets = [(self.names.tls_authority, held.made), (self.names.tls, held.data)]
        return [
            core.Secret(metadata=self._meta(name, "redis"), type="Opaque", data=dict(data))
            for name, data in secrets
            if data is not None
        ]

    def lineage_record(self, lineage: Lineage) -> core.ConfigMap:
        """Whose data is on the kept claims; without an owner, so that it stays with them."""
        return core.ConfigMap(
            metadata=self._meta(self.names.lineage, "redis"),
            data={"lineage.json": msgspec.json.encode(lineage).decode()},
        )

    def legacy_config_maps(self) -> list[core.ConfigMap]:
        """Names that UCloud's operator made; no pod of ours mounts them."""
        files = self._sentinel_files()
        return [
            core.ConfigMap(
                metadata=self._meta(self.names.sentinel, "sentinel"),
                data={"sentinel.conf": files["sentinel.conf"]},
            ),
            core.ConfigMap(
                metadata=self._meta(self.names.readiness, "sentinel"),
                data={"readiness.sh": files["ready.sh"]},
            ),
            core.ConfigMap(
                metadata=self._meta(self.names.shutdown, "redis"),
                data={"shutdown.sh": self._found.shutdown or scripts.PRE_STOP},
            ),
        ]

    # --- the two StatefulSets ------------------------------------------------------------------------------

    def inputs(self, component: Component) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any.

        Restart-only keys of spec.config are among it where the policy is to roll them; else they are reported,
        and wait for the next roll.
        """
        redis = component == "redis"
        of = self._spec if redis else self._sentinel
        decided: list[object] = [
            *(of.image, of.image_pull_policy, of.image_pull_secrets, of.command, of.resources, of.affinity),
            *(of.security_context, of.node_selector, self._tolerations(component), of.annotations),
        ]
        if redis:
            decided += [self._exporter, self._found.shutdown]
        plain = [msgspec.to_builtins(one) for one in decided]
        if added := declared_of(overlay_of(self._spec, component)):
            plain.append({"pod template": added})
        if self._encrypted:
            plain.append("tls" if self._found.ports == "tls" else "tls and plain")
        keys = restart_keys(self._spec, self._found.read_at_start)
        if redis and keys and self._spec.config_policy == "roll":
            plain.append(keys)
        if not redis:
            return digest(plain)
        if self._exporter is not None and self._found.access.held.presents:
            plain.append("exporter account")
        closed = closes(self._spec.default_user)
        return inputs_of(plain, self._found.redis, INPUTS, closes=closed)

    def _tolerations(self, component: Component) -> list[core.Toleration] | None:
        """UCloud spells those of the servers in its own way."""
        return self._spec.tole_rations if component == "redis" else self._sentinel.tolerations

    def current(self, component: Component) -> bool:
        """The template in place was made from the user's present inputs (or by somebody else)."""
        return is_current(self._live(component), INPUTS, self.inputs(component))

    def redis_set(self) -> apps.StatefulSet:
        """The data servers."""
        template = self._template("redis", self._redis_pod())
        return self._set("redis", template=template, claims=self._claims(), service=self.names.redis)

    def sentinel_set(self) -> apps.StatefulSet:
        """The sentinels."""
        template = self._template("sentinel", self._sentinel_pod())
        return self._set("sentinel", template=template, claims=None, service=self.names.sentinel_headless)

    def _live(self, component: Component) -> apps.StatefulSet | None:
        return self._found.redis if component == "redis" else self._found.sentinel

    def _keeps_template(self, component: Component) -> bool:
        return self._live(component) is not None and component not in self._orders.templates

    def _template(self, component: Component, fresh: core.PodTemplateSpec) -> core.PodTemplateSpec:
        live = self._live(component)
        if live is None or live.spec is None or live.spec.template is None:
            return fresh
        if not self._keeps_template(component) or not differs(fresh, live.spec.template):
            return fresh
        return live.spec.template

    def _set(
        self,
        component: Component,
        *,
        template: core.PodTemplateSpec,
        claims: list[core.PersistentVolumeClaim] | None,
        service: str,
    ) -> apps.StatefulSet:
        live = self._live(component)
        wanted = (self._spec.size if component == "redis" else self._sentinel.replicas) or 3
        there = live.spec.replicas if live is not None and live.spec is not None else None
        replicas = self._orders.replicas.get(component, wanted if there is None else there)
        inputs = self.inputs(component)
        if live is not None and self._keeps_template(component):
            inputs = (live.metadata.annotations or {}).get(INPUTS, inputs)
        metadata = self._meta(self.names.set_of(component), component)
        return on_delete(
            replace(metadata, annotations={INPUTS: inputs}),
            replicas=replicas,
            service=service,
            selector=self._selector(component),
            template=template,
            claims=claims,
            found=live,
        )

    # --- volumes -------------------------------------------------------------------------------------------

    def _claims(self) -> list[core.PersistentVolumeClaim] | None:
        claim = self._declared_claim
        if claim is None:
            return None
        labels = {**(claim.metadata.labels or {}), **self._selector("redis")}
        metadata = meta.ObjectMeta(
            name=claim.metadata.name or DATA, labels=labels, annotations=claim.metadata.annotations
        )
        made = core.PersistentVolumeClaim(metadata=metadata, spec=claim.spec)
        storage, status = self._spec.storage, self._cluster.status
        given = storage.autogrow if storage is not None else None
        size = in_force(given, status.autogrow if status is not None else None, size_of(made))
        return [with_size(made, size) if size != size_of(made) else made]

    def growth(
        self, claims: Mapping[str, core.PersistentVolumeClaim], refused: Mapping[str, str] | None = None
    ) -> Growth:
        """The sizes of the claims of all pods, beside the declared one."""
        wanted, there = self._claims() or [], self._claim
        alike = there is not None and bool(wanted) and wanted[0].metadata.name == self.volume_name
        return Growth(
            where=f"{_CLAIM}.spec.resources.requests.storage",
            autogrow="spec.storage.autogrow",
            data=self.volume_name,
            volumes=claimed_volumes(wanted if alike else (), self._pods(self._size), claims),
            refused=refused or {},
        )

    def claims_to_make(
        self, replicas: int, claims: Mapping[str, core.PersistentVolumeClaim]
    ) -> list[core.PersistentVolumeClaim]:
        """Claims that pods to come would get too small: the StatefulSet makes them as it was made itself."""
        pods = self._pods(replicas)[self._there :]
        wanted = self._claims() or []
        return claims_to_make(self._found.redis, wanted, pods, claims, namespace=self._namespace)

    @property
    def _there(self) -> int:
        return replicas_of(self._found.redis)

    @property
    def _size(self) -> int:
        return max(self._spec.size or 3, self._there)

    def _pods(self, number: int) -> list[str]:
        return [self.names.pod("redis", ordinal) for ordinal in range(number)]

    def first_claim(self) -> core.PersistentVolumeClaim:
        """The claim of the first pod, as the StatefulSet would make it: a restore fills it before there is a pod."""
        template = (self._claims() or [core.PersistentVolumeClaim()])[0]
        name = claim_name(self.volume_name, self.names.pod("redis", 0))
        return replace(template, metadata=replace(template.metadata, name=name, namespace=self._namespace))

    @property
    def _declared_claim(self) -> core.PersistentVolumeClaim | None:
        return self._spec.storage.persistent_volume_claim if self._spec.storage else None

    @property
    def _claim(self) -> core.PersistentVolumeClaim | None:
        """The template of the claims; that of an existing set cannot be changed, whatever is declared."""
        live = self._found.redis
        if live is None or live.spec is None:
            return self._declared_claim
        return next(iter(live.spec.volume_claim_templates or ()), None)

    @property
    def claimed(self) -> bool:
        """Whether the pods keep their data on claims."""
        return self._claim is not None

    @property
    def volume_name(self) -> str:
        """The pods' volume with the data; a claim's name begins with it."""
        claim = self._claim
        return (claim.metadata.name if claim is not None else None) or DATA

    def unlike_declared(self, claims: Mapping[str, core.PersistentVolumeClaim]) -> str:
        """What spec.storage asks for and the volumes that are there do not give, with the remedy; or ""."""
        wanted, there, where = self._declared_claim, self._claim, _CLAIM
        if (wanted is None) is not (there is None):
            made = "with" if there is not None else "without"
            return (
                f"{where}: the pods were made {made} claims and keep their volumes; put it back, or move the data "
                "to a new cluster"
            )
        if wanted is None or there is None:
            return ""
        if (wanted.metadata.name or DATA) != self.volume_name:
            return f"{where}.metadata.name: the claims that hold the data are named {self.volume_name}; put it back"
        for ordinal in range(self._spec.size or 3):
            name = claim_name(self.volume_name, self.names.pod("redis", ordinal))
            given = claims[name].spec if name in claims else None
            if given is None or wanted.spec is None:
                continue
            if path := differs(sized_as(wanted.spec, given), given):
                return (
                    f"{where}.spec: the claim {name} has another value of {path}; only the size of a claim can be "
                    "changed: put it back, or move the data to a new cluster"
                )
        return ""

    # --- the pods ------------------------------------------------------------------------------------------

    @property
    def _exporter(self) -> RedisExporter | None:
        exporter = self._spec.exporter
        return exporter if exporter is not None and exporter.enabled else None

    def _redis_pod(self) -> core.PodTemplateSpec:
        spec = self._spec
        containers = [self._redis_container()]
        if self._exporter is not None:
            containers.append(self._exporter_container(self._exporter))
        volumes = [
            config_volume("conf", self.redis_config().metadata.name or ""),
            config_volume("live", self.names.live),
            auth_volume(self.names.password, *AUTH_FILES),
            memory_volume(),
        ]
        if self._encrypted:
            volumes.append(tls_volume(self.names.tls))
        if not self.claimed:
            empty = (spec.storage.empty_dir if spec.storage else None) or core.EmptyDirVolumeSource()
            volumes.append(core.Volume(name=DATA, empty_dir=empty))
        return self._pod(
            "redis",
            core.PodSpec(
                termination_grace_period_seconds=GRACE_SECONDS, containers=containers, volumes=volumes
            ),
        )

    def _pod(self, component: Component, pod: core.PodSpec) -> core.PodTemplateSpec:
        """The template of a component's pods, with what the user declares of them."""
        of = self._spec if component == "redis" else self._sentinel
        made = core.PodTemplateSpec(
            metadata=meta.ObjectMeta(
                labels=self._labels(component),
                annotations={**(of.annotations or {}), MARK: MARKS[self._found.ports]}
                if self._encrypted
                else of.annotations,
            ),
            spec=replace(
                pod,
                affinity=of.affinity or apart(self._selector(component)),
                security_context=of.security_context,
                node_selector=of.node_selector,
                tolerations=self._tolerations(component),
                image_pull_secrets=of.image_pull_secrets,
                automount_service_account_token=False,
            ),
        )
        return overlaid(made, overlay_of(self._spec, component), ours(self._spec, component))

    def _security(self, component: Component) -> core.PodSecurityContext | None:
        """Of the pods, with what the overlay says."""
        of = self._spec if component == "redis" else self._sentinel
        return merged(of.security_context, read_security(overlay_of(self._spec, component)))

    def _redis_container(self) -> core.Container:
        spec = self._spec
        data = core.VolumeMount(name=self.volume_name, mount_path="/data")
        made = server(
            image=spec.image,
            pull_policy=spec.image_pull_policy,
            env=[
                *self._identity(),
                core.EnvVar(name="SENTINEL_HOST", value=self.names.sentinel),
                *self._keep_plain,
            ],
            ports=_ports("redis", self._found.ports),
            data=data,
            stop="shutdown.sh",
            ready_period=5,
            resources=spec.resources,
        )
        conf, *others = MOUNTS
        live = core.VolumeMount(name="live", mount_path="/mooring/live", read_only=True)
        return replace(
            made,
            command=spec.command or made.command,
            args=list(gate_arguments()),
            volume_mounts=[conf, live, *others, *self._tls_mounts, data],
            security_context=_unprivileged(self._security("redis")),
        )

    @property
    def _tls_mounts(self) -> list[core.VolumeMount]:
        return [MOUNT] if self._encrypted else []

    @property
    def _keep_plain(self) -> list[core.EnvVar]:
        """With both ports open, which one servers use among themselves at first."""
        if self._found.ports != "both":
            return []
        return [core.EnvVar(name="KEEP_PLAIN", value=self._found.transport)]

    def _exporter_container(self, declared: RedisExporter) -> core.Container:
        return exporter(
            declared.image,
            pull_policy=declared.image_pull_policy or "Always",
            resources=core.ResourceRequirements(
                requests={"cpu": "50m", "memory": "50Mi"}, limits={"cpu": "100m", "memory": "200Mi"}
            ),
            security_context=_unprivileged(self._security("redis")),
            tls=self._encrypted,
            account=self._found.access.held.presents,
        )

    def _sentinel_pod(self) -> core.PodTemplateSpec:
        sentinel = self._sentinel
        container = core.Container(
            name="sentinel",
            image=sentinel.image,
            image_pull_policy=sentinel.image_pull_policy,
            command=sentinel.command or ["sh", "/mooring/conf/start.sh"],
            termination_message_policy=FROM_LOG,
            env=[*self._identity(), *self._keep_plain],
            ports=[
                core.ContainerPort(name=name, container_port=port, protocol="TCP")
                for name, port in _ports("sentinel", self._found.ports).items()
            ],
            resources=sentinel.resources
            or core.ResourceRequirements(
                requests={"cpu": "20m", "memory": "16Mi"}, limits={"cpu": "100m", "memory": "60Mi"}
            ),
            startup_probe=probe("live.sh", period=1, failures=60),
            liveness_probe=probe("live.sh", period=10, failures=6),
            readiness_probe=probe("ready.sh", period=5, failures=2),
            volume_mounts=[*MOUNTS, *self._tls_mounts],
            security_context=_unprivileged(self._security("sentinel")),
        )
        copy = core.Container(
            name="sentinel-config-copy",
            image=sentinel.image,
            image_pull_policy=sentinel.image_pull_policy,
            command=["sh", "/mooring/conf/start.sh"],
            env=[*self._identity(), core.EnvVar(name="RENDER_ONLY", value="1")],
            resources=core.ResourceRequirements(
                requests={"cpu": "10m", "memory": "32Mi"}, limits={"cpu": "10m", "memory": "32Mi"}
            ),
            volume_mounts=list(MOUNTS),
            security_context=_unprivileged(self._security("sentinel")),
        )
        volumes = [
            config_volume("conf", self.sentinel_config().metadata.name or ""),
            auth_volume(self.names.password, "sentinel"),
            memory_volume(),
            *([tls_volume(self.names.tls)] if self._encrypted else []),
        ]
        copies = [copy] if sentinel.command else None
        return self._pod(
            "sentinel", core.PodSpec(init_containers=copies, containers=[container], volumes=volumes)
        )

    def _identity(self) -> list[core.EnvVar]:
        return [
            core.EnvVar(name="POD_IP", value_from=field_value("status.podIP")),
            core.EnvVar(name="POD_NAME", value_from=field_value("metadata.name")),
            core.EnvVar(name="POD_NAMESPACE", value_from=field_value("metadata.namespace")),
            core.EnvVar(name="CLUSTER_UID", value=self._cluster.metadata.uid or ""),
        ]

    # --- metadata ------------------------------------------------------------------------------------------

    def _meta(self, name: str, component: Component) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=name, namespace=self._namespace, labels=self._labels(component))

    def _labels(self, component: Component) -> dict[str, str]:
        return labels_of(self._namespace, self._name, component, self._cluster.metadata.labels)

    def _selector(self, component: Component) -> dict[str, str]:
        return selector_of(self._namespace, self._name, component)


def _ports(component: Component, opened: Ports) -> dict[str, int]:
    """Ports by name, for pods and Services."""
    plain, encrypted = (REDIS_PORT, TLS_PORT) if component == "redis" else (SENTINEL_PORT, SENTINEL_TLS_PORT)
    if opened == "both":
        return {component: plain, f"{component}-tls": encrypted}
    return {component: encrypted if opened == "tls" else plain}


def _unprivileged(pod: core.PodSecurityContext | None) -> core.SecurityContext | None:
    """What the restricted pod security standard wants of containers, for pods that do not run as root.

    Those that do need root's capabilities: a stock image as it comes.
    """
    if pod is None or not pod.run_as_non_root:
        return None
    return core.SecurityContext(
        allow_privilege_escalation=False, capabilities=core.Capabilities(drop=["ALL"])
    )


def gate_arguments() -> tuple[str, ...]:
    """Arguments of every start of a data container: a replica of the placeholder address, not eligible as master."""
    return ("--slaveof", GATE.ip, str(GATE.port), "--slave-priority", "0")
