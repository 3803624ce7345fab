"""What is wrong with a declared MySQLCluster, each fault with its field and the remedy; pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

from mooring.kube.quantity import parse_quantity
from mooring.operators.backup.layout import archive_of
from mooring.operators.backup.targets import problems as target_problems
from mooring.operators.mysql.archive.target import Refused, goal_gtid
from mooring.operators.mysql.config import canonical, is_forbidden
from mooring.operators.mysql.flavors import flavor_of, told_by
from mooring.operators.mysql.names import NAME_LIMIT
from mooring.operators.mysql.overlay import ours
from mooring.operators.mysql.types import (
    AUTOSCALE_TYPES,
    DEFAULT_IMAGE,
    LEAST_BY_LOAD,
    MOST,
    RESERVED_USERS,
    ArchiveSpec,
    Database,
    MySQLCluster,
    MySQLClusterSpec,
    PodSettings,
    Services,
    Storage,
    User,
)
from mooring.operators.workload.autogrow import autogrow_faults
from mooring.operators.workload.autoscale import autoscale_faults
from mooring.operators.workload.labels import annotation_faults, label_faults
from mooring.operators.workload.overlay_rules import faults
from mooring.operators.workload.problem import Problem
from mooring.operators.workload.resources import resource_faults
from mooring.operators.workload.services import service_faults

__all__ = ["Problem", "forbidden_keys", "validate"]


_IMAGE: Final = re.compile(
    r"([\w.-]+(:\d+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*", re.ASCII)
_GRANT: Final = re.compile(
    r"[A-Za-z][A-Za-z_, ()`\w]* ON (?:(?:TABLE|FUNCTION|PROCEDURE) )?(?:\*\.\*|`[^`]+`\.(?:\*|`[^`]+`)|[\w$%\\]+\.(?:\*|[\w$]+))"
    r"(?: WITH GRANT OPTION)?",
    re.IGNORECASE | re.ASCII,
)
_PRIVILEGES: Final = frozenset(
    {
        *("ALL", "ALL PRIVILEGES", "ALTER", "ALTER ROUTINE", "CREATE", "CREATE ROLE", "CREATE ROUTINE"),
        *("CREATE TABLESPACE", "CREATE TEMPORARY TABLES", "CREATE USER", "CREATE VIEW", "DELETE", "DROP"),
        *("DROP ROLE", "EVENT", "EXECUTE", "FILE", "GRANT OPTION", "INDEX", "INSERT", "LOCK TABLES"),
        *("PROCESS", "REFERENCES", "RELOAD", "REPLICATION CLIENT", "REPLICATION SLAVE", "SELECT"),
        *("SHOW DATABASES", "SHOW VIEW", "SHUTDOWN", "SUPER", "TRIGGER", "UPDATE", "USAGE"),
        # MariaDB alone
        *("BINLOG ADMIN", "BINLOG MONITOR", "BINLOG REPLAY", "CONNECTION ADMIN", "DELETE HISTORY"),
        *("FEDERATED ADMIN", "READ ONLY ADMIN", "REPLICA MONITOR", "REPLICATION MASTER ADMIN"),
        *("REPLICATION REPLICA", "REPLICATION REPLICA ADMIN", "REPLICATION SLAVE ADMIN", "SET USER"),
        *("SHOW CREATE ROUTINE", "SLAVE MONITOR"),
    }
)
_DYNAMIC: Final = re.compile(r"[A-Z]+(_[A-Z]+)+", re.ASCII)
"""MySQL's further privileges; components bring more of them."""
_SYSTEM_DATABASES: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
_WORD: Final = re.compile(r"\w+", re.ASCII)


def validate(cluster: MySQLCluster) -> list[Problem]:
    """Everything wrong with a declaration; the CRD refuses most of it where it is installed as shipped."""
    spec = cluster.spec or MySQLClusterSpec()
    services, pods = spec.services or Services(), spec.pod or PodSettings()
    return [
        *_name(cluster.metadata.name or ""),
        *_size(spec),
        *_autoscale(spec),
        *_image(spec),
        *_storage(spec.storage or Storage()),
        *(Problem(*fault) for fault in resource_faults("spec.resources", spec.resources)),
        *_config(spec.config or {}),
        *_users(spec.users or ()),
        *_databases(spec.databases or ()),
        *(_archive(spec.archive) if spec.archive is not None else ()),
        *_restore(spec),
        *service_faults("spec.services.primary", services.primary),
        *service_faults("spec.services.replicas", services.replicas),
        *label_faults("spec.pod.labels", pods.labels),
        *annotation_faults("spec.pod.annotations", pods.annotations),
        *label_faults("spec.pod.nodeSelector", pods.node_selector),
        *faults(spec.pod_template, ours(spec)),
    ]


