"""lightkube: typed models, apply, watches, waits. Prints a JSON report."""

import sys

from lightkube import ApiError, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.core_v1 import Container, PodSpec, ServicePort, ServiceSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import StatefulSet
from lightkube.resources.core_v1 import ConfigMap, Pod, Service
from lightkube.types import CascadeType, PatchType
from reporting import refused, report


class Steps:
    """What is tried, on one namespace; each raises when it is not as it should be."""

    def __init__(self, kubeconfig: str, namespace: str) -> None:
        self.client = Client(KubeConfig.from_file(kubeconfig), namespace=namespace, field_manager="lightkube")
        self.namespace = namespace

    def create_get_patch_delete(self) -> None:
        meta = ObjectMeta(name="light", namespace=self.namespace)
        made = self.client.create(ConfigMap(metadata=meta, data={"a": "1"}))
        self.client.patch(ConfigMap, "light", {"data": {"b": "2"}}, patch_type=PatchType.MERGE)
        assert self.client.get(ConfigMap, "light").data == {"a": "1", "b": "2"}
        assert refused(lambda: self.client.replace(made), ApiError).status.reason == "Conflict"

    def apply_and_take_it_back(self) -> None:
        meta = ObjectMeta(name="light-service", namespace=self.namespace)
        spec = ServiceSpec(ports=[ServicePort(port=80, name="a"), ServicePort(port=81, name="b")])
        self.client.apply(Service(metadata=meta, spec=spec))
        fewer = ServiceSpec(ports=[ServicePort(port=80, name="a")])
        changed = self.client.apply(Service(metadata=meta, spec=fewer))
        assert [port.name for port in changed.spec.ports] == ["a"]
        assert changed.spec.clusterIP

    def list_and_watch(self) -> None:
        found = self.client.list(ConfigMap)
        names = [one.metadata.name for one in found]
        assert "light" in names
        self.client.patch(ConfigMap, "light", {"data": {"w": "1"}})
        for kind, one in self.client.watch(
            ConfigMap, resource_version=found.resourceVersion, server_timeout=20
        ):
            assert (kind, one.metadata.name) == ("MODIFIED", "light")
            break

    def refused_with_causes(self) -> None:
        bad = Pod(
            metadata=ObjectMeta(name="bad", namespace=self.namespace),
            spec=PodSpec(containers=[Container(name="UPPER")]),
        )
        error = refused(lambda: self.client.create(bad), ApiError)
        fields = {cause.field for cause in error.status.details.causes}
        assert fields == {"spec.containers[0].name", "spec.containers[0].image"}, fields

    def generic_resources(self) -> None:
        sets = create_namespaced_resource("apps", "v1", "StatefulSet", "statefulsets")
        assert len(list(self.client.list(sets))) == len(list(self.client.list(StatefulSet)))

    def delete(self) -> None:
        self.client.delete(ConfigMap, "light", cascade=CascadeType.FOREGROUND)
        self.client.delete(Service, "light-service")


if __name__ == "__main__":
    report(Steps(*sys.argv[1:3]))
