"""A cluster's own Secret as it last was whole, for when somebody empties or deletes it.

The servers still take what it held, and nothing else of the cluster tells it. It is in the memory of the process alone: after a
restart of the operator the declared password is tried instead.
"""

from __future__ import annotations

from mooring.kube.object import Key
from mooring.kube.objects import core

__all__ = ["KeptSecrets"]


class KeptSecrets:
    """By cluster; ``entry`` is the one that a whole Secret has."""

    def __init__(self, entry: str) -> None:
        self._entry = entry
        self._known: dict[Key, tuple[str, core.Secret]] = {}

    def forget(self, key: Key) -> None:
        """The cluster is gone, or another process manages it."""
        self._known.pop(key, None)

    def whole(self, key: Key, uid: str, secret: core.Secret | None) -> core.Secret | None:
        """The Secret where it is whole, else as it last was of this very cluster (by its ``uid``), else as it is."""
        if secret is not None and self._entry in (secret.data or {}):
            self._known[key] = uid, secret
            return secret
        of, known = self._known.get(key, ("", None))
        return known if known is not None and of == uid else secret
