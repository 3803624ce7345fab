"""The sets of a MatrixOneCluster."""

from __future__ import annotations

from typing import Final, TypeVar

from msgspec.structs import replace

from mooring.kube.object import Object
from mooring.kube.objects import core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.names import CLUSTER, cn_set
from mooring.operators.matrixone.types import (
    DEFAULT_REPOSITORY,
    CNGroup,
    CNSet,
    CNSetDeps,
    CNSetSpec,
    DNSet,
    InitialConfig,
    LogSet,
    LogSetRef,
    LogSetSpec,
    MatrixOneCluster,
    MatrixOneClusterSpec,
    Overlay,
    PodSet,
    ProxySet,
    Reference,
    WebUI,
    WebUIDeps,
    groups_of,
    named,
    transaction_nodes,
)
from mooring.operators.matrixone.versions import Version, server_version

__all__ = ["RESTORED_FROM", "ClusterSpecs"]

RESTORED_FROM: Final = "hk_data"
"""The file with HAKeeper's data below the restored path."""
P = TypeVar("P", bound=PodSet)


class ClusterSpecs:
    """The sets of one cluster, each with what it inherits from the cluster.

    The declaration is taken as it is: defaults that depend on other fields are the sets' own.
    """

    def __init__(self, cluster: MatrixOneCluster, *, credential: str = "", restored: bool = False) -> None:
        """``restored``: its path holds the data of a backup, which the log service starts from."""
        self._cluster, self._restored = cluster, restored
        self._spec = cluster.spec or MatrixOneClusterSpec()
        self.name = cluster.metadata.name or ""
        self.namespace = cluster.metadata.namespace or ""
        self.credential = credential or f"{self.name}-credential"
        """The Secret with the first SQL user."""
        self.metrics = f"{self.name}-metric"
        """The Secret with the SQL user that reads the metrics."""

    def sets(self) -> list[Object]:
        """All sets, in the order in which they start."""
        made: list[Object | None] = [
            self.log_set(),
            self.dn_set(),
            *self.cn_sets(),
            self.proxy_set(),
            self.web_ui(),
        ]
        return [one for one in made if one is not None]

    @property
    def image(self) -> str:
        """Image of sets that declare none."""
        return f"{self._spec.image_repository or DEFAULT_REPOSITORY}:{self._spec.version or ''}"

    def log_set(self) -> LogSet:
        """The log service."""
        spec = self._inherited(self._spec.log_service or LogSetSpec())
        if self._restored:
            initial = spec.initial_config or InitialConfig()
            spec = replace(spec, initial_config=replace(initial, restore_from=RESTORED_FROM))
        return LogSet(metadata=self._meta(self.name), spec=spec)

    def dn_set(self) -> DNSet | None:
        """The transaction nodes."""
        declared = transaction_nodes(self._spec)
        if declared is None:
            return None
        return DNSet(
            metadata=self._meta(self.name),
            spec=self._inherited(declared),
            deps=LogSetRef(log_set=self._this()),
        )

    def cn_sets(self) -> list[CNSet]:
        """The groups of compute nodes."""
        return [self._cn_set(name, spec) for name, _, spec in groups_of(self._spec)]

    def _cn_set(self, name: str, declared: CNSetSpec) -> CNSet:
        if isinstance(declared, CNGroup):
            fields = {one: getattr(declared, one) for one in CNSetSpec.__struct_fields__}
            declared = CNSetSpec(**fields)
        spec = self._with_password(self._inherited(declared))
        if self._spec.proxy is not None:
            try:
                table = toml.put(toml.parse(spec.config), True, "cn", "frontend", "proxy-enabled")
                spec = replace(spec, config=toml.render(table))
            except toml.TomlError:
                pass  # refused with its field before anything is made
        return CNSet(
            metadata=self._meta(cn_set(self.name, name), {CLUSTER: self.name}),
            spec=spec,
            deps=CNSetDeps(log_set=self._this(), dn_set=self._this()),
        )

    def _with_password(self, spec: CNSetSpec) -> CNSetSpec:
        source = core.EnvVarSource(
            secret_key_ref=core.SecretKeySelector(name=self.credential, key="password")
        )
        overlay = spec.overlay or Overlay()
        kept = [one for one in overlay.env or () if one.name != "DEFAULT_PASSWORD"]
        env = [*kept, core.EnvVar(name="DEFAULT_PASSWORD", value_from=source)]
        return replace(spec, overlay=replace(overlay, env=env))

    def proxy_set(self) -> ProxySet | None:
        """The proxies."""
        declared = self._spec.proxy
        if declared is None:
            return None
        return ProxySet(
            metadata=self._meta(self.name),
            spec=self._inherited(declared),
            deps=LogSetRef(log_set=self._this()),
        )

    def web_ui(self) -> WebUI | None:
        """The dashboard, of the first group."""
        declared = self._spec.webui
        if declared is None:
            return None
        names = [name for name, _, _ in groups_of(self._spec)]
        shown = "tp" if "tp" in names or not names else names[0]
        return WebUI(
            metadata=self._meta(self.name),
            spec=declared,
            deps=WebUIDeps(cnset=named(cn_set(self.name, shown), namespace=self.namespace)),
        )

    def _inherited(self, spec: P) -> P:
        """A set with the cluster's policies where it has none of its own."""
        cluster, overlay = self._spec, spec.overlay or Overlay()
        image = spec.image or self.image
        made = replace(
            spec,
            image=image,
            node_selector=cluster.node_selector if spec.node_selector is None else spec.node_selector,
            topology_spread=cluster.topology_spread if spec.topology_spread is None else spec.topology_spread,
            semantic_version=spec.semantic_version or cluster.semantic_version,
            operator_version=spec.operator_version or cluster.operator_version,
            memory_fs_size=cluster.memory_fs_size if spec.memory_fs_size is None else spec.memory_fs_size,
            overlay=replace(
                overlay,
                image_pull_policy=overlay.image_pull_policy or cluster.image_pull_policy,
                pod_labels={**(overlay.pod_labels or {}), CLUSTER: self.name},
            ),
        )
        if server_version(made) is None and Version.read(cluster.version) is not None:
            made = replace(made, semantic_version=cluster.version)
        return made

    def _this(self) -> Reference:
        return named(self.name, namespace=self.namespace)

    def _meta(self, name: str, labels: dict[str, str] | None = None) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=name, namespace=self.namespace or None, labels=labels)
