"""What the console offers: entries that say how a custom resource is asked for, and how it is made of the answers.

An entry is data, never code: a title in two languages, a form whose fields are bound to paths of the custom resource,
plans that fill the form in, and a manifest to start from. Values are put into the manifest as values: there is no text
template, so nothing that a user types can become YAML, a key, or an expression.

`load_catalog` reads entries (the package's own, and directories), `basic_entry` derives one from any
CustomResourceDefinition, `check_values` and `render` turn a form into a manifest,
`diff` and `json_patch` an edit into the smallest patch, `lint` says what is wrong with an entry.
"""

from mooring.catalog import pointer
from mooring.catalog.basic import basic_entry
from mooring.catalog.changes import (
    Change,
    MaskedSecret,
    apply_changes,
    diff,
    editable,
    json_patch,
    overlaps,
    restored,
    values_of,
    with_values,
)
from mooring.catalog.entry import (
    Action,
    CatalogError,
    Collection,
    Entry,
    Parameter,
    Plan,
    Section,
    Target,
    Text,
    parse_entry,
)
from mooring.catalog.kinds import (
    CLUSTER_TEMPLATES,
    KINDS,
    TEMPLATES,
    StoredClusterTemplate,
    StoredTemplate,
    entry_of,
)
from mooring.catalog.lint import lint, lint_collection, lint_schema
from mooring.catalog.load import load_catalog, load_directory, packaged
from mooring.catalog.mask import MASKED, mask
from mooring.catalog.render import field_of, render, render_form
from mooring.catalog.values import (
    FieldProblem,
    check_edit,
    check_form,
    check_name,
    check_value,
    check_values,
    defaults,
    requests_of,
)

__all__ = [
    "CLUSTER_TEMPLATES",
    "KINDS",
    "MASKED",
    "TEMPLATES",
    "Action",
    "CatalogError",
    "Change",
    "Collection",
    "Entry",
    "FieldProblem",
    "MaskedSecret",
    "Parameter",
    "Plan",
    "Section",
    "StoredClusterTemplate",
    "StoredTemplate",
    "Target",
    "Text",
    "apply_changes",
    "basic_entry",
    "check_edit",
    "check_form",
    "check_name",
    "check_value",
    "check_values",
    "defaults",
    "diff",
    "editable",
    "entry_of",
    "field_of",
    "json_patch",
    "lint",
    "lint_collection",
    "lint_schema",
    "load_catalog",
    "load_directory",
    "mask",
    "overlaps",
    "packaged",
    "parse_entry",
    "pointer",
    "render",
    "render_form",
    "requests_of",
    "restored",
    "values_of",
    "with_values",
]
