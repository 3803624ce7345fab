"""What a bucket's server or the network said, as an error of this package.

obstore raises few classes: a wrong bucket, a wrong key and, on some servers, a wrong key id are all "not found". The
text tells them apart, by the code in the server's answer or by the kind of the failed connection; it is read here and
never passed on, since servers repeat parts of the signed request in it.
"""

from __future__ import annotations

import re
from typing import Final

from mooring.objectstore.errors import (
    AlreadyExists,
    ContainerNotFound,
    CredentialsRejected,
    NotFound,
    ObjectStoreError,
    OutOfSpace,
    PermissionDenied,
    TimedOut,
    TlsFailed,
    TooLarge,
    Unreachable,
)

__all__ = ["CONNECTION_REFUSED", "by_code", "code_in", "status_in", "translated"]

_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_STATUS: Final = re.compile(r"status code: (\d{3})\b")

_KEY_ID: Final = (
    "AccessKeyUnknown",
    "the server does not know the access key's id",
    "correct the id in the Secret",
)
_SECRET: Final = (
    "SecretKeyWrong",
    "the secret key does not fit the access key's id",
    "correct it in the Secret",
)
_EXPIRED: Final = ("CredentialsExpired", "the temporary credentials have expired", "renew them in the Secret")
_SKEW: Final = ("ClockSkewed", "the clocks of this machine and the server differ too much", "set both by NTP")
_REGION: Final = (
    "WrongRegion",
    "the bucket is in another region or at another endpoint",
    "set region and endpoint to the bucket's",
)
_MISSING: Final = ("BucketNotFound", "the bucket does not exist", ContainerNotFound.remedy)

