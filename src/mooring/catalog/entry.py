"""A catalog entry: what is offered, the form that asks for it, and the manifest it starts from.

CatalogError(problems)    entries that cannot be used; one line per problem, naming file and path
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import msgspec
import yaml

from mooring.diagnosis import OperatorHint
from mooring.kube.object import Resource
from mooring.runtime.crd_markers import F

__all__ = [
    "API_VERSION",
    "GROUP_PATTERN",
    "KIND_PATTERN",
    "PLURAL_PATTERN",
    "VERSION_PATTERN",
    "WIDGETS",
    "Action",
    "CatalogError",
    "Chart",
    "Collection",
    "Column",
    "Entry",
    "Figure",
    "Making",
    "Members",
    "Metrics",
    "Operator",
    "Outcome",
    "Parameter",
    "Parameters",
    "Plan",
    "Restoring",
    "Rule",
    "Section",
    "Target",
    "Text",
    "Topology",
    "Ui",
    "Unit",
    "parse_entry",
]

API_VERSION: Final = "catalog.mooring.dev/v1alpha1"
#: How a field may be shown; the list is closed so that a new operator needs no front-end work.
WIDGETS: Final = frozenset(
    {"text", "number", "stepper", "quantity", "switch", "select", "keyValue", "secret", "version"}
)
#: What may stand in a path of the API server, and the name of a kind.
GROUP_PATTERN: Final = "^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$"
VERSION_PATTERN: Final = "^v[0-9][a-z0-9]*$"
PLURAL_PATTERN: Final = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
KIND_PATTERN: Final = "^[A-Za-z0-9]+$"
#: Bytes of one entry.
SIZE_LIMIT: Final = 256 * 1024


class CatalogError(ValueError):
    """Entries that cannot be used; ``problems`` has one line for each thing to mend."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Frozen data that refuses unknown keys: a typo in an entry is reported, never ignored."""


class Text(_Data, frozen=True, kw_only=True):
    """A text in English and in Chinese."""

    en: str = ""
    zh: str = ""


class Ui(_Data, frozen=True, kw_only=True):
    """How a field is shown: in which section, by which of the `WIDGETS`."""

    group: str = ""
    widget: str = ""
    unit: Text | None = None


class Parameter(_Data, frozen=True, kw_only=True):
    """One field of the form: a JSON Schema of a single value, and the path it is bound to.

    ``bind`` is a JSON pointer into the custom resource. A ``sensitive`` value is never shown again, an ``immutable``
    one cannot be changed once the instance is there.
    """

    type: Literal["string", "integer", "number", "boolean", "object"]
    title: Text
    description: Text | None = None
    default: Any = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = msgspec.field(default=None, name="minLength")
    max_length: int | None = msgspec.field(default=None, name="maxLength")
    pattern: str = ""
    enum: tuple[Any, ...] = ()
    format: Literal["", "quantity", "bytes"] = ""
    bind: str = msgspec.field(name="x-bind")
    ui: Ui = msgspec.field(default_factory=Ui, name="x-ui")
    sensitive: bool = msgspec.field(default=False, name="x-sensitive")
    immutable: bool = msgspec.field(default=False, name="x-immutable")


class Parameters(_Data, frozen=True, kw_only=True):
    """The fields of the form, in the order of ``order``, then in the one they are written in.

    An API server keeps no order of keys: what is stored in a cluster needs ``order``.
    """

    type: Literal["object"] = "object"
    required: tuple[str, ...] = ()
    order: tuple[str, ...] = ()
    properties: dict[str, Parameter] = {}

    def __post_init__(self) -> None:
        first = {name: self.properties[name] for name in self.order if name in self.properties}
        if first:
            msgspec.structs.force_setattr(self, "properties", first | self.properties)


class Section(_Data, frozen=True, kw_only=True):
    """A part of the form; ``advanced`` ones are closed at first."""

    name: str
    title: Text
    advanced: bool = False


class Plan(_Data, frozen=True, kw_only=True):
    """Values for some of the fields, chosen by one click."""

    name: str
    title: Text
    summary: Text | None = None
    values: dict[str, Any] = {}
    default: bool = False


class Target(_Data, frozen=True, kw_only=True):
    """The kind of the custom resource."""

    group: Annotated[str, F(pattern=GROUP_PATTERN)]
    version: Annotated[str, F(pattern=VERSION_PATTERN)]
    kind: Annotated[str, F(pattern=KIND_PATTERN)]
    plural: Annotated[str, F(pattern=PLURAL_PATTERN)]
    namespaced: bool = True

    @property
    def resource(self) -> Resource:
        """The kind as clients know it."""
        return Resource(self.group, self.version, self.kind, self.plural, self.namespaced)


class Display(_Data, frozen=True, kw_only=True):
    """What a card shows."""

    title: Text
    summary: Text
    description: Text | None = None
    categories: tuple[str, ...] = ()


