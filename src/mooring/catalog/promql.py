"""What a query in PromQL may ask for: series of one namespace alone, told without a parser of the whole language."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

__all__ = ["lint_query"]

_STRING: Final = r"""(?:"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`[^`]*`)"""
_TOKEN: Final = re.compile(
    rf"\s+|{_STRING}|\[[\w:.\s]*\]|[A-Za-z_:][\w:]*|[0-9][\w.]*|.", re.ASCII | re.DOTALL
)
_MATCHERS: Final = re.compile(
    rf"\s*(?:{_STRING}|\w+\s*(?:=~|!~|!=|=)\s*{_STRING})\s*(?:,|$)", re.ASCII | re.DOTALL
)
_NAMESPACE: Final = 'namespace="$namespace"'
#: Words before a list of labels, and words between expressions.
_LABELS: Final = frozenset({"by", "without", "on", "ignoring", "group_left", "group_right"})
_WORDS: Final = frozenset({"and", "or", "unless", "bool", "offset", "inf", "nan"})
_SIGNS: Final = frozenset("(),+-*/%^<>=!@0123456789")


def lint_query(query: str) -> Iterator[str]:
    """What is wrong with a query: a selector without its namespace shows what belongs to others."""
    tokens = [token for token in _TOKEN.findall(query) if not token.isspace()]
    at = 0
    while at < len(tokens):
        token, after = tokens[at], tokens[at + 1] if at + 1 < len(tokens) else ""
        at += 1
        if token == "{":  # noqa: S105 - a word of the language
            end = tokens.index("}", at) if "}" in tokens[at:] else len(tokens)
            if not _selects("".join(tokens[at:end])):
                yield f"every selector needs {_NAMESPACE}"
            at = end + 1
        elif token.lower() in _LABELS:
            if after == "(":
                end = tokens.index(")", at) if ")" in tokens[at:] else len(tokens)
                if not all(re.fullmatch(r"\w+|,", each, re.ASCII) for each in tokens[at + 1 : end]):
                    yield f"{token} needs a list of labels"
                at = end + 1
            elif token.lower() not in ("group_left", "group_right"):
                yield f"{token} needs a list of labels"
        elif re.match(r"[A-Za-z_:]", token, re.ASCII):
            if token.lower() not in _WORDS and after.lower() not in ("(", "{", "by", "without"):
                yield f"{token} has no selector: every one needs {_NAMESPACE}"
        elif len(token) == 1 and token not in _SIGNS:
            yield f"{token!r} stands outside of a string"


def _selects(matchers: str) -> bool:
    """Whether this is a list of matchers, all of which must hold, with the namespace among them."""
    at, found = 0, False
    while at < len(matchers):
        if (one := _MATCHERS.match(matchers, at)) is None:
            return False
        found = found or one[0].strip(" ,\n\t") == _NAMESPACE
        at = one.end()
    return found
