"""TLS of both Redis operators: the certificates that pods mount, how one follows another, and what servers show.

Pods mount one Secret of the cluster: the pair, and the authorities to trust under a name that changes with them. So a
server that names that file in its configuration has read it. Certificates change in steps, each taken when every server
has the one before: trust the new authority beside the old, show the new pair, drop the old authority.
"""

from __future__ import annotations

import base64
import hashlib
import ssl
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Annotated, Final, Literal

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from mooring.kube.objects import core
from mooring.kube.part import Part
from mooring.operators.workload.certificates import (
    AUTHORITY,
    CERTIFICATE,
    KEY,
    CertificateError,
    given,
    trust,
)
from mooring.operators.workload.containers import READ_ONLY
from mooring.operators.workload.credentials import secret_value
from mooring.runtime.crd import F
from mooring.runtime.webhooks_certificates import Certificates, Lifetimes, renewed

__all__ = [
    "CHANGED",
    "MARK",
    "MARKS",
    "MOUNT",
    "OLDEST",
    "Held",
    "Ports",
    "TlsProgress",
    "TlsSpec",
    "TlsState",
    "Transport",
    "encrypted",
    "hold",
    "next_ports",
    "open_ports",
    "ports_of",
    "remaining",
    "shown_issuer",
    "shown_leaf",
    "volume",
]

OLDEST: Final = (6, 2, 0)
"""The first version whose redis-cli lets the probes ask a server with an expired certificate."""
MARK: Final = "mooring.dev/tls"
"""Annotation of pods whose servers take TLS: ``required``, or ``both`` where the plain port is open too."""
Ports = Literal["plain", "both", "tls"]
"""Which ports servers have open."""
Transport = Literal["plain", "tls"]
"""Which of them servers and sentinels use among themselves."""
MARKS: Final[Mapping[Ports, str]] = {"both": "both", "tls": "required"}
"""The annotation's value by what a pod has open; plain pods bear none."""
MOUNT: Final = core.VolumeMount(name="tls", mount_path="/mooring/tls", read_only=True)
CHANGED: Final = (
    "spec.tls.enabled: TLS cannot be switched on or off in a Redis Cluster that exists; put it back, and create a new "
    "cluster for the other setting"
)
_STATE: Final = ("ca.crt", "ca.key", "tls.crt", "tls.key")
_LIFETIMES: Final = Lifetimes()

Turn = Literal["", "trust", "show", "drop"]


class TlsSpec(Part, frozen=True, kw_only=True):
    """Encrypted connections: of clients, between servers, and of sentinels."""

    enabled: Annotated[
        bool | None,
        F("Servers take TLS only, on port 6380 (sentinels 26380)."),
    ] = None
    secret_name: Annotated[
        str | None,
        F(
            "A Secret with tls.crt, tls.key and ca.crt; without it the operator makes certificates.",
            max_length=253,
        ),
    ] = None


class TlsProgress(Part, frozen=True, kw_only=True):
    """Where turning TLS on or off stands."""

    transport: Annotated[str, F("What servers and sentinels use among themselves: plain or tls.")] = ""
    phase: Annotated[
        str,
        F(
            "Opening the other port, Moving replication and sentinels to it, Closing the old one; empty at rest."
        ),
    ] = ""


@dataclass(frozen=True, kw_only=True)
class TlsState:
    """What decisions need to know of the certificates; no part of it is secret."""

    leaf: str = ""
    """Digest of the certificate that servers are to show; "" without TLS."""
    issuer: str = ""
    """Who issued it, as digest."""
    made: bool = False
    """The operator makes the certificates: those of other pods' addresses are of no concern to a sentinel."""
    authority: str = ""
    """Name of the file with the authorities that servers are to trust."""
    turn: Turn = ""
    """What the next certificates change, once every server has these."""


@dataclass(frozen=True, kw_only=True)
class Held:
    """The data of a cluster's Secrets with certificates, as they are, and as they are to be next."""

    data: Mapping[str, str] = field(repr=False)
    """Of the Secret that pods mount."""
    made: Mapping[str, str] | None = field(default=None, repr=False)
    """Of the operator's own Secret, with the key of the authority; ``None`` for a user's certificates."""
    next: Held | None = field(default=None, repr=False)

    @property
    def state(self) -> TlsState:
        """What decisions need to know."""
        return TlsState(
            leaf=_leaf(self.data),
            issuer=shown_issuer(_der(self.data))[0],
            made=self.made is not None,
            authority=next(name for name in self.data if name.startswith("ca-")),
            turn=_turn(self.data, self.next.data) if self.next is not None else "",
        )

    @property
    def context(self) -> ssl.SSLContext:
        """How the operator connects."""
        return trust(self.data)

    def turned(self) -> Held:
        """The next certificates."""
        return self.next or self


