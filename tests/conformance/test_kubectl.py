"""kubectl as it is used every day, against the embedded API server over TLS."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conformance.embedded import Embedded

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")

Kubectl = Callable[..., str]

MANIFESTS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {team: a}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: c, image: "nginx:1", ports: [{containerPort: 80}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{port: 80}]}
"""
CUSTOM = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: foos.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: foos, singular: foo, kind: Foo, shortNames: [fo]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    - {name: Ready, type: string, jsonPath: '.status.conditions[?(@.type=="Ready")].status'}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            description: What is wanted.
            properties:
              size: {type: integer, minimum: 1, default: 3, description: How many.}
          status: {type: object, x-kubernetes-preserve-unknown-fields: true}
---
apiVersion: example.com/v1
kind: Foo
metadata: {name: f}
spec: {size: 2}
"""


@pytest.fixture
def kubectl(tmp_path: Path) -> Iterator[Kubectl]:
    """Runs kubectl and returns what it prints; `fails` expects an exit status, `stdin` feeds it."""
    thread = Embedded(tmp_path / "pki")
    thread.start()
    config = tmp_path / "kubeconfig"
    try:
        thread.write_kubeconfig(config)
        environment = {**os.environ, "KUBECONFIG": str(config), "HOME": str(tmp_path), "KUBE_EDITOR": "false"}

        def run(*arguments: str, stdin: str = "", fails: int = 0, editor: str = "false") -> str:
            done = subprocess.run(
                ["kubectl", *arguments],
                input=stdin,
                capture_output=True,
                text=True,
                timeout=60,
                env={**environment, "KUBE_EDITOR": editor},
                check=False,
            )
            assert done.returncode == fails, done.stderr
            return done.stdout if fails == 0 else done.stdout + done.stderr

        yield run
    finally:
        thread.stop()


def test_apply_is_idempotent_and_diff_shows_what_would_change(kubectl: Kubectl) -> None:
    assert kubectl("apply", "-f", "-", stdin=MANIFESTS).count("created") == 2
    assert kubectl("apply", "-f", "-", stdin=MANIFESTS).count("unchanged") == 2
    assert kubectl("diff", "-f", "-", stdin=MANIFESTS) == ""
    changed = MANIFESTS.replace("replicas: 2", "replicas: 5")
    assert "+  replicas: 5" in kubectl("diff", "-f", "-", stdin=changed, fails=1)
    assert "configured" in kubectl("apply", "-f", "-", stdin=changed)
    assert kubectl("delete", "-f", "-", stdin=MANIFESTS).count("deleted") == 2


def test_server_side_apply_and_its_conflicts(kubectl: Kubectl) -> None:
    assert kubectl("apply", "--server-side", "-f", "-", stdin=MANIFESTS).count("serverside-applied") == 2
    kubectl("scale", "deployment", "web", "--replicas", "4")
    refused = kubectl("apply", "--server-side", "-f", "-", stdin=MANIFESTS, fails=1)
    assert "conflict" in refused
    assert ".spec.replicas" in refused
    kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=MANIFESTS)
    assert kubectl("get", "deploy", "web", "-o", "jsonpath={.spec.replicas}") == "2"


def test_a_typo_is_refused_by_the_server(kubectl: Kubectl) -> None:
    wrong = MANIFESTS.replace("replicas:", "replicass:")
    assert 'unknown field "spec.replicass"' in kubectl("apply", "-f", "-", stdin=wrong, fails=1)


def test_everyday_edits(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFESTS)
    kubectl("label", "deploy", "web", "x=y")
    kubectl("annotate", "deploy", "web", "why=because")
    kubectl("set", "image", "deploy/web", "c=nginx:2")
    kubectl("rollout", "restart", "deploy/web")
    kubectl("edit", "deploy", "web", editor="sed -i s/nginx:2/nginx:3/")
    found = json.loads(kubectl("get", "deploy", "web", "-o", "json"))
    assert found["metadata"]["labels"] == {"team": "a", "x": "y"}
    assert found["metadata"]["annotations"]["why"] == "because"
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:3"
    assert "kubectl.kubernetes.io/restartedAt" in found["spec"]["template"]["metadata"]["annotations"]


def test_get_and_describe(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=MANIFESTS)
    header, row, *_ = kubectl("get", "deploy", "-o", "wide").splitlines()
    assert header.split() == [
        "NAME",
        "READY",
        "UP-TO-DATE",
        "AVAILABLE",
        "AGE",
        "CONTAINERS",
        "IMAGES",
        "SELECTOR",
    ]
    assert row.split()[:2] == ["web", "0/2"]
    assert "nginx:1" in kubectl("describe", "deploy", "web")
    assert "10.96." in kubectl("describe", "service", "web")
    assert "service/web" in kubectl("get", "all")


def test_custom_resources_come_alive_with_their_definition(kubectl: Kubectl) -> None:
    definition, _ = CUSTOM.split("---")
    assert "created" in kubectl("apply", "-f", "-", stdin=definition)
    assert kubectl("apply", "-f", "-", stdin=CUSTOM).count("created") == 1
    assert kubectl("get", "fo").split() == ["NAME", "SIZE", "READY", "f", "2"]
    assert "How many." in kubectl("explain", "foos.spec.size")
    assert "How many." in kubectl("explain", "foos.spec.size", "--output=plaintext-openapiv2")
    kubectl("scale", "foo", "f", "--replicas", "7")
    status = '{"status":{"conditions":[{"type":"Ready","status":"True"}]}}'
    kubectl("patch", "foo", "f", "--subresource", "status", "--type", "merge", "-p", status)
    kubectl("wait", "--for", "condition=Ready", "foo/f", "--timeout", "10s")
    assert kubectl("get", "foo", "--no-headers").split() == ["f", "7", "True"]
    assert "foos" in kubectl("api-resources", "--api-group", "example.com")
    kubectl("delete", "crd", "foos.example.com", "--timeout", "20s")
    assert "foos" not in kubectl("api-resources", "--cached=false")


def test_create_sends_protobuf_and_is_understood(kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "team")
    kubectl("create", "configmap", "c", "-n", "team", "--from-literal=a=b")
    kubectl("create", "secret", "generic", "s", "-n", "team", "--from-literal=a=b")
    kubectl("create", "deployment", "d", "-n", "team", "--image", "nginx", "--replicas", "3")
    kubectl("create", "serviceaccount", "sa", "-n", "team")
    kubectl("create", "quota", "q", "-n", "team", "--hard", "cpu=1500m,pods=3")
    kubectl("create", "cronjob", "j", "-n", "team", "--image", "x", "--schedule", "0 0 * * *")
    assert kubectl("create", "token", "sa", "-n", "team").count(".") == 2
    assert kubectl("get", "cm", "c", "-n", "team", "-o", "jsonpath={.data.a}") == "b"
    assert kubectl("get", "secret", "s", "-n", "team", "-o", "jsonpath={.data.a}") == "Yg=="
    assert kubectl("get", "quota", "q", "-n", "team", "-o", "jsonpath={.spec.hard.cpu}") == "1500m"
    assert kubectl("auth", "can-i", "delete", "nodes").strip() == "yes"
    assert "admin" in kubectl("auth", "whoami")


def test_rights_are_shown_and_enforced(kubectl: Kubectl) -> None:
    kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods,configmaps")
    kubectl("create", "rolebinding", "reader", "--role=reader", "--user=ann")
    kubectl("create", "clusterrole", "metrics", "--verb=get", "--non-resource-url=/metrics")
    kubectl("create", "clusterrolebinding", "metrics", "--clusterrole=metrics", "--group=watchers")
    ann = ("--as", "ann")
    for asked, answer in (
        (("list", "pods"), "yes"),
        (("delete", "pods"), "no"),
        (("list", "pods", "-A"), "no"),
        (("get", "pods", "--subresource=log"), "no"),
        (("get", "/version"), "yes"),
        (("get", "/metrics"), "no"),
        (("get", "/metrics", "--as-group=watchers"), "yes"),
    ):
        found = kubectl("auth", "can-i", *asked, *ann, fails=0 if answer == "yes" else 1)
        assert found.split()[0] == answer, asked
    listed = [line.split() for line in kubectl("auth", "can-i", "--list", *ann).splitlines()]
    assert ["configmaps", "[]", "[]", "[get", "list]"] in listed
    assert ["[/version]", "[]", "[get]"] in listed
    assert 'cannot delete resource "pods"' in kubectl("delete", "pod", "p", *ann, fails=1)
    assert kubectl("get", "pods", *ann) == ""
    refused = kubectl("create", "role", "more", "--verb=delete", "--resource=pods", *ann, fails=1)
    assert 'cannot create resource "roles"' in refused
    kubectl("auth", "reconcile", "-f", "-", stdin=ROLE)
    assert kubectl("auth", "can-i", "update", "secrets", *ann).strip() == "yes"


ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: default}
rules:
- {apiGroups: [""], resources: [secrets], verbs: [update]}
"""


def test_explain_and_discovery(kubectl: Kubectl) -> None:
    assert "maxSurge" in kubectl("explain", "deployment.spec.strategy.rollingUpdate")
    assert "apps/v1" in kubectl("api-versions")
    assert "v1.36.3+mooring" in kubectl("version")
    assert "is running at" in kubectl("cluster-info")


def test_a_pod_is_watched_until_it_is_gone(kubectl: Kubectl) -> None:
    kubectl("run", "p", "--image", "nginx")
    assert kubectl("get", "pod", "p", "--no-headers").split()[:3] == ["p", "0/1", "Pending"]
    kubectl("delete", "pod", "p", "--timeout", "10s")
    assert "not found" in kubectl("get", "pod", "p", fails=1)
