"""The API: what a user declares, and what the operator reports."""

from typing import Annotated, ClassVar

from mooring.kube import Object, Part, Resource
from mooring.kube.objects.meta import Condition
from mooring.operators.workload.retries import Failure
from mooring.operators.workload.rollout import Roll
from mooring.runtime import F, PrinterColumn, Scale, crd

RESTARTS = "A change restarts the servers, one by one."


class Spec(Part, frozen=True, kw_only=True):
    replicas: Annotated[int, F("Number of servers.", minimum=1, default=1)] = 1
    memory_megabytes: Annotated[int, F("For items; changed while they run.", minimum=8, default=64)] = 64
    verbosity: Annotated[int, F("Log level; changed while they run.", minimum=0, maximum=3, default=0)] = 0
    image: Annotated[str, F(RESTARTS, default="memcached:1.6")] = "memcached:1.6"
    threads: Annotated[int, F(RESTARTS, minimum=1, maximum=128, default=4)] = 4
    max_connections: Annotated[int, F(RESTARTS, minimum=1, default=1024)] = 1024
    max_item_size: Annotated[str, F(RESTARTS, pattern="^[1-9][0-9]*[km]?$", default="1m")] = "1m"


class Member(Part, frozen=True, kw_only=True):
    name: Annotated[str, F("The pod.")]
    state: Annotated[str, F("Serving, Starting, or why its pod does not run.")]
    message: Annotated[str, F("For people.")] = ""


class Status(Part, frozen=True, kw_only=True):
    observed_generation: int | None = None
    replicas: Annotated[int | None, F("Number of pods.")] = None
    ready_replicas: Annotated[int | None, F("Servers that serve.")] = None
    selector: Annotated[str | None, F("Label selector of the pods.")] = None
    members: Annotated[list[Member] | None, F("The servers.")] = None
    rolls: Annotated[dict[str, Roll] | None, F("The roll-out under way or halted.")] = None
    failure: Annotated[Failure | None, F("The step that failed last.")] = None
    conditions: list[Condition] | None = None


@crd(
    columns=(PrinterColumn("Serving", ".status.readyReplicas", "integer"),),
    scale=Scale(selector_path=".status.selector"),
)
class Memcached(Object, frozen=True, kw_only=True):
    """Memcached servers behind a headless Service."""

    resource: ClassVar[Resource] = Resource("examples.mooring.dev", "v1", "Memcached", "memcacheds")
    spec: Spec | None = None
    status: Status | None = None
