"""Objects that pods refer to, as the node reads them."""

from __future__ import annotations

import base64
from typing import Protocol

from mooring.kube.objects.core import ConfigMap, PersistentVolume, PersistentVolumeClaim, Secret, Service

__all__ = ["Missing", "Sources", "config_data", "secret_data"]


class Sources(Protocol):
    """Reads from caches; nothing here waits."""

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...
    def secret(self, namespace: str, name: str) -> Secret | None: ...
    def claim(self, namespace: str, name: str) -> PersistentVolumeClaim | None: ...
    def volume(self, name: str) -> PersistentVolume | None: ...
    def services(self, namespace: str) -> list[Service]: ...


class Missing(LookupError):
    """An object or a key that a pod needs is not there (yet)."""


def config_data(sources: Sources, namespace: str, name: str) -> dict[str, bytes]:
    """All entries of a ConfigMap; raises :class:`Missing`."""
    found = sources.config_map(namespace, name)
    if found is None:
        raise Missing(f'configmap "{name}" not found')
    binary = {key: base64.b64decode(value) for key, value in (found.binary_data or {}).items()}
    return {key: value.encode() for key, value in (found.data or {}).items()} | binary


def secret_data(sources: Sources, namespace: str, name: str) -> dict[str, bytes]:
    """All entries of a Secret; raises :class:`Missing`."""
    found = sources.secret(namespace, name)
    if found is None:
        raise Missing(f'secret "{name}" not found')
    return {key: base64.b64decode(value) for key, value in (found.data or {}).items()}
