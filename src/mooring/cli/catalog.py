"""``mooring catalog``: the services that can be created, one of them, and what is wrong with an entry."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec
import yaml

from mooring.catalog import CatalogError, Entry, defaults, lint, lint_schema, load_catalog, parse_entry
from mooring.cli import listing
from mooring.cli.offered import Refused, add_catalog_option
from mooring.runtime.crd import to_yaml

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "catalog", help="the services that can be created: list, show ENTRY, lint FILE"
    )
    verbs = parser.add_subparsers(metavar="list|show|lint", required=True)
    listed = verbs.add_parser("list", help="every entry with its kind and what it is")
    add_catalog_option(listed)
    listing.add_output_option(listed)
    listed.set_defaults(run=show_all)
    shown = verbs.add_parser("show", help="the fields, plans and defaults of an entry")
    shown.add_argument("entry")
    shown.add_argument("--output", "-o", choices=["text", "yaml", "json"], default="text")
    add_catalog_option(shown)
    shown.set_defaults(run=show)
    linted = verbs.add_parser("lint", help="what must be mended in entries of your own")
    linted.add_argument("files", nargs="+", type=Path, metavar="FILE")
    linted.add_argument(
        "--crd",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a CustomResourceDefinition to compare with (repeatable)",
    )
    linted.set_defaults(run=lint_files)


def show_all(options: argparse.Namespace) -> int:
    """A line for every entry."""
    rows = [
        {
            "name": entry.name,
            "kind": f"{entry.spec.target.kind}.{entry.spec.target.group}",
            "plans": [plan.name for plan in entry.spec.plans],
            "title": entry.spec.display.title.en,
        }
        for entry in load_catalog(options.catalog_dir).values()
    ]
    columns = {"name": "ENTRY", "kind": "KIND", "plans": "PLANS", "title": "WHAT"}
    listing.show(rows, columns, output=options.output, name="entries")
    return 0


def show(options: argparse.Namespace) -> int:
    """One entry."""
    entries = load_catalog(options.catalog_dir)
    if options.entry not in entries:
        raise Refused(f"the catalog has no entry {options.entry!r}; it has {', '.join(entries)}")
    entry = entries[options.entry]
    if options.output != "text":
        plain = {key: value for key, value in msgspec.to_builtins(entry).items() if key != "curated"}
        encoded = msgspec.json.format(msgspec.json.encode(plain), indent=2).decode() + "\n"
        print(encoded if options.output == "json" else to_yaml(plain), end="")
        return 0
    print("\n".join(_described(entry)))
    return 0


def _described(entry: Entry) -> list[str]:
    display, target = entry.spec.display, entry.spec.target
    lines = [f"{entry.name}: {display.title.en}", f"  {display.summary.en}"]
    lines += [f"  makes a {target.kind} of {target.group}/{target.version}", "", "Fields (--set NAME=VALUE):"]
    start = defaults(entry)
    for name, parameter in entry.parameters.items():
        said: list[str] = [parameter.format or parameter.type]
        said += [f"from {parameter.minimum:g}"] if parameter.minimum is not None else []
        said += [f"to {parameter.maximum:g}"] if parameter.maximum is not None else []
        said += ["one of " + ", ".join(map(str, parameter.enum))] if parameter.enum else []
        said += ["required"] if name in entry.spec.parameters.required else []
        said += ["secret: --set-file"] if parameter.sensitive else []
        said += ["cannot change later"] if parameter.immutable else []
        said += [f"default {start[name]}"] if name in start else []
        shown = f"{name}.KEY" if parameter.type == "object" else name
        lines.append(f"  {shown:<24}{parameter.title.en} ({', '.join(said)})")
    if entry.spec.plans:
        lines += ["", "Plans (--plan NAME):"]
    for plan in entry.spec.plans:
        values = ", ".join(f"{name}={value}" for name, value in plan.values.items())
        lines.append(f"  {plan.name:<24}{values}{'  (default)' if plan.default else ''}")
    return lines


def lint_files(options: argparse.Namespace) -> int:
    """Every problem of every file, each with its path; the status is 1 when there is one."""
    definitions = [made for file in options.crd for made in _definitions(file)]
    problems: list[str] = []
    for file in options.files:
        try:
            entry = parse_entry(file.read_text(), source=str(file))
        except UnicodeDecodeError:
            problems.append(f"{file}: is no text")
            continue
        except CatalogError as error:
            problems += error.problems
            continue
        found = lint(entry)
        target = entry.spec.target
        for made in definitions:
            names = made["spec"]["names"]
            if (made["spec"]["group"], names["plural"]) == (target.group, target.plural):
                found += lint_schema(entry, made)
        problems += [f"{file}: {line}" for line in found]
    for line in problems:
        print(line)
    if not problems:
        print(f"{len(options.files)} sound", file=sys.stderr)
    return 1 if problems else 0


def _definitions(file: Path) -> list[dict[str, Any]]:
    try:
        found = [one for one in yaml.safe_load_all(file.read_text()) if isinstance(one, dict)]
    except yaml.YAMLError as error:
        raise Refused(f"{file}: not YAML: {' '.join(str(error).split())}") from error
    return [one for one in found if one.get("kind") == "CustomResourceDefinition"]
