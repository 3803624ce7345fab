"""The API: what a user declares, and what the operator reports."""

from typing import Annotated, ClassVar

from mooring.kube import Object, Part, Resource
from mooring.kube.objects.meta import Condition
from mooring.operators.workload.rollout import Roll
from mooring.runtime import F, PrinterColumn, Scale, crd


class Spec(Part, frozen=True, kw_only=True):
    replicas: Annotated[int, F("Number of servers.", minimum=0, maximum=100, default=1)] = 1
    image: Annotated[str, F("A change replaces the servers, one by one.", default="busybox:1")] = "busybox:1"
    greeting: Annotated[str, F("What the servers answer; a change replaces them.", default="hello")] = "hello"


class Status(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    replicas: Annotated[int | None, F("Number of pods.")] = None
    ready_replicas: Annotated[int | None, F("Servers that serve.")] = None
    selector: Annotated[str | None, F("Label selector of the pods.")] = None
    rolls: Annotated[dict[str, Roll] | None, F("The roll-out under way or halted.")] = None
    conditions: list[Condition] | None = None


@crd(
    columns=(
        PrinterColumn("Serving", ".status.readyReplicas", "integer"),
        PrinterColumn("Ready", ".status.conditions[?(@.type=='Ready')].status"),
    ),
    scale=Scale(selector_path=".status.selector"),
)
class Widget(Object, frozen=True, kw_only=True):
    """Servers that answer HTTP requests on port 8080 with a greeting."""

    resource: ClassVar[Resource] = Resource("apps.example.org", "v1alpha1", "Widget", "widgets")
    spec: Spec | None = None
    status: Status | None = None
