"""``mooring completion bash|zsh|fish``: a script for the shell, which asks ``mooring complete`` for words.

source <(mooring completion bash)
"""

from __future__ import annotations

import argparse

__all__ = ["add_parser"]

# Each asks the program as it was typed: ./mooring of a checkout need not be on the PATH.
_BASH = """\
_mooring() {
    local IFS=$'\\n' program=${1/#\\~/$HOME}
    COMPREPLY=($("$program" complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == *[=./] ]] && compopt -o nospace 2>/dev/null
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
    found=("${(@f)$(${~words[1]} complete -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -z ${found[1]} ]]; then
        _files
        return
    fi
    compadd -S '' -- ${(M)found:#*[=./]}
    compadd -- ${found:#*[=./]}
}
compdef _mooring mooring
"""
_FISH = """\
function __mooring_complete
    set -l tokens (commandline --tokenize --cut-at-cursor --current-process)
    set -l last (commandline --current-token --cut-at-cursor)
    set -l found ($tokens[1] complete -- $tokens[2..] $last 2>/dev/null)
    if string length --quiet -- $found
        string join \\n -- $found
    else
        __fish_complete_path $last
    end
end
complete --command mooring --no-files --arguments '(__mooring_complete)'
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "completion",
        help="complete commands, options, kinds and names in bash, zsh or fish",
        description="Prints a script for the shell. Names of objects and namespaces come from the cluster.",
    )
    parser.add_argument("shell", choices=list(_SCRIPTS))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    print(_SCRIPTS[options.shell], end="")
    return 0
