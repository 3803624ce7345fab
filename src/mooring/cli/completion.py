"""``mooring completion bash|zsh|fish``: a script for the shell, which asks ``mooring complete`` for words.

source <(mooring completion bash)
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

__all__ = ["add_parser", "words"]

_BASH = """\
_mooring() {
    local IFS=$'\\n'
    COMPREPLY=($(mooring complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == *[=.] ]] && compopt -o nospace 2>/dev/null
    # bash takes "=" for a word of its own: what stands before it is there already.
    if [[ ${COMP_WORDS[COMP_CWORD]} == "=" || ${COMP_WORDS[COMP_CWORD-1]} == "=" ]]; then
        COMPREPLY=("${COMPREPLY[@]#*=}")
    fi
}
complete -o default -F _mooring mooring
"""
_ZSH = """\
#compdef mooring
_mooring() {
    local -a found
    found=("${(@f)$(mooring complete -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
    [[ -n ${found[1]} ]] && compadd -S '' -- "${found[@]}" || _files
}
compdef _mooring mooring
"""
_FISH = """\
function __mooring_complete
    set -l tokens (commandline --tokenize --cut-at-cursor --current-process)
    mooring complete -- $tokens[2..] (commandline --current-token --cut-at-cursor) 2>/dev/null
end
complete --command mooring --no-files --arguments '(__mooring_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "completion", help="complete commands, entries and fields in bash, zsh or fish"
    )
    parser.add_argument("shell", choices=list(_SCRIPTS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[options.shell], end="")
    return 0


def words(given: Sequence[str], commands: Sequence[str]) -> list[str]:
    """What the last of these words may become."""
    *before, last = _joined(given) or [""]
    if not before:
        found = list(commands)
    elif before[0] == "completion":
        found = list(_SCRIPTS)
    elif before[0] == "catalog" and len(before) == 1:
        found = ["list", "show", "lint"]
    elif before[0] == "import" and len(before) == 1:
        found = _imported()
    elif before[0] in ("create", "get", "backup", "edit", "delete") or before[:2] == ["catalog", "show"]:
        found = _service(before, last)
    else:
        found = []
    return [word for word in found if word.startswith(last)]


def _imported() -> list[str]:
    from mooring.operators.registry import OPERATORS  # only now: the shell waits

    return [one.importer.name for one in OPERATORS.values() if one.importer is not None]


def _joined(given: Sequence[str]) -> list[str]:
    """The words as they were typed: bash takes "=" for a word of its own."""
    joined: list[str] = []
    for index, word in enumerate(given):
        if joined and (word == "=" or given[index - 1] == "="):
            joined[-1] += word
        else:
            joined.append(word)
    return joined


def _service(before: Sequence[str], last: str) -> list[str]:
    from mooring.catalog import load_catalog  # only now: the shell waits

    entries = load_catalog()
    at = 2 if before[0] == "catalog" else 1
    if len(before) == at:
        return list(entries)
    entry = entries.get(before[at])
    if entry is None:
        return []
    parameters = entry.parameters
    if before[0] == "backup":
        made = {one.name: one.create.parameters.properties for one in entry.spec.collections if one.create}
        wanted = before[before.index("--in") + 1] if "--in" in before[:-1] else next(iter(made), "")
        parameters = made.get(wanted, {})
        if before[-1] == "--in":
            return list(made)
    match before[-1]:
        case "--from":
            return [f"{one.name}/" for one in entry.spec.collections if one.restore]
        case "--plan":
            return [plan.name for plan in entry.spec.plans]
        case "--set":
            name, equals, _ = last.partition("=")
            parameter = parameters.get(name)
            if equals and parameter is not None:
                known = ["true", "false"] if parameter.type == "boolean" else parameter.enum
                return [f"{name}={choice}" for choice in known]
            return [
                f"{field}{'.' if one.type == 'object' else '='}"
                for field, one in parameters.items()
                if not one.sensitive
            ]
        case "--set-file":
            return [f"{field}=" for field, one in parameters.items() if one.type == "string"]
    options = ["--namespace", "--kubeconfig", "--context", "--catalog-dir"]
    more = {
        "create": ["--plan", "--from", "--set", "--set-file", "--dry-run"],
        "backup": ["--list", "--output", "--in", "--as", "--set", "--set-file", "--dry-run"],
        "edit": ["--set", "--set-file", "--dry-run"],
        "delete": ["--yes", "--dry-run"],
        "get": ["--output"],
    }
    return [*more.get(before[0], ()), *options]
