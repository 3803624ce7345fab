"""What the API takes and answers, as types: the OpenAPI document is made of them, and tests hold every answer to them.

Fields with a default may be missing. `Json` stands for an object of the cluster, whose shape is its kind's.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mooring.catalog.entry import Column, Display, Making, Parameter, Retention, Spec, Target, Text, Unit
from mooring.diagnosis import Diagnosis

__all__ = ["BY_PATH", "Operation", "PathKey", "ProblemDetails"]

Json = dict[str, Any]
PathKey = tuple[str, str]
Decision = Literal["allowed", "denied", "unknown"]


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Data of the API."""


class FieldError(_Data, frozen=True, kw_only=True):
    """What is wrong with one field of a form, or at one path of an object."""

    field: str
    message: Text
    path: str = ""


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An error (RFC 9457); ``code`` is for programs, further members depend on it."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    request_id: str
    errors: tuple[FieldError, ...] = ()


class Ways(_Data, frozen=True, kw_only=True):
    """How one can sign in; ``oidc`` is where a sign-in by the provider begins."""

    tokens: bool
    oidc: str | None
    proxy: bool


class Credential(_Data, frozen=True, kw_only=True):
    """A bearer token of the API server."""

    token: str


class SessionInfo(_Data, frozen=True, kw_only=True):
    """Who is signed in; changes carry ``csrf`` in the header X-Mooring-Csrf.

    ``remaining`` are the seconds of the credential, null for one that does not say; ``renewable``: it can be refreshed.
    """

    user: str
    csrf: str
    own: bool
    via: str
    terminal: bool
    remaining: float | None
    renewable: bool


class Nothing(_Data, frozen=True, kw_only=True):
    """Nothing more to say."""


class Card(_Data, frozen=True, kw_only=True):
    """An entry in a list; a ``companion`` goes with a service, such as a backup."""

    name: str
    curated: bool
    companion: bool
    namespace: str
    display: Display
    target: Target


class ServedCard(Card, frozen=True, kw_only=True):
    """An entry, and whether the API server serves its kind."""

    served: bool


class CatalogAnswer(_Data, frozen=True, kw_only=True):
    """The entries; ``others`` are kinds without one, ``problems`` what is wrong with templates of the cluster."""

    entries: tuple[ServedCard, ...]
    others: tuple[str, ...]
    problems: tuple[str, ...]


class EntryAnswer(Card, frozen=True, kw_only=True):
    """An entry with its form, and the values it begins with."""

    form: Spec
    defaults: Json


class Namespaces(_Data, frozen=True, kw_only=True):
    """Namespaces by name."""

    namespaces: tuple[str, ...]


class Permissions(_Data, frozen=True, kw_only=True):
    """What the user may do; unknown is what nobody answered. ``terminal`` is about all pods of the namespace."""

    create: Decision
    get: Decision
    patch: Decision
    delete: Decision
    terminal: Decision


class Row(_Data, frozen=True, kw_only=True):
    """An instance in a list; a ``companion`` goes with another one, such as a backup."""

    entry: str
    namespace: str
    name: str
    uid: str
    created: str
    generation: int
    phase: str
    reason: str
    message: str
    companion: bool = False


class ConditionRow(_Data, frozen=True, kw_only=True):
    """A condition."""

    type: str
    status: str
    reason: str
    message: str
    last_transition_time: str


class InstanceRow(Row, frozen=True, kw_only=True):
    """An instance with its conditions."""

    conditions: tuple[ConditionRow, ...]


class EventRow(_Data, frozen=True, kw_only=True):
    """An event."""

    uid: str
    type: str
    reason: str
    message: str
    count: int
    last: str
    from_: str = msgspec.field(name="from")


class Instances(_Data, frozen=True, kw_only=True):
    """Instances; with an instance in focus also that one, and its events if they may be seen."""

    rows: tuple[Row, ...]
    truncated: bool
    live: bool
    denied: tuple[str, ...]
    instance: InstanceRow | None = None
    events: tuple[EventRow, ...] | None = None


class Creation(_Data, frozen=True, kw_only=True):
    """An instance to create: values of the entry's form."""

    entry: str
    name: str
    values: Json
    from_: Origin | None = msgspec.field(default=None, name="from")


class QuotaRow(_Data, frozen=True, kw_only=True):
    """A resource that a quota bounds; ``over`` is whether what is wanted does not fit any more."""

    quota: str
    resource: str
    hard: float
    used: float
    wanted: float
    over: bool


