"""What is wrong with a declared RedisCluster, each fault with its field and the remedy; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mooring.operators.redis.parameters import canonical, classify
from mooring.operators.redis.sentinel.overlay import ours
from mooring.operators.redis.sentinel.types import (
    DEFAULT_IMAGE,
    DOT_MESSAGE,
    NAME_LIMIT,
    SENTINEL_MESSAGE,
    SIZE_MESSAGE,
    RedisCluster,
    RedisClusterSpec,
    RedisStorage,
    RoleServices,
    SentinelSettings,
)
from mooring.operators.redis.tls import OLDEST
from mooring.operators.redis.users.validate import users_faults
from mooring.operators.redis.versions import image_version
from mooring.operators.workload.autogrow import autogrow_faults
from mooring.operators.workload.labels import annotation_faults, label_faults
from mooring.operators.workload.overlay_rules import faults
from mooring.operators.workload.problem import Problem
from mooring.operators.workload.resources import claim_size_faults, resource_faults
from mooring.operators.workload.services import service_faults
from mooring.operators.workload.volumes import size_of

__all__ = ["forbidden_keys", "validate"]


_IMAGE: Final = re.compile(
    r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
"""A registry with a port, the name in small letters, one tag, a digest."""
_SENTINEL_PARAMETERS: Final = frozenset(
    [
        "down-after-milliseconds",
        "failover-timeout",
        "parallel-syncs",
        "quorum",
        "notification-script",
        "client-reconfig-script",
        "auth-pass",
        "auth-user",
        "rename-command",
        "master-reboot-down-after-period",
    ]
)


def validate(cluster: RedisCluster) -> list[Problem]:
    """Everything wrong with a declaration; the CRD refuses most of it where it is installed as shipped."""
    spec = cluster.spec or RedisClusterSpec()
    sentinel = spec.sentinel or SentinelSettings()
    services = spec.services or RoleServices()
    return [
        *_name(cluster.metadata.name or ""),
        *_sizes(spec, sentinel),
        *_password(spec),
        *_tls(spec, sentinel),
        *users_faults(
            spec.users,
            spec.default_user,
            images={
                "spec.image": spec.image or DEFAULT_IMAGE,
                "spec.sentinel.image": sentinel.image or DEFAULT_IMAGE,
            },
        ),
        *service_faults("spec.services.master", services.master),
        *service_faults("spec.services.replica", services.replica),
        *annotation_faults("spec.annotations", spec.annotations),
        *annotation_faults("spec.sentinel.annotations", sentinel.annotations),
        *label_faults("spec.nodeSelector", spec.node_selector),
        *label_faults("spec.sentinel.nodeSelector", sentinel.node_selector),
        *_images(spec, sentinel),
        *(Problem(*fault) for fault in resource_faults("spec.resources", spec.resources)),
        *(Problem(*fault) for fault in resource_faults("spec.sentinel.resources", sentinel.resources)),
        *_storage(spec.storage or RedisStorage()),
        *_sentinel_config(sentinel),
        *faults(spec.pod_template, ours(spec, "redis")),
        *faults(sentinel.pod_template, ours(spec, "sentinel")),
    ]


def _name(name: str) -> Iterator[Problem]:
    if len(name) > NAME_LIMIT:
        text = f"{len(name)} characters, at most {NAME_LIMIT} are possible; choose a shorter name"
        yield Problem("metadata.name", text)
    if "." in name:
        yield Problem("metadata.name", f"{DOT_MESSAGE}; choose one without")


def _sizes(spec: RedisClusterSpec, sentinel: SentinelSettings) -> Iterator[Problem]:
    if spec.size and spec.size < 3:
        yield Problem("spec.size", f"{SIZE_MESSAGE}; give 3 to 10")
    if spec.size and spec.size > 10:
        yield Problem("spec.size", f"{spec.size} is more than 10; give 3 to 10")
    if sentinel.replicas and sentinel.replicas < 3:
        yield Problem("spec.sentinel.replicas", f"{SENTINEL_MESSAGE}; give at least 3, best an odd number")


def _password(spec: RedisClusterSpec) -> Iterator[Problem]:
    if len(spec.password or "") > 48:
        yield Problem("spec.password", "longer than 48 characters; choose a shorter one")
    if spec.password and spec.password_secret:
        yield Problem("spec.passwordSecret", "spec.password is set too; remove one of them")


def _tls(spec: RedisClusterSpec, sentinel: SentinelSettings) -> Iterator[Problem]:
    if spec.tls is None or not spec.tls.enabled:
        return
    images = {
        "spec.image": spec.image or DEFAULT_IMAGE,
        "spec.sentinel.image": sentinel.image or DEFAULT_IMAGE,
    }
    for where, image in images.items():
        version = image_version(image)
        if version is not None and version < OLDEST:
            text = f"TLS needs Redis 6.2 or later, and {where} is {image}; give a later image, or remove spec.tls"
            yield Problem("spec.tls.enabled", text)
    if sentinel.command:
        text = (
            "is not possible with spec.tls: the operator names the configuration file; remove one of the two"
        )
        yield Problem("spec.sentinel.command", text)


def _images(spec: RedisClusterSpec, sentinel: SentinelSettings) -> Iterator[Problem]:
    for where, image in (("spec.image", spec.image), ("spec.sentinel.image", sentinel.image)):
        if image and not _IMAGE.fullmatch(image):
            text = f"{image!r} is not an image reference; write name:tag, the name in small letters"
            yield Problem(where, text)
    if spec.exporter is not None and spec.exporter.enabled and not spec.exporter.image:
        text = (
            "the exporter is enabled and has no default image; give one, as oliver006/redis_exporter:v1.58.0"
        )
        yield Problem("spec.exporter.image", text)


def _storage(storage: RedisStorage) -> Iterator[Problem]:
    claim = storage.persistent_volume_claim
    if claim is not None and storage.empty_dir is not None:
        yield Problem("spec.storage", "emptyDir and persistentVolumeClaim exclude each other; remove one")
    elif claim is None and storage.keep_after_deletion:
        text = "needs a persistentVolumeClaim: an emptyDir goes with its pod; add one or remove this"
        yield Problem("spec.storage.keepAfterDeletion", text)
    elif claim is not None:
        where = "spec.storage.persistentVolumeClaim"
        yield from (Problem(*fault) for fault in claim_size_faults(where, claim))
    declared = size_of(claim) if claim is not None else ""
    for field, text in autogrow_faults(storage.autogrow, declared=declared, claimed=claim is not None):
        yield Problem(f"spec.storage.autogrow{field}", text)


def _sentinel_config(sentinel: SentinelSettings) -> Iterator[Problem]:
    for at, line in enumerate(sentinel.custom_config or ()):
        name, _, value = line.strip().partition(" ")
        where = f"spec.sentinel.customConfig[{at}]"
        if any(ord(one) < 32 or ord(one) == 127 for one in line.strip()):
            text = f"{line!r} holds a line break or another control character; one entry per parameter"
            yield Problem(where, text)
        elif not value.strip():
            yield Problem(where, f'{line!r} has no value; write "parameter value"')
        elif name not in _SENTINEL_PARAMETERS:
            yield Problem(where, f"{name} is not a parameter of SENTINEL SET; remove it")


def forbidden_keys(config: Mapping[str, str]) -> list[str]:
    """Keys of spec.config that the operator itself decides."""
    return sorted(
        key for key in config if classify(key) == "forbidden" and canonical(key) != "replica-priority"
    )
