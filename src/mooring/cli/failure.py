"""How a command says why it failed: one line with the remedy, never a traceback.

``MOORING_DEBUG=1`` shows the traceback too, to look for a defect of Mooring.
"""

from __future__ import annotations

import os
import sys
import traceback

__all__ = ["INTERRUPTED", "explain", "report"]

#: The exit status as a shell gives it for SIGINT.
INTERRUPTED = 130


def report(error: BaseException) -> None:
    """Print the reason to standard error, last."""
    if os.environ.get("MOORING_DEBUG"):
        traceback.print_exception(error)
    for leaf in _leaves(error):
        print(f"mooring: {explain(leaf)}", file=sys.stderr, flush=True)


def explain(error: BaseException) -> str:
    """What went wrong, in words."""
    from mooring.kube import (
        TransportError,  # only once something failed: commands without an API server start faster
    )

    if isinstance(error, BaseExceptionGroup):
        return "; ".join(explain(leaf) for leaf in _leaves(error))
    if isinstance(error, OSError) and error.errno is not None and error.strerror:
        names = [str(name) for name in (error.filename, error.filename2) if name is not None]
        return ": ".join([*names, error.strerror])
    if isinstance(error, TransportError):
        remedy = "Start it (mooring up), or name the one that runs with --kubeconfig or $KUBECONFIG"
        return f"the API server does not answer: {error}. {remedy}"
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("mooring.local"):
        return "this image holds the operators alone; for the embedded control plane: pip install 'mooring[local]'"
    if _expected(error):
        return str(error) or type(error).__name__
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"{words} (this should not happen; MOORING_DEBUG=1 shows where)"


def _leaves(error: BaseException) -> list[BaseException]:
    if not isinstance(error, BaseExceptionGroup):
        return [error]
    return [leaf for inner in error.exceptions for leaf in _leaves(inner)]


def _expected(error: BaseException) -> bool:
    """Whether the message was written for the user: our own errors, and those of bad values and the system."""
    ours = type(error).__module__.partition(".")[0] == "mooring"
    return ours or isinstance(error, (OSError, ValueError))
