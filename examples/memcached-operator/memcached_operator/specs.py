"""The child objects, built from the inputs alone."""

from collections.abc import Iterator

from msgspec.structs import replace

from memcached_operator.dial import PORT
from memcached_operator.inputs import Inputs
from mooring.actor import digest
from mooring.kube import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.workload.containers import config_volume
from mooring.operators.workload.statefulset import keeping_template, selector_of

INPUTS = "examples.mooring.dev/inputs"
"""Annotation of the StatefulSet: digest of the declaration that its template was made from."""


class Specs:
    """The objects of one Memcached. A template in place is kept; a move of the plan writes a new one."""

    def __init__(self, name: str, inputs: Inputs) -> None:
        self.name, self._spec, self._found = name, inputs.spec, inputs.found
        self.labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "memcached-operator"}
        self.selector = selector_of(inputs.found) or self.labels

    @property
    def inputs(self) -> str:
        """Digest of what restarts servers when it changes."""
        spec = self._spec
        return digest([spec.image, spec.threads, spec.max_connections, spec.max_item_size])

    def objects(self) -> Iterator[Object]:
        service = core.ServiceSpec(
            cluster_ip="None", selector=self.selector, ports=[core.ServicePort(port=PORT)]
        )
        yield core.Service(metadata=self._meta(self.name), spec=service)
        # What is changed on running servers is kept here for those that start later.
        live = f"-m {self._spec.memory_megabytes}{' -v' * self._spec.verbosity}"
        yield core.ConfigMap(metadata=self._meta(f"{self.name}-live"), data={"live": live})
        yield keeping_template(self.declared(), self._found, INPUTS)

    def declared(self) -> apps.StatefulSet:
        """The StatefulSet with the pods as they are declared now."""
        return apps.StatefulSet(
            metadata=replace(self._meta(self.name), annotations={INPUTS: self.inputs}),
            spec=apps.StatefulSetSpec(
                replicas=self._spec.replicas,
                service_name=self.name,
                pod_management_policy="Parallel",
                update_strategy=apps.StatefulSetUpdateStrategy(type="OnDelete"),
                selector=meta.LabelSelector(match_labels=self.selector),
                template=self._template(),
            ),
        )

    def _template(self) -> core.PodTemplateSpec:
        spec = self._spec
        options = f"-p {PORT} -t {spec.threads} -c {spec.max_connections} -I {spec.max_item_size}"
        server = core.Container(
            name="memcached",
            image=spec.image,
            command=["sh", "-c", f"exec memcached -u nobody {options} $(cat /etc/memcached/live)"],
            readiness_probe=core.Probe(tcp_socket=core.TCPSocketAction(port=PORT), period_seconds=2),
            volume_mounts=[core.VolumeMount(name="live", mount_path="/etc/memcached")],
        )
        volumes = [config_volume("live", f"{self.name}-live")]
        return core.PodTemplateSpec(
            metadata=meta.ObjectMeta(labels={**self.labels, **self.selector}),
            spec=core.PodSpec(containers=[server], volumes=volumes, termination_grace_period_seconds=5),
        )

    def _meta(self, name: str) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=name, labels=self.labels)
