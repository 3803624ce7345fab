"""Talk to any Kubernetes API server: configuration, transport, typed client, errors.

>>> from mooring.kube import Client, Config, HttpTransport
>>> from mooring.kube.objects.core import Pod
>>> client = Client(HttpTransport(Config.load()))          # doctest: +SKIP
>>> await client.get(Pod, "web-0", namespace="default")    # doctest: +SKIP

Guarantees: an answer that is not there raises (never ``None``); a write is sent once; unknown fields of
a newer server are ignored on reading and cannot be lost on writing, as no object is ever put back whole.
"""

from mooring.kube.client import Client, Page, Undecodable, WatchEvent
from mooring.kube.config import Config
from mooring.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    ConfigError,
    Conflict,
    DecodeError,
    Forbidden,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
    Unauthorized,
)
from mooring.kube.object import (
    Key,
    Object,
    ObjectMetadata,
    Resource,
    controller_of,
    decode,
    encode,
    key_of,
    metadata_of,
    owner_reference,
    to_dict,
)
from mooring.kube.part import Part
from mooring.kube.patches import ApplyPatch, JsonPatch, MergePatch, Patch, StrategicMergePatch
from mooring.kube.transport import HttpTransport, Response, StreamResponse, Transport

__all__ = [
    "AlreadyExists",
    "ApiError",
    "ApplyPatch",
    "BadRequest",
    "Client",
    "Config",
    "ConfigError",
    "Conflict",
    "DecodeError",
    "Forbidden",
    "Gone",
    "HttpTransport",
    "Invalid",
    "JsonPatch",
    "Key",
    "KubeError",
    "MergePatch",
    "NotFound",
    "Object",
    "ObjectMetadata",
    "Page",
    "Part",
    "Patch",
    "Resource",
    "Response",
    "ServerError",
    "StrategicMergePatch",
    "StreamResponse",
    "TooManyRequests",
    "Transport",
    "TransportError",
    "Unauthorized",
    "Undecodable",
    "WatchEvent",
    "controller_of",
    "decode",
    "encode",
    "key_of",
    "metadata_of",
    "owner_reference",
    "to_dict",
]
