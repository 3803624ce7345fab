"""What every request must show before it is looked at, and what every answer says to the browser.

Any web page that the user has open can send requests to the console, and any name can be made to lead there: so the Host
must be loopback's or the one that the console is served under, a request that a browser calls cross-site is refused, and
whatever changes something needs the Origin of this console and a header that only its own page can know.
"""

from __future__ import annotations

import hmac
from typing import Final
from urllib.parse import urlsplit

from aiohttp import web

from mooring.console.problems import Problem
from mooring.console.session import Session
from mooring.console.settings import is_loopback

__all__ = ["CSRF_HEADER", "HEADERS", "check_csrf", "check_request"]

CSRF_HEADER: Final = "X-Mooring-Csrf"

_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
#: Of every answer.
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
_SAFE: Final = frozenset({"GET", "HEAD"})


def check_request(request: web.Request, origin: str = "") -> None:
    """Refuse what did not come from this console's own page, or from a program.

    ``origin`` is the address under which it is served, besides loopback.
    """
    host = request.headers.get("Host", "")
    served = bool(origin) and urlsplit(origin).netloc == host.lower()
    if not served and not _is_loopback(host):
        raise Problem(421, "WrongHost", "The console does not answer under this name.")
    if len(request.headers.getall("Host")) != 1:
        raise Problem(400, "WrongHost", "The request has more than one Host.")
    if not request.path.startswith("/api/"):
        return
    # Browsers that have the header send it with every request; a page of another origin cannot leave it out.
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise Problem(403, "CrossSite", "The request comes from another site.")
    given = request.headers.get("Origin")
    # Behind a proxy that ends TLS the scheme here is not the browser's; loopback's is.
    if given is not None and given != (origin if served else f"{request.scheme}://{host}"):
        raise Problem(403, "CrossSite", "The request comes from another origin.")
    if request.method not in _SAFE:
        # A form of another page can send neither this header nor this content type without being asked first.
        if CSRF_HEADER not in request.headers:
            raise Problem(403, "CsrfMissing", f"The header {CSRF_HEADER} is missing.")
        if request.can_read_body and request.content_type != "application/json":
            raise Problem(415, "NotJson", "Send application/json.")


def check_csrf(request: web.Request, session: Session) -> None:
    """Refuse a change without the session's own word, which its page has read from the console."""
    given = request.headers.get(CSRF_HEADER, "")
    if request.method not in _SAFE and not hmac.compare_digest(given.encode(), session.csrf.encode()):
        raise Problem(403, "CsrfWrong", f"The header {CSRF_HEADER} is not this session's.")


def _is_loopback(host: str) -> bool:
    """Whether a Host header names loopback; the port may be another, as through a forwarded one."""
    try:
        parts = urlsplit(f"//{host}")
        name = parts.hostname or ""
        if parts.netloc != host or parts.username is not None or (parts.port is not None and parts.port < 1):
            return False
    except ValueError:
        return False
    return is_loopback(name)
