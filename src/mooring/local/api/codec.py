"""Bodies and answers: which media types, how they are read, how they are written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import yaml

from mooring.local.api import failures
from mooring.local.api.http import BODY_LIMIT, Request

__all__ = [
    "DEEPEST",
    "JSON_TYPES",
    "OBJECT_TYPES",
    "Format",
    "check_depth",
    "decode",
    "duplicates",
    "encode",
    "media_type",
    "negotiate",
]

Shape = Literal["object", "table", "metadata"]

OBJECT_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
JSON_TYPES = ("application/json", "application/yaml")
#: What the router offers for lists and watches of built-in kinds.
LIST_ROUTES = (
    *OBJECT_TYPES,
    "application/json;stream=watch",
    "application/vnd.kubernetes.protobuf;stream=watch",
)


@dataclass(frozen=True, slots=True)
class Format:
    """How an answer is written: the shape of objects, and YAML or indented JSON for people."""

    shape: Shape = "object"
    yaml: bool = False
    pretty: bool = False
    api_version: str = "meta.k8s.io/v1"

    @property
    def plain(self) -> bool:
        """Whether stored bytes can be sent as they are."""
        return self.shape == "object" and not self.yaml and not self.pretty


PLAIN = Format()
#: Levels of lists and objects in a document: what reads, checks and writes one calls itself for each. A real server
#: takes 10,000; definitions of real operators have fewer than 80.
DEEPEST = 200
#: Bytes that a node of a YAML document counts for besides its text, where aliases repeat it.
_NODE_BYTES = 64
_PEOPLE = re.compile(r"^(curl|Wget|Mozilla/)")


def media_type(value: str) -> str:
    """Return a media type without its parameters."""
    return value.partition(";")[0].strip().lower()


def negotiate(
    request: Request,
    *,
    shapes: bool = True,
    tables: bool = True,
    builtin: bool = True,
    routes: Sequence[str] = (),
) -> Format:
    """Return the first format of the Accept header that is offered; raises 406.

    Without `shapes` there are whole objects only, without `tables` metadata alone as well.

    `routes` are the types the router of a real server names when none of them is accepted at all.
    """
    routed = False
    pretty = _pretty(request)
    accept = request.header("accept")
    if not accept:
        return Format(pretty=pretty)
    for clause in sorted(accept.split(","), key=_quality, reverse=True):
        kind, _, rest = clause.partition(";")
        kind = kind.strip().lower()
        if kind in ("*/*", "application/json", ""):
            routed = True
            shaped = _shape(rest)
            if shaped is None or (shaped[0] != "object" and not shapes):
                continue
            if shaped[0] == "table" and not tables:
                continue
            return Format(shaped[0], pretty=pretty, api_version=shaped[1])
        if kind in ("application/yaml", "text/yaml", "application/x-yaml") and _shape(rest) is not None:
            return Format("object", yaml=True)
        if kind in OBJECT_TYPES:
            routed = True
    if not routed and routes:
        raise failures.not_representable(routes)
    raise failures.not_acceptable(OBJECT_TYPES if builtin else JSON_TYPES)


def _quality(clause: str) -> float:
    match = re.search(r";\s*q=([0-9.]+)", clause)
    try:
        return float(match[1]) if match else 1.0
    except ValueError:
        return 0.0


def _shape(parameters: str) -> tuple[Shape, str] | None:
    """Read `as=Table;v=v1;g=meta.k8s.io`; None when it asks for something that is not offered."""
    pairs = dict(part.strip().partition("=")[::2] for part in parameters.split(";") if part.strip())
    wanted = pairs.get("as")
    if wanted is None:
        return ("object", "") if pairs.get("stream", "watch") == "watch" else None
    if pairs.get("g") != "meta.k8s.io" or pairs.get("v") not in ("v1", "v1beta1"):
        return None
    shapes: dict[str, Shape] = {
        "Table": "table",
        "PartialObjectMetadata": "metadata",
        "PartialObjectMetadataList": "metadata",
    }
    shape = shapes.get(wanted)
    return (shape, f"meta.k8s.io/{pairs['v']}") if shape else None


def _pretty(request: Request) -> bool:
    if "pretty" in request.query:
        return request.query.flag("pretty")
    return bool(_PEOPLE.match(request.header("user-agent")))


def encode(value: Any, form: Format) -> tuple[bytes, str]:
    """Return the bytes of an object and their media type; JSON ends its line unless it is indented, as Go writes it."""
    if form.yaml:
        text = yaml.dump(value, Dumper=_Dumper, sort_keys=True, allow_unicode=True, default_flow_style=False)
        return text.encode(), "application/yaml"
    encoded = msgspec.json.encode(value)
    if form.pretty:
        return msgspec.json.format(encoded, indent=2), "application/json"
    return encoded + b"\n", "application/json"


class _Dumper(yaml.CSafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


class _Loader(yaml.CSafeLoader):
    """YAML as JSON sees it: no dates, and every key is text."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        self.flatten_mapping(node)
        return {
            _key(self.construct_object(key, deep=True)): self.construct_object(value, deep=deep)
            for key, value in node.value
        }


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    if isinstance(key, (dict, list)):
        # Its text would have every quote inside escaped again: twice as long with each level.
        raise ValueError("invalid map key: it is a list or an object")
    return key if isinstance(key, str) else str(key)


