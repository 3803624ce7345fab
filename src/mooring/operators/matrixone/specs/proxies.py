"""The objects of a ProxySet."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.names import INPUTS, SQL, ProxyNames, labels_of
from mooring.operators.matrixone.scripts import CONFIG_PATH, START, leave_script, proxy_script
from mooring.operators.matrixone.specs.pods import (
    LogService,
    PodParts,
    budget,
    config_map,
    discovered,
    exported,
    inputs_of,
    metadata,
    pod_template,
)
from mooring.operators.matrixone.storage import file_services
from mooring.operators.matrixone.types import ProxySet, ProxySetSpec

__all__ = ["ProxySpecs"]

_NOT_PODS: Final = ("serviceType", "serviceAnnotations", "nodePort", "minReadySeconds")
_UNKNOWN_AFTER: Final = 5
"""Seconds within which no node sends a new connection to a pod that is to end: its process must take them until then."""
_STAYS: Final = 25
"""Further seconds for which a proxy that is to end waits for its clients to leave: a proxy hands no session over."""


class ProxySpecs:
    """The objects of one ProxySet that works with a log service."""

    def __init__(self, proxy_set: ProxySet, log: LogService) -> None:
        self._owner = with_defaults(proxy_set)
        self._spec = self._owner.spec or ProxySetSpec()
        self._log = log
        self.names = ProxyNames(proxy_set)

    def objects(self) -> list[Object]:
        """Everything the proxies consist of, in the order in which it is made."""
        return [
            self.service(),
            self.config(),
            self.deployment(),
            budget(self._owner, self.names.main, unavailable=1),
        ]

    def service(self) -> core.Service:
        """Where clients connect to."""
        spec = self._spec
        port = core.ServicePort(
            name="proxy", port=SQL, target_port=SQL, protocol="TCP", node_port=spec.node_port
        )
        annotations = {**(spec.service_annotations or {}), **discovered(spec)}
        return core.Service(
            metadata=metadata(self._owner, self.names.main, annotations),
            spec=core.ServiceSpec(
                type=spec.service_type or "ClusterIP", selector=labels_of(self._owner), ports=[port]
            ),
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the pods."""
        script = proxy_script(
            plugin=self._spec.wait_plugin_addr or "", memory=self._spec.memory_fs_size is not None
        )
        return {"config.toml": toml.render(self._config()), START: script}

    def config(self) -> core.ConfigMap:
        """The files of the pods, named by their content."""
        return config_map(self._owner, self.names.config, self.files)

    def _config(self) -> dict[str, Any]:
        table = toml.put(
            toml.parse(self._spec.config), self._log.address, "hakeeper-client", "discovery-address"
        )
        table = toml.merged(table, file_services(self._log.storage, None))
        table = toml.put(table, "PROXY", "service-type")
        table = toml.put(table, f"0.0.0.0:{SQL}", "proxy", "listen-address")
        return toml.put(table, True, "observability", "enableMetricToProm") if exported(self._spec) else table

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        return inputs_of(self._spec, without=_NOT_PODS, and_also=self._log.place)

    def deployment(self) -> apps.Deployment:
        """The proxies: one more before one less, since a proxy hands nothing over, and none that ends is still being found."""
        probe = core.Probe(tcp_socket=core.TCPSocketAction(port=SQL), period_seconds=5, failure_threshold=2)
        leaves = leave_script(port=SQL, unknown_after=_UNKNOWN_AFTER, stays=_STAYS)
        stop = core.LifecycleHandler(exec=core.ExecAction(command=["/bin/sh", "-c", leaves]))
        parts = PodParts(
            config_path=CONFIG_PATH, probe=probe, godebug=False, lifecycle=core.Lifecycle(pre_stop=stop)
        )
        config = self.config().metadata.name or ""
        return apps.Deployment(
            metadata=metadata(self._owner, self.names.main, {INPUTS: self.inputs()}),
            spec=apps.DeploymentSpec(
                replicas=self._spec.replicas or 0,
                min_ready_seconds=self._spec.min_ready_seconds,
                selector=meta.LabelSelector(match_labels=labels_of(self._owner)),
                strategy=apps.DeploymentStrategy(
                    type="RollingUpdate",
                    rolling_update=apps.RollingUpdateDeployment(max_surge=1, max_unavailable=0),
                ),
                template=pod_template(self._owner, self._spec, self._log.storage, config, parts),
            ),
        )
