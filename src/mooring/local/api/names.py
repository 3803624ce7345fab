"""What names, labels and keys may look like, in the words of k8s.io/apimachinery/pkg/util/validation.

Every function returns the complaints about a text, an empty tuple when there are none.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

__all__ = [
    "config_map_key",
    "dns1035_label",
    "dns1123_label",
    "dns1123_subdomain",
    "env_var_name",
    "http_path_segment",
    "ip_address",
    "label_value",
    "port_name",
    "qualified_name",
    "with_prefix",
]

Check = Callable[[str], tuple[str, ...]]

_LABEL_1123: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL_1123}(\.{_LABEL_1123})*"
_LABEL_1035: Final = "[a-z]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED: Final = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_VALUE: Final = f"({_QUALIFIED})?"


def _regex(text: str, pattern: str, *examples: str) -> str:
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {listed}regex used for validation is '{pattern}')"


_LABEL_1123_TEXT: Final = _regex(
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
    "and end with an alphanumeric character", _LABEL_1123, "my-name", "123-abc",
)  # fmt: skip
_SUBDOMAIN_TEXT: Final = _regex(
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must "
    "start and end with an alphanumeric character", _SUBDOMAIN, "example.com",
)  # fmt: skip
_LABEL_1035_TEXT: Final = _regex(
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic "
    "character, and end with an alphanumeric character", _LABEL_1035, "my-name", "abc-123",
)  # fmt: skip
_QUALIFIED_TEXT: Final = _regex(
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character", _QUALIFIED, "MyName", "my.name", "123-abc",
)  # fmt: skip
_VALUE_TEXT: Final = _regex(
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must "
    "start and end with an alphanumeric character", _VALUE, "MyValue", "my_value", "12345",
)  # fmt: skip
_QUALIFIED_HINT: Final = (
    "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    f"'{_QUALIFIED}') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
)


def _too_long(limit: int, unit: str = "characters") -> str:
    return f"must be no more than {limit} {unit}"


@lru_cache(maxsize=8192)
def _matched(text: str, pattern: str, complaint: str, limit: int) -> tuple[str, ...]:
    errors = []
    if len(text.encode()) > limit:
        errors.append(_too_long(limit, "bytes" if pattern == _VALUE else "characters"))
    if re.fullmatch(pattern, text) is None:
        errors.append(complaint)
    return tuple(errors)


def dns1123_label(text: str) -> tuple[str, ...]:
    """Judge a name such as a namespace's: a lower case label."""
    if "." in text and re.fullmatch(_SUBDOMAIN, text):
        return (*_matched(text, _SUBDOMAIN, "", 63), "must not contain dots")
    return _matched(text, _LABEL_1123, _LABEL_1123_TEXT, 63)


def dns1123_subdomain(text: str) -> tuple[str, ...]:
    """Judge a name such as a pod's: lower case labels joined by dots."""
    return _matched(text, _SUBDOMAIN, _SUBDOMAIN_TEXT, 253)


def dns1035_label(text: str) -> tuple[str, ...]:
    """Judge a name such as a Service's: a label that starts with a letter."""
    return _matched(text, _LABEL_1035, _LABEL_1035_TEXT, 63)


def label_value(text: str) -> tuple[str, ...]:
    """Judge the value of a label."""
    return _matched(text, _VALUE, _VALUE_TEXT, 63)


@lru_cache(maxsize=8192)
def qualified_name(text: str) -> tuple[str, ...]:
    """Judge the key of a label or annotation, the name of a finalizer: `example.com/name`."""
    parts = text.split("/")
    errors: list[str] = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {error}" for error in dns1123_subdomain(parts[0])]
    elif len(parts) != 1:
        return (_QUALIFIED_HINT,)
    name = parts[-1]
    if not name:
        errors.append("name part must be non-empty")
    elif len(name) > 63:
        errors.append(f"name part {_too_long(63, 'bytes')}")
    if re.fullmatch(_QUALIFIED, name) is None:
        errors.append(_QUALIFIED_TEXT)
    return tuple(errors)


def http_path_segment(text: str) -> tuple[str, ...]:
    """Judge a name that only has to fit into a URL, such as a Role's."""
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{part}'" for part in ("/", "%") if part in text)


def ip_address(text: str) -> tuple[str, ...]:
    """Judge a name that is an address in its one canonical form."""
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        return (f'ParseAddr("{text}"): unable to parse IP',)
    return () if str(parsed) == text else ("must be a canonical form IP address",)


def with_prefix(check: Check, text: str) -> tuple[str, ...]:
    """Judge a generateName: what may follow makes a trailing dash or dot good."""
    if len(text) > 1 and text.endswith("-"):
        text = text[:-2] + "a"
    return check(text)


_ENV_FORBIDDEN: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)


def env_var_name(text: str) -> tuple[str, ...]:
    """Judge the name of an environment variable."""
    return () if re.fullmatch(r"[ -<>-~]+", text) else (_ENV_FORBIDDEN,)


_CONFIG_KEY_TEXT: Final = _regex(
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.'", "[-._a-zA-Z0-9]+",
    "key.name", "KEY_NAME", "key-name",
)  # fmt: skip


def config_map_key(text: str) -> tuple[str, ...]:
    """Judge a key of a ConfigMap or Secret."""
    errors = []
    if len(text) > 253:
        errors.append(_too_long(253))
    if re.fullmatch(r"[-._a-zA-Z0-9]+", text) is None:
        errors.append(_CONFIG_KEY_TEXT)
    if text == ".":
        errors.append("must not be '.'")
    elif text == "..":
        errors.append("must not be '..'")
    elif text.startswith(".."):
        errors.append("must not start with '..'")
    return tuple(errors)


def port_name(text: str) -> tuple[str, ...]:
    """Judge the name of a container's or a Service's target port."""
    errors = []
    if len(text) > 15:
        errors.append("must be no more than 15 characters")
    if re.fullmatch("[-a-z0-9]+", text) is None:
        errors.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if re.search("[a-z]", text) is None:
        errors.append("must contain at least one letter (a-z)")
    if "--" in text:
        errors.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        errors.append("must not begin or end with a hyphen")
    return tuple(errors)
