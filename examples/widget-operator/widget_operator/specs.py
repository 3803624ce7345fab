"""The child objects, built from the inputs alone."""

from collections.abc import Iterator

from mooring.actor import digest
from mooring.kube import Object
from mooring.kube.objects import apps, core, meta
from mooring.operators.workload.statefulset import keeping_template, on_delete, selector_of
from msgspec.structs import replace

from widget_operator.inputs import Inputs

PORT = 8080
COMPONENT = "widget"
"""The servers' container, and their name in the status of roll-outs."""
INPUTS = "apps.example.org/inputs"
"""Annotation of the StatefulSet: digest of the declaration that its template was made from."""
SERVE = f"""
mkdir -p /tmp/www
echo "$GREETING" > /tmp/www/index.html
exec busybox httpd -f -p {PORT} -h /tmp/www
"""


class Specs:
    """A Widget's objects. A template in place is kept: a move of the plan writes it."""

    def __init__(self, name: str, inputs: Inputs) -> None:
        self.name, self._spec, self._found = name, inputs.spec, inputs.found
        self.labels = {"app.kubernetes.io/name": name, "app.kubernetes.io/managed-by": "widget-operator"}
        self.selector = selector_of(inputs.found) or self.labels

    @property
    def inputs(self) -> str:
        """Digest of what replaces servers when it changes."""
        return digest([self._spec.image, self._spec.greeting])

    def objects(self) -> Iterator[Object]:
        service = core.ServiceSpec(
            cluster_ip="None", selector=self.selector, ports=[core.ServicePort(port=PORT)]
        )
        yield core.Service(metadata=self._meta(), spec=service)
        yield keeping_template(self.declared(), self._found, INPUTS)

    def declared(self) -> apps.StatefulSet:
        """The StatefulSet with the pods as they are declared now."""
        return on_delete(
            replace(self._meta(), annotations={INPUTS: self.inputs}),
            replicas=self._spec.replicas,
            service=self.name,
            selector=self.selector,
            template=self._template(),
            claims=None,
            found=None,
        )

    def _template(self) -> core.PodTemplateSpec:
        server = core.Container(
            name=COMPONENT,
            image=self._spec.image,
            command=["sh", "-c", SERVE],
            env=[core.EnvVar(name="GREETING", value=self._spec.greeting)],
            readiness_probe=core.Probe(tcp_socket=core.TCPSocketAction(port=PORT), period_seconds=2),
        )
        return core.PodTemplateSpec(
            metadata=meta.ObjectMeta(labels={**self.labels, **self.selector}),
            spec=core.PodSpec(containers=[server], termination_grace_period_seconds=1),
        )

    def _meta(self) -> meta.ObjectMeta:
        return meta.ObjectMeta(name=self.name, labels=self.labels)
