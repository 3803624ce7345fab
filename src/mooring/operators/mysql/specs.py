"""The child objects of a cluster: pure functions of its declaration and of what is there already.

A pod refers only to content-named, immutable ConfigMaps and to fixed names whose content changes live: the accepted keys, the
credentials. A template that exists stays as it is until the planner begins a roll, and differs only when the user's
declaration did: an operator upgrade restarts nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from msgspec.structs import replace

from mooring.actor import differs, digest
from mooring.kube.object import Object, owner_reference
from mooring.kube.objects import apps, batch, core, meta, policy
from mooring.operators.mysql import scripts
from mooring.operators.mysql.archive.workload import archive_objects
from mooring.operators.mysql.config import (
    base_cnf,
    declared_lines,
    forced_cnf,
    live_cnf,
    live_defaults,
    restart_keys,
)
from mooring.operators.mysql.credentials import ACCOUNTS, Credentials
from mooring.operators.mysql.names import (
    COMPONENT,
    INPUTS,
    MONITOR,
    ORDER,
    PORT,
    PRIMARY,
    READS,
    REPLICA,
    ROLE,
    TRIAL,
    Names,
    labels_of,
)
from mooring.operators.mysql.overlay import DATA, EXPORTER_PORT, GRACE_SECONDS, ours
from mooring.operators.mysql.topology import Flavor
from mooring.operators.mysql.types import (
    DEFAULT_IMAGE,
    Exporter,
    MySQLCluster,
    MySQLClusterSpec,
    PodSettings,
    Services,
    Storage,
    size_of,
)
from mooring.operators.workload.autogrow import in_force
from mooring.operators.workload.certificates import AUTHORITY, CERTIFICATE, KEY
from mooring.operators.workload.claims import claim_name
from mooring.operators.workload.containers import (
    FROM_LOG,
    READ_ONLY,
    apart,
    config_volume,
    encoded,
    field_value,
)
from mooring.operators.workload.moves import Orders
from mooring.operators.workload.overlay import declared as declared_of
from mooring.operators.workload.overlay import merged, overlaid, placed, read_security
from mooring.operators.workload.services import ServiceSpec
from mooring.operators.workload.statefulset import keeping_template, made_from, replicas_of, selector_of
from mooring.operators.workload.volumes import Growth, claimed_volumes, claims_to_make

__all__ = ["AUTHORITY_FILE", "DATA", "Found", "Specs", "pod_security"]

_USER = 999
"""The account ``mysql`` of the stock images of both flavours."""
AUTHORITY_FILE = f"/mooring/tls/{AUTHORITY}"
"""Where a pod has the authorities of the cluster's certificates."""
_STORAGE = "1Gi"
_TRIAL_SECONDS = 600
_TRIAL_KEPT_SECONDS = 3600


@dataclass(frozen=True, kw_only=True)
class Found:
    """What is there already, as far as it shapes what is wanted."""

    set: apps.StatefulSet | None = None
    live: Mapping[str, str] | None = None
    """The keys in force that the next start reads; ``None`` for a new cluster."""
    credentials: Credentials = field(default_factory=Credentials)
    """Complete: as the cluster's Secret has them, or generated for a new cluster."""
    read_at_start: frozenset[str] = frozenset()
    """Keys of the user's that the servers refused to change while they run."""
    refused: frozenset[str] = frozenset()
    """Keys of the user's that the servers do not know, or whose value they refused."""
    memory: int = 0
    """Bytes that every server may use; 0 without a limit."""
    flavor: Flavor = "mariadb"
    certificates: Mapping[str, str] | None = field(default=None, repr=False)
    """Data of the Secret with the certificate; ``None`` without TLS."""
    unread: bool = False
    """Replicas bear no label `READS` yet: an earlier version labelled them."""
    named: bool = False
    """The certificate is the operator's: it bears the names by which pods find one another. A user's need not."""

    @property
    def tls(self) -> bool:
        """Whether servers have a certificate of the cluster's."""
        return self.certificates is not None