def _name(name: str) -> Iterator[Problem]:
    if len(name) > NAME_LIMIT:
        text = f"{len(name)} characters, at most {NAME_LIMIT} are possible; choose a shorter name"
        yield Problem("metadata.name", text)
    if "." in name:
        yield Problem("metadata.name", "has a dot; Services could not be named after it; choose one without")


def _size(spec: MySQLClusterSpec) -> Iterator[Problem]:
    if spec.size is not None and not 1 <= spec.size <= 9:
        yield Problem("spec.size", f"{spec.size} servers are not possible; give 1 to 9")


def _autoscale(spec: MySQLClusterSpec) -> Iterator[Problem]:
    if spec.autoscale is not None:
        faults = autoscale_faults(spec.autoscale, AUTOSCALE_TYPES, least=LEAST_BY_LOAD, most=MOST)
        yield from (Problem(f"spec.autoscale.{field}", message) for field, message in faults)


def _image(spec: MySQLClusterSpec) -> Iterator[Problem]:
    image = spec.image or DEFAULT_IMAGE
    if not _IMAGE.fullmatch(image):
        text = f"{image!r} is not an image reference; write name:tag, the name in small letters"
        yield Problem("spec.image", text)
        return
    told, declared = told_by(image), spec.flavor or "auto"
    if declared == "auto" and told is None:
        yield Problem(
            "spec.flavor",
            f"the name of {image} does not tell whether it is MySQL or MariaDB; set it to one of them",
        )
    elif declared not in ("auto", "mysql", "mariadb"):
        yield Problem("spec.flavor", f"{declared!r} is not known; give auto, mysql or mariadb")
    elif declared != "auto" and told is not None and told != declared:
        yield Problem("spec.flavor", f"{declared} contradicts the image {image}; correct one of them")


def _storage(storage: Storage) -> Iterator[Problem]:
    if storage.empty_dir is not None and storage.storage_class:
        yield Problem("spec.storage", "emptyDir and storageClass exclude each other; remove one")
    if storage.empty_dir is not None and storage.keep_after_deletion:
        text = "an emptyDir goes with its pod; remove this, or the emptyDir"
        yield Problem("spec.storage.keepAfterDeletion", text)
    declared, claimed = storage.size or "1Gi", storage.empty_dir is None
    for field, text in autogrow_faults(storage.autogrow, declared=declared, claimed=claimed):
        yield Problem(f"spec.storage.autogrow{field}", text)
    if storage.size is None:
        return
    try:
        size = parse_quantity(storage.size)
    except ValueError as why:
        yield Problem("spec.storage.size", f"{why}; write it as 10Gi")
        return
    if size < 200 * (1 << 20):
        yield Problem("spec.storage.size", f"{storage.size} is too little for a server; give at least 200Mi")


def _config(config: Mapping[str, str]) -> Iterator[Problem]:
    seen: dict[str, str] = {}
    for key, value in config.items():
        where = f"spec.config.{key}"
        if not _KEY.fullmatch(key.strip()):
            yield Problem(where, "is no name of a variable; write letters, digits and underscores")
        elif any(ord(one) < 32 or ord(one) == 127 for one in value):
            yield Problem(where, "its value holds a line break or another control character; remove it")
        elif (twin := seen.setdefault(canonical(key), key)) != key:
            yield Problem(where, f"is the same key as {twin}; remove one of them")


def forbidden_keys(config: Mapping[str, str]) -> list[str]:
    """Keys of spec.config that the operator itself decides."""
    return sorted(key for key in config if is_forbidden(key))


