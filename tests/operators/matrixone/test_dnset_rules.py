"""The pods of transaction nodes keep their directory when a container restarts."""

from __future__ import annotations

from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.matrixone.advice import warnings
from mooring.operators.matrixone.dnset.specs import lasting
from mooring.operators.matrixone.logset.specs import DATA
from mooring.operators.matrixone.specs import DNSpecs, LogService
from mooring.operators.matrixone.types import DNSet, DNSetSpec, Volume

SERVICE = LogService(address="mo-log-discovery.ns.svc:32001")


def volumes(spec: DNSetSpec) -> tuple[bool, bool]:
    """Whether the data has a mount, and whether an emptyDir stands for a claim."""
    owner = DNSet(metadata=ObjectMeta(name="mo", namespace="ns"), spec=spec)
    made = lasting(DNSpecs(owner, SERVICE).stateful_set())
    assert made.spec is not None
    assert made.spec.template is not None
    pod = made.spec.template.spec
    assert pod is not None
    main = (pod.containers or [])[0]
    mounted = [one.name for one in main.volume_mounts or () if one.mount_path == "/var/lib/matrixone"]
    empty = any(one.name == DATA and one.empty_dir is not None for one in pod.volumes or ())
    return mounted == [DATA], empty


def test_a_transaction_node_without_a_claim_keeps_its_directory_over_container_restarts() -> None:
    assert volumes(DNSetSpec(image="m/matrixone:1.2.4", replicas=1)) == (True, True)


def test_a_declared_claim_is_used_instead() -> None:
    spec = DNSetSpec(image="m/matrixone:1.2.4", replicas=1, cache_volume=Volume(size="1Gi"))
    assert volumes(spec) == (True, False)


def test_a_transaction_node_without_a_claim_is_warned_of() -> None:
    one = DNSet(
        metadata=ObjectMeta(name="mo", namespace="ns"), spec=DNSetSpec(image="m/matrixone:1.2.4", replicas=1)
    )
    assert any("may lose acknowledged writes" in said for said in warnings(one))