#: Code of an answer -> class, reason, what it says, remedy. Those of S3, of GCS's XML API, of Azure, of versitygw.
_CODES: Final[dict[str, tuple[type[ObjectStoreError], str, str, str]]] = {
    **dict.fromkeys(
        ("NoSuchBucket", "ContainerNotFound", "ContainerBeingDeleted"), (ContainerNotFound, *_MISSING)
    ),
    **dict.fromkeys(
        (
            "PermanentRedirect",
            "TemporaryRedirect",
            "AuthorizationHeaderMalformed",
            "IllegalLocationConstraintException",
        ),
        (ContainerNotFound, *_REGION),
    ),
    **dict.fromkeys(("InvalidAccessKeyId", "XAdminUserNotFound"), (CredentialsRejected, *_KEY_ID)),
    **dict.fromkeys(("SignatureDoesNotMatch", "AuthenticationFailed"), (CredentialsRejected, *_SECRET)),
    **dict.fromkeys(
        ("ExpiredToken", "InvalidToken", "TokenRefreshRequired"), (CredentialsRejected, *_EXPIRED)
    ),
    "RequestTimeTooSkewed": (CredentialsRejected, *_SKEW),
    **dict.fromkeys(
        ("NoSuchKey", "BlobNotFound"), (NotFound, NotFound.reason, "it does not exist", NotFound.remedy)
    ),
    **dict.fromkeys(
        ("QuotaExceeded", "XMinioStorageFull", "InsufficientCapacity"),
        (OutOfSpace, OutOfSpace.reason, "the store is full or a quota is used up", OutOfSpace.remedy),
    ),
    "EntityTooLarge": (TooLarge, TooLarge.reason, "it is larger than the store takes", TooLarge.remedy),
}
#: HTTP status of an answer without a known code -> the same.
_STATUSES: Final[dict[int, tuple[type[ObjectStoreError], str, str, str]]] = {
    301: (ContainerNotFound, *_REGION),
    307: (ContainerNotFound, *_REGION),
    401: (
        CredentialsRejected,
        "CredentialsRejected",
        "the server rejects the credentials",
        CredentialsRejected.remedy,
    ),
    403: (
        PermissionDenied,
        PermissionDenied.reason,
        "the credentials may not do this",
        PermissionDenied.remedy,
    ),
    404: (NotFound, NotFound.reason, "it does not exist", NotFound.remedy),
    409: (AlreadyExists, AlreadyExists.reason, "it exists", AlreadyExists.remedy),
    412: (AlreadyExists, AlreadyExists.reason, "it exists", AlreadyExists.remedy),
    429: (
        Unreachable,
        "StoreOverloaded",
        "the server asks for fewer requests",
        "lower the rate and concurrency",
    ),
    503: (
        Unreachable,
        "StoreOverloaded",
        "the server is overloaded or starting",
        "wait, or lower the concurrency",
    ),
    507: (OutOfSpace, OutOfSpace.reason, "the store is full", OutOfSpace.remedy),
}
#: obstore's class of an error, for stores whose answers hold neither -> status to treat it as.
_CLASSES: Final = {
    "AlreadyExistsError": 409,
    "FileNotFoundError": 404,
    "NotFoundError": 404,
    "PermissionDeniedError": 403,
    "PreconditionError": 412,
    "UnauthenticatedError": 401,
}
#: A port on which no server listens.
CONNECTION_REFUSED: Final = (
    Unreachable,
    "ConnectionRefused",
    "the connection was refused: nothing listens at the endpoint",
    "correct the target's field endpoint, or start the server",
)
#: Parts of the text of a failed connection; names of objects hold neither spaces nor parentheses.
_CONNECTIONS: Final[tuple[tuple[str, type[ObjectStoreError], str, str, str], ...]] = (
    (
        r"invalid peer certificate|InvalidCertificate\(",
        TlsFailed,
        "CertificateUntrusted",
        "the server's certificate is not trusted or is not for this host",
        TlsFailed.remedy,
    ),
    (
        r"InvalidMessage\(|received corrupt message|AlertReceived\(",
        TlsFailed,
        TlsFailed.reason,
        "the TLS handshake failed",
        "correct the endpoint's scheme and port; the server may speak plain HTTP there",
    ),
    (
        r"dns error",
        Unreachable,
        "NameNotResolved",
        "the endpoint's host name does not resolve",
        "correct the endpoint, or check DNS",
    ),
    (
        r"kind: Timeout|TimedOut\b(?=[,)\s])",
        TimedOut,
        TimedOut.reason,
        "the server did not answer in time",
        TimedOut.remedy,
    ),
    (
        r"\bConnectionRefused\b(?=[,)\s])",
        *CONNECTION_REFUSED,
    ),
    (
        r"kind: Connect|tcp connect error",
        Unreachable,
        "ConnectionFailed",
        "no connection to the endpoint",
        Unreachable.remedy,
    ),
    (
        r"HTTP error: |kind: (?:Request|Interrupted|Body|Decode)\b|error decoding response body",
        Unreachable,
        "ConnectionLost",
        "the connection was lost",
        Unreachable.remedy,
    ),
)


def code_in(text: str) -> str:
    """The code of a server's answer in XML, or nothing."""
    found = _CODE.search(text)
    return found[1] if found else ""


def status_in(text: str) -> int:
    """The HTTP status in the text of an error of obstore; 0 where there was no answer."""
    found = _STATUS.search(text)
    return int(found[1]) if found else 0


def by_code(code: str, status: int, what: str) -> ObjectStoreError:
    """The error of an answer; ``what`` says what failed and where."""
    found = _CODES.get(code) or _STATUSES.get(status)
    if found is not None:
        kind, reason, says, remedy = found
        return kind(f"{what}: {says}", reason=reason, remedy=remedy)
    says = f"the server answered {status}" + (f" {code}" if code else "")
    if status >= 500:
        return Unreachable(
            f"{what}: {says}", reason="StoreFailed", remedy="look at the server's log, then try again"
        )
    return ObjectStoreError(f"{what}: {says}")


def translated(error: Exception, what: str) -> ObjectStoreError:
    """An error of obstore as one of ours; ``what`` says what failed and where."""
    text = str(error)
    code, status = code_in(text), status_in(text)
    if code or status:
        return by_code(code, status, what)
    if type(error).__name__ in _CLASSES:
        return by_code("", _CLASSES[type(error).__name__], what)
    for pattern, kind, reason, says, remedy in _CONNECTIONS:
        if re.search(pattern, text):
            return kind(f"{what}: {says}", reason=reason, remedy=remedy)
    return ObjectStoreError(f"{what}: {type(error).__name__}")
