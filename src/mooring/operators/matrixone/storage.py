"""Shared storage in the configuration of the processes: the ``fileservice`` tables, and what a pod needs beside them."""

from __future__ import annotations

import ipaddress
from typing import Any, Final
from urllib.parse import urlsplit

from mooring.kube.objects import core
from mooring.operators.matrixone.quantities import canonical
from mooring.operators.matrixone.types import S3Provider, SharedStorageCache, SharedStorageProvider

__all__ = [
    "BACKUP_SERVICE",
    "DATA_PATH",
    "backend_of",
    "bucket_of",
    "endpoint_host",
    "file_services",
    "is_address",
    "restore_services",
    "storage_env",
    "storage_mounts",
    "storage_volumes",
]

DATA_PATH: Final = "/var/lib/matrixone"
DATA_DIR: Final = f"{DATA_PATH}/data"
CACHE_DIR: Final = f"{DATA_PATH}/disk-cache"
CERTIFICATES: Final = "s3-ssl"
CERTIFICATE_PATH: Final = "/etc/s3-ssl"
DEFAULT_REGION: Final = "us-west-2"
BACKUP_SERVICE: Final = "BACKUP"
_NO_CACHE: Final = {"memory-capacity": "1B"}


def endpoint_host(endpoint: str | None) -> str:
    """The host of an endpoint, with or without a scheme; "" where there is none."""
    text = endpoint or ""
    try:
        return urlsplit(text if "//" in text else f"//{text}").hostname or ""
    except ValueError:
        return ""


def is_address(host: str) -> bool:
    """The host is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def backend_of(s3: S3Provider) -> str:
    """MINIO, which asks by path and suits any server, or S3, which asks by host name.

    Without a type a server of one's own gets MINIO: one in the cluster, at an IP address, without TLS or at a port.
    """
    if s3.type is not None:
        return "MINIO" if s3.type == "minio" else "S3"
    return "MINIO" if _is_own(s3.endpoint) else "S3"


def _is_own(endpoint: str | None) -> bool:
    text, host = endpoint or "", endpoint_host(endpoint)
    if not host or host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        return False
    try:
        port = urlsplit(text if "//" in text else f"//{text}").port
    except ValueError:
        return False
    inside = "." not in host or host.endswith((".svc", ".cluster.local"))
    return inside or is_address(host) or text.startswith("http://") or port is not None


def bucket_of(s3: S3Provider) -> tuple[str, str]:
    """The bucket of a path, and the prefix in it."""
    bucket, _, prefix = (s3.path or "").strip("/").partition("/")
    return bucket, prefix.strip("/")


def file_services(storage: SharedStorageProvider | None, cache: SharedStorageCache | None) -> dict[str, Any]:
    """What every process reads and writes; no ``cache`` means nearly none.

    Of a log service elsewhere the storage is unknown: then it stands in the user's configuration.
    """
    local = {"name": "LOCAL", "backend": "DISK", "data-dir": DATA_DIR}
    if storage is None:
        return {"data-dir": DATA_DIR, "fileservice": [local]}
    shared = _service(storage, name="S3", below="data", cache=_NO_CACHE if cache is None else _cache(cache))
    etl = _service(storage, name="ETL", below="etl", cache=_NO_CACHE)
    return {"data-dir": DATA_DIR, "fileservice": [local, shared, etl]}


def restore_services(storage: SharedStorageProvider) -> dict[str, Any]:
    """What a log service reads that starts from a backup."""
    return {
        "data-dir": DATA_DIR,
        "fileservice": [_service(storage, name=BACKUP_SERVICE, below="", cache=_NO_CACHE)],
    }


def _service(
    storage: SharedStorageProvider, *, name: str, below: str, cache: dict[str, str]
) -> dict[str, Any]:
    made: dict[str, Any] = {"name": name}
    if (s3 := storage.s3) is not None:
        made |= {"backend": backend_of(s3), "s3": _s3(s3, below)}
    if (shared := storage.file_system) is not None:
        made |= {"backend": "DISK-ETL" if name == "ETL" else "DISK", "data-dir": shared.path or ""}
    return {**made, "cache": cache} if cache else made


def _s3(s3: S3Provider, below: str) -> dict[str, Any]:
    bucket, prefix = bucket_of(s3)
    region = s3.region or DEFAULT_REGION
    made: dict[str, Any] = {
        "endpoint": s3.endpoint or f"s3.{region}.amazonaws.com",
        "bucket": bucket,
        "key-prefix": f"{prefix}/{below}" if prefix else below,
    }
    if s3.region:
        made["region"] = s3.region
    if s3.certificate_ref is not None:
        made["cert-files"] = [f"{CERTIFICATE_PATH}/{name}" for name in s3.certificate_ref.files or ()]
    return made


def _cache(cache: SharedStorageCache) -> dict[str, str]:
    made = {}
    if cache.memory_cache_size is not None:
        made["memory-capacity"] = f"{canonical(cache.memory_cache_size)}B"
    if cache.disk_cache_size is not None:
        made |= {"disk-capacity": f"{canonical(cache.disk_cache_size)}B", "disk-path": CACHE_DIR}
    return made


def storage_env(storage: SharedStorageProvider | None) -> list[core.EnvVar]:
    """Credentials and region.

    Without a region the processes of AWS get upstream's; a server of one's own gets none, since a wrong one is refused.
    """
    s3 = storage.s3 if storage is not None else None
    if s3 is None:
        return []
    secret = s3.secret_ref.name if s3.secret_ref is not None else None
    made = [
        core.EnvVar(
            name=key,
            value_from=core.EnvVarSource(secret_key_ref=core.SecretKeySelector(name=secret, key=key)),
        )
        for key in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        if secret
    ]
    region = s3.region or ("" if backend_of(s3) == "MINIO" else DEFAULT_REGION)
    return [*made, core.EnvVar(name="AWS_REGION", value=region)] if region else made


def storage_volumes(storage: SharedStorageProvider | None) -> list[core.Volume]:
    """The Secret with certificates."""
    s3 = storage.s3 if storage is not None else None
    if s3 is None or s3.certificate_ref is None:
        return []
    return [
        core.Volume(name=CERTIFICATES, secret=core.SecretVolumeSource(secret_name=s3.certificate_ref.name))
    ]


def storage_mounts(storage: SharedStorageProvider | None) -> list[core.VolumeMount]:
    """Where the certificates are."""
    return [
        core.VolumeMount(name=one.name, mount_path=CERTIFICATE_PATH, read_only=True)
        for one in storage_volumes(storage)
    ]
