"""The controller of CertificateSigningRequests: signs what is approved, removes what is old."""

from __future__ import annotations

import base64
import binascii
from datetime import UTC, datetime

import msgspec
from cryptography import x509

from mooring.cache.clock import rfc3339
from mooring.kube.errors import NotFound
from mooring.kube.object import Key
from mooring.kube.objects.certificates import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestStatus,
)
from mooring.local.controllers.context import Context
from mooring.local.controllers.moments import seconds_since
from mooring.local.controllers.patching import status_patch
from mooring.local.controllers.signing.issuing import SIGNERS, IssueError, Issuer, refused
from mooring.runtime.controller import After, Controller, Done, Result

__all__ = ["CertificateSigner", "remaining"]

_HOUR = 3600.0
#: Seconds that a request is kept: nobody looked at it, or it was decided on.
_PENDING, _DECIDED = 24 * _HOUR, _HOUR


class CertificateSigner:
    """Reconciles CertificateSigningRequests of Kubernetes' own signers."""

    def __init__(self, context: Context, issuer: Issuer) -> None:
        self._context = context
        self._client = context.client
        self._issuer = issuer
        self._requests = context.informers.of(CertificateSigningRequest)

    def controller(self) -> Controller:
        """The controller with its watches."""
        return Controller("certificatesigningrequest", self.reconcile).watch(self._requests)

    async def reconcile(self, key: Key) -> Result:
        """One pass over a request."""
        request = self._requests.get(key)
        if request is None or request.metadata.deletion_timestamp:
            return Done()
        now = self._context.clock.now()
        left = remaining(request, now)
        if left <= 0:
            await self._remove(request)
            return Done()
        if (status := self._signed(request, now)) is not None:
            patch = status_patch(request, status)
            if patch is not None:
                await self._client.patch(
                    CertificateSigningRequest, request.metadata.name or "", patch, subresource="status"
                )
        return After(left)

    async def _remove(self, request: CertificateSigningRequest) -> None:
        meta = request.metadata
        try:
            await self._client.delete(CertificateSigningRequest, meta.name or "", uid=meta.uid)
        except NotFound:
            return

    def _signed(
        self, request: CertificateSigningRequest, now: datetime
    ) -> CertificateSigningRequestStatus | None:
        """The status with the certificate, or with why there is none; None when nothing is to be done."""
        spec, status = request.spec, request.status or CertificateSigningRequestStatus()
        if spec is None or spec.signer_name not in SIGNERS or status.certificate:
            return None
        if not _has(request, "Approved") or _has(request, "Failed"):
            return None
        usages = spec.usages or []
        try:
            parsed = x509.load_pem_x509_csr(base64.b64decode(spec.request or ""))
            if why := refused(spec.signer_name, parsed, usages):
                return _failed(status, "SignerValidationFailure", why, now)
            issued = self._issuer.issue(parsed, usages, now=now, seconds=spec.expiration_seconds)
        except (IssueError, ValueError, binascii.Error) as error:
            return _failed(status, "SigningError", str(error), now)
        return msgspec.structs.replace(status, certificate=base64.b64encode(issued).decode())


def _has(request: CertificateSigningRequest, kind: str) -> bool:
    conditions = (request.status.conditions or ()) if request.status else ()
    return any(c.type == kind and c.status == "True" for c in conditions)


def _failed(
    status: CertificateSigningRequestStatus, reason: str, message: str, now: datetime
) -> CertificateSigningRequestStatus:
    at = rfc3339(now)
    condition = CertificateSigningRequestCondition(
        type="Failed",
        status="True",
        reason=reason,
        message=message,
        last_update_time=at,
        last_transition_time=at,
    )
    return msgspec.structs.replace(status, conditions=[*(status.conditions or ()), condition])


def remaining(request: CertificateSigningRequest, now: datetime) -> float:
    """Seconds until a request is of no use to anybody: it, its decision or its certificate is too old."""
    status = request.status or CertificateSigningRequestStatus()
    created = request.metadata.creation_timestamp
    decided = [
        _DECIDED - seconds_since(c.last_update_time, now)
        for c in status.conditions or ()
        if c.type in ("Approved", "Denied", "Failed") and c.last_update_time
    ]
    if decided:
        return min([*decided, *_until_expiry(status, now)])
    return _PENDING - seconds_since(created, now) if created else _PENDING


def _until_expiry(status: CertificateSigningRequestStatus, now: datetime) -> list[float]:
    if not status.certificate:
        return []
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(status.certificate))
    except (ValueError, binascii.Error):
        return []  # somebody else's, of another form
    return [(certificate.not_valid_after_utc - now.astimezone(UTC)).total_seconds()]
