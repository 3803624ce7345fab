"""What the API server accepts as labels and annotations, each fault with its key and the remedy; pure.

It checks them where they end up, at a Service or a pod, and would name that instead of the field the user wrote.
Source: ValidateLabels and ValidateAnnotations of k8s.io/apimachinery.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from mooring.operators.workload.problem import Problem

__all__ = ["annotation_faults", "keyed", "label_faults"]

_LONGEST: Final = 63
_LONGEST_PREFIX: Final = 253
_LARGEST: Final = 256 * 1024
"""Bytes of all annotations of an object, keys and values."""
_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?")
_PREFIX: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_FORM: Final = (
    "write name or domain/name: letters, digits, -, _ and ., at most 63, with a letter or digit at both ends"
)


def keyed(where: str, key: str) -> str:
    """The path of an entry of a map, its key in quotes."""
    return f"{where}[{json.dumps(key, ensure_ascii=False)}]"


def label_faults(where: str, labels: Mapping[str, str] | None) -> Iterator[Problem]:
    """Labels, or a node selector."""
    for key, value in (labels or {}).items():
        if not _is_key(key):
            yield Problem(keyed(where, key), f"is no key of a label; {_FORM}")
        if len(value) > _LONGEST:
            text = (
                f"{len(value)} characters, a label has at most {_LONGEST}; shorten it, or use an annotation"
            )
            yield Problem(keyed(where, key), text)
        elif value and not _NAME.fullmatch(value):
            text = f"{value!r} is no value of a label; give letters, digits, -, _ and ., with a letter or digit at both ends"
            yield Problem(keyed(where, key), text)


def annotation_faults(where: str, annotations: Mapping[str, str] | None) -> Iterator[Problem]:
    """Annotations: their values are free."""
    size = 0
    for key, value in (annotations or {}).items():
        size += len(key.encode()) + len(value.encode())
        if not _is_key(key.lower()):
            yield Problem(keyed(where, key), f"is no key of an annotation; {_FORM}")
    if size > _LARGEST:
        yield Problem(where, f"{size} bytes, at most {_LARGEST} are possible; remove some")


def _is_key(key: str) -> bool:
    """Whether a key is a qualified name."""
    prefix, slash, name = key.rpartition("/")
    if slash and (len(prefix) > _LONGEST_PREFIX or not _PREFIX.fullmatch(prefix)):
        return False
    return len(name) <= _LONGEST and bool(_NAME.fullmatch(name))
