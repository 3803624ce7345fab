"""What people do with kubectl, as sessions of invocations: each in a namespace of its own, in order.

`{ns}` is the namespace, `{dir}` a directory with the manifests below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

__all__ = ["MANIFESTS", "SESSIONS", "Invocation"]


@dataclass(frozen=True)
class Invocation:
    """One command line, what it reads from standard input, and what its editor does."""

    line: str
    stdin: str = ""
    editor: str = "false"


DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {team: a}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: c, image: "nginx:1", ports: [{containerPort: 80}], resources: {requests: {cpu: 100m}}}
"""
SERVICE = """
apiVersion: v1
kind: Service
metadata: {name: web, labels: {team: a}}
spec: {clusterIP: None, selector: {app: web}, ports: [{port: 80}]}
"""
CONFIG = """
apiVersion: v1
kind: ConfigMap
metadata: {name: conf, labels: {team: a, prune: me}}
data: {a: "1", b: "2"}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p, labels: {app: p}}
spec:
  containers:
  - {name: c, image: "nginx:1", env: [{name: A, value: x}], volumeMounts: [{name: v, mountPath: /v}]}
  volumes: [{name: v, emptyDir: {}}]
  tolerations: [{key: k, operator: Exists}]
"""
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: "foos.{ns}.example.com"}
spec:
  group: "{ns}.example.com"
  scope: Namespaced
  names: {plural: foos, singular: foo, kind: Foo, shortNames: [fo], categories: [all]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.size, statusReplicasPath: .status.replicas}}
    additionalPrinterColumns:
    - {name: Size, type: integer, jsonPath: .spec.size}
    schema:
      openAPIV3Schema:
        type: object
        description: A foo.
        properties:
          spec:
            type: object
            description: What is wanted.
            required: [size]
            properties:
              size: {type: integer, minimum: 1, default: 3, description: How many.}
              kinds: {type: array, items: {type: string, enum: [a, b]}}