class Status(_Data, frozen=True, kw_only=True):
    """Where the instance says how it is: a JSON pointer to the list with Ready, Progressing and Stalled.

    ``ready`` is the type of the condition that stands for Ready, "" for Ready, Available or Healthy.
    """

    conditions: str = "/status/conditions"
    ready: str = ""


class Members(_Data, frozen=True, kw_only=True):
    """Where an instance says who is who: a list in its status, and the keys of its elements.

    ``list`` is a JSON pointer; ``name`` is the key with the pod's name.
    """

    list: str
    name: str = "name"
    role: str = "role"
    state: str = "state"


class Topology(_Data, frozen=True, kw_only=True):
    """How the pods of an instance are told apart: by labels, and by what the status says of each.

    ``part`` is the label that says what a pod is for, ``role`` the one with its role; ``roles`` and ``parts`` have
    titles for their values. ``select`` are labels of the instance's pods, for a kind that does not own them through
    built-in workloads; ``{name}`` in a value is the instance's name.
    """

    select: dict[str, str] = {}
    part: str = "app.kubernetes.io/component"
    role: str = ""
    members: Members | None = None
    roles: dict[str, Text] = {}
    parts: dict[str, Text] = {}


class Other(_Data, frozen=True, kw_only=True):
    """Another object of an instance's namespace, which the instance must own; ``{name}`` is the instance's name."""

    group: Annotated[str, F(pattern=GROUP_PATTERN)] = ""
    version: Annotated[str, F(pattern=VERSION_PATTERN)] = "v1"
    plural: Annotated[str, F(pattern=PLURAL_PATTERN)]
    name: str


class Action(_Data, frozen=True, kw_only=True):
    """Something to do with an instance by one click: a few paths that are set.

    ``set`` maps JSON pointers to values (null takes away), ``stamp`` is a pointer that is set to the time, ``field`` a
    field of the form to ask for. It is possible ``when`` all these pointers have these values (null: nothing, or false).
    It changes the instance, or the ``target`` object. ``effect`` says what clients will notice.
    """

    name: str
    title: Text
    description: Text
    effect: Literal["none", "reload", "rolling", "interruption"] = "none"
    when: dict[str, Any] = {}
    set: dict[str, Any] = {}
    stamp: str = ""
    field: str = ""
    target: Other | None = None


class Operator(_Data, frozen=True, kw_only=True):
    """How the operator of the kind shows that it works.

    It holds a Lease ``LEASE-all``, ``LEASE-cluster`` or ``LEASE-namespaced``, after its scope. An instance whose
    ``scopeAnnotation`` is ``cluster-scoped`` is of a shared operator. Without ``scoped`` there is one operator for
    everything, and ``lease`` is the whole name.
    """

    lease: str
    scope_annotation: str = msgspec.field(default="", name="scopeAnnotation")
    scoped: bool = True

    @property
    def hint(self) -> OperatorHint:
        """The same for a diagnosis."""
        return OperatorHint(lease=self.lease, annotation=self.scope_annotation, scoped=self.scoped)


class Retention(_Data, frozen=True, kw_only=True):
    """What stays and what goes when an instance is deleted, a line each."""

    stays: tuple[Text, ...] = ()
    goes: tuple[Text, ...] = ()


Unit = Literal["", "bytes", "cores", "perSecond", "seconds", "percent"]
"""How a number is shown."""


class Chart(_Data, frozen=True, kw_only=True):
    """A chart of metrics: a query in PromQL, in which ``$namespace`` and ``$name`` are the instance's.

    The label ``legend`` tells its lines apart.
    """

    title: Text
    query: str
    unit: Unit = ""
    legend: str = "pod"


class Figure(_Data, frozen=True, kw_only=True):
    """A number or a word of the instance itself: a JSON pointer."""

    title: Text
    path: str
    unit: Unit = ""


class Metrics(_Data, frozen=True, kw_only=True):
    """What the page of metrics shows: charts where there is a Prometheus, and figures of the status."""

    charts: tuple[Chart, ...] = ()
    figures: tuple[Figure, ...] = ()


class Rule(_Data, frozen=True, kw_only=True):
    """What several fields must fulfil together: a CEL expression over ``params`` that must be true."""

    cel: str
    message: Text
    field: str = ""


class Column(_Data, frozen=True, kw_only=True):
    """A column of a collection: a JSON pointer.

    A ``time`` is shown as its age, ``bytes`` in units, a ``flag`` as yes or no.
    """

    title: Text
    path: str
    kind: Literal["text", "time", "bytes", "flag"] = "text"


class Outcome(_Data, frozen=True, kw_only=True):
    """Where an object of a collection says how it went, and which of its words are good or bad; others mean: not yet."""

    path: str
    good: tuple[str, ...] = ()
    bad: tuple[str, ...] = ()