class LimitRow(_Data, frozen=True, kw_only=True):
    """A field whose value a LimitRange does not allow."""

    range: str
    field: str
    bound: Literal["max", "min"]
    limit: str
    value: str


class Quota(_Data, frozen=True, kw_only=True):
    """Quotas and limits of a namespace; ``denied`` is whether the user may not read some of them."""

    rows: tuple[QuotaRow, ...]
    limits: tuple[LimitRow, ...]
    denied: bool


class Origin(_Data, frozen=True, kw_only=True):
    """What a new instance is made of: an object of a collection, in the same namespace."""

    collection: str
    name: str


class Created(_Data, frozen=True, kw_only=True):
    """What was made, or would be: secrets are masked. ``requests`` are what it needs, by resource of a quota."""

    manifest: Json
    yaml: str
    requests: dict[str, float]
    quota: Quota | None
    warnings: tuple[str, ...]
    dry_run: bool


class RestoresAnswer(_Data, frozen=True, kw_only=True):
    """A service that can be made of an object, begun as its instance was; ``ask`` are fields that begin empty."""

    title: Text
    description: Text
    ask: tuple[str, ...]
    entry: str
    collection: str
    instance: str


class InstanceAnswer(_Data, frozen=True, kw_only=True):
    """One instance: secrets are masked. ``restores`` is what can be made of it."""

    card: Card
    object: Json
    yaml: str
    retention: Retention
    restores: tuple[RestoresAnswer, ...]


class Events(_Data, frozen=True, kw_only=True):
    """Events, the newest first."""

    events: tuple[EventRow, ...]


class Base(_Data, frozen=True, kw_only=True):
    """What an edit begins from."""

    uid: str
    document: Json


class FormAnswer(Card, frozen=True, kw_only=True):
    """What an edit begins with; ``kept`` are secrets that have a value."""

    form: Spec
    base: Base
    yaml: str
    values: Json
    kept: tuple[str, ...]


class EditBody(_Data, frozen=True, kw_only=True):
    """An edit: values of the form, a text of the editor, or both."""

    base: Base
    values: Json = {}
    yaml: str | None = None


class ChangeRow(_Data, frozen=True, kw_only=True):
    """One change."""

    op: Literal["add", "replace", "remove"]
    path: str
    field: str
    old: str
    new: str
    secret: bool


class EditedAnswer(_Data, frozen=True, kw_only=True):
    """What was changed, or would be."""

    changes: tuple[ChangeRow, ...]
    diff: str
    warnings: tuple[str, ...]
    dry_run: bool


class ToldDiagnosis(Diagnosis, frozen=True, kw_only=True):
    """A cause and a next step, with their texts."""

    cause: Text = Text()
    step: Text = Text()


class DiagnosisAnswer(_Data, frozen=True, kw_only=True):
    """Why an instance waits; ``unseen`` is what the user may not see of it."""

    diagnosis: ToldDiagnosis | None
    unseen: tuple[str, ...]


class ActionRow(_Data, frozen=True, kw_only=True):
    """An action, and whether it makes sense now."""

    name: str
    title: Text
    description: Text
    effect: str
    field: str
    possible: bool


class Actions(_Data, frozen=True, kw_only=True):
    """The actions of an instance, the fields they ask for, and the values that those have."""

    actions: tuple[ActionRow, ...]
    fields: dict[str, Parameter]
    values: Json


class ActionBody(_Data, frozen=True, kw_only=True):
    """Which object is meant, and the value of the action's field."""

    uid: str
    value: Any = None


class ChartLine(_Data, frozen=True, kw_only=True):
    """A line of a chart: seconds since 1970, and values."""

    name: str
    points: tuple[tuple[float, float | None], ...]


class ChartAnswer(_Data, frozen=True, kw_only=True):
    """A chart."""

    title: Text
    unit: Unit
    lines: tuple[ChartLine, ...]


class Usage(_Data, frozen=True, kw_only=True):
    """What a pod uses now: cores and bytes."""

    pod: str
    cpu: float
    memory: float


class FigureAnswer(_Data, frozen=True, kw_only=True):
    """Something that the status says."""

    title: Text
    unit: Unit
    value: str | int | float


class MetricsAnswer(_Data, frozen=True, kw_only=True):
    """What is measured of an instance, and where it is from."""

    source: Literal["prometheus", "metrics.k8s.io", "denied", "none"]
    charts: tuple[ChartAnswer, ...]
    usage: tuple[Usage, ...]
    figures: tuple[FigureAnswer, ...]