def encrypted(live_template: core.PodTemplateSpec | None) -> bool:
    """Whether pods of this template take TLS."""
    metadata = live_template.metadata if live_template is not None else None
    return ports_of(metadata.annotations if metadata is not None else None) != "plain"


def ports_of(annotations: Mapping[str, str] | None) -> Ports:
    """Which ports a pod with these annotations has open."""
    mark = (annotations or {}).get(MARK)
    if mark is None:
        return "plain"
    return "both" if mark == MARKS["both"] else "tls"


def open_ports(found: Collection[Ports]) -> Ports:
    """Which ports any of these pods has open; plain where there is none."""
    if set(found) == {"tls"}:
        return "tls"
    return "both" if set(found) - {"plain"} else "plain"


def next_ports(*, declared: Ports, transport: Transport, moving: bool) -> Ports:
    """Which ports the next pods have open: both until everything uses the declared transport."""
    wanted: Transport = "plain" if declared == "plain" else "tls"
    return "both" if moving or transport != wanted else declared


def remaining(there: core.Secret | None, made: core.Secret | None) -> Held | None:
    """The certificates as they are, while TLS is turned off."""
    held = _served_by(there)
    if held is None or made is None:
        return held
    return replace(held, made=dict(made.data or {}))


def hold(
    *,
    mine: core.Secret | None,
    named: str,
    there: core.Secret | None,
    made: core.Secret | None,
    hosts: Sequence[str],
    now: datetime,
    bus: bool = False,
    unused: bool = False,
) -> tuple[Held | None, str]:
    """The certificates, and what is wrong with a user's Secret (``named``), which is then left out of account.

    ``there`` and ``made`` are the cluster's own Secrets, ``hosts`` the names and addresses that clients use. ``bus``: nodes
    show the certificate to one another as clients too. ``unused``: no server shows those that are there, so that the newest
    come at once, whatever has become of the others since TLS was turned off.
    """
    if unused:
        there = None
    if not named:
        return _issued(there, made, hosts=hosts, now=now, unused=unused), ""
    before = _served_by(there)
    if mine is None:
        return before, f"Secret {named} does not exist; create it with tls.crt, tls.key and ca.crt"
    try:
        texts = {name: _decoded(text) for name, text in given(mine, None, now=now).items()}
        if bus:
            _for_clients(texts[CERTIFICATE])
        wanted = _served(texts[CERTIFICATE], texts[KEY], _issuing(texts))
    except CertificateError as error:
        return before, f"Secret {named}: {error}; correct it"
    if before is None:
        return Held(data=wanted), ""
    after = _step(before.data, wanted)
    return (replace(before, next=Held(data=after)) if after != before.data else before), ""


def shown_leaf(der: bytes) -> str:
    """The digest of a certificate that a server showed; "" for none."""
    return hashlib.sha256(der).hexdigest()[:16] if der else ""


def shown_issuer(der: bytes) -> tuple[str, datetime | None]:
    """The digest of who issued a certificate that was shown, and when it ends."""
    if not der:
        return "", None
    found = x509.load_der_x509_certificate(der)
    return hashlib.sha256(found.issuer.public_bytes()).hexdigest()[:16], found.not_valid_after_utc


def volume(secret: str) -> core.Volume:
    """The Secret as files; it may be replaced while pods run."""
    source = core.SecretVolumeSource(secret_name=secret, default_mode=READ_ONLY)
    return core.Volume(name="tls", secret=source)


# --- certificates that the operator makes ----------------------------------------------------------------


def _issued(
    there: core.Secret | None,
    made: core.Secret | None,
    *,
    hosts: Sequence[str],
    now: datetime,
    unused: bool = False,
) -> Held:
    known = _known(made)
    if known is None:
        known = _begun_again(there, hosts=hosts, now=now)
    after = renewed(known, names=hosts, now=now, lifetimes=_LIFETIMES, peers=True)
    while unused and after != known:
        known, after = after, renewed(after, names=hosts, now=now, lifetimes=_LIFETIMES, peers=True)
    held, following = _held(known), _held(after)
    return replace(held, next=following) if following.made != held.made else held


def _known(made: core.Secret | None) -> Certificates | None:
    try:
        return Certificates.from_secret(made.data if made is not None else None)
    except CertificateError:
        return None