def _users(users: list[User] | tuple[()]) -> Iterator[Problem]:
    seen: set[tuple[str, str]] = set()
    for at, user in enumerate(users):
        where, host = f"spec.users[{at}]", user.host or "%"
        if user.name in RESERVED_USERS:
            yield Problem(f"{where}.name", f"{user.name} is the operator's own account; choose another name")
        elif not user.name or not _printable(user.name) or len(user.name) > 32:
            yield Problem(
                f"{where}.name", f"{user.name!r} is no account name; give 1 to 32 letters or digits"
            )
        elif (user.name, host) in seen:
            yield Problem(where, f"{user.name}@{host} is declared twice; remove one")
        seen.add((user.name, host))
        if not _printable(host):
            yield Problem(f"{where}.host", f"{host!r} is no host; write %, an address or 10.0.0.%")
        if user.password_secret is None or not user.password_secret.name:
            yield Problem(f"{where}.passwordSecret", "is missing; name a Secret with its password")
        for number, grant in enumerate(user.grants or ()):
            if not _GRANT.fullmatch(grant.strip()):
                yield Problem(
                    f"{where}.grants[{number}]",
                    f"{grant!r} cannot be read; write privileges ON database.*, as in SELECT, INSERT ON shop.*",
                )
            elif unknown := _unknown_privileges(grant):
                text = f"{', '.join(unknown)}: no such privilege; correct or remove it"
                yield Problem(f"{where}.grants[{number}]", text)


def _unknown_privileges(grant: str) -> list[str]:
    listed = re.split(r"\s+ON\s+", grant.strip(), maxsplit=1, flags=re.IGNORECASE)[0]
    words = [
        " ".join(re.sub(r"\([^()]*\)\s*$", "", one).upper().split())
        for one in re.split(r",(?![^(]*\))", listed)
    ]
    return [one for one in words if one not in _PRIVILEGES and not _DYNAMIC.fullmatch(one)]


def _databases(databases: list[Database] | tuple[()]) -> Iterator[Problem]:
    seen: set[str] = set()
    for at, one in enumerate(databases):
        where = f"spec.databases[{at}]"
        if one.name.lower() in _SYSTEM_DATABASES:
            yield Problem(f"{where}.name", f"{one.name} is the server's own; choose another name")
        elif not one.name or not _printable(one.name) or len(one.name) > 64 or "/" in one.name:
            yield Problem(
                f"{where}.name", f"{one.name!r} is no name of a database; give 1 to 64 letters or digits"
            )
        elif one.name in seen:
            yield Problem(where, f"{one.name} is declared twice; remove one")
        seen.add(one.name)
        for field, value in (("characterSet", one.character_set), ("collation", one.collation)):
            if value is not None and not _WORD.fullmatch(value):
                yield Problem(f"{where}.{field}", f"{value!r} is none; write one word, as in utf8mb4")


def _printable(text: str) -> bool:
    """Letters that need no quoting in SQL but backticks or quotes."""
    return bool(text) and not any(ord(one) < 32 or one in "'\"`\\\x7f" for one in text)


def _archive(archive: ArchiveSpec) -> Iterator[Problem]:
    where = "spec.archive"
    if archive.target is None:
        yield Problem(f"{where}.target", "is required; say where the binary log is archived")
    else:
        for one in target_problems(archive.target, f"{where}.target"):
            yield Problem(one.field, one.message)
    if archive.interval_seconds is not None and not 1 <= archive.interval_seconds <= 3600:
        yield Problem(
            f"{where}.intervalSeconds", f"{archive.interval_seconds} is not possible; give 1 to 3600"
        )
    yield from (Problem(*fault) for fault in resource_faults(f"{where}.resources", archive.resources))


def _restore(spec: MySQLClusterSpec) -> Iterator[Problem]:
    declared = spec.restore_from
    point = declared.point_in_time if declared is not None else None
    if declared is not None and declared.cluster and point is None:
        yield Problem("spec.restoreFrom.pointInTime", "is required with cluster; say where to end")
    if declared is None or point is None:
        return
    where = "spec.restoreFrom.pointInTime"
    if (point.gtid is None) is (point.time is None):
        yield Problem(where, "name either a gtid or a time")
    flavor = flavor_of(spec.image or DEFAULT_IMAGE, spec.flavor)
    if point.gtid and flavor is not None:
        try:
            goal_gtid(flavor, point.gtid)
        except Refused as refused:
            yield Problem(f"{where}.gtid", str(refused))
    if declared.prefix and not archive_of(declared.prefix):
        text = (
            f"{declared.prefix} is no prefix of a backup whose archive can be found; give status.prefix of a MySQLBackup, "
            "CLUSTER-UID/backups/ID"
        )
        yield Problem("spec.restoreFrom.prefix", text)
