"""StatefulSets whose template is written by moves alone."""

from __future__ import annotations

from mooring.kube import Key
from mooring.kube.objects import apps, core, meta
from mooring.operators.workload.statefulset import keeping_template, made_from, selector_of, set_key, state_of

INPUTS = "test/inputs"


def declared(image: str, **metadata: object) -> apps.StatefulSet:
    pod = core.PodSpec(containers=[core.Container(name="server", image=image)])
    return apps.StatefulSet(
        metadata=meta.ObjectMeta(name="shop", namespace="default", **metadata),  # type: ignore[arg-type]
        spec=apps.StatefulSetSpec(
            replicas=3,
            selector=meta.LabelSelector(match_labels={"app": "shop"}),
            template=core.PodTemplateSpec(spec=pod),
        ),
    )


def image_of(one: apps.StatefulSet) -> str | None:
    assert one.spec is not None
    assert one.spec.template is not None
    assert one.spec.template.spec is not None
    return (one.spec.template.spec.containers or [])[0].image


def test_the_template_in_place_stays_and_its_digest_with_it() -> None:
    found = declared("old", annotations={INPUTS: "1"}, resource_version="7")
    made = keeping_template(declared("new", annotations={INPUTS: "2", "other": "x"}), found, INPUTS)
    assert image_of(made) == "old"
    assert made.metadata.annotations == {INPUTS: "1", "other": "x"}
    assert made.metadata.resource_version == "7"


def test_without_a_set_the_declared_template_is_the_first() -> None:
    made = keeping_template(declared("new", annotations={INPUTS: "2"}), None, INPUTS)
    assert (image_of(made), made.metadata.resource_version) == ("new", None)


def test_a_set_made_by_hand_was_made_from_nothing() -> None:
    found = declared("old")
    assert made_from(found, INPUTS) == made_from(None, INPUTS) == ""
    state = state_of(found, replicas=3, asked="2", annotation=INPUTS)
    assert (state.current, state.inputs, state.asked) == (False, "", "2")
    assert selector_of(found) == {"app": "shop"}
    assert selector_of(None) == {}


def test_a_revision_counts_once_the_controller_has_seen_the_template() -> None:
    status = apps.StatefulSetStatus(replicas=3, observed_generation=1, update_revision="shop-1")
    for generation, revision in ((1, "shop-1"), (2, "")):
        found = declared("old", generation=generation, annotations={INPUTS: "1"})
        found = apps.StatefulSet(metadata=found.metadata, spec=found.spec, status=status)
        state = state_of(found, replicas=3, asked="1", annotation=INPUTS)
        assert (state.update_revision, state.current) == (revision, True)


def test_a_pod_leads_to_the_set_that_controls_it() -> None:
    def pod(kind: str) -> core.Pod:
        owner = meta.OwnerReference(api_version="apps/v1", kind=kind, name="shop", uid="1", controller=True)
        return core.Pod(metadata=meta.ObjectMeta(name="p", namespace="ns", owner_references=[owner]))

    assert list(set_key(pod("StatefulSet"))) == [Key("ns", "shop")]
    assert list(set_key(pod("ReplicaSet"))) == []
    assert list(set_key(core.Pod(metadata=meta.ObjectMeta(name="p")))) == []
