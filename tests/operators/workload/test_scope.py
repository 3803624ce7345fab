"""Which objects a process manages: by scope, and by the annotation that the operator declares for its kind."""

from __future__ import annotations

import pytest

from mooring.kube.objects.core import ConfigMap
from mooring.kube.objects.meta import ObjectMeta
from mooring.operators.workload.scope import SCOPE_ANNOTATION, managed

OTHER = "example.com/scope"


@pytest.mark.parametrize("annotation", [SCOPE_ANNOTATION, OTHER])
@pytest.mark.parametrize(
    ("scope", "marked", "yielded", "ours"),
    [
        ("cluster", True, False, True),
        ("cluster", False, False, False),
        ("namespaced", True, False, False),
        ("namespaced", False, False, True),
        ("all", True, True, True),
        ("all", False, False, True),
        ("all", False, True, False),
    ],
)
def test_only_the_annotation_of_the_operator_marks_an_object(
    annotation: str, scope: str, marked: bool, yielded: bool, ours: bool
) -> None:
    foreign = OTHER if annotation == SCOPE_ANNOTATION else SCOPE_ANNOTATION
    marks = {annotation if marked else foreign: "cluster-scoped"}
    one = ConfigMap(metadata=ObjectMeta(name="a", namespace="n", annotations=marks))
    assert managed(one, scope=scope, annotation=annotation, yielded=lambda _: yielded) is ours
