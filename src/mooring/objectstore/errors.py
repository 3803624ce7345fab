"""What can go wrong with an object store.

ObjectStoreError(reason, remedy)
├── TargetInvalid             the declaration cannot be used; names the field
├── ExtraMissing              the Python package obstore is not installed
├── NameInvalid               an object's name has a part that no target could store
├── NotFound                  no object of that name
├── AlreadyExists             a create-only write found the name taken
├── TooLarge                  more bytes than the call or the store can take
├── ContainerNotFound         the bucket, container or directory does not exist
├── CredentialsRejected       a Secret or an entry of it is missing, or the store does not accept what it holds
├── PermissionDenied          the credentials are valid, but may not do this
├── OutOfSpace                the store or the volume is full
├── Unreachable               no answer: name, connection, or a server that failed       (safe to retry)
├── TlsFailed                 a connection, but no trusted certificate
├── TimedOut                  no answer within the deadline                               (safe to retry)
└── EncryptionError
    ├── KeyMissing            the key named by the object is not in the Secret
    ├── KeyWrong              the key of that name is not the one the object was written with
    └── Corrupt               changed, reordered, truncated or extended, or not encrypted at all

``reason`` is a CamelCase word for a condition, ``remedy`` the next step; the text of an error is its message and
the remedy. Texts never hold credentials, nor the server's answer: servers repeat parts of the signed request.
"""

from __future__ import annotations

from typing import ClassVar

__all__ = [
    "AlreadyExists",
    "ContainerNotFound",
    "Corrupt",
    "CredentialsRejected",
    "EncryptionError",
    "ExtraMissing",
    "KeyMissing",
    "KeyWrong",
    "NameInvalid",
    "NotFound",
    "ObjectStoreError",
    "OutOfSpace",
    "PermissionDenied",
    "TargetInvalid",
    "TimedOut",
    "TlsFailed",
    "TooLarge",
    "Unreachable",
]


class ObjectStoreError(Exception):
    """Base of everything raised by :mod:`mooring.objectstore`, besides what a caller's own source raises."""

    #: Whether the same call may succeed later without a change of the declaration, and is safe to repeat.
    retryable: ClassVar[bool] = False
    reason: str = "StorageFailed"
    remedy: str = "look at the store's own log for the request"

    def __init__(self, message: str, *, reason: str = "", remedy: str = "") -> None:
        self.reason = reason or type(self).reason
        self.remedy = remedy or type(self).remedy
        self.message = message
        super().__init__(f"{message}: {self.remedy}")


class TargetInvalid(ObjectStoreError):
    """The declaration of a target cannot be used; the message names the field."""

    reason = "TargetInvalid"
    remedy = "correct the field"


class ExtraMissing(ObjectStoreError):
    """The Python package for S3, GCS and Azure is not installed."""

    reason = "ExtraMissing"
    remedy = "install mooring[objectstore]"


class NameInvalid(ObjectStoreError):
    """An object's name has a part that some target could not store."""

    reason = "NameInvalid"
    remedy = "use relative names of letters, digits and . _ : = + @ , - separated by single slashes"


class NotFound(ObjectStoreError):
    """No object has that name."""

    reason = "ObjectNotFound"
    remedy = "list the prefix to see which objects exist"


class AlreadyExists(ObjectStoreError):
    """A create-only write found the name taken; nothing was changed."""

    reason = "ObjectExists"
    remedy = "read the object that is there, or choose another name"


class TooLarge(ObjectStoreError):
    """More bytes than the call or the store can take."""

    reason = "ObjectTooLarge"
    remedy = "give the expected size, so that larger parts are used"


class ContainerNotFound(ObjectStoreError):
    """The bucket, container or directory does not exist, or the endpoint is another one's."""

    reason = "BucketNotFound"
    remedy = "create the bucket, or correct its name, the region or the endpoint"


class CredentialsRejected(ObjectStoreError):
    """A Secret or an entry of it is missing, or the store does not accept what it holds."""

    reason = "CredentialsRejected"
    remedy = "put valid credentials into the Secret"


class PermissionDenied(ObjectStoreError):
    """The credentials are valid, but may not do this."""

    reason = "PermissionDenied"
    remedy = "grant the credentials list, read, write and delete on the bucket and prefix"


class OutOfSpace(ObjectStoreError):
    """The store or the volume is full, or a quota is used up."""

    reason = "OutOfSpace"
    remedy = "free space or raise the quota"


class Unreachable(ObjectStoreError):
    """No answer: the name does not resolve, the connection fails, or the server does."""

    retryable = True
    reason = "Unreachable"
    remedy = "check the endpoint, its Service and NetworkPolicies"


class TlsFailed(ObjectStoreError):
    """The server's certificate is not trusted, or the endpoint does not speak TLS."""

    reason = "TLSFailed"
    remedy = "put the issuing CA into caBundle, or correct the endpoint's scheme and host"


class TimedOut(ObjectStoreError):
    """No answer within the deadline; whether a write happened is unknown."""

    retryable = True
    reason = "TimedOut"
    remedy = "check that the store is up and the network is not overloaded"


class EncryptionError(ObjectStoreError):
    """Base of what goes wrong with client-side encryption."""


class KeyMissing(EncryptionError):
    """The key that the object names is not in the Secret."""

    reason = "EncryptionKeyMissing"
    remedy = "put the key back into the encryption Secret under that name"


class KeyWrong(EncryptionError):
    """The key of that name is not the one the object was written with."""

    reason = "EncryptionKeyWrong"
    remedy = "put the original key back into the encryption Secret; add new keys under new names"


class Corrupt(EncryptionError):
    """The object was changed, reordered, truncated or extended, or is not encrypted at all."""

    reason = "ObjectCorrupt"
    remedy = "use another backup; the bytes in the store are not those that were written"