class RelatedRow(_Data, frozen=True, kw_only=True):
    """An object of a collection."""

    name: str
    uid: str
    created: str
    cells: tuple[str, ...]
    outcome: Literal["good", "bad", "pending", ""]
    restorable: bool


class RestoringAnswer(_Data, frozen=True, kw_only=True):
    """That instances can be made of the objects; ``ask`` are fields that begin empty."""

    title: Text
    description: Text
    ask: tuple[str, ...]


class CollectionAnswer(_Data, frozen=True, kw_only=True):
    """A collection; ``state`` says why there are no rows to see, ``truncated`` that there may be more.

    ``values`` are those that the form for a new object begins with; ``entry`` has pages for single objects, "": none.
    """

    name: str
    title: Text
    description: Text
    columns: tuple[Column, ...]
    create: Making | None
    may_create: Decision
    may_delete: Decision
    values: Json
    entry: str
    restore: RestoringAnswer | None
    state: Literal["listed", "denied", "unserved"]
    rows: tuple[RelatedRow, ...]
    truncated: bool


class Collections(_Data, frozen=True, kw_only=True):
    """The collections of an instance."""

    collections: tuple[CollectionAnswer, ...]


class Addition(_Data, frozen=True, kw_only=True):
    """An object to make in a collection: values of its form."""

    name: str
    values: Json


class Added(_Data, frozen=True, kw_only=True):
    """What was made, or would be."""

    manifest: Json
    yaml: str
    warnings: tuple[str, ...]
    dry_run: bool


class UpgradeRow(_Data, frozen=True, kw_only=True):
    """What the next change of an instance's component brings along; ``trouble`` is why that cannot be told."""

    entry: str
    namespace: str
    name: str
    component: str
    fields: tuple[str, ...]
    waiting: bool
    trouble: str


class UpgradeAnswer(_Data, frozen=True, kw_only=True):
    """What this version would change; ``instances`` are those that were looked at, or would have been."""

    version: str
    rows: tuple[UpgradeRow, ...]
    instances: int
    truncated: bool


class Trial(_Data, frozen=True, kw_only=True):
    """A template to try, and values for its form; default: its own."""

    yaml: str
    values: Json | None = None


class TrialProblem(_Data, frozen=True, kw_only=True):
    """What is wrong with a template."""

    line: int | None
    path: str
    message: str


class TrialAnswer(_Data, frozen=True, kw_only=True):
    """What a template is like; ``compared`` is whether the definition of its kind could be read."""

    problems: tuple[TrialProblem, ...]
    compared: bool
    form: Spec | None
    defaults: Json
    errors: tuple[FieldError, ...]
    yaml: str
    requests: dict[str, float]


class PodRow(_Data, frozen=True, kw_only=True):
    """A pod."""

    name: str
    part: str
    role: str
    state: str
    node: str
    ip: str
    phase: str
    why: str
    ready: bool
    restarts: int
    created: str
    containers: tuple[str, ...]


class Pods(_Data, frozen=True, kw_only=True):
    """Pods, null when they may not be listed, and titles of roles and parts."""

    pods: tuple[PodRow, ...] | None
    roles: dict[str, Text]
    parts: dict[str, Text]


class Named(_Data, frozen=True, kw_only=True):
    """An instance."""

    entry: str
    namespace: str
    name: str


class OperatorRow(_Data, frozen=True, kw_only=True):
    """An operator."""

    entry: str
    lease: str
    scope: str
    namespace: str
    healthy: bool
    renewed: str
    instances: int


class Operators(_Data, frozen=True, kw_only=True):
    """Operators, and instances that none or several of them manage."""

    operators: tuple[OperatorRow, ...]
    orphans: tuple[Named, ...]
    contested: tuple[Named, ...]
    unknown: tuple[str, ...]


class ActivityRow(_Data, frozen=True, kw_only=True):
    """Something that was done with an instance.

    ``source``: a user of the console, an Event of a program, or the object's own metadata; ``who`` is that user or
    program, "" where it is not known.
    """

    source: Literal["user", "event", "change"]
    time: str
    who: str
    type: str
    reason: str
    message: str
    count: int
    entry: str
    namespace: str
    name: str


class Activity(_Data, frozen=True, kw_only=True):
    """What was done, the newest first; ``denied`` are entries whose instances the user may not list."""

    rows: tuple[ActivityRow, ...]
    truncated: bool
    denied: tuple[str, ...]
    events_denied: bool