def _boolean(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> bool:
    return loader.construct_scalar(node).lower() in ("yes", "true", "on", "y")


def _integer(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> int | str:
    # Numbers of base 60 (1:30) are text to a real server; a long one takes the square of its length to read.
    return node.value if ":" in node.value else loader.construct_yaml_int(node)


def _float(loader: yaml.CSafeLoader, node: yaml.ScalarNode) -> float | str:
    return node.value if ":" in node.value else loader.construct_yaml_float(node)


_Loader.add_constructor("tag:yaml.org,2002:bool", _boolean)
_Loader.add_constructor("tag:yaml.org,2002:int", _integer)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)


# y and n are booleans in the YAML 1.1 of a real server, and so would be keys of that name.
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:y|Y|n|N)$"), list("yYnN"))
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in _Loader.yaml_implicit_resolvers.items()
}


def decode(body: bytes, content_type: str) -> Any:
    """Read a JSON or YAML body; raises ValueError with the reader's words, also for one nested deeper than DEEPEST."""
    if content_type == "application/json":
        return _decode_json(body)
    if body.lstrip()[:1] == b"{":
        try:
            return _checked(msgspec.json.decode(body), body)
        except RecursionError:
            raise ValueError(f"yaml: {_TOO_DEEP}") from None
        except msgspec.DecodeError:
            pass
    try:
        _check_nodes(body)
        return yaml.load(body, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ValueError(f"yaml: {_yaml_problem(error)}") from None


_TOO_DEEP = f"exceeded max depth of {DEEPEST}"


def check_depth(value: Any) -> None:
    """Raise ValueError when a value nests lists and objects deeper than DEEPEST; calls itself for no level."""
    level = [value] if isinstance(value, (dict, list)) else []
    for _ in range(DEEPEST):
        if not level:
            return
        children = [one.values() if isinstance(one, dict) else one for one in level]
        level = [child for group in children for child in group if isinstance(child, (dict, list))]
    if level:
        raise ValueError(_TOO_DEEP)


def _checked(value: Any, body: bytes) -> Any:
    """Return what a JSON body was read as; raises ValueError when it nests too deep."""
    if body.count(b"[") + body.count(b"{") > DEEPEST:
        check_depth(value)
    return value


def _check_nodes(body: bytes) -> None:
    """Refuse YAML that nests too deep, or that its aliases make too large, before anything is built of it.

    The C loader calls itself for each level and ends the process where the stack does: 30,000 brackets are enough.
    Its scanner does not. Merge keys are aliases as well. Raises ValueError.
    """
    sizes: dict[str | None, int] = {}
    opened: list[tuple[str | None, int]] = []
    size = repeated = 0
    for event in yaml.parse(body, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            if len(opened) == DEEPEST:
                raise ValueError(_TOO_DEEP)
            opened.append((event.anchor, size))
            sizes.pop(event.anchor, None)
            size = _NODE_BYTES
        elif isinstance(event, yaml.CollectionEndEvent):
            anchor, before = opened.pop()
            if anchor is not None:
                sizes[anchor] = size
            size += before
        elif isinstance(event, yaml.ScalarEvent):
            own = _NODE_BYTES + len(event.value)
            if event.anchor is not None:
                sizes[event.anchor] = own
            size += own
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in sizes and any(anchor == event.anchor for anchor, _ in opened):
                raise ValueError(f"anchor '{event.anchor}' value contains itself")
            repeated += sizes.get(event.anchor, 0)
            size += sizes.get(event.anchor, 0)
            if repeated > BODY_LIMIT:
                raise ValueError("document contains excessive aliasing")


def _yaml_problem(error: Exception) -> str:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.context_mark or error.problem_mark
        return f"line {mark.line + 1}: {error.problem}" if mark else str(error.problem)
    return " ".join(str(error).split())


def _decode_json(body: bytes) -> Any:
    try:
        return _checked(msgspec.json.decode(body), body)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise ValueError(_go_syntax_error(body)) from None


def _go_syntax_error(body: bytes) -> str:
    """Word a syntax error as Go's decoder does, since people search for these words."""
    text = body.decode(errors="replace")
    if not text.strip():
        return "unexpected end of JSON input"
    try:
        json.loads(text)
    except RecursionError:
        return _TOO_DEEP
    except json.JSONDecodeError as error:
        if error.pos >= len(text.rstrip()):
            return "unexpected end of JSON input"
        found = {"'": "\\'", '"': '\\"'}.get(text[error.pos], text[error.pos])
        if error.msg.startswith("Expecting value"):
            return _go_literal_error(text[error.pos :])
        if error.msg.startswith("Extra data"):
            return f"invalid character '{found}' after top-level value"
        if error.msg.startswith("Expecting property name"):
            return f"invalid character '{found}' looking for beginning of object key string"
        if error.msg.startswith("Expecting ',' delimiter"):
            return f"invalid character '{found}' after object key:value pair"
        if error.msg.startswith("Expecting ':'"):
            return f"invalid character '{found}' after object key"
        return f"invalid character '{found}' looking for beginning of value"
    return "invalid JSON"


def _go_literal_error(text: str) -> str:
    """Word a value that begins like true, false or null and goes on otherwise."""
    for literal in ("true", "false", "null"):
        if text[0] == literal[0]:
            for expected, found in zip(literal[1:], text[1:], strict=False):
                if expected != found:
                    return f"invalid character '{found}' in literal {literal} (expecting '{expected}')"
            return "unexpected end of JSON input"
    found = "\\'" if text[0] == "'" else text[0]
    return f"invalid character '{found}' looking for beginning of value"


class _Pairs(dict[str, Any]):
    repeated: Sequence[str] = ()


def _note(pairs: Iterable[tuple[str, Any]]) -> _Pairs:
    noted = _Pairs()
    repeated = []
    for key, value in pairs:
        if key in noted:
            repeated.append(key)
        noted[key] = value
    if repeated:
        noted.repeated = repeated
    return noted


def duplicates(body: bytes) -> list[str]:
    """Return the paths of fields that occur twice in a JSON body."""
    try:
        noted = json.loads(body, object_pairs_hook=_note)
    except (ValueError, RecursionError):
        return []
    found: list[str] = []
    _collect(noted, "", found)
    return found


def occurrences(body: bytes) -> list[str]:
    """Return the paths of all fields of a JSON body as they come, those that occur twice twice."""
    return list(_paths(json.loads(body, object_pairs_hook=_Members), ""))


class _Members(list[tuple[str, Any]]):
    """The members of an object in their order, repeated ones included."""


def _paths(value: Any, path: str) -> Iterator[str]:
    if isinstance(value, _Members):
        for key, inner in value:
            name = f"{path}.{key}" if path else key
            yield name
            yield from _paths(inner, name)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}[{index}]")


def repeated_lines(body: bytes) -> list[str]:
    """Return the complaints of a YAML parser about keys that occur twice in a mapping."""
    pending = [yaml.compose(body, Loader=_Loader)]
    found: list[tuple[int, str]] = []
    while pending:
        node = pending.pop()
        if isinstance(node, yaml.SequenceNode):
            pending += node.value
        elif isinstance(node, yaml.MappingNode):
            known: set[str] = set()
            for key, value in node.value:
                if key.value in known:
                    found.append((key.start_mark.line + 1, key.value))
                known.add(key.value)
                pending.append(value)
    return [f'line {line}: key "{key}" already set in map' for line, key in sorted(found)]


def _collect(value: Any, path: str, found: list[str]) -> None:
    if isinstance(value, _Pairs):
        found.extend(f"{path}.{key}" if path else key for key in value.repeated)
        for key, inner in value.items():
            if isinstance(inner, (_Pairs, list)):
                _collect(inner, f"{path}.{key}" if path else key, found)
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            if isinstance(inner, (_Pairs, list)):
                _collect(inner, f"{path}[{index}]", found)
