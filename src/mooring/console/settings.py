"""The configuration of a console that is served to others: a file, read once when the console starts.

SettingsError(problems)    a configuration that cannot be used; one line per problem

Secrets are in files of their own, which the configuration names.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

__all__ = [
    "Oidc",
    "Prometheus",
    "Proxy",
    "Settings",
    "SettingsError",
    "Tls",
    "is_loopback",
    "load_settings",
    "prometheus_problem",
]


class SettingsError(ValueError):
    """A configuration that cannot be used; ``problems`` has one line for each thing to mend."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


class _Data(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Frozen data that refuses unknown keys."""


class Tls(_Data, frozen=True, kw_only=True):
    """Files in PEM: the server's certificate and key, and the authority of a proxy's client certificates."""

    certificate: str
    key: str
    client_ca: str = ""


class Proxy(_Data, frozen=True, kw_only=True):
    """A proxy that signs users in and says in headers who they are.

    It is believed where it proves itself by all that is given here: an address (``sources``, networks in CIDR
    notation), a secret in ``secret_header``, the common name of a client certificate. Groups are separated by commas,
    or come in several headers.
    """

    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    sources: tuple[str, ...] = ()
    secret_header: str = "X-Mooring-Proxy-Secret"  # noqa: S105 - a header's name
    secret_file: str = ""
    names: tuple[str, ...] = ()
    username_prefix: str = ""
    groups_prefix: str = ""


class Oidc(_Data, frozen=True, kw_only=True):
    """An OpenID Connect provider. The prefixes are those that the API server puts before its names, if it knows it."""

    issuer: str
    client_id: str
    client_secret_file: str = ""
    scopes: tuple[str, ...] = ("openid", "profile", "email", "groups")
    username_claim: str = "sub"
    groups_claim: str = "groups"
    username_prefix: str = ""
    groups_prefix: str = ""
    ca_file: str = ""


class Prometheus(_Data, frozen=True, kw_only=True):
    """A server that answers Prometheus's queries; ``token_file`` has a bearer token, ``ca_file`` an authority in PEM."""

    url: str
    token_file: str = ""
    ca_file: str = ""


class Settings(_Data, frozen=True, kw_only=True):
    """What a served console is told.

    ``url`` is the address in browsers; ``listen`` is ADDRESS:PORT; ``session_keys`` a file with a key per line, the
    first of which seals. With ``impersonate`` the console's account acts as users of a proxy or a provider; without, a
    provider's tokens go to the API server as they are. ``terminal`` lets users open a shell in a container, if they may.
    """

    url: str
    listen: str = "0.0.0.0:8443"
    tls: Tls | None = None
    session_keys: str = ""
    tokens: bool = True
    terminal: bool = False
    impersonate: bool = False
    proxy: Proxy | None = None
    oidc: Oidc | None = None
    prometheus: Prometheus | None = None
    namespaces: tuple[str, ...] = ()
    catalog_directories: tuple[str, ...] = ()
    catalog_resources: bool = False

    @property
    def origin(self) -> str:
        """Scheme, host and port of the address in browsers."""
        parts = urlsplit(self.url.lower())
        # As browsers write it: without the port that the scheme has anyway.
        return f"{parts.scheme}://{parts.netloc.removesuffix(':443' if parts.scheme == 'https' else ':80')}"

    @property
    def address(self) -> tuple[str, int]:
        """Where to listen; raises `ValueError`."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def load_settings(path: Path) -> Settings:
    """Read a configuration; raises `SettingsError` with all that is wrong, `OSError`."""
    try:
        document: Any = yaml.safe_load(path.read_text())
        settings = msgspec.convert(document, Settings)
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise SettingsError([f"{path}: {' '.join(str(error).split())}"]) from error
    if problems := [f"{path}: {problem}" for problem in _problems(settings)]:
        raise SettingsError(problems)
    return settings


def _problems(settings: Settings) -> Iterator[str]:
    parts = urlsplit(settings.url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        yield f"url: {settings.url!r} is not https://HOST[:PORT]"
    elif parts.scheme == "http" and not is_loopback(parts.hostname):
        yield "url: what is not on loopback needs https"
    try:
        ipaddress.ip_address(settings.address[0])
        if not 0 <= settings.address[1] < 65536:
            raise ValueError
    except ValueError:
        yield f"listen: {settings.listen!r} is not ADDRESS:PORT"
    if settings.proxy is not None:
        yield from _proxy_problems(settings, settings.proxy)
    if settings.oidc is not None:
        issuer = urlsplit(settings.oidc.issuer)
        if issuer.scheme != "https" and not (issuer.scheme == "http" and is_loopback(issuer.hostname or "")):
            yield f"oidc.issuer: {settings.oidc.issuer!r} is no https address"
        if "openid" not in settings.oidc.scopes:
            yield "oidc.scopes: openid is missing"
    if settings.prometheus is not None and (wrong := prometheus_problem(settings.prometheus.url)):
        yield f"prometheus.url: {wrong}"
    if not (settings.tokens or settings.proxy or settings.oidc):
        yield "there is no way to sign in: tokens, proxy or oidc"


def prometheus_problem(url: str) -> str:
    """What is wrong with the address of a Prometheus, "" if nothing is."""
    parts = urlsplit(url)
    good = parts.scheme in ("http", "https") and parts.hostname and not (parts.query or parts.fragment)
    if good and parts.password is None:
        return ""
    return f"{url.rpartition('@')[2]!r} is not http[s]://HOST[:PORT][/PATH] without a password"


def _proxy_problems(settings: Settings, proxy: Proxy) -> Iterator[str]:
    if not settings.impersonate:
        yield "proxy: needs impersonate, since a proxy gives no credential"
    if not (proxy.sources or proxy.secret_file or proxy.names):
        yield "proxy: name what it is known by: sources, secretFile or names"
    for source in proxy.sources:
        try:
            ipaddress.ip_network(source)
        except ValueError as error:
            yield f"proxy.sources: {error}"
    if proxy.names and (settings.tls is None or not settings.tls.client_ca):
        yield "proxy.names: need tls.clientCa"


def is_loopback(name: str) -> bool:
    """Whether a host's name is this machine's alone."""
    if name == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
