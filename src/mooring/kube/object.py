"""The typed API object: what every kind has in common, and its way to and from JSON."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, NamedTuple, TypeVar, cast
from urllib.parse import quote

import msgspec

from mooring.kube.errors import DecodeError
from mooring.kube.objects.meta import ObjectMeta, OwnerReference
from mooring.kube.part import Part

__all__ = [
    "Key",
    "Object",
    "ObjectMetadata",
    "Resource",
    "controller_of",
    "decode",
    "encode",
    "key_of",
    "metadata_of",
    "owner_reference",
    "to_dict",
]


class Key(NamedTuple):
    """Namespace and name of an object; the namespace of a cluster-scoped one is ``""``."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class Resource(NamedTuple):
    """Where a kind lives in the API."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """``apps/v1``, or ``v1`` in the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of its subresource.

        Raises `ValueError` for a part that leads to another path.
        """
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts.append(self.plural)
        if name:
            parts.append(name)
        parts += subresource.split("/") if subresource else ()
        return "/" + "/".join(map(_segment, parts))


def _segment(text: str) -> str:
    if not text or text in (".", ".."):
        raise ValueError(f"{text!r} is no part of a path")
    return quote(text, safe=":")


class Object(Part, frozen=True, kw_only=True):
    """An API object: a subclass names its :class:`Resource` and declares ``spec``, ``status`` or others.

    ``api_version`` and ``kind`` need not be given; :func:`to_dict` and :func:`encode` fill them from the
    resource. Objects are immutable: change one with :func:`msgspec.structs.replace`.
    """

    resource: ClassVar[Resource]

    api_version: str | None = None
    kind: str | None = None
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class ObjectMetadata(Object, frozen=True, kw_only=True):
    """The metadata of an object and nothing else; `metadata_of` makes the type for a kind.

    For what is watched only for its labels, its owner or its being there, such as Secrets: the server sends
    no more than this (``PartialObjectMetadata``), so no more can leak or fill the memory.
    """


@cache
def metadata_of(kind: type[Object]) -> type[ObjectMetadata]:
    """The type that reads only the metadata of ``kind``; the same one for every call."""
    made = msgspec.defstruct(
        f"{kind.resource.kind}Metadata",
        [],
        bases=(ObjectMetadata,),
        namespace={"resource": kind.resource, "__doc__": f"The metadata of a {kind.resource.kind}."},
        frozen=True,
        kw_only=True,
    )
    return cast("type[ObjectMetadata]", made)


T = TypeVar("T", bound=Object)

_encoder = msgspec.json.Encoder()


@cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, strict=True)


def to_dict(value: Part) -> dict[str, Any]:
    """The JSON form of an object or of a part of one; absent fields are left out."""
    plain: dict[str, Any] = msgspec.to_builtins(value)
    if isinstance(value, Object):
        head = {"apiVersion": value.resource.api_version, "kind": value.resource.kind}
        plain = {**head, **plain} if value.kind is None or value.api_version is None else plain
        plain.update(head)
    return plain


def encode(value: Part) -> bytes:
    """JSON bytes of :func:`to_dict`."""
    return _encoder.encode(to_dict(value))


def decode(data: bytes | str | dict[str, Any], kind: type[T]) -> T:
    """Read an object of ``kind``; raises :class:`DecodeError` naming the field that does not fit."""
    try:
        if isinstance(data, dict):
            return msgspec.convert(data, kind)
        decoder: msgspec.json.Decoder[T] = _decoder(kind)
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise DecodeError(f"{kind.resource.kind}: {error}") from error


def key_of(value: Object) -> Key:
    """Namespace and name of an object."""
    meta = value.metadata
    return Key(meta.namespace or "", meta.name or "")


def owner_reference(owner: Object, *, controller: bool = True) -> OwnerReference:
    """A reference that makes ``owner`` the (controlling) owner of another object."""
    return OwnerReference(
        api_version=owner.resource.api_version,
        kind=owner.resource.kind,
        name=owner.metadata.name,
        uid=owner.metadata.uid,
        controller=controller,
        block_owner_deletion=True,
    )


def controller_of(value: Object) -> OwnerReference | None:
    """The owner that controls this object, if any."""
    for reference in value.metadata.owner_references or ():
        if reference.controller:
            return reference
    return None
