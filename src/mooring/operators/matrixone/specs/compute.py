"""The objects of a CNSet: Services, configuration, and each pod with its claims, which the planner makes one by one."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from mooring.kube.object import Object
from mooring.kube.objects import core, meta
from mooring.operators.matrixone import toml
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.identity import host_uuid
from mooring.operators.matrixone.names import (
    CN_BASE,
    CN_LABELS,
    CN_LOCK,
    CN_UUID,
    INPUTS,
    SAFE_TO_EVICT,
    SQL,
    STORE_ID,
    CNNames,
    labels_of,
)
from mooring.operators.matrixone.scripts import CONFIG_PATH, START, cn_script
from mooring.operators.matrixone.specs.pods import (
    DATA,
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
    overlaid_container,
    pod_template,
)
from mooring.operators.matrixone.storage import file_services
from mooring.operators.matrixone.types import (
    UDF_IMAGE,
    UDF_PORT,
    CNSet,
    CNSetSpec,
    SharedStorageCache,
)
from mooring.operators.matrixone.versions import server_version
from mooring.operators.workload.containers import FROM_LOG

__all__ = ["READY_GATE", "CNSpecs"]

READY_GATE: Final = "matrixorigin.io/cn-store"
"""Condition of a pod: its store works. Without it the Service for clients leaves the pod out."""
POLICY: Final = "pool.matrixorigin.io/management-policy"
SWEEP_SECONDS: Final = 20
"""A pod that somebody deletes waits as long: the proxies move sessions away once in 15 seconds."""
_NOT_PODS: Final = (
    "cacheVolume",
    "serviceType",
    "serviceAnnotations",
    "nodePort",
    "cnLabels",
    "autoscale",
    "scalingConfig",
    "updateStrategy",
    "terminationPolicy",
    "podManagementPolicy",
    "podsToDelete",
    "pauseUpdate",
    "reusePVC",
)


class CNSpecs:
    """The objects of one CNSet that works with a log service."""

    def __init__(self, cn_set: CNSet, log: LogService) -> None:
        self._owner = with_defaults(cn_set)
        self._spec = self._owner.spec or CNSetSpec()
        self._log = log
        self.names = CNNames(cn_set)

    @property
    def drains(self) -> bool:
        """Sessions are moved away before a pod is stopped."""
        return bool(self._spec.scaling_config and self._spec.scaling_config.store_drain_enabled)

    def objects(self, *, pods: int = 0) -> list[Object]:
        """Everything but pods and claims, in the order in which it is made; ``pods`` is how many pods there are.

        Evictions leave all of them to the planner. A budget without unavailable pods would count from the declared number,
        and let one go as soon as its successor serves, with the sessions that it has.
        """
        return [
            self.headless(),
            self.service(),
            self.config(),
            budget(self._owner, self.names.main, available=max(self._spec.replicas or 0, pods)),
        ]

    def headless(self) -> core.Service:
        """By which the pods have names."""
        return core.Service(
            metadata=metadata(self._owner, self.names.headless),
            spec=core.ServiceSpec(
                cluster_ip="None", selector=labels_of(self._owner), publish_not_ready_addresses=True
            ),
        )

    def service(self) -> core.Service:
        """Where clients connect to."""
        spec = self._spec
        annotations = {**(spec.service_annotations or {}), **discovered(spec)}
        port = core.ServicePort(
            name="service", port=SQL, target_port=SQL, protocol="TCP", node_port=spec.node_port
        )
        return core.Service(
            metadata=metadata(self._owner, self.names.main, annotations),
            spec=core.ServiceSpec(
                type=spec.service_type or "ClusterIP", selector=labels_of(self._owner), ports=[port]
            ),
        )

    @cached_property
    def files(self) -> dict[str, str]:
        """The files of the pods."""
        script = cn_script(memory=self._spec.memory_fs_size is not None)
        return {"config.toml": toml.render(self._config()), START: script}

    def config(self) -> core.ConfigMap:
        """The files of the pods, named by their content."""
        return config_map(self._owner, self.names.config, self.files)

    def _config(self) -> dict[str, Any]:
        spec, version = self._spec, server_version(self._spec)
        cache = spec.shared_storage_cache or SharedStorageCache()
        table = toml.merged(toml.parse(spec.config), file_services(self._log.storage, cache))
        table = toml.put(table, "CN", "service-type")
        for key, value in self._log.client(discovers=version is not None and version.discovers).items():
            table = toml.put(table, value, "hakeeper-client", key)
        table = toml.put(table, spec.role or "", "cn", "role")
        table = toml.put(table, f"0.0.0.0:{CN_LOCK}", "cn", "lockservice", "listen-address")
        table = toml.put(table, CN_BASE, "cn", "port-base")
        if exported(spec):
            table = toml.put(table, True, "observability", "enableMetricToProm")
        if self._udf_port:
            table = toml.put(
                table, f"localhost:{self._udf_port}", "cn", "python-udf-client", "server-address"
            )
        return toml.put(table, "Draining", "cn", "init-work-state") if self.drains else table

    @property
    def _udf_port(self) -> int:
        sidecar = self._spec.python_udf_sidecar
        return (sidecar.port or UDF_PORT) if sidecar is not None and sidecar.enabled else 0

    def inputs(self) -> str:
        """Digest of what the user decided about the pods; only a change of it may restart any."""
        cached = self._spec.cache_volume is not None
        return inputs_of(self._spec, without=_NOT_PODS, and_also=(cached, self.drains, *self._log.place))

    def uuid(self, store_id: str) -> str:
        """The UUID of a store."""
        return host_uuid(self.names.host(self.names.store(store_id)))

    def cn_labels(self) -> str:
        """The annotation with the labels of the stores, which are changed live."""
        labels = self._spec.cn_labels
        if labels is None:
            return "null"
        return msgspec.json.encode(
            [{"key": one.key or "", "values": one.values or []} for one in labels]
        ).decode()

    def pod(self, store_id: str) -> core.Pod:
        """The pod of a store."""
        template = self._template()
        assert template.metadata is not None
        assert template.spec is not None
        name = self.names.store(store_id)
        labels = {
            **(template.metadata.labels or {}),
            STORE_ID: store_id,
            CN_UUID: self.uuid(store_id),
        }
        annotations = {
            CN_LABELS: self.cn_labels(),
            SAFE_TO_EVICT: "true",
            **({POLICY: self._spec.pod_management_policy} if self._spec.pod_management_policy else {}),
            **(template.metadata.annotations or {}),
            INPUTS: self.inputs(),
        }
        claims = [
            core.Volume(
                name=one.metadata.name,
                persistent_volume_claim=core.PersistentVolumeClaimVolumeSource(
                    claim_name=self.names.claim(one.metadata.name or DATA, store_id)
                ),
            )
            for one in self._claims()
        ]
        return core.Pod(
            metadata=meta.ObjectMeta(
                name=name, namespace=self._owner.metadata.namespace, labels=labels, annotations=annotations
            ),
            spec=replace(template.spec, hostname=name, volumes=[*claims, *(template.spec.volumes or ())]),
        )

    def claims(self, store_id: str) -> list[core.PersistentVolumeClaim]:
        """The claims of a store."""
        return [
            core.PersistentVolumeClaim(
                metadata=meta.ObjectMeta(
                    name=self.names.claim(one.metadata.name or DATA, store_id),
                    namespace=self._owner.metadata.namespace,
                    labels={**(one.metadata.labels or {}), **labels_of(self._owner), STORE_ID: store_id},
                    annotations=one.metadata.annotations,
                ),
                spec=one.spec,
            )
            for one in self._claims()
        ]

    def _claims(self) -> list[core.PersistentVolumeClaim]:
        return claim_templates(self._spec, self._spec.cache_volume)

    def _template(self) -> core.PodTemplateSpec:
        wait = core.LifecycleHandler(exec=core.ExecAction(command=["sleep", str(SWEEP_SECONDS)]))
        parts = PodParts(
            config_path=CONFIG_PATH,
            env=[
                core.EnvVar(name="HEADLESS_SERVICE_NAME", value=self.names.headless),
                env_field("POD_IP", "status.podIP"),
                env_field("CN_UUID", f"metadata.labels['{CN_UUID}']"),
            ],
            mounts=[data_mount()] if self._spec.cache_volume is not None else [],
            readiness_gates=(READY_GATE,),
            lifecycle=core.Lifecycle(pre_stop=wait) if self.drains else None,
            subdomain=self.names.headless,
        )
        config = self.config().metadata.name or ""
        made = pod_template(self._owner, self._spec, self._log.storage, config, parts)
        if not self._udf_port or made.spec is None:
            return made
        containers = [*(made.spec.containers or ()), self._udf()]
        return replace(made, spec=replace(made.spec, containers=containers))

    def _udf(self) -> core.Container:
        sidecar = self._spec.python_udf_sidecar
        assert sidecar is not None
        made = core.Container(
            name="python-udf",
            image=sidecar.image or UDF_IMAGE,
            resources=sidecar.resources,
            termination_message_policy=FROM_LOG,
            command=["/bin/bash", "-c", f"python -u server.py --address=localhost:{self._udf_port}"],
        )
        return overlaid_container(made, sidecar.overlay) if sidecar.overlay is not None else made
