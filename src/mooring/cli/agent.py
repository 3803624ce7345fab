"""``mooring agent OPERATOR ...``: what the pods of an operator run in Mooring's image; not for people."""

from __future__ import annotations

import argparse

__all__ = ["add_parser"]


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("agent", prefix_chars="+")
    parser.add_argument("operator")
    parser.add_argument("arguments", nargs="*")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Give the arguments to the operator's agent; its exit status."""
    from mooring.operators.registry import OPERATORS

    operator = OPERATORS.get(options.operator)
    if operator is None or operator.agent is None:
        raise ValueError(f"no operator {options.operator} has an agent")
    return operator.agent(options.arguments)