class Operation(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the API: its query (name and meaning), its body, and what is answered.

    ``media`` is what an answer without a type is.
    """

    answer: Any = None
    body: Any = None
    query: dict[str, str] = {}
    status: int = 200
    media: str = "application/json"


_WHERE = {
    "namespace": "One namespace; default: all that the user may see.",
    "entry": "One entry.",
    "name": "With namespace and entry: one instance, with conditions and events.",
}
_DRY = {"dryRun": "true: only find out what would happen."}
_API = "/api/v1"
_ALL = _API + "/namespaces/{namespace}/instances"
_ONE = _ALL + "/{entry}/{name}"

#: Every request by method and path.
BY_PATH: dict[PathKey, Operation] = {
    ("GET", _API + "/openapi.json"): Operation(answer=Json),
    ("GET", _API + "/signin"): Operation(answer=Ways),
    ("GET", _API + "/session"): Operation(answer=SessionInfo),
    ("POST", _API + "/session"): Operation(body=Credential, answer=SessionInfo),
    ("POST", _API + "/session/refresh"): Operation(answer=SessionInfo),
    ("DELETE", _API + "/session"): Operation(answer=Nothing),
    ("GET", _API + "/catalog"): Operation(answer=CatalogAnswer),
    ("GET", _API + "/catalog/{entry}"): Operation(answer=EntryAnswer),
    ("GET", _API + "/namespaces"): Operation(answer=Namespaces),
    ("GET", _API + "/activity"): Operation(
        query={**_WHERE, "name": "One instance, by its name."}, answer=Activity
    ),
    ("GET", _API + "/operators"): Operation(answer=Operators),
    ("GET", _API + "/operators/upgrade"): Operation(query=_WHERE, answer=UpgradeAnswer),
    ("POST", _API + "/templates/try"): Operation(body=Trial, answer=TrialAnswer),
    ("GET", _API + "/instances"): Operation(query=_WHERE, answer=Instances),
    ("POST", _ALL): Operation(query=_DRY, body=Creation, answer=Created, status=201),
    ("GET", _ONE): Operation(answer=InstanceAnswer),
    ("PATCH", _ONE): Operation(query=_DRY, body=EditBody, answer=EditedAnswer),
    ("DELETE", _ONE): Operation(
        query={"uid": "UID of the object that is meant; required."}, answer=Nothing, status=202
    ),
    ("GET", _ONE + "/events"): Operation(answer=Events),
    ("GET", _ONE + "/form"): Operation(answer=FormAnswer),
    ("GET", _ONE + "/diagnosis"): Operation(answer=DiagnosisAnswer),
    ("GET", _ONE + "/actions"): Operation(answer=Actions),
    ("POST", _ONE + "/actions/{action}"): Operation(query=_DRY, body=ActionBody, answer=EditedAnswer),
    ("GET", _ONE + "/metrics"): Operation(
        query={"range": "15m, 1h, 6h, 24h or 7d; default: 1h."}, answer=MetricsAnswer
    ),
    ("GET", _ONE + "/collections"): Operation(answer=Collections),
    ("POST", _ONE + "/collections/{collection}"): Operation(
        query=_DRY, body=Addition, answer=Added, status=201
    ),
    ("DELETE", _ONE + "/collections/{collection}/{object}"): Operation(
        query={"uid": "UID of the object that is meant; required."}, answer=Nothing, status=202
    ),
    ("GET", _ONE + "/pods"): Operation(answer=Pods),
    ("GET", _ONE + "/pods/{pod}/log"): Operation(
        query={
            "container": "Which container.",
            "lines": "How many lines at first.",
            "follow": "true: go on until the client goes.",
            "previous": "true: of the container before its restart.",
        },
        media="text/plain",
    ),
    ("GET", _ONE + "/pods/{pod}/terminal"): Operation(
        query={"container": "Which container; required."}, status=101, media="text/plain"
    ),
    ("GET", _API + "/permissions"): Operation(
        query={"namespace": "Where; required.", "entry": "Of which entry; required."}, answer=Permissions
    ),
    ("GET", _API + "/stream"): Operation(
        query={
            **_WHERE,
            "topic": "A query of its own, such as entry=A&namespace=B; repeatable. One that fails has a problem.",
            "user": "Whose stream it must be; 409 when somebody else is signed in.",
        },
        media="text/event-stream",
    ),
}
