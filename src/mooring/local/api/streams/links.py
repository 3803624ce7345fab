"""What a proxied answer says about where things are, put so that it leads through the proxy again. Pure."""

from __future__ import annotations

import html
import posixpath
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urlsplit

__all__ = ["LARGEST_PAGE", "Place", "cleaned", "escaped", "recoded", "rewritten_page"]

#: Attributes whose value is a URL, by element, as in HTML 4 and 5.
_LINKS: Mapping[str, tuple[str, ...]] = {
    "a": ("href",),
    "applet": ("codebase",),
    "area": ("href",),
    "audio": ("src",),
    "base": ("href",),
    "blockquote": ("cite",),
    "body": ("background",),
    "button": ("formaction",),
    "command": ("icon",),
    "del": ("cite",),
    "embed": ("src",),
    "form": ("action",),
    "frame": ("longdesc", "src"),
    "head": ("profile",),
    "html": ("manifest",),
    "iframe": ("longdesc", "src"),
    "img": ("longdesc", "src", "usemap"),
    "input": ("src", "usemap", "formaction"),
    "ins": ("cite",),
    "link": ("href",),
    "object": ("classid", "codebase", "data", "usemap"),
    "q": ("cite",),
    "script": ("src",),
    "source": ("src",),
    "video": ("poster", "src"),
}
#: Bytes of a page whose links are rewritten; a larger one goes through as it is.
LARGEST_PAGE = 512 << 10
#: zlib's name of each encoding of a body that can be read, and written again.
_WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "deflate": -zlib.MAX_WBITS}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a page is: the path that leads to its server through the proxy, and the names of that server.

    `hosts` are what a URL of the page may call its own server: the pod's address, and the Host of the request.
    """

    prefix: str
    hosts: tuple[str, str]

    def through(self, url: str) -> str:
        """Return a URL of the page as it is found through the proxy; raises ValueError when it is none."""
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        if (host and host not in self.hosts) or not parts.path.startswith("/"):
            return url
        if host != self.hosts[1]:
            parts = parts._replace(scheme="", netloc="")
        if unquote(parts.path).startswith(self.prefix):
            return parts.geturl()
        path = cleaned(f"{escaped(self.prefix)}/{parts.path}")
        return parts._replace(path=path).geturl()


def cleaned(path: str) -> str:
    """Return a path without `.`, `..` and empty segments; a slash at its end stays."""
    if not path:
        return ""
    found = posixpath.normpath(re.sub("/+", "/", path))
    return found + "/" if path.endswith("/") and not found.endswith("/") else found


def escaped(path: str) -> str:
    """Return a path as it is sent, with what a real server escapes."""
    return quote(path, safe="/$&+,:;=@", errors="surrogateescape")


def recoded(body: bytes, encoding: str, place: Place) -> bytes | None:
    """Return a page in its encoding (`gzip`, `deflate`, "") with its links rewritten.

    None when it is in another encoding, or larger than LARGEST_PAGE. Raises ValueError when the body is not what the
    encoding says.
    """
    if len(body) > LARGEST_PAGE:
        return None
    if not encoding:
        return rewritten_page(body, place)
    window = _WINDOWS.get(encoding)
    if window is None:
        return None
    unpacker = zlib.decompressobj(wbits=window)
    try:
        page = unpacker.decompress(body, LARGEST_PAGE + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from error
    if len(page) > LARGEST_PAGE:
        return None
    if not unpacker.eof:
        raise ValueError("the packed page is cut short")
    packer = zlib.compressobj(wbits=window)
    return packer.compress(rewritten_page(page, place)) + packer.flush()


def rewritten_page(body: bytes, place: Place) -> bytes:
    """Return an HTML page whose links to its own server lead through the proxy; all else stays as it is."""
    page = _Page(body.decode("utf-8", "surrogateescape"), place)
    return page.rewritten().encode("utf-8", "surrogateescape")


class _Page(HTMLParser):
    """Copies a page, but for the start tags that have links."""

    def __init__(self, text: str, place: Place) -> None:
        super().__init__(convert_charrefs=False)
        self._text, self._place = text, place
        self._lines = [0, *(found.end() for found in re.finditer("\n", text))]
        self._copied = 0
        self._out: list[str] = []

    def rewritten(self) -> str:
        # Not closed: what follows a tag without an end is text, and to look for tags in it takes the square of its length.
        self.feed(self._text)
        return "".join(self._out) + self._text[self._copied :]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag(tag, attrs, ">")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._tag(tag, attrs, "/>")

    def _tag(self, tag: str, attrs: list[tuple[str, str | None]], end: str) -> None:
        links = _LINKS.get(tag, ())
        changed = [(key, self._through(value) if key in links and value else value) for key, value in attrs]
        raw = self.get_starttag_text()
        if changed == attrs or raw is None:
            return
        line, column = self.getpos()
        start = self._lines[line - 1] + column
        shown = (key if value is None else f'{key}="{html.escape(value)}"' for key, value in changed)
        self._out += [self._text[self._copied : start], f"<{' '.join((tag, *shown))}{end}"]
        self._copied = start + len(raw)

    def _through(self, url: str) -> str:
        try:
            return self._place.through(url)
        except ValueError:
            return url  # it is none, and none of ours to judge
