"""The documentation as a site: the pages of docs/, and a reference made of the definitions and the command line.

    make site OUT=site

Built offline, searchable in English and Chinese, every link between pages and to files of the tree checked: a link that leads
nowhere ends it. Open ``site/index.html``, or serve the directory.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT = Path(__file__).resolve().parents[1]
if not __package__:  # run as a program: its siblings are found from the root of the tree
    sys.path.insert(0, str(ROOT))

from mooring.cli.main import COMMANDS, EXITS, _parser, shown_version  # noqa: E402

__all__ = ["build", "main"]

#: The parts of the site and their pages, in this order; what is in docs/ and in no part is an error.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "Begin": ("quickstart", "comparison"),
    "Run": (
        *("redis-sentinel", "redis-cluster", "mysql", "matrixone", "object-storage"),
        *("operations", "metrics", "runbooks", "console", "security", "limits"),
    ),
    "Come from elsewhere": (
        *("migrate/ucloud", "migrate/harmonycloud", "migrate/redis", "migrate/mysql"),
        *("migrate/matrixone", "migrate/kopf"),
    ),
    "Write operators": ("write-an-operator", "testing"),
    "Know": ("architecture", "design/services", "design/volumes", "benchmarks"),
    "中文": (
        *("zh-CN/quickstart", "zh-CN/redis-sentinel", "zh-CN/redis-cluster", "zh-CN/mysql"),
        "zh-CN/console",
    ),
}
_LINK: Final = re.compile(r"(\]\()((?:\.\./)+[^)#\s]*)")
_FIELDS: Final = 2
"""Levels of fields whose own fields are listed too; deeper ones are Kubernetes' own types."""
_CONF: Final = """\
project = "Mooring"
version = release = {version!r}
extensions = ["myst_parser"]
source_suffix = {{".md": "markdown"}}
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["fields.css"]
html_title = "Mooring"
exclude_patterns = ["files", "static"]
# Chinese words too; English ones are found as before.
html_search_language = "zh"
html_show_sourcelink = False
html_copy_source = False
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
suppress_warnings = ["misc.highlighting_failure"]
"""
#: Long paths of fields break, so that what they mean is beside them.
_CSS: Final = """\
table.docutils td:first-child { width: 40%; }
table.docutils td code { white-space: normal; overflow-wrap: anywhere; }
table.docutils td { vertical-align: top; text-align: left; }
"""


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, default=ROOT / "site", help="where to (./site), emptied before"
    )
    options = parser.parse_args()
    wrong = build(options.output)
    print(wrong or f"{options.output}/index.html", file=sys.stderr if wrong else sys.stdout)
    return 1 if wrong else 0


def build(out: Path) -> str:
    """Make the site; returns what is wrong, which is nothing where it was made."""
    if out.exists() and not (out / "searchindex.js").exists() and any(out.iterdir()):
        return f"{out} is no site: remove it, or choose another place"
    with tempfile.TemporaryDirectory(prefix="mooring-site-") as place:
        source = Path(place) / "source"
        if wrong := _sources(source):
            return wrong
        made = Path(place) / "made"
        command = ["sphinx-build", "-q", "-W", "--keep-going", "-b", "html", str(source), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stdout + done.stderr).replace(f"{source}/", "docs/")
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(made, out, ignore=shutil.ignore_patterns(".doctrees", ".buildinfo"))
    return ""


def _sources(source: Path) -> str:
    docs = ROOT / "docs"
    pages = {str(path.relative_to(docs).with_suffix("")) for path in docs.rglob("*.md")}
    listed = {page for part in PARTS.values() for page in part}
    if pages != listed:
        return f"hack/site.py: PARTS and docs/ differ: {', '.join(sorted(pages ^ listed))}"
    shutil.copytree(docs, source)
    files = source / "files"
    files.mkdir()
    for page in listed:
        path = source / f"{page}.md"
        path.write_text(_with_files(path.read_text(), docs / f"{page}.md", docs, files, page.count("/")))
    reference = source / "reference"
    reference.mkdir()
    names = [*_kinds(reference), *_commands(reference)]
    (source / "index.md").write_text(_index(names))
    (source / "static").mkdir()
    (source / "static" / "fields.css").write_text(_CSS)
    (source / "conf.py").write_text(_CONF.format(version=shown_version()))
    return ""


def _with_files(text: str, page: Path, docs: Path, files: Path, depth: int) -> str:
    """Links to what is outside docs/ lead to copies of it; those to the READMEs to the first page."""

    def moved(found: re.Match[str]) -> str:
        target = (page.parent / found[2]).resolve()
        if target.is_relative_to(docs):
            return found[0]
        if target.name.startswith("README"):
            return f"{found[1]}{'../' * depth}index.md"
        name = target.relative_to(ROOT)
        copy = files / "files" / name
        if target.is_dir():
            listing = "".join(
                f"{path.relative_to(target)}\n" for path in sorted(target.rglob("*.*")) if path.is_file()
            )
            copy = copy.with_name(f"{copy.name}.txt")
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(listing)
            name = name.with_name(f"{name.name}.txt")
        else:
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(target, copy)
        # A plain link: Sphinx would take a relative one for a page.
        return f"{found[1]}<path:{'../' * depth}files/files/{name}>"

    return _LINK.sub(moved, text)