def _begun_again(there: core.Secret | None, *, hosts: Sequence[str], now: datetime) -> Certificates:
    """A new authority; servers that show a certificate of a lost one go on, and are trusted until they show another."""
    fresh = renewed(None, names=hosts, now=now, lifetimes=_LIFETIMES, peers=True)
    data = dict((there.data if there is not None else None) or {})
    try:
        lost = Certificates.from_secret(
            {**fresh.to_secret(), **{name: data[name] for name in (CERTIFICATE, KEY)}}
        )
        old = tuple(x509.load_pem_x509_certificates(_decoded(data[AUTHORITY]).encode()))
    except (CertificateError, KeyError, ValueError):
        return fresh
    return replace(
        fresh, authorities=(*fresh.authorities, *old), serving=lost.serving, serving_key=lost.serving_key
    )


def _held(known: Certificates) -> Held:
    made = known.to_secret()
    texts = {name: _decoded(text) for name, text in made.items()}
    return Held(data=_served(texts["tls.crt"], texts["tls.key"], texts["ca.crt"]), made=made)


# --- one step after another ------------------------------------------------------------------------------


def _served(certificate: str, key: str, authorities: str) -> dict[str, str]:
    """The data of the Secret that pods mount."""
    name = f"ca-{hashlib.sha256(authorities.encode()).hexdigest()[:16]}.crt"
    texts = {CERTIFICATE: certificate, KEY: key, AUTHORITY: authorities, name: authorities}
    return {name: base64.b64encode(text.encode()).decode() for name, text in texts.items()}


def _served_by(there: core.Secret | None) -> Held | None:
    texts = [secret_value(there, name) for name in (CERTIFICATE, KEY, AUTHORITY)]
    return Held(data=_served(*texts)) if all(texts) else None


def _step(before: Mapping[str, str], wanted: Mapping[str, str]) -> Mapping[str, str]:
    """What comes between: a new authority is trusted before it is used, an old one until it is not."""
    old, new = _authorities(before), _authorities(wanted)
    if _leaf(before) == _leaf(wanted):
        return wanted if set(new) <= set(old) else _trusting(before, [*new, *old])
    if set(new) <= set(old):
        return _served(_decoded(wanted[CERTIFICATE]), _decoded(wanted[KEY]), _decoded(before[AUTHORITY]))
    return _trusting(before, [*new, *old])


def _trusting(before: Mapping[str, str], authorities: Sequence[str]) -> dict[str, str]:
    text = "".join(dict.fromkeys(authorities))
    return _served(_decoded(before[CERTIFICATE]), _decoded(before[KEY]), text)


def _turn(before: Mapping[str, str], after: Mapping[str, str]) -> Turn:
    if _leaf(before) != _leaf(after):
        return "show"
    return "trust" if set(_authorities(after)) - set(_authorities(before)) else "drop"


def _authorities(data: Mapping[str, str]) -> list[str]:
    found = x509.load_pem_x509_certificates(_decoded(data[AUTHORITY]).encode())
    return [one.public_bytes(serialization.Encoding.PEM).decode() for one in found]


def _leaf(data: Mapping[str, str]) -> str:
    return shown_leaf(_der(data))


def _der(data: Mapping[str, str]) -> bytes:
    found = x509.load_pem_x509_certificates(_decoded(data[CERTIFICATE]).encode())[0]
    return found.public_bytes(serialization.Encoding.DER)


def _issuing(texts: Mapping[str, str]) -> str:
    """The user's authorities; raises `CertificateError` where none of them issued the certificate."""
    if not texts.get(AUTHORITY, "").strip():
        raise CertificateError(f"{AUTHORITY} is missing or empty: servers verify one another by it")
    authorities = x509.load_pem_x509_certificates(texts[AUTHORITY].encode())
    leaf, *chain = x509.load_pem_x509_certificates(texts[CERTIFICATE].encode())
    for _ in range(len(chain) + 1):
        if leaf in authorities or any(_issued_by(leaf, one) for one in authorities):
            return texts[AUTHORITY]
        above = next((one for one in chain if _issued_by(leaf, one)), None)
        if above is None or above == leaf:
            break
        leaf = above
    raise CertificateError(f"{CERTIFICATE} was not issued by {AUTHORITY}")


def _for_clients(certificate: str) -> None:
    """Raise `CertificateError` for a certificate that the cluster bus would refuse."""
    leaf = x509.load_pem_x509_certificates(certificate.encode())[0]
    try:
        usages = leaf.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    except x509.ExtensionNotFound:
        return
    if ExtendedKeyUsageOID.CLIENT_AUTH not in usages:
        raise CertificateError(
            f"{CERTIFICATE} is for servers only, and nodes show it to one another as clients: have it issued with the "
            "usages server auth and client auth"
        )


def _issued_by(leaf: x509.Certificate, authority: x509.Certificate) -> bool:
    try:
        leaf.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _decoded(text: str) -> str:
    return base64.b64decode(text).decode()
