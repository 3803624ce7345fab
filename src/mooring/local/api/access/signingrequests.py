"""CertificateSigningRequests: who asks is written by the server, and not everybody may decide."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from mooring.local.api.access.rbac import Attributes
from mooring.local.api.call import Call
from mooring.local.api.constraints import same

__all__ = ["SIGNING_REQUESTS", "check_decision", "with_requester"]

JsonObject = dict[str, Any]

SIGNING_REQUESTS: Final = "certificatesigningrequests.certificates.k8s.io"
_CLIENT: Final = "kubernetes.io/kube-apiserver-client"
_MASTERS: Final = "system:masters"
_ASKING: Final = ("username", "uid", "groups", "extra")


def with_requester(obj: JsonObject, call: Call) -> JsonObject:
    """Return a new request with who sends it; raises 403 for one that asks to be an administrator."""
    spec = {key: value for key, value in (obj.get("spec") or {}).items() if key not in _ASKING}
    if spec.get("signerName") == _CLIENT and _MASTERS in _organizations(spec.get("request") or ""):
        why = f"use of {_CLIENT} signer with {_MASTERS} group is not allowed"
        raise call.forbidden(why, obj["metadata"].get("name") or "")
    return {**obj, "spec": {**spec, **call.user.to_json()}}


def _organizations(request: str) -> list[str]:
    try:
        parsed = x509.load_pem_x509_csr(base64.b64decode(request))
    except (ValueError, binascii.Error):
        return []  # validation names it
    return [str(a.value) for a in parsed.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def check_decision(call: Call, obj: JsonObject, old: JsonObject) -> None:
    """Raise 403 when somebody decides on a request, or signs it, who has no right to this signer."""
    verbs = {"approval": "approve", "status": "sign"}
    verb = verbs.get(call.target.subresource)
    if verb is None or same(obj.get("status"), old.get("status")):
        return
    signer = (old.get("spec") or {}).get("signerName") or ""
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        wanted = Attributes(
            user=call.user, verb=verb, group="certificates.k8s.io", resource="signers", name=name
        )
        if call.cluster.authorizer.decide(wanted).allowed:
            return
    raise call.forbidden(f'user not permitted to {verb} requests with signerName "{signer}"')