def _index(names: list[str]) -> str:
    lines = ["# Mooring", "", _introduction(), ""]
    for part, pages in {**PARTS, "Reference": tuple(names)}.items():
        lines += [f"```{{toctree}}\n:caption: {part}\n:maxdepth: 1\n", *pages, "```", ""]
    return "\n".join(lines)


def _introduction() -> str:
    """The first paragraphs of the README, as far as its first heading."""
    text = (ROOT / "README.md").read_text().partition("\n## ")[0].partition("\n")[2]
    return re.sub(r"\]\(docs/", "](", text).strip()


# --- the reference -------------------------------------------------------------------------------------------


def _kinds(place: Path) -> Iterator[str]:
    """A page per kind, of its definition."""
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        spec = crd["spec"]
        name = path.name.removesuffix(".yaml")
        lines = [f"# {spec['names']['kind']} ({spec['group']})", ""]
        for version in spec["versions"]:
            schema = version["schema"]["openAPIV3Schema"]
            short = ", ".join(spec["names"].get("shortNames") or ())
            lines += [schema.get("description", ""), ""]
            lines += [
                f"`apiVersion: {spec['group']}/{version['name']}`" + (f", short: {short}" if short else ""),
                "",
            ]
            for part in ("spec", "status"):
                fields = schema["properties"].get(part) or {}
                rows = list(_rows(fields, f"{part}.", 0))
                if rows:
                    lines += [f"## {part}", "", "| field | |", "|---|---|", *rows, ""]
            rules = schema["properties"].get("spec", {}).get("x-kubernetes-validations") or ()
            if rules:
                lines += [
                    "## Rules",
                    "",
                    *(f"- {_plain(one.get('message', one['rule']))}" for one in rules),
                    "",
                ]
        (place / f"{name}.md").write_text("\n".join(lines))
        yield f"reference/{name}"


def _rows(schema: Mapping[str, Any], path: str, depth: int) -> Iterator[str]:
    required = {*(schema.get("required") or ())}
    for name, field in (schema.get("properties") or {}).items():
        said = [_plain(field.get("description", ""))]
        if name in required:
            said.append("Required.")
        if "default" in field:
            said.append(f"Default: `{_plain(str(field['default']))}`.")
        if "enum" in field:
            said.append("One of " + ", ".join(f"`{_plain(str(one))}`" for one in field["enum"]) + ".")
        bounds = [
            f"{word} {field[key]}"
            for key, word in (("minimum", "at least"), ("maximum", "at most"))
            if key in field
        ]
        if bounds:
            said.append(f"{' and '.join(bounds).capitalize()}.")
        yield f"| `{path}{name}` | {' '.join(filter(None, said))} *{_type(field)}* |"
        inner = field.get("items") or field.get("additionalProperties")
        deeper = inner if isinstance(inner, dict) else field
        if depth < _FIELDS and deeper.get("properties"):
            mark = "[]" if field.get("type") == "array" else ".*" if inner else ""
            yield from _rows(deeper, f"{path}{name}{mark}.", depth + 1)


def _type(field: Mapping[str, Any]) -> str:
    if field.get("x-kubernetes-int-or-string"):
        return "integer or string"
    kind = str(field.get("type", "any"))
    if kind == "array":
        return f"list of {_type(field.get('items') or {})}"
    if kind == "object" and isinstance(field.get("additionalProperties"), dict):
        return f"map of {_type(field['additionalProperties'])}"
    return f"{kind} ({field['format']})" if "format" in field else kind


def _plain(text: str) -> str:
    """Text that a cell of a table can hold."""
    return re.sub(r"([|<*_\[\]{}$])", r"\\\1", " ".join(text.split()))


def _commands(place: Path) -> Iterator[str]:
    """A page with the help of every command."""
    os.environ["COLUMNS"] = "110"
    lines = [
        "# Command line",
        "",
        "| exit status | |",
        "|---|---|",
        *(f"| {status} | {_plain(what)} |" for status, what in EXITS),
        "",
    ]
    for name, (_, what) in COMMANDS.items():
        chosen = next(
            action.choices[name]
            for action in _parser(name)._actions
            if isinstance(action, argparse._SubParsersAction)
        )
        lines += [
            f"## mooring {name}",
            "",
            f"{what[0].upper()}{what[1:]}.",
            "",
            "```text",
            chosen.format_help(),
            "```",
            "",
        ]
    (place / "command-line.md").write_text("\n".join(lines))
    yield "reference/command-line"


if __name__ == "__main__":
    raise SystemExit(main())
