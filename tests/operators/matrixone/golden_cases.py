"""The declarations whose objects are compared with upstream's, by name: kind, changes of it, changes of its LogSet."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

__all__ = ["CASES", "Case"]


class Case(NamedTuple):
    """One declaration."""

    kind: str
    changes: Mapping[str, Any] = {}
    log: Mapping[str, Any] = {}


def pods(**changes: Any) -> dict[str, Any]:
    return {f"spec__{name}": value for name, value in changes.items()}


def stored(**s3: Any) -> dict[str, Any]:
    return {"spec__sharedStorage": {"s3": s3}}


V2: Final = "matrixorigin/matrixone:2.0.3"
AWS: Final = {"path": "bucket/a/b/", "secretRef": {"name": "aws"}}
OWN: Final = {"type": "minio", "endpoint": "https://10.0.0.7:9000", "path": "/bucket", "region": "eu-1"}
SHARED: Final = {"spec__sharedStorage": {"fileSystem": {"path": "/mnt/shared"}}}
MEMORY: Final = {"limits": {"memory": "4Gi"}, "requests": {"memory": "3Gi", "cpu": "1"}}
OVERLAY: Final = {
    "env": [{"name": "A", "value": "1"}, {"name": "GODEBUG", "value": "x=1"}],
    "envFrom": [{"configMapRef": {"name": "more"}}],
    "imagePullPolicy": "Always",
    "volumes": [{"name": "extra", "emptyDir": {}}],
    "volumeMounts": [{"name": "extra", "mountPath": "/extra"}],
    "livenessProbe": {"tcpSocket": {"port": 6001}},
    "initContainers": [{"name": "init", "image": "busybox:1"}],
    "sidecarContainers": [{"name": "side", "image": "busybox:1"}],
    "serviceAccountName": "mo",
    "securityContext": {"fsGroup": 1000},
    "mainContainerSecurityContext": {"privileged": True},
    "imagePullSecrets": [{"name": "pull"}],
    "tolerations": [{"key": "mo", "operator": "Exists"}],
    "priorityClassName": "high",
    "terminationGracePeriodSeconds": 90,
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["a"]}],
    "runtimeClassName": "kata",
    "dnsConfig": {"nameservers": ["10.0.0.2"]},
    "podLabels": {"team": "data"},
    "podAnnotations": {"note": "x"},
    "shareProcessNamespace": True,
}
EXPORTED: Final = {"spec__exportToPrometheus": True}
BY_POD: Final = {**EXPORTED, "spec__promDiscoveryScheme": "Pod"}
PLACED: Final = pods(nodeSelector={"disk": "ssd"}, topologySpread=["zone", "kubernetes.io/hostname"])
LEVEL: Final = '[log]\nlevel = "debug"\nmax-size = 512\n\n[observability]\nratio = 0.5\n'
SERVICES: Final = (
    '[[fileservice]]\nname = "S3"\n[fileservice.cache]\nmemory-capacity = "2GiB"\n[fileservice.s3]\nis-minio = true\n'
    '[[fileservice]]\nname = "COLD"\nbackend = "DISK"\ndata-dir = "/cold"\n'
)

CASES: Final[Mapping[str, Case]] = {
    "log": Case("LogSet"),
    "log-single": Case("LogSet", {"spec__replicas": 1}),
    "log-five": Case(
        "LogSet", {"spec__replicas": 5, "spec__initialConfig": {"logShardReplicas": 3, "logShards": 2}}
    ),
    "log-aws": Case("LogSet", stored(**AWS)),
    "log-own": Case("LogSet", stored(**OWN)),
    "log-certificates": Case(
        "LogSet", stored(**OWN, certificateRef={"name": "ca", "files": ["a.pem", "b.pem"]})
    ),
    "log-shared": Case("LogSet", SHARED),
    "log-restored": Case("LogSet", {"spec__initialConfig": {"restoreFrom": "hk_data"}}),
    "log-2.0": Case("LogSet", pods(image=V2)),
    "log-1.3": Case("LogSet", pods(operatorVersion="1.3.0")),
    "log-exported": Case("LogSet", EXPORTED),
    "log-exported-by-pod": Case("LogSet", BY_POD),
    "log-memory": Case(
        "LogSet", pods(memoryFsSize="500Mi", memoryLimitPercent=90, resources=MEMORY, overlay={})
    ),
    "log-overlay": Case(
        "LogSet", pods(overlay={**OVERLAY, "volumeClaims": [{"metadata": {"name": "more"}, "spec": {}}]})
    ),
    "log-placed": Case("LogSet", PLACED),
    "log-config": Case("LogSet", pods(config=LEVEL)),
    "log-services": Case("LogSet", pods(config=SERVICES)),
    "log-retained": Case(
        "LogSet", pods(pvcRetentionPolicy="Retain", volume={"size": "1Ti", "storageClassName": "fast"})
    ),
    "dn": Case("DNSet"),
    "dn-cached": Case("DNSet", pods(cacheVolume={"size": "100Gi"}, resources=MEMORY)),
    "dn-tn": Case("DNSet", pods(config="[tn]\nreplay-parallel = 4\n")),
    "dn-dn": Case("DNSet", pods(config="[dn.Txn]\nmode = 1\n")),
    "dn-2.0": Case("DNSet", pods(image=V2)),
    "dn-1.3": Case("DNSet", pods(operatorVersion="1.3.0")),
    "dn-by-host": Case("DNSet", pods(dnsBasedIdentity=True)),
    "dn-exported": Case("DNSet", EXPORTED),
    "dn-overlay": Case("DNSet", pods(overlay=OVERLAY)),
    "dn-shared": Case("DNSet", {}, SHARED),
    "cn": Case("CNSet"),
    "cn-cached": Case(
        "CNSet",
        pods(
            cacheVolume={"size": "1.5Ti"}, resources=MEMORY, sharedStorageCache={"memoryCacheSize": "1024Mi"}
        ),
    ),
    "cn-draining": Case("CNSet", pods(scalingConfig={"storeDrainEnabled": True})),
    "cn-udf": Case(
        "CNSet",
        pods(
            pythonUdfSidecar={
                "enabled": True,
                "port": 5005,
                "overlay": {"env": [{"name": "U", "value": "1"}]},
            }
        ),
    ),
    "cn-labels": Case("CNSet", pods(cnLabels=[{"key": "role", "values": ["a", "b"]}], role="AP")),
    "cn-2.0": Case("CNSet", pods(image=V2)),
    "cn-1.3": Case("CNSet", pods(operatorVersion="1.3.0")),
    "cn-node-port": Case("CNSet", pods(serviceType="NodePort", nodePort=30011)),
    "cn-balanced": Case(
        "CNSet",
        pods(serviceType="LoadBalancer", serviceAnnotations={"lb": "internal"}, exportToPrometheus=True),
    ),
    "cn-exported-by-pod": Case("CNSet", BY_POD),
    "cn-pooled": Case("CNSet", pods(podManagementPolicy="Pooling")),
    "cn-memory": Case(
        "CNSet", pods(memoryFsSize="500Mi", memoryLimitPercent=50, resources=MEMORY, overlay={})
    ),
    "cn-overlay": Case("CNSet", pods(overlay=OVERLAY)),
    "cn-behind-a-proxy": Case("CNSet", pods(config="[cn.frontend]\nproxy-enabled = true\n")),
    "proxy": Case("ProxySet"),
    "proxy-waiting": Case("ProxySet", pods(waitPluginAddr="plugin:8080", minReadySeconds=5)),
    "proxy-node-port": Case("ProxySet", pods(serviceType="NodePort", nodePort=30012, replicas=2)),
    "proxy-exported": Case("ProxySet", EXPORTED),
    "proxy-overlay": Case("ProxySet", pods(overlay=OVERLAY)),
    "proxy-2.0": Case("ProxySet", pods(image=V2, operatorVersion="1.3.0")),
    "ui": Case("WebUI", pods(updateStrategy={"maxSurge": 1, "maxUnavailable": 0})),
    "ui-placed": Case(
        "WebUI", {**PLACED, **pods(updateStrategy={"maxUnavailable": "25%"}, serviceType="NodePort")}
    ),
}
