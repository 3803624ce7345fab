"""The objects of a LogSet."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Final

from mooring.kube.object import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.identity import (
    BootstrapReplica,
    bootstrap_members,
    bootstrap_replicas,
    deployment_id,
)
from mooring.operators.matrixone.names import GOSSIP, HAKEEPER, INPUTS, LogNames, labels_of
from mooring.operators.matrixone.scripts import LOG_PATH, START, log_script
from mooring.operators.matrixone.specs.pods import (
    LogService,
    PodParts,
    budget,
    claim_templates,
    config_map,
    data_mount,
    discovered,
    env_field,
    exported,
    inputs_of,
    metadata,
    metric_service,
    pod_template,
)
from mooring.operators.matrixone.storage import BACKUP_SERVICE, file_services, restore_services
from mooring.operators.matrixone.types import (
    DELETE,
    RETAIN,
    InitialConfig,
    LogSet,
    LogSetSpec,
    SharedStorageProvider,
    claim_retention,
)
from mooring.operators.matrixone.versions import server_version

__all__ = ["LogSpecs"]

_NOT_PODS: Final = (
    "volume",
    "initialConfig",
    "storeFailureTimeout",
    "failedPodStrategy",
    "pvcRetentionPolicy",
    "sharedStorage",
)


class LogSpecs:
    """The objects of one LogSet; ``members`` are those that HAKeeper was bootstrapped with, once it was."""

    def __init__(self, log_set: LogSet, *, members: Sequence[BootstrapReplica] = ()) -> None:
        self._owner = with_defaults(log_set)
        self._spec = self._owner.spec or LogSetSpec()
        self._members = tuple(members)
        self.names = LogNames(log_set)

    @property
    def _initial(self) -> InitialConfig:
        return self._spec.initial_config or InitialConfig()

    @property
    def members(self) -> Sequence[BootstrapReplica]:
        """The members that HAKeeper is bootstrapped with; recorded on the LogSet before its pods are made."""
        return self._members or bootstrap_replicas(self._initial.log_shard_replicas or 1)

    def objects(self) -> list[Object]:
        """Everything a log service consists of, in the order in which it is made."""
        return [
            self.headless(),
            self.discovery(),
            *([metric_service(self._owner, self._spec, self.names.metric)] if discovered(self._spec) else []),
            self.config(),
            self.stateful_set(),
            budget(self._owner, self.names.main, unavailable=1),
        ]

    def headless(self) -> core.Service:
        """By which stores find each other, also before they are ready."""
        return core.Service(
            metadata=metadata(self._owner, self.names.headless),
            spec=core.ServiceSpec(
                cluster_ip="None", selector=labels_of(self._owner), publish_not_ready_addresses=True
            ),
        )

    def discovery(self) -> core.Service:
        """By which everything else finds HAKeeper."""
        return core.Service(
            metadata=metadata(self._owner, self.names.discovery),
            spec=core.ServiceSpec(
                type="ClusterIP",
                selector=labels_of(self._owner),
                ports=[core.ServicePort(port=HAKEEPER, target_port=HAKEEPER, protocol="TCP")],
            ),
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the pods."""
        version = server_version(self._spec)
        return {
            "logservice.toml": toml.render(self._service()),
            "gossip.toml": toml.render({"logservice": {"gossip-seed-addresses": self._seeds()}}),
            "bootstrap.toml": toml.render({"logservice": {"BootstrapConfig": self._bootstrap()}}),
            START: log_script(
                ports=version is not None and version.discovers, memory=self._spec.memory_fs_size is not None
            ),
        }

    def config(self) -> core.ConfigMap:
        """The files of the pods, named by their content."""
        return config_map(self._owner, self.names.config, self.files)

    def _service(self) -> dict[str, Any]:
        spec, storage = self._spec, self._spec.shared_storage or SharedStorageProvider()
        restored = self._initial.restore_from is not None
        shared = restore_services(storage) if restored else file_services(storage, None)
        table = toml.merged(toml.parse(spec.config), shared)
        table = toml.put(table, "LOG", "service-type")
        table = toml.put(table, deployment_id(self.names.owner), "logservice", "deployment-id")
        table = toml.put(table, f"0.0.0.0:{HAKEEPER}", "logservice", "logservice-listen-address")
        address = f"{self.names.discovery_host}:{HAKEEPER}"
        table = toml.put(table, address, "hakeeper-client", "discovery-address")
        if spec.replicas == 1:
            table = toml.put(table, True, "logservice", "gossip-allow-self-as-seed")
        return toml.put(table, True, "observability", "enableMetricToProm") if exported(spec) else table

    def _seeds(self) -> list[str]:
        names = self.names
        return [f"{names.host(names.pod(at))}:{GOSSIP}" for at in range(self._spec.replicas or 0)]

    def _bootstrap(self) -> dict[str, Any]:
        initial = self._initial
        made: dict[str, Any] = {
            "bootstrap-cluster": True,
            "num-of-log-shards": initial.log_shards or 1,
            "num-of-dn-shards": initial.dn_shards or 1,
            "num-of-log-shard-replicas": initial.log_shard_replicas or 1,
            "init-hakeeper-members": bootstrap_members(self.members),
        }
        if initial.restore_from is not None:
            made["restore"] = {"file-path": f"{BACKUP_SERVICE}://{initial.restore_from}"}
        return made

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any.

        The number of stores is none, but whether there is a single one: that one is its own seed.
        """
        place = LogService.of(self._owner).place
        return inputs_of(self._spec, without=_NOT_PODS, and_also=(*place, self._spec.replicas == 1))

    def stateful_set(self) -> apps.StatefulSet:
        """The stores."""
        keep = DELETE if claim_retention(self._spec) == DELETE else RETAIN
        return apps.StatefulSet(
            metadata=metadata(self._owner, self.names.main, {INPUTS: self.inputs()}),
            spec=apps.StatefulSetSpec(
                replicas=self._spec.replicas or 0,
                service_name=self.names.headless,
                pod_management_policy="Parallel",
                update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
                persistent_volume_claim_retention_policy=apps.StatefulSetPersistentVolumeClaimRetentionPolicy(
                    when_deleted=keep, when_scaled=keep
                ),
                selector=meta.LabelSelector(match_labels=labels_of(self._owner)),
                template=self._template(),
                volume_claim_templates=claim_templates(self._spec, self._spec.volume),
            ),
        )

    def _template(self) -> core.PodTemplateSpec:
        config = self.config().metadata.name or ""
        parts = PodParts(
            config_path=LOG_PATH,
            env=[
                env_field("POD_IP", "status.podIP"),
                core.EnvVar(name="HEADLESS_SERVICE_NAME", value=self.names.headless),
            ],
            mounts=[data_mount()],
        )
        return pod_template(self._owner, self._spec, self._spec.shared_storage, config, parts)
