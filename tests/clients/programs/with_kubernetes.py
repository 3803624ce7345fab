"""The official Python client: typed and dynamic, watches, apply, logs and exec. Prints a JSON report."""

import base64
import json
import sys

from kubernetes import client, config, dynamic, watch
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import stream
from reporting import refused, report

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "official"}, "data": {"a": "1"}}


class Steps:
    """What is tried, on one namespace; each raises when it is not as it should be."""

    def __init__(self, namespace: str, pod: str) -> None:
        self.namespace, self.pod = namespace, pod
        self.core, self.apps = client.CoreV1Api(), client.AppsV1Api()

    def create_read_patch_replace(self) -> None:
        made = self.core.create_namespaced_config_map(self.namespace, CONFIG_MAP)
        assert made.metadata.uid
        self.core.patch_namespaced_config_map("official", self.namespace, {"data": {"b": "2"}})
        found = self.core.read_namespaced_config_map("official", self.namespace)
        found.data["c"] = "3"
        changed = self.core.replace_namespaced_config_map("official", self.namespace, found)
        assert changed.data == {"a": "1", "b": "2", "c": "3"}
        error = refused(
            lambda: self.core.replace_namespaced_config_map("official", self.namespace, made), ApiException
        )
        assert (error.status, json.loads(error.body)["reason"]) == (409, "Conflict")

    def list_with_selectors_and_pages(self) -> None:
        for number in range(5):
            labels = {"n": str(number), "group": "pages"}
            body = {"metadata": {"name": f"page-{number}", "labels": labels}}
            self.core.create_namespaced_config_map(self.namespace, body)
        found, token = [], None
        while token is None or token:
            page = self.core.list_namespaced_config_map(
                self.namespace, label_selector="group=pages", limit=2, _continue=token or ""
            )
            found += [one.metadata.name for one in page.items]
            token = page.metadata._continue or ""
        assert found == [f"page-{number}" for number in range(5)]

    def watch_changes(self) -> None:
        first = self.core.list_namespaced_config_map(self.namespace)
        self.core.patch_namespaced_config_map("official", self.namespace, {"data": {"w": "1"}})
        self.core.delete_namespaced_config_map("page-0", self.namespace)
        seen = []
        version = first.metadata.resource_version
        listing = self.core.list_namespaced_config_map
        for event in watch.Watch().stream(
            listing, self.namespace, resource_version=version, timeout_seconds=20
        ):
            seen.append((event["type"], event["object"].metadata.name))
            if len(seen) == 2:
                break
        assert seen == [("MODIFIED", "official"), ("DELETED", "page-0")], seen

    def apply_and_definitions_dynamically(self) -> None:
        found = dynamic.DynamicClient(client.ApiClient())
        maps = found.resources.get(api_version="v1", kind="ConfigMap")
        body = {**CONFIG_MAP, "metadata": {"name": "applied"}}
        applied = maps.server_side_apply(body=body, namespace=self.namespace, field_manager="official")
        assert applied.metadata.managedFields[0].operation == "Apply"
        definitions = found.resources.get(
            api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition"
        )
        assert definitions.get().items is not None

    def deployments_and_their_scale(self) -> None:
        template = {
            "metadata": {"labels": {"app": "official"}},
            "spec": {"containers": [{"name": "c", "image": "redis:7"}]},
        }
        spec = {"paused": True, "selector": {"matchLabels": {"app": "official"}}, "template": template}
        self.apps.create_namespaced_deployment(
            self.namespace, {"metadata": {"name": "official"}, "spec": spec}
        )
        self.apps.patch_namespaced_deployment_scale("official", self.namespace, {"spec": {"replicas": 3}})
        assert self.apps.read_namespaced_deployment_scale("official", self.namespace).spec.replicas == 3
        self.apps.delete_namespaced_deployment("official", self.namespace, propagation_policy="Foreground")

    def secrets_and_tokens(self) -> None:
        data = base64.b64encode(b"\0\1secret").decode()
        self.core.create_namespaced_secret(self.namespace, {"metadata": {"name": "s"}, "data": {"k": data}})
        assert self.core.read_namespaced_secret("s", self.namespace).data == {"k": data}
        made = self.core.create_namespaced_service_account_token(
            "default", self.namespace, {"spec": {"audiences": None, "expirationSeconds": 600}}
        )
        assert made.status.token.count(".") == 2

    def logs(self) -> None:
        assert "hello" in self.core.read_namespaced_pod_log(self.pod, self.namespace)

    def exec(self) -> None:
        command = ["sh", "-c", "cat; echo bad >&2; exit 3"]
        connection = stream(
            self.core.connect_get_namespaced_pod_exec, self.pod, self.namespace, command=command, stdin=False,
            stdout=True, stderr=True, tty=False, _preload_content=False,
        )  # fmt: skip
        connection.run_forever(timeout=20)
        assert connection.read_stderr() == "bad\n"
        assert connection.returncode == 3


if __name__ == "__main__":
    config.load_kube_config(sys.argv[1])
    report(Steps(*sys.argv[2:]))
