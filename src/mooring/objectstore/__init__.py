"""Object storage for backups, once for all operators: S3, GCS, Azure, claims and directories behind one `Store`.

A custom resource holds a `Target`; `open_store` gives a `Store` that streams with bounded memory, encrypts on the
client's side where the target says so, and reads credentials from Secrets at every use. Guarantees: an object is
visible whole or not at all; `Store.create` has one winner; errors name a reason and a next step and hold no
credentials. Not guaranteed: order between writers of one name, and that a list shows what others write meanwhile.
"""

from mooring.objectstore.backend import Limits, ObjectInfo
from mooring.objectstore.encryption import KeyRing, decrypt, encrypt
from mooring.objectstore.ending import leave
from mooring.objectstore.errors import (
    AlreadyExists,
    ContainerNotFound,
    Corrupt,
    CredentialsRejected,
    EncryptionError,
    ExtraMissing,
    KeyMissing,
    KeyWrong,
    NameInvalid,
    NotFound,
    ObjectStoreError,
    OutOfSpace,
    PermissionDenied,
    TargetInvalid,
    TimedOut,
    TlsFailed,
    TooLarge,
    Unreachable,
)
from mooring.objectstore.secrets import Secrets, mounted_secrets
from mooring.objectstore.source import Progress, Source
from mooring.objectstore.store import Check, Store, Uploaded, open_store
from mooring.objectstore.target import Problem, Target, location, validate
from mooring.objectstore.throttle import Throttle

__all__ = [
    "AlreadyExists",
    "Check",
    "ContainerNotFound",
    "Corrupt",
    "CredentialsRejected",
    "EncryptionError",
    "ExtraMissing",
    "KeyMissing",
    "KeyRing",
    "KeyWrong",
    "Limits",
    "NameInvalid",
    "NotFound",
    "ObjectInfo",
    "ObjectStoreError",
    "OutOfSpace",
    "PermissionDenied",
    "Problem",
    "Progress",
    "Secrets",
    "Source",
    "Store",
    "Target",
    "TargetInvalid",
    "Throttle",
    "TimedOut",
    "TlsFailed",
    "TooLarge",
    "Unreachable",
    "Uploaded",
    "decrypt",
    "encrypt",
    "leave",
    "location",
    "mounted_secrets",
    "open_store",
    "validate",
]