"""
FOO = """
apiVersion: "{ns}.example.com/v1"
kind: Foo
metadata: {name: f}
spec: {size: 2}
"""
MANIFESTS: Mapping[str, str] = {
    "deployment.yaml": DEPLOYMENT,
    "all/deployment.yaml": DEPLOYMENT,
    "all/service.yaml": SERVICE,
    "all/config.yaml": CONFIG,
    "pod.yaml": POD,
    "definition.yaml": DEFINITION,
    "foo.yaml": FOO,
    "base/kustomization.yaml": "resources: [deployment.yaml]\nnamePrefix: k-\nlabels: [{pairs: {k: v}}]\n",
    "base/deployment.yaml": DEPLOYMENT,
}

_SIGNING = """
apiVersion: certificates.k8s.io/v1
kind: CertificateSigningRequest
metadata: {name: "csr-{ns}"}
spec: {signerName: example.com/signer, usages: [client auth], request: REQUEST}
"""


def _lines(*lines: str | Invocation) -> Sequence[Invocation]:
    return [line if isinstance(line, Invocation) else Invocation(line) for line in lines]


SESSIONS: Mapping[str, Sequence[Invocation]] = {
    "get": _lines(
        "apply -f {dir}/all",
        "apply -f {dir}/pod.yaml",
        "get deploy,svc,cm -l team=a",
        "get deploy -o wide",
        "get deploy web -o yaml",
        "get deploy web -o json --show-managed-fields",
        "get deploy web -o jsonpath={.spec.template.spec.containers[*].image}",
        "get deploy web -o go-template={{.metadata.name}}",
        "get cm -o custom-columns=NAME:.metadata.name,A:.data.a",
        "get cm,deploy -o name",
        "get all",
        "get pods --show-labels",
        "get pods -L app",
        "get pods -A --field-selector metadata.namespace={ns}",
        "get pods --field-selector status.phase=Running",
        "get pods --field-selector nonsense=x",
        "get cm --sort-by=.metadata.name --no-headers",
        "get cm --chunk-size=1 -l team",
        "get nothing",
        "get deploy absent",
        "get deploy absent --ignore-not-found",
        "get --raw /api/v1/namespaces/{ns}/configmaps/conf",
        "get --raw /nothing",
        "get deploy web --subresource=scale",
        "get deploy web --subresource=status -o name",
        "get -f {dir}/all -o name",
        "get events",
        "events",
        "get pods -w --request-timeout=3s -o name",
    ),
    "describe and explain": _lines(
        "apply -f {dir}/all -f {dir}/pod.yaml",
        "describe deploy web",
        "describe service web",
        "describe cm conf",
        "describe pod p",
        "describe ns {ns}",
        "describe sa default",
        "describe nothing",
        "describe pod absent",
        "explain deployment",
        "explain deployment.spec.strategy",
        "explain pod.spec.containers.livenessProbe --recursive",
        "explain hpa.spec --api-version=autoscaling/v2",
        "explain nothing",
        "explain pod.spec.nothing",
        "explain deployment --output=plaintext-openapiv2",
        "explain pod.spec.containers.livenessProbe --recursive --output=plaintext-openapiv2",
        "explain service.spec.ports.targetPort --output=plaintext-openapiv2",
        "explain secret --recursive --output=plaintext-openapiv2",
        "explain nothing --output=plaintext-openapiv2",
    ),
    "apply": _lines(
        "apply -f {dir}/all",
        "apply -f {dir}/all",
        "diff -f {dir}/all",
        Invocation("apply -f -", DEPLOYMENT.replace("replicas: 2", "replicas: 5")),
        Invocation("diff -f -", CONFIG.replace('"1"', '"7"')),
        Invocation("apply -f - --dry-run=server -o yaml", CONFIG.replace('"1"', '"8"')),
        Invocation("apply -f - --dry-run=client -o name", CONFIG),
        Invocation("apply -f -", DEPLOYMENT.replace("replicas:", "replicass:")),
        Invocation("apply -f - --validate=warn", CONFIG.replace("data:", "date: {x: y}\ndata:")),
        Invocation("apply -f -", "a: {b"),
        Invocation("apply -f -", "apiVersion: v9\nkind: Nothing\nmetadata: {name: x}\n"),
        "apply view-last-applied cm/conf",
        "apply --server-side -f {dir}/deployment.yaml",
        "apply --server-side -f {dir}/deployment.yaml --field-manager=other",
        "scale deploy web --replicas 4",
        "apply --server-side -f {dir}/deployment.yaml --field-manager=other",
        "apply --server-side --force-conflicts -f {dir}/deployment.yaml --field-manager=other",
        "apply --prune -l prune=me -f {dir}/pod.yaml --prune-allowlist=core/v1/ConfigMap",
        "apply -k {dir}/base",
        "kustomize {dir}/base",
        "delete -k {dir}/base",
        Invocation("replace -f -", CONFIG.replace('"1"', '"9"')),
        Invocation("create -f -", CONFIG),
        Invocation("create -f -", CONFIG),
        Invocation("replace -f -", CONFIG.replace('"1"', '"9"')),
        Invocation("replace --force -f -", CONFIG),
        "delete -f {dir}/all",
    ),
    "edit": _lines(
        "apply -f {dir}/all -f {dir}/pod.yaml",
        "label cm conf x=y",
        "label cm conf x=z",
        "label cm conf x=z --overwrite",
        "label cm conf x-",
        "label cm --all y=z",
        "annotate cm conf why=because",
        "annotate cm conf why-",
        'patch cm conf -p {"data":{"c":"3"}}',
        'patch cm conf --type=merge -p {"data":{"c":null}}',
        'patch cm conf --type=json -p [{"op":"test","path":"/data/a","value":"no"}]',
        'patch cm conf --type=json -p [{"op":"remove","path":"/data/a"}]',
        'patch cm conf -p {"data":{"c":3}}',
        'patch deploy web --subresource=scale --type=merge -p {"spec":{"replicas":1}}',
        "set image deploy/web c=nginx:2",
        "set env deploy/web A=b",
        "set env deploy/web --list",
        "set resources deploy web --limits=cpu=200m",
        "set serviceaccount deploy web default",
        "set selector svc web app=other",
        Invocation("edit cm conf", editor="sed -i '/^  b:/s/2/5/'"),
        Invocation("edit cm conf", editor="true"),
        "scale deploy web --replicas=3 --current-replicas=7",
        "scale deploy web --replicas=3",
        "autoscale deploy web --min=1 --max=3 --cpu-percent=50",
        "get hpa",
        "rollout pause deploy web",
        "rollout resume deploy web",
        "rollout status deploy web --timeout=3s",
        "rollout history deploy web",
        "rollout undo deploy web",
        "rollout restart deploy web",
        "expose deploy web --name=exposed --port=80 --cluster-ip=None",
        "wait --for=condition=Ready pod/p --timeout=1s",
        "wait --for=jsonpath={.data.b}=5 cm/conf --timeout=2s",
        "wait --for=delete pod/absent --timeout=1s",
        "exec p -- true",
        "logs p",
        "cp p:/x /tmp/x",
        "top pods",
    ),
    "create": _lines(
        "create configmap c --from-literal=a=b --from-literal=c=d",
        "create secret generic s --from-literal=a=b",
        "create secret docker-registry r --docker-server=x --docker-username=u --docker-password=p",
        "create deployment d --image=nginx --replicas=0",
        "create service clusterip h --clusterip=None --tcp=80",
        "create service externalname e --external-name=x.example.com",
        "create serviceaccount sa",
        "create role r --verb=get,list --resource=pods",
        "create rolebinding rb --role=r --serviceaccount={ns}:sa",
        "create quota q --hard=count/things.example.com=3",
        "create job j --image=x -- true",
        "create cronjob cj --image=x --schedule=*/5,*,*,*,* -- true",
        "create ingress i --rule=a.example.com/x*=s:80",
        "create pdb b --selector=app=a --min-available=1",
        "create priorityclass pc-{ns} --value=5",
        "create configmap c --from-literal=a=b",
        "create deployment d2 --image=nginx --dry-run=client -o yaml",
        "create deployment d2 --image=nginx --dry-run=server -o name",
        "run r1 --image=nginx --restart=Never",
        "run r2 --image=nginx --dry-run=client -o yaml",
        "run r3 --image=nginx --dry-run=server",
        "create namespace {ns}",
        "get cm,secret,deploy,svc,sa,role,rolebinding,quota,cj,ing,pdb -o name",
        "auth can-i get pods --as=system:serviceaccount:{ns}:sa",
        "auth can-i delete pods --as=system:serviceaccount:{ns}:sa",
        "auth can-i --list --as=system:serviceaccount:{ns}:sa --no-headers",
        "get pods --as=nobody",
        "delete pc pc-{ns}",
    ),
    "delete": _lines(
        "apply -f {dir}/all -f {dir}/pod.yaml",
        "delete cm conf --dry-run=server",
        "delete deploy web --cascade=orphan --wait=false",
        "apply -f {dir}/deployment.yaml",
        "delete deploy web --cascade=background",
        "delete pod p --grace-period=0 --force",
        "delete svc -l team=a",
        "delete cm absent",
        "delete cm absent --ignore-not-found",
        "delete cm --all --wait=false",
        "delete cm",
        "get cm",
    ),
    "cluster": _lines(
        "api-versions",
        "api-resources --sort-by=name",
        "api-resources --namespaced=false --verbs=list -o name",
        "version",
        "cluster-info",
        "config view -o jsonpath={.users[*].nothing}",
        "get ns {ns} -o name",
        Invocation("create -f -", "apiVersion: v1\nkind: Node\nmetadata: {name: 'n-{ns}'}\n"),
        "taint node n-{ns} k=v:NoSchedule",
        "taint node n-{ns} k-",
        "cordon n-{ns}",
        "uncordon n-{ns}",
        "drain n-{ns} --timeout=5s",
        "get node n-{ns} -o name",
        "delete node n-{ns}",
        "apply -f {dir}/definition.yaml",
        "wait --for=condition=Established crd/foos.{ns}.example.com --timeout=10s",
        "apply -f {dir}/foo.yaml",
        "get foos",
        "get fo f -o yaml",
        "explain foos.{ns}.example.com.spec",
        "explain foos.{ns}.example.com --recursive",
        "scale foo f --replicas=4",
        'patch foo f --type=merge -p {"spec":{"size":0}}',
        'patch foo f --type=merge -p {"spec":{"kinds":["c"]}}',
        "describe foo f",
        "delete foo f",
        "delete crd foos.{ns}.example.com --wait=false",
        "auth can-i delete nodes",
        "auth can-i create nothing",
        "get --raw /readyz",
        "create token default --duration=10m --audience=nothing -o jsonpath={.status.nothing}",
        "certificate approve absent",
        "proxy --port=0 --unknown",
    ),
}
