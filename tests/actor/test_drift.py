"""What counts as a difference between a declared and a live object."""

import pytest

from mooring.actor.drift import APPLIED, as_found, differs, stamped
from mooring.kube.objects import apps, core
from mooring.kube.objects.meta import LabelSelector, ObjectMeta


def pod(**spec: object) -> core.Pod:
    return core.Pod(metadata=ObjectMeta(name="a"), spec=core.PodSpec(**spec))  # type: ignore[arg-type]


def container(**fields: object) -> core.Container:
    return core.Container(name="redis", **fields)  # type: ignore[arg-type]


def test_fields_set_by_the_server_are_not_ours_to_compare() -> None:
    wanted = pod(containers=[container(image="redis:7")])
    live = pod(
        containers=[container(image="redis:7", image_pull_policy="IfNotPresent")], dns_policy="ClusterFirst"
    )
    assert differs(wanted, live) == ""


@pytest.mark.parametrize(
    ("wanted", "live"),
    [
        (
            core.ResourceRequirements(limits={"memory": "1Gi"}),
            core.ResourceRequirements(limits={"memory": "1024Mi"}),
        ),
        (core.ResourceRequirements(limits={"cpu": 1}), core.ResourceRequirements(limits={"cpu": "1"})),
        (core.ResourceRequirements(limits={"cpu": "0.5"}), core.ResourceRequirements(limits={"cpu": "500m"})),
    ],
)
def test_quantities_are_compared_by_meaning(
    wanted: core.ResourceRequirements, live: core.ResourceRequirements
) -> None:
    assert differs(wanted, live) == ""


def test_labels_are_compared_as_text() -> None:
    wanted = core.Pod(metadata=ObjectMeta(name="a", labels={"n": "1"}))
    live = core.Pod(metadata=ObjectMeta(name="a", labels={"n": "1.0"}))
    assert differs(wanted, live) == "metadata.labels[n]"


def test_a_difference_names_its_path() -> None:
    wanted = pod(containers=[container(resources=core.ResourceRequirements(limits={"memory": "2Gi"}))])
    live = pod(containers=[container(resources=core.ResourceRequirements(limits={"memory": "1Gi"}))])
    assert differs(wanted, live) == "spec.containers[0].resources.limits[memory]"


def test_an_injected_container_is_left_alone() -> None:
    wanted = pod(containers=[container(image="redis:7")])
    live = pod(containers=[core.Container(name="proxy", image="x"), container(image="redis:7")])
    assert differs(wanted, live) == ""


def test_a_port_without_protocol_fits_the_default_one() -> None:
    wanted = pod(containers=[container(ports=[core.ContainerPort(container_port=6379)])])
    live = pod(containers=[container(ports=[core.ContainerPort(container_port=6379, protocol="TCP")])])
    assert differs(wanted, live) == ""


def test_a_missing_entry_of_a_keyed_list_differs() -> None:
    wanted = pod(containers=[container(), core.Container(name="exporter")])
    live = pod(containers=[container()])
    assert differs(wanted, live) == "spec.containers[1]"


def test_an_atomic_list_is_compared_whole() -> None:
    wanted, live = pod(containers=[container(args=["a"])]), pod(containers=[container(args=["a", "b"])])
    assert differs(wanted, live) == "spec.containers[0].args"


def test_empty_and_absent_mean_the_same() -> None:
    wanted = pod(containers=[container(env=[], tty=False)], node_selector={}, host_network=False)
    assert differs(wanted, pod(containers=[container()])) == ""


def test_an_empty_struct_asks_for_nothing_but_a_set_one_does() -> None:
    assert differs(pod(security_context=core.PodSecurityContext()), pod()) == ""
    assert differs(pod(security_context=core.PodSecurityContext(run_as_user=1)), pod()) != ""


def test_a_field_we_gave_up_changes_the_stamp() -> None:
    with_limit = stamped(pod(containers=[container(image="a", tty=True)]))
    without = stamped(pod(containers=[container(image="a")]))
    assert differs(without, with_limit) == f"metadata.annotations[{APPLIED}]"


def test_immutable_fields_are_sent_as_found() -> None:
    wanted = apps.StatefulSet(
        metadata=ObjectMeta(name="a"),
        spec=apps.StatefulSetSpec(selector=LabelSelector(match_labels={"a": "new"}), replicas=5),
    )
    live = apps.StatefulSet(
        metadata=ObjectMeta(name="a"),
        spec=apps.StatefulSetSpec(
            selector=LabelSelector(match_labels={"a": "old"}),
            replicas=3,
            pod_management_policy="OrderedReady",
        ),
    )
    sent = as_found(wanted, live)
    assert sent.spec is not None
    assert sent.spec.selector == LabelSelector(match_labels={"a": "old"})
    assert sent.spec.pod_management_policy == "OrderedReady"
    assert sent.spec.replicas == 5


def test_the_type_of_a_secret_that_a_person_made_is_sent_as_found() -> None:
    wanted = stamped(core.Secret(metadata=ObjectMeta(name="a"), type="Opaque", data={"password": "eA=="}))
    live = core.Secret(metadata=wanted.metadata, type="kubernetes.io/basic-auth", data={"password": "eA=="})
    assert differs(wanted, live) == "type"
    assert differs(as_found(wanted, live), live) == ""