class Making(_Data, frozen=True, kw_only=True):
    """A form for a new object of a collection; ``render`` is the manifest that it starts from."""

    title: Text
    description: Text
    parameters: Parameters = Parameters()
    rules: tuple[Rule, ...] = ()
    render: dict[str, Any] = {}


class Restoring(_Data, frozen=True, kw_only=True):
    """How an instance is made of an object of a collection.

    The form of the entry begins with the values of the instance that the object belongs to, but for the fields in
    ``ask``, which begin empty. After it is rendered, the paths in ``drop`` are taken away and those in ``set`` are set;
    in texts ``{name}`` is the object's name, ``{instance}`` that of the instance, and ``{object}`` what the object has
    at the JSON pointer ``object``. Possible where the object's outcome is good.
    """

    title: Text
    description: Text
    ask: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    set: dict[str, Any] = {}
    object: str = ""


class Collection(_Data, frozen=True, kw_only=True):
    """Objects of another kind that belong to an instance, such as its backups.

    They name the instance at the JSON pointer ``of`` as ``named`` says, in which ``{namespace}`` and ``{name}`` are the
    instance's; and they have the values in ``where`` at those pointers (null: nothing). New ones get both. A kind of the
    whole cluster has no form.
    """

    name: str
    title: Text
    description: Text
    target: Target
    of: str
    named: str = "{name}"
    where: dict[str, Any] = {}
    columns: tuple[Column, ...] = ()
    outcome: Outcome | None = None
    create: Making | None = None
    restore: Restoring | None = None


class Spec(_Data, frozen=True, kw_only=True):
    """What an entry says. ``requests`` maps resources of a ResourceQuota to what an instance needs of them, in CEL.

    A ``companion`` is no service but goes with one, such as a backup: it is listed apart. Only with ``override`` a
    ClusterServiceTemplate takes the place of a packaged entry of its name.
    """

    display: Display
    target: Target
    sections: tuple[Section, ...] = ()
    parameters: Parameters = Parameters()
    plans: tuple[Plan, ...] = ()
    render: dict[str, Any] = {}
    sensitive: tuple[str, ...] = ()
    status: Status = Status()
    override: bool = False
    companion: bool = False
    operator: Operator | None = None
    topology: Topology = Topology()
    actions: tuple[Action, ...] = ()
    retention: Retention = Retention()
    rules: tuple[Rule, ...] = ()
    requests: dict[str, str] = {}
    metrics: Metrics = Metrics()
    collections: tuple[Collection, ...] = ()


class Metadata(_Data, frozen=True, kw_only=True):
    """The name of an entry."""

    name: str


class Entry(_Data, frozen=True, kw_only=True):
    """One service that can be created.

    ``curated`` entries were written by people; the others are derived from a CustomResourceDefinition. One with a
    ``namespace`` is offered there alone.
    """

    api_version: str = msgspec.field(default=API_VERSION, name="apiVersion")
    kind: Literal["ServiceTemplate", "ClusterServiceTemplate"] = "ClusterServiceTemplate"
    metadata: Metadata
    spec: Spec
    curated: bool = True
    namespace: str = ""

    @property
    def name(self) -> str:
        """Its name in URLs: one of a namespace cannot be mistaken for another, since no name has a colon."""
        return f"{self.namespace}:{self.metadata.name}" if self.namespace else self.metadata.name

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The fields by name, in the order of the form."""
        return self.spec.parameters.properties

    @property
    def sensitive(self) -> tuple[str, ...]:
        """JSON pointers to what is never shown; ``*`` stands for every key or index."""
        bound = tuple(parameter.bind for parameter in self.parameters.values() if parameter.sensitive)
        return (*self.spec.sensitive, *bound)


def parse_entry(text: str, *, source: str = "entry") -> Entry:
    """Read one entry from YAML; raises `CatalogError` naming ``source`` and the path of what does not fit."""
    if len(text.encode()) > SIZE_LIMIT:
        raise CatalogError([f"{source}: longer than {SIZE_LIMIT} bytes"])
    try:
        document = yaml.load(text, yaml.CSafeLoader)
    except yaml.YAMLError as error:
        raise CatalogError([f"{source}: not YAML: {' '.join(str(error).split())}"]) from error
    for ours in ("curated", "namespace"):
        if isinstance(document, dict) and ours in document:
            raise CatalogError([f"{source}: Object contains unknown field `{ours}`"])
    try:
        entry = msgspec.convert(document, Entry)
    except msgspec.ValidationError as error:
        raise CatalogError([f"{source}: {error}"]) from error
    if entry.api_version != API_VERSION:
        raise CatalogError([f"{source}: apiVersion is {entry.api_version!r}, expected {API_VERSION!r}"])
    return entry
