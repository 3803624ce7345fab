"""One change of the API server's, as a run of a workload sees it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Change"]

JsonObject = dict[str, Any]


@dataclass(frozen=True, slots=True, eq=False)
class Change:
    """One change of the server's: ``at`` and ``nth`` are its moment, ``by`` the operator's request, if it was one."""

    at: str
    nth: int
    by: str
    by_nth: int
    resource: str
    type: str
    object: JsonObject
    previous: JsonObject | None
    #: Virtual seconds since the control plane was started.
    when: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        """Resource, namespace and name."""
        meta = self.object["metadata"]
        return self.resource, meta.get("namespace", ""), meta["name"]

    @property
    def made_up(self) -> bool:
        """Whether the server made its object's name up: it is another one in the next run."""
        meta = self.object["metadata"]
        suffix = meta["name"].removeprefix(meta.get("generateName", meta["name"]))
        return bool(suffix) and not (
            suffix.isdigit() and len(suffix) < 4
        )  # a StatefulSet's pods are numbered
