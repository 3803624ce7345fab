"""What upstream's operator leaves of a cluster: its sets, and OpenKruise's workloads with their pods and claims.

Names, labels, owners, finalizers, readiness gates and conditions are upstream's and OpenKruise's; so are the files, as far
as `test_golden` compares them. Pods are made here, since no controller of OpenKruise runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from mooring.kube.object import Object, owner_reference, to_dict
from mooring.kube.objects import apps, core, meta
from mooring.operators.matrixone.defaults import with_defaults
from mooring.operators.matrixone.identity import bootstrap_replicas, write_bootstrap
from mooring.operators.matrixone.names import BOOTSTRAP, CN_UUID, INPUTS, STORE_ID
from mooring.operators.matrixone.specs import ClusterSpecs, CNSpecs, DNSpecs, LogService, LogSpecs, ProxySpecs
from mooring.operators.matrixone.types import CNSet, DNSet, LogSet, MatrixOneCluster, ProxySet

__all__ = ["CONDITIONS", "DEFINITIONS", "KRUISE", "Upstream"]

KRUISE: Final = "apps.kruise.io"
CONDITIONS: Final = ("InPlaceUpdateReady", "KruisePodReady", "matrixorigin.io/cn-store")
"""Readiness gates that its controllers open once."""
_IDS: Final = {"CNSet": "x7k2p", "ProxySet": "9fzqd"}
Json = dict[str, Any]


def _definition(plural: str, kind: str, version: str) -> Json:
    whole = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{KRUISE}"},
        "spec": {
            "group": KRUISE,
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
            ],
        },
    }


DEFINITIONS: Final = (
    _definition("statefulsets", "StatefulSet", "v1beta1"),
    _definition("clonesets", "CloneSet", "v1alpha1"),
)
"""OpenKruise's kinds, without their fields."""


@dataclass(frozen=True)
class Upstream:
    """The objects of one cluster, in three goes: each needs the UIDs of the one before."""

    cluster: MatrixOneCluster
    sets: tuple[Object, ...] = field(default=())
    """As the API server has them."""

    def declared(self) -> Iterator[Json]:
        """The sets, with upstream's finalizers."""
        for one in ClusterSpecs(self.cluster).sets():
            kind = one.resource.kind
            notes = {BOOTSTRAP: write_bootstrap(bootstrap_replicas(3))} if kind == "LogSet" else None
            metadata = replace(
                one.metadata,
                owner_references=[owner_reference(self.cluster)],
                finalizers=[f"matrixorigin.io/{kind.lower()}"],
                annotations=notes,
            )
            yield to_dict(replace(one, metadata=metadata))

    def objects(self) -> Iterator[Json]:
        """Services, configuration and workloads."""
        for owner, one in self._made():
            metadata = replace(one.metadata, owner_references=[owner_reference(owner)], resource_version=None)
            if isinstance(one, core.Service | core.ConfigMap):
                yield {**to_dict(one), "metadata": to_dict(metadata)}
            elif isinstance(one, apps.StatefulSet | apps.Deployment):
                yield _workload(one, metadata)
        for owner in self.sets:
            if isinstance(owner, CNSet):
                name = CNSpecs(owner, self._log).names.main
                labels = {
                    "matrixorigin.io/component": "CNSet",
                    "matrixorigin.io/instance": owner.metadata.name,
                }
                metadata = meta.ObjectMeta(
                    name=name,
                    namespace="default",
                    labels=labels,  # type: ignore[arg-type]
                    owner_references=[owner_reference(owner)],
                )
                yield {
                    "apiVersion": f"{KRUISE}/v1alpha1",
                    "kind": "CloneSet",
                    "metadata": to_dict(metadata),
                    "spec": {"replicas": 1},
                }

    def pods(self, uids: Mapping[str, str]) -> Iterator[Json]:
        """Claims and pods, owned by the workloads of these UIDs, by name."""
        for _, one in self._made():
            if isinstance(one, apps.StatefulSet) and one.spec is not None:
                for at in range(one.spec.replicas or 0):
                    yield from _stateful(one, at, uids[one.metadata.name or ""])
            elif isinstance(one, apps.Deployment) and one.spec is not None and one.spec.template is not None:
                name = one.metadata.name or ""
                yield _pod(one.spec.template, name, _IDS["ProxySet"], _owner("CloneSet", name, uids[name]))
        for owner in self.sets:
            if isinstance(owner, CNSet):
                made = CNSpecs(owner, self._log).pod(_IDS["CNSet"])
                name = CNSpecs(owner, self._log).names.main
                kept = {
                    key: one for key, one in (made.metadata.labels or {}).items() if key not in (STORE_ID,)
                }
                notes = {key: one for key, one in (made.metadata.annotations or {}).items() if key != INPUTS}
                template = core.PodTemplateSpec(
                    metadata=meta.ObjectMeta(labels=kept, annotations=notes), spec=made.spec
                )
                pod = _pod(template, name, _IDS["CNSet"], _owner("CloneSet", name, uids[name]))
                pod["metadata"]["finalizers"] = ["matrixorigin.io/cnstore", "matrixorigin.io/cn-draining"]
                assert CN_UUID in pod["metadata"]["labels"]
                yield pod

    @property
    def _log(self) -> LogService:
        return LogService.of(with_defaults(next(one for one in self.sets if isinstance(one, LogSet))))

    def _made(self) -> Iterator[tuple[Object, Any]]:
        for owner in self.sets:
            match owner:
                case LogSet():
                    every = LogSpecs(with_defaults(owner), members=bootstrap_replicas(3)).objects()
                case DNSet():
                    every = DNSpecs(with_defaults(owner), self._log).objects()
                case CNSet():
                    every = CNSpecs(with_defaults(owner), self._log).objects()
                case ProxySet():
                    every = ProxySpecs(with_defaults(owner), self._log).objects()
                case _:
                    every = []
            yield from ((owner, one) for one in every)


