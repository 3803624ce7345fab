"""kr8s: objects by kubectl's names, waits, scale, exec, logs. Prints a JSON report."""

import sys

import kr8s
from kr8s.objects import ConfigMap, Deployment, Pod, new_class
from reporting import report


class Steps:
    """What is tried, on one namespace; each raises when it is not as it should be."""

    def __init__(self, kubeconfig: str, namespace: str, pod: str) -> None:
        self.api = kr8s.api(kubeconfig=kubeconfig, namespace=namespace)
        self.namespace, self.pod = namespace, pod

    def create_patch_and_label(self) -> None:
        meta = {"name": "kr", "namespace": self.namespace}
        one = ConfigMap({"metadata": meta, "data": {"a": "1"}}, api=self.api)
        one.create()
        one.patch({"data": {"b": "2"}})
        one.label({"team": "a"})
        one.refresh()
        assert one.raw["data"] == {"a": "1", "b": "2"}
        found = list(self.api.get("cm", label_selector={"team": "a"}))
        assert [each.name for each in found] == ["kr"]

    def scale(self) -> None:
        template = {
            "metadata": {"labels": {"app": "kr"}},
            "spec": {"containers": [{"name": "c", "image": "redis:7"}]},
        }
        spec = {
            "replicas": 1,
            "paused": True,
            "selector": {"matchLabels": {"app": "kr"}},
            "template": template,
        }
        one = Deployment(
            {"metadata": {"name": "kr", "namespace": self.namespace}, "spec": spec}, api=self.api
        )
        one.create()
        one.patch({"spec": {"replicas": 0}})
        one.refresh()
        assert one.replicas == 0
        one.delete(propagation_policy="Foreground")

    def kinds_by_discovery(self) -> None:
        kinds = {one["kind"] for one in self.api.api_resources()}
        assert {"Pod", "StatefulSet", "CustomResourceDefinition"} <= kinds
        assert self.api.version()["major"] == "1"
        budget = new_class("PodDisruptionBudget", version="policy/v1", namespaced=True)
        assert list(self.api.get(budget)) == []

    def logs(self) -> None:
        assert "hello" in "\n".join(Pod.get(self.pod, namespace=self.namespace, api=self.api).logs())

    def exec(self) -> None:
        pod = Pod.get(self.pod, namespace=self.namespace, api=self.api)
        done = pod.exec(["sh", "-c", "echo out; exit 3"], check=False)
        assert (done.stdout, done.returncode) == (b"out\n", 3), done


if __name__ == "__main__":
    report(Steps(*sys.argv[1:4]))
