"""The base of every typed structure inside an object.

A module of its own so that the generated structures and ``object.py`` can both stand on it.
"""

from typing import ClassVar

import msgspec

__all__ = ["Part"]


class Part(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    gc=False,
    omit_defaults=True,
    rename="camel",
):
    """A frozen structure with optional fields, named in snake case here and in camel case in JSON.

    ``gc=False``: JSON has no cycles, and ten thousand cached Pods must not make a collection slow.
    """

    #: JSON name of a list -> the keys that make its entries associative ("list-map-keys").
    list_keys: ClassVar[dict[str, tuple[str, ...]]] = {}
