"""Entries as objects of a cluster: ServiceTemplate in a namespace, ClusterServiceTemplate for everybody.

Their definitions are derived from the very types that read an entry. What is watched is read without them, so that
an object that does not fit is told of in its status instead of being lost.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec

from mooring.catalog.entry import API_VERSION, SIZE_LIMIT, CatalogError, Entry, Metadata, Spec
from mooring.catalog.lint import lint
from mooring.kube.object import Object, Resource
from mooring.kube.part import Part
from mooring.runtime.crd import AGE, F, PrinterColumn, crd

__all__ = ["CLUSTER_TEMPLATES", "KINDS", "TEMPLATES", "StoredClusterTemplate", "StoredTemplate", "entry_of"]

_GROUP, _VERSION = API_VERSION.split("/")
TEMPLATES: Final = Resource(_GROUP, _VERSION, "ServiceTemplate", "servicetemplates", True)
CLUSTER_TEMPLATES: Final = Resource(
    _GROUP, _VERSION, "ClusterServiceTemplate", "clusterservicetemplates", False
)
_COLUMNS: Final = (
    PrinterColumn("Kind", ".spec.target.kind"),
    PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status'),
    PrinterColumn("Reason", '.status.conditions[?(@.type=="Ready")].reason'),
    AGE,
)


class TemplateCondition(Part, frozen=True, kw_only=True):
    """A standard condition."""

    type: Annotated[str | None, F("What it is about.", required=True)] = None
    status: Annotated[str | None, F("True, False or Unknown.", enum=("True", "False", "Unknown"))] = None
    reason: Annotated[str | None, F("One word for programs.")] = None
    message: Annotated[str | None, F("A sentence for people.")] = None
    observed_generation: Annotated[int | None, F("Generation that it speaks of.")] = None
    last_transition_time: Annotated[str | None, F("When status changed.", format="date-time")] = None


class TemplateStatus(Part, frozen=True, kw_only=True):
    """Whether the console offers the entry."""

    observed_generation: Annotated[int | None, F("Generation of the spec that was looked at.")] = None
    conditions: Annotated[
        list[TemplateCondition] | None,
        F("Ready is True for an entry that is offered.", list_type="map", list_map_keys=("type",)),
    ] = None
    problems: Annotated[
        list[str] | None, F("What must be mended, a line each, beginning with its path.", max_items=100)
    ] = None


@crd(columns=_COLUMNS, short_names=("st",))
class ServiceTemplate(Object, frozen=True, kw_only=True):
    """A service that the console offers in this namespace."""

    resource: ClassVar[Resource] = TEMPLATES

    spec: Annotated[Spec | None, F("The entry; see docs/console.md.", required=True)] = None
    status: TemplateStatus | None = None


@crd(columns=_COLUMNS, short_names=("cst",))
class ClusterServiceTemplate(Object, frozen=True, kw_only=True):
    """A service that the console offers in every namespace."""

    resource: ClassVar[Resource] = CLUSTER_TEMPLATES

    spec: Annotated[Spec | None, F("The entry; see docs/console.md.", required=True)] = None
    status: TemplateStatus | None = None


#: What `mooring crds` defines for the catalog.
KINDS: Final[tuple[type[Object], ...]] = (ServiceTemplate, ClusterServiceTemplate)


class StoredTemplate(Object, frozen=True, kw_only=True):
    """A ServiceTemplate as it is stored, whatever is in it."""

    resource: ClassVar[Resource] = TEMPLATES

    spec: Any = None
    status: Any = None


class StoredClusterTemplate(Object, frozen=True, kw_only=True):
    """A ClusterServiceTemplate as it is stored, whatever is in it."""

    resource: ClassVar[Resource] = CLUSTER_TEMPLATES

    spec: Any = None
    status: Any = None


def entry_of(stored: Object) -> Entry:
    """The linted entry of a stored template; raises `CatalogError` with everything that is wrong with it."""
    spec = getattr(stored, "spec", None)
    try:
        if len(msgspec.json.encode(spec)) > SIZE_LIMIT:
            raise CatalogError([f"spec: longer than {SIZE_LIMIT} bytes"])
        entry = Entry(
            kind="ServiceTemplate" if stored.resource.namespaced else "ClusterServiceTemplate",
            metadata=Metadata(name=stored.metadata.name or ""),
            spec=msgspec.convert(spec, Spec),
            namespace=stored.metadata.namespace or "",
        )
        problems = lint(entry)
    except msgspec.ValidationError as error:
        # The path begins with "$", which is the spec here.
        raise CatalogError([str(error).replace("`$", "`spec")]) from error
    except RecursionError as error:
        raise CatalogError(["spec: nested too deeply"]) from error
    if problems:
        raise CatalogError(problems)
    return entry