class Specs:
    """The child objects of one cluster; ``orders`` is what a move changes about them."""

    def __init__(
        self,
        cluster: MySQLCluster,
        found: Found,
        orders: Orders | None = None,
        *,
        live: Mapping[str, str] | None = None,
        credentials: Credentials | None = None,
    ) -> None:
        self._cluster = cluster
        self._spec: MySQLClusterSpec = cluster.spec or MySQLClusterSpec()
        self._pod: PodSettings = self._spec.pod or PodSettings()
        self._found = found
        self._orders = orders or Orders()
        self._live = live
        self._credentials = credentials or found.credentials
        self._namespace = cluster.metadata.namespace or ""
        self.names = Names(cluster.metadata.name or "")
        self.labels = labels_of(self.names.cluster)

    # --- all of them ---------------------------------------------------------------------------------------

    def objects(self) -> list[Object]:
        """Everything the cluster consists of, in the order in which it is made."""
        services = self._spec.services or Services()
        made: list[Object] = [
            self.headless_service(),
            self.primary_service(services.primary),
            self.replicas_service(services.replicas),
            self.scripts(),
            self.live_config(),
            *(() if self._credentials.lost else (self.secret(), self.secret_copy())),
            *self.certificates(),
            self.set(),
            self.budget(),
            *self.archive(),
        ]
        return made

    def archive(self) -> list[core.ConfigMap | apps.Deployment]:
        """What archives the binary log: nothing that the cluster itself needs."""
        return archive_objects(
            self._cluster, flavor=self._found.flavor, tls=self._found.tls, security=pod_security()
        )

    @property
    def size(self) -> int:
        """The number of servers that counts: declared, or called for by the load."""
        return size_of(self._cluster)

    @property
    def keeps_claims(self) -> bool:
        """Claims outlive the cluster, unless the user wrote ``keepAfterDeletion: false``."""
        storage = self._spec.storage or Storage()
        return self.claimed and storage.keep_after_deletion is not False

    # --- services and budget -------------------------------------------------------------------------------

    def headless_service(self) -> core.Service:
        """Gives every pod a name, ready or not: replicas connect to a source before that is ready."""
        spec = core.ServiceSpec(
            cluster_ip="None", publish_not_ready_addresses=True, selector=self.selector, ports=[_port()]
        )
        return core.Service(metadata=self._meta(self.names.headless), spec=spec)

    def primary_service(self, given: ServiceSpec | None) -> core.Service:
        """The primary, ready or not: who leads is decided, and one that has ended refuses clients until another one leads."""
        return self._service(self.names.primary, {ROLE: PRIMARY}, given, unready=True)

    def replicas_service(self, given: ServiceSpec | None) -> core.Service:
        """Replicas to read from; one that lags or differs is not among them.

        They have a label of their own: kube-proxy applies changes of two Services in any order, and the second one late.
        """
        labels = {ROLE: REPLICA} if self._found.unread else {READS: "true"}
        return self._service(self.names.replicas, labels, given)

    def _service(
        self, name: str, labels: dict[str, str], given: ServiceSpec | None, *, unready: bool | None = None
    ) -> core.Service:
        given = given or ServiceSpec()
        spec = core.ServiceSpec(
            type=given.type or "ClusterIP",
            selector={**self.selector, **labels},
            ports=[_port()],
            publish_not_ready_addresses=unready,
        )
        return core.Service(metadata=replace(self._meta(name), annotations=given.annotations), spec=spec)

    def budget(self) -> policy.PodDisruptionBudget:
        """One pod, or less than half of them at a time; a drain is never blocked by a pod that does not serve.

        With emptyDirs such a pod may hold the only copy of the data, so there it stays.
        """
        spec = policy.PodDisruptionBudgetSpec(
            max_unavailable=max(1, (self.size - 1) // 2),
            selector=meta.LabelSelector(match_labels=self.selector),
            unhealthy_pod_eviction_policy="AlwaysAllow" if self.claimed else "IfHealthyBudget",
        )
        return policy.PodDisruptionBudget(metadata=self._meta(self.names.budget), spec=spec)

    # --- configuration -------------------------------------------------------------------------------------

    def scripts(self) -> core.ConfigMap:
        """Scripts, and the configuration that is read at start only; named by content."""
        files = {
            "start.sh": scripts.START,
            "live.sh": scripts.LIVE,
            "ready.sh": scripts.READY,
            "stop.sh": scripts.PRE_STOP,
            "trial.sh": scripts.TRIAL,
            "base.cnf": base_cnf(
                self._found.flavor,
                self._spec.config or {},
                memory=self._found.memory,
                tuned=self._tuned,
                learnt=self._found.read_at_start,
            ),
            "forced.cnf": forced_cnf(self._found.flavor),
            "extra.cnf": "require_secure_transport=ON\n" if self._requires_tls else "",
        }
        name = f"{self.names.scripts}-{digest(files)[:10]}"
        return core.ConfigMap(metadata=self._meta(name), data=files, immutable=True)

    def live_config(self) -> core.ConfigMap:
        """The keys that running servers accepted: what is there stays until they accepted something else."""
        values = self._live if self._live is not None else self._found.live
        if values is None:
            values = live_defaults(self._found.flavor, self._found.memory, tuned=self._tuned)
        return core.ConfigMap(metadata=self._meta(self.names.config), data={"live.cnf": live_cnf(values)})

    def secret(self) -> core.Secret:
        """The declared passwords: a person may read and change them here."""
        return self._secret(self.names.credentials, self._credentials.declared)

    def secret_copy(self) -> core.Secret:
        """The passwords that the servers accept, for pods; the monitor's as client programs and the exporter read it."""
        texts = self._credentials.in_force
        password = texts[ACCOUNTS[MONITOR]].replace("\\", "\\\\")
        entries = {
            **texts,
            "monitor.cnf": f'[client]\nuser={MONITOR}\npassword="{password}"\nsocket=/run/mysqld/mysqld.sock\n',
        }
        return self._secret(self.names.credentials_copy, entries)

    def certificates(self) -> list[core.Secret]:
        """The certificate that pods mount, made by the operator or copied from the user's Secret."""
        if self._found.certificates is None:
            return []
        data = dict(self._found.certificates)
        return [core.Secret(metadata=self._meta(self.names.tls), type="Opaque", data=data)]

    def _secret(self, name: str, entries: Mapping[str, str]) -> core.Secret:
        data = {key: encoded(value) for key, value in sorted(entries.items())}
        return core.Secret(metadata=self._meta(name), type="Opaque", data=data)

    def unowned(self) -> list[tuple[type[Object], str]]:
        """Children that stay when the cluster goes: without the passwords nobody could open kept claims."""
        names = (self.names.credentials, self.names.credentials_copy)
        return [(core.Secret, name) for name in names] if self.keeps_claims else []

    @property
    def _tuned(self) -> bool:
        return self._spec.tuning != "Off"

    @property
    def _sizing(self) -> str | None:
        """The part of tuning that pods start with: measuring restarts none."""
        tuning = self._spec.tuning
        return tuning if tuning in (None, "Off") else "Static"

    @property
    def _requires_tls(self) -> bool:
        return bool(self._spec.tls is not None and self._spec.tls.required)

    # --- the StatefulSet -----------------------------------------------------------------------------------

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select the pods: of an existing set they cannot be changed."""
        return selector_of(self._found.set) or self.labels

    @property
    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        spec, pod = self._spec, self._pod
        decided: list[object] = [
            *(self.image, spec.image_pull_policy, spec.image_pull_secrets, spec.resources, self._exporter),
            *(pod, self._sizing, self._found.tls, self._requires_tls),
        ]
        plain = [msgspec.to_builtins(one) for one in decided]
        if added := declared_of(spec.pod_template):
            plain.append({"pod template": added})
        keys = restart_keys(spec.config or {}, self._found.read_at_start)
        if keys and spec.config_policy != "report":
            plain.append(keys)
        return digest(plain)

    @property
    def image(self) -> str:
        """The declared image."""
        return self._spec.image or DEFAULT_IMAGE

    def set(self) -> apps.StatefulSet:
        """The StatefulSet: with the template in place, unless a move writes the declared one."""
        declared = self.declared_set()
        if COMPONENT in self._orders.templates:
            return declared
        return keeping_template(declared, self._found.set, INPUTS)

    def declared_set(self) -> apps.StatefulSet:
        """The StatefulSet with the pods as they are declared now."""
        found = self._found.set
        there = found.spec.replicas if found is not None and found.spec is not None else None
        replicas = self._orders.replicas.get(COMPONENT, self.size if there is None else there)
        return apps.StatefulSet(
            metadata=replace(self._meta(self.names.set), annotations={INPUTS: self.inputs}),
            spec=apps.StatefulSetSpec(
                replicas=replicas,
                service_name=self.names.headless,
                pod_management_policy="Parallel",
                update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
                selector=meta.LabelSelector(match_labels=self.selector),
                template=self._template(),
                volume_claim_templates=self._claims(),
            ),
        )

    @property
    def made_from(self) -> str:
        """Digest of the declaration that the template in place was made from."""
        return made_from(self._found.set, INPUTS)

    # --- volumes -------------------------------------------------------------------------------------------

    @property
    def claimed(self) -> bool:
        """Whether the pods keep their data on claims: of an existing set that cannot be changed."""
        found = self._found.set
        if found is not None and found.spec is not None:
            return bool(found.spec.volume_claim_templates)
        return self._declares_claims

    @property
    def _declares_claims(self) -> bool:
        return self._spec.storage is None or self._spec.storage.empty_dir is None

    @property
    def storage_size(self) -> str:
        """The size of every claim: as declared, or grown beyond it."""
        storage, status = self._spec.storage or Storage(), self._cluster.status
        return in_force(storage.autogrow, status.autogrow if status else None, storage.size or _STORAGE)

    def _claims(self) -> list[core.PersistentVolumeClaim] | None:
        if not self._declares_claims:
            return None
        storage = self._spec.storage or Storage()
        spec = core.PersistentVolumeClaimSpec(
            access_modes=["ReadWriteOnce"],
            storage_class_name=storage.storage_class,
            resources=core.VolumeResourceRequirements(requests={"storage": self.storage_size}),
        )
        metadata = meta.ObjectMeta(name=DATA, labels={**self.labels, **self.selector})
        return [core.PersistentVolumeClaim(metadata=metadata, spec=spec)]

    def growth(
        self, claims: Mapping[str, core.PersistentVolumeClaim], refused: Mapping[str, str] | None = None
    ) -> Growth:
        """The sizes of the claims of all pods, beside the declared one."""
        wanted = (self._claims() or ()) if self.claimed else ()
        number = max(self.size, self._there)
        return Growth(
            where="spec.storage.size",
            autogrow="spec.storage.autogrow",
            data=DATA,
            volumes=claimed_volumes(wanted, [self.names.pod(at) for at in range(number)], claims),
            refused=refused or {},
        )

    def claims_to_make(
        self, replicas: int, claims: Mapping[str, core.PersistentVolumeClaim]
    ) -> list[core.PersistentVolumeClaim]:
        """Claims that pods to come would get too small: the StatefulSet makes them as it was made itself."""
        pods = [self.names.pod(at) for at in range(self._there, replicas)]
        wanted = self._claims() or ()
        return claims_to_make(self._found.set, wanted, pods, claims, namespace=self._namespace)

    @property
    def _there(self) -> int:
        return replicas_of(self._found.set)

    def first_claim(self) -> core.PersistentVolumeClaim:
        """The claim of the first pod, as the StatefulSet would make it: a restore fills it before there is a pod."""
        template = (self._claims() or [core.PersistentVolumeClaim()])[0]
        name = claim_name(DATA, self.names.pod(0))
        labels = template.metadata.labels
        return replace(template, metadata=replace(self._meta(name), labels=labels))

    # --- the pods ------------------------------------------------------------------------------------------

    @property
    def _exporter(self) -> Exporter | None:
        exporter = self._spec.exporter
        return exporter if exporter is not None and exporter.enabled else None

    def _template(self) -> core.PodTemplateSpec:
        pod = self._pod
        containers = [self._container()]
        if self._exporter is not None:
            containers.append(self._exporter_container(self._exporter))
        volumes = [
            config_volume("scripts", self.scripts().metadata.name or ""),
            config_volume("live", self.names.config),
            core.Volume(name="auth", secret=self._auth()),
            core.Volume(name="order", downward_api=_order()),
            # On disk: the count of starts outlives a restart of the node, as the pod does.
            core.Volume(name="starts", empty_dir=core.EmptyDirVolumeSource(size_limit="1Mi")),
            core.Volume(name="run", empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi")),
        ]
        if self._found.tls:
            items = [core.KeyToPath(key=key, path=key) for key in (CERTIFICATE, KEY, AUTHORITY)]
            secret = core.SecretVolumeSource(
                secret_name=self.names.tls, items=items, default_mode=READ_ONLY, optional=True
            )
            volumes.append(core.Volume(name="tls", secret=secret))
        if not self.claimed:
            empty = self._spec.storage.empty_dir if self._spec.storage else None
            volumes.append(core.Volume(name=DATA, empty_dir=empty or core.EmptyDirVolumeSource()))
        made = core.PodTemplateSpec(
            metadata=meta.ObjectMeta(
                labels={**(pod.labels or {}), **self.labels, **self.selector}, annotations=pod.annotations
            ),
            spec=core.PodSpec(
                containers=containers,
                volumes=volumes,
                termination_grace_period_seconds=GRACE_SECONDS,
                affinity=pod.affinity or apart(self.selector),
                node_selector=pod.node_selector,
                tolerations=pod.tolerations,
                priority_class_name=pod.priority_class_name,
                service_account_name=pod.service_account_name,
                security_context=pod.security_context or pod_security(),
                image_pull_secrets=self._spec.image_pull_secrets,
                automount_service_account_token=False,
            ),
        )
        return overlaid(made, self._spec.pod_template, ours(self._spec))

    @property
    def _security(self) -> core.PodSecurityContext | None:
        """Of the pods, with what the overlay says."""
        return merged(self._pod.security_context or pod_security(), read_security(self._spec.pod_template))

    def _auth(self) -> core.SecretVolumeSource:
        keys = [*ACCOUNTS.values(), "monitor.cnf"]
        items = [core.KeyToPath(key=key, path=key) for key in sorted(keys)]
        return core.SecretVolumeSource(
            secret_name=self.names.credentials_copy, items=items, default_mode=READ_ONLY
        )

    def _container(self) -> core.Container:
        host = self.names.host("$(POD_NAME)", self._namespace)
        mounts = [
            core.VolumeMount(name="scripts", mount_path="/mooring/scripts", read_only=True),
            core.VolumeMount(name="live", mount_path="/mooring/live", read_only=True),
            core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True),
            core.VolumeMount(name="order", mount_path="/mooring/order", read_only=True),
            core.VolumeMount(name="starts", mount_path="/mooring/starts"),
            core.VolumeMount(name="run", mount_path="/mooring/run"),
            # The socket is where the programs of every image look for it.
            core.VolumeMount(name="run", mount_path="/run/mysqld"),
            core.VolumeMount(name=DATA, mount_path="/var/lib/mysql"),
        ]
        if self._found.tls:
            mounts.append(core.VolumeMount(name="tls", mount_path="/mooring/tls", read_only=True))
        return core.Container(
            name=COMPONENT,
            image=self.image,
            image_pull_policy=self._spec.image_pull_policy,
            command=["sh", "/mooring/scripts/start.sh"],
            termination_message_policy=FROM_LOG,
            env=[
                core.EnvVar(name="POD_NAME", value_from=field_value("metadata.name")),
                core.EnvVar(name="POD_IP", value_from=field_value("status.podIP")),
                core.EnvVar(name="HOST", value=host),
                core.EnvVar(name="FLAVOR", value=self._found.flavor),
            ],
            ports=[core.ContainerPort(name="mysql", container_port=PORT, protocol="TCP")],
            resources=self._spec.resources,
            liveness_probe=_probe("live.sh", period=10, failures=6),
            readiness_probe=_probe("ready.sh", period=2, failures=3),
            lifecycle=core.Lifecycle(
                pre_stop=core.LifecycleHandler(
                    exec=core.ExecAction(command=["sh", "/mooring/scripts/stop.sh"])
                )
            ),
            volume_mounts=mounts,
            security_context=_unprivileged(self._security),
        )

    def _exporter_container(self, exporter: Exporter) -> core.Container:
        return core.Container(
            name="exporter",
            image=exporter.image,
            args=["--config.my-cnf=/mooring/auth/monitor.cnf"],
            ports=[core.ContainerPort(name="metrics", container_port=EXPORTER_PORT, protocol="TCP")],
            resources=core.ResourceRequirements(
                requests={"cpu": "20m", "memory": "32Mi"}, limits={"cpu": "200m", "memory": "128Mi"}
            ),
            volume_mounts=[
                core.VolumeMount(name="auth", mount_path="/mooring/auth", read_only=True),
                core.VolumeMount(name="run", mount_path="/run/mysqld", read_only=True),
            ],
            security_context=_unprivileged(self._security),
        )

    # --- the trial start -----------------------------------------------------------------------------------

    @property
    def trial_name(self) -> str:
        """The Job that tries the declared image with the declared configuration."""
        tried = [self.image, self._declared, self.scripts().metadata.name]
        return f"{self.names.trial}-{digest(tried)[:8]}"

    @property
    def _declared(self) -> str:
        return declared_lines(self._spec.config or {}, but=self._found.refused)

    def trial(self) -> batch.Job:
        """Starts the declared image once, on empty data of its own; it goes by itself, and with the cluster."""
        labels = {**self.labels, "app.kubernetes.io/name": TRIAL}
        pod = self._pod
        return batch.Job(
            metadata=meta.ObjectMeta(
                name=self.trial_name,
                namespace=self._namespace,
                labels=labels,
                owner_references=[owner_reference(self._cluster)],
            ),
            spec=batch.JobSpec(
                backoff_limit=0,
                active_deadline_seconds=_TRIAL_SECONDS,
                ttl_seconds_after_finished=_TRIAL_KEPT_SECONDS,
                template=core.PodTemplateSpec(
                    metadata=meta.ObjectMeta(
                        # A sidecar that is injected would keep it from ending.
                        labels={**labels, "sidecar.istio.io/inject": "false"},
                    ),
                    spec=placed(
                        core.PodSpec(
                            containers=[self._trial_container()],
                            restart_policy="Never",
                            volumes=[
                                config_volume("scripts", self.scripts().metadata.name or ""),
                                config_volume("live", self.names.config),
                                core.Volume(
                                    name="run",
                                    empty_dir=core.EmptyDirVolumeSource(medium="Memory", size_limit="16Mi"),
                                ),
                                core.Volume(name=DATA, empty_dir=core.EmptyDirVolumeSource(size_limit="1Gi")),
                            ],
                            node_selector=pod.node_selector,
                            tolerations=pod.tolerations,
                            priority_class_name=pod.priority_class_name,
                            service_account_name=pod.service_account_name,
                            security_context=pod.security_context or pod_security(),
                            image_pull_secrets=self._spec.image_pull_secrets,
                            automount_service_account_token=False,
                        ),
                        self._spec.pod_template,
                    ),
                ),
            ),
        )

    def _trial_container(self) -> core.Container:
        return core.Container(
            name="trial",
            image=self.image,
            image_pull_policy=self._spec.image_pull_policy,
            command=["sh", "/mooring/scripts/trial.sh"],
            env=[
                core.EnvVar(name="FLAVOR", value=self._found.flavor),
                core.EnvVar(name="DECLARED", value=self._declared),
            ],
            resources=core.ResourceRequirements(
                requests={"cpu": "50m", "memory": "128Mi"}, limits={"memory": "768Mi"}
            ),
            volume_mounts=[
                core.VolumeMount(name="scripts", mount_path="/mooring/scripts", read_only=True),
                core.VolumeMount(name="live", mount_path="/mooring/live", read_only=True),
                core.VolumeMount(name="run", mount_path="/mooring/run"),
                core.VolumeMount(name="run", mount_path="/run/mysqld"),
                core.VolumeMount(name=DATA, mount_path="/var/lib/mysql"),
            ],
            security_context=_unprivileged(self._security),
        )

    def _meta(self, name: str) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=name, namespace=self._namespace, labels=self.labels)

    def differs(self) -> str:
        """The first field in which the template in place differs from the declared one; "" for none."""
        found = self._found.set
        there = found.spec.template if found is not None and found.spec is not None else None
        return differs(self._template(), there) or "" if there is not None else ""


def _port() -> core.ServicePort:
    return core.ServicePort(name="mysql", port=PORT, target_port=PORT, protocol="TCP")


def _order() -> core.DownwardAPIVolumeSource:
    annotation = core.ObjectFieldSelector(field_path=f"metadata.annotations['{ORDER}']")
    return core.DownwardAPIVolumeSource(
        default_mode=READ_ONLY, items=[core.DownwardAPIVolumeFile(path="order", field_ref=annotation)]
    )


def _probe(script: str, *, period: int, failures: int) -> core.Probe:
    return core.Probe(
        exec=core.ExecAction(command=["sh", f"/mooring/scripts/{script}"]),
        period_seconds=period,
        timeout_seconds=5,
        failure_threshold=failures,
    )


def pod_security() -> core.PodSecurityContext:
    """What the restricted pod security standard wants, with the account of the stock images."""
    return core.PodSecurityContext(
        run_as_non_root=True,
        run_as_user=_USER,
        run_as_group=_USER,
        fs_group=_USER,
        fs_group_change_policy="OnRootMismatch",
        seccomp_profile=core.SeccompProfile(type="RuntimeDefault"),
    )


def _unprivileged(pod: core.PodSecurityContext | None) -> core.SecurityContext | None:
    """Nothing a container could gain; a pod that the user runs as root needs root's capabilities."""
    if pod is not None and not pod.run_as_non_root:
        return None
    return core.SecurityContext(
        allow_privilege_escalation=False, capabilities=core.Capabilities(drop=["ALL"])
    )
