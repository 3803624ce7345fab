"""What a path and a method ask for, read as the real server's RequestInfo reads them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote

from mooring.local.api.http import Query

__all__ = ["Target", "Verb", "parse_path", "segments"]

Verb = Literal["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"]


@dataclass(frozen=True, slots=True)
class Target:
    """The resource, object or subresource a path names."""

    group: str
    version: str
    plural: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    rest: tuple[str, ...] = ()
    legacy_watch: bool = False

    @property
    def group_version(self) -> str:
        """`apps/v1`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def verb(self, method: str, query: Query) -> Verb | None:
        """Return the verb of a method on this target, None when there is none."""
        if method in ("GET", "HEAD"):
            if self.legacy_watch or (not self.subresource and query.flag("watch")):
                return "watch"
            return "get" if self.name else "list"
        if method == "DELETE":
            return "delete" if self.name else "deletecollection"
        verbs: dict[str, Verb] = {"POST": "create", "PUT": "update", "PATCH": "patch"}
        return verbs.get(method)


def segments(path: str) -> tuple[str, ...] | None:
    """Split a raw path after decoding it, as the real server does; None for the root.

    Nothing is resolved: `..` is a name like any other (and not a valid one), an encoded slash is a slash.
    """
    parts = tuple(unquote(path).strip("/").split("/"))
    return parts if parts != ("",) else None


def parse_path(parts: tuple[str, ...]) -> Target | None:
    """Return the target of `api/v1/...` or `apis/group/version/...`; None when it names no resource."""
    if "" in parts[:3]:
        return None
    if parts[0] == "api" and len(parts) > 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) > 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    legacy_watch = rest[0] == "watch"
    if legacy_watch:
        rest = rest[1:]
    namespace = ""
    if len(rest) > 2 and rest[0] == "namespaces" and not group and rest[2] in ("status", "finalize"):
        pass
    elif len(rest) > 2 and rest[0] == "namespaces":
        namespace, rest = rest[1], rest[2:]
    if not rest:
        return None
    return Target(
        group,
        version,
        rest[0],
        namespace,
        rest[1] if len(rest) > 1 else "",
        rest[2] if len(rest) > 2 else "",
        rest[3:],
        legacy_watch,
    )