def _owner(kind: str, name: str, uid: str) -> Json:
    version = "v1beta1" if kind == "StatefulSet" else "v1alpha1"
    return {
        "apiVersion": f"{KRUISE}/{version}",
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _workload(one: apps.StatefulSet | apps.Deployment, metadata: meta.ObjectMeta) -> Json:
    stateful = isinstance(one, apps.StatefulSet)
    spec = to_dict(one.spec) if one.spec is not None else {}
    kept = ("replicas", "selector", "template", "serviceName", "volumeClaimTemplates")
    made = {key: value for key, value in spec.items() if key in kept}
    if stateful:
        made["persistentVolumeClaimRetentionPolicy"] = {"whenDeleted": "Delete", "whenScaled": "Delete"}
    return {
        "apiVersion": f"{KRUISE}/{'v1beta1' if stateful else 'v1alpha1'}",
        "kind": "StatefulSet" if stateful else "CloneSet",
        "metadata": {key: value for key, value in to_dict(metadata).items() if key != "annotations"},
        "spec": made,
    }


def _stateful(one: apps.StatefulSet, at: int, uid: str) -> Iterator[Json]:
    assert one.spec is not None
    assert one.spec.template is not None
    main = one.metadata.name or ""
    owner = _owner("StatefulSet", main, uid)
    volumes = []
    for claim in one.spec.volume_claim_templates or ():
        name = f"{claim.metadata.name}-{main}-{at}"
        volumes.append({"name": claim.metadata.name, "persistentVolumeClaim": {"claimName": name}})
        metadata = {
            "name": name,
            "namespace": "default",
            "labels": one.metadata.labels,
            "ownerReferences": [{key: owner[key] for key in ("apiVersion", "kind", "name", "uid")}],
        }
        yield {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": metadata,
            "spec": to_dict(claim.spec) if claim.spec is not None else {},
        }
    made = _pod(one.spec.template, main, str(at), owner)
    name = made["metadata"]["name"]
    made["metadata"]["labels"]["statefulset.kubernetes.io/pod-name"] = name
    made["spec"] |= {"hostname": name, "subdomain": one.spec.service_name}
    made["spec"]["volumes"] = [*volumes, *made["spec"].get("volumes", [])]
    yield made


def _pod(template: core.PodTemplateSpec, main: str, id: str, owner: Json) -> Json:
    made = to_dict(template)
    metadata, spec = made.get("metadata", {}), made["spec"]
    labels = {
        **metadata.get("labels", {}),
        "controller-revision-hash": f"{main}-6d8f9c7b5",
        "lifecycle.apps.kruise.io/state": "Normal",
    }
    if owner["kind"] == "CloneSet":
        labels["apps.kruise.io/cloneset-instance-id"] = id
    gates = [one["conditionType"] for one in spec.get("readinessGates", [])]
    gates += ["InPlaceUpdateReady"] + (["KruisePodReady"] if gates else [])
    spec["readinessGates"] = [{"conditionType": one} for one in gates]
    spec.pop("terminationGracePeriodSeconds", None)
    head = {"name": f"{main}-{id}", "namespace": "default", "labels": labels, "ownerReferences": [owner]}
    if metadata.get("annotations"):
        head["annotations"] = metadata["annotations"]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": head, "spec": spec}
