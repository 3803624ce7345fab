"""The objects of a DNSet."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.configuration import tn_table
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.names import CN_LOCK, INPUTS, LOGTAIL, TN_BASE, DNNames, labels_of
from mooring.operators.matrixone.scripts import CONFIG_PATH, START, tn_script
from mooring.operators.matrixone.specs.pods import (
    LogService,
    PodParts,
    budget,
    claim_templates,
    config_map,
    data_mount,
    discovered,
    exported,
    inputs_of,
    metadata,
    metric_service,
    pod_template,
)
from mooring.operators.matrixone.storage import file_services
from mooring.operators.matrixone.types import DNSet, DNSetSpec, SharedStorageCache
from mooring.operators.matrixone.versions import server_version

__all__ = ["DNSpecs"]

_NOT_PODS: Final = ("cacheVolume",)


class DNSpecs:
    """The objects of one DNSet that works with a log service."""

    def __init__(self, dn_set: DNSet, log: LogService) -> None:
        self._owner = with_defaults(dn_set)
        self._spec = self._owner.spec or DNSetSpec()
        self._log = log
        self.names = DNNames(dn_set)

    def objects(self) -> list[Object]:
        """Everything the transaction nodes consist of, in the order in which it is made."""
        return [
            self.headless(),
            *([metric_service(self._owner, self._spec, self.names.metric)] if discovered(self._spec) else []),
            self.config(),
            self.stateful_set(),
            budget(self._owner, self.names.main, unavailable=1),
        ]

    def headless(self) -> core.Service:
        """By which the pods have names."""
        return core.Service(
            metadata=metadata(self._owner, self.names.headless),
            spec=core.ServiceSpec(
                cluster_ip="None", selector=labels_of(self._owner), publish_not_ready_addresses=True
            ),
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the pods."""
        memory = self._spec.memory_fs_size is not None
        table = tn_table(toml.parse(self._spec.config))
        return {"config.toml": toml.render(self._config()), START: tn_script(table, memory=memory)}

    def config(self) -> core.ConfigMap:
        """The files of the pods, named by their content."""
        return config_map(self._owner, self.names.config, self.files)

    def _config(self) -> dict[str, Any]:
        spec, version = self._spec, server_version(self._spec)
        table = toml.parse(spec.config)
        name = tn_table(table)
        for key, value in self._log.client(discovers=version is not None and version.discovers).items():
            table = toml.put(table, value, "hakeeper-client", key)
        table = toml.merged(
            table, file_services(self._log.storage, spec.shared_storage_cache or SharedStorageCache())
        )
        table = toml.put(table, "DN", "service-type")
        table = toml.put(table, f"0.0.0.0:{TN_BASE}", name, "listen-address")
        table = toml.put(table, f"0.0.0.0:{CN_LOCK}", name, "lockservice", "listen-address")
        table = toml.put(table, f"0.0.0.0:{LOGTAIL}", name, "LogtailServer", "listen-address")
        table = toml.put(table, TN_BASE, name, "port-base")
        return toml.put(table, True, "observability", "enableMetricToProm") if exported(spec) else table

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        cached = self._spec.cache_volume is not None
        return inputs_of(self._spec, without=_NOT_PODS, and_also=(cached, *self._log.place))

    def stateful_set(self) -> apps.StatefulSet:
        """The transaction nodes."""
        return apps.StatefulSet(
            metadata=metadata(self._owner, self.names.main, {INPUTS: self.inputs()}),
            spec=apps.StatefulSetSpec(
                replicas=self._spec.replicas or 0,
                service_name=self.names.headless,
                pod_management_policy="Parallel",
                update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
                persistent_volume_claim_retention_policy=apps.StatefulSetPersistentVolumeClaimRetentionPolicy(
                    when_deleted="Delete", when_scaled="Delete"
                ),
                selector=meta.LabelSelector(match_labels=labels_of(self._owner)),
                template=self._template(),
                volume_claim_templates=claim_templates(self._spec, self._spec.cache_volume) or None,
            ),
        )

    def _template(self) -> core.PodTemplateSpec:
        env = [core.EnvVar(name="HEADLESS_SERVICE_NAME", value=self.names.headless)]
        if self._spec.dns_based_identity:
            env.append(core.EnvVar(name="HOSTNAME_UUID", value="y"))
        parts = PodParts(
            config_path=CONFIG_PATH,
            env=env,
            mounts=[data_mount()] if self._spec.cache_volume is not None else [],
        )
        config = self.config().metadata.name or ""
        return pod_template(self._owner, self._spec, self._log.storage, config, parts)
