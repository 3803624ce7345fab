"""What the programs of this directory print: each step and "ok", or what went wrong, as JSON."""

import json
import sys
import time
from collections.abc import Callable
from typing import TypeVar

#: Steps that need a running pod.
NEED_A_POD = ("logs", "exec")


E = TypeVar("E", bound=Exception)


def refused(call: Callable[[], object], kind: type[E]) -> E:
    """The error with which a call must fail."""
    try:
        call()
    except kind as error:
        return error
    raise AssertionError("it was not refused")


def report(steps: object) -> None:
    """Run the public methods of an object in their order; each raises when it is not as it should be."""
    found: dict[str, str] = {}
    for name in vars(type(steps)):
        if name.startswith("_") or (name in NEED_A_POD and not getattr(steps, "pod", "")):
            continue
        run: Callable[[], None] = getattr(steps, name)
        began = time.monotonic()
        try:
            run()
            found[name] = "ok"
        except Exception as error:  # the report says what does not work
            found[name] = f"{type(error).__name__}: {error} (after {time.monotonic() - began:.1f} s)"
    sys.stdout.write(json.dumps(found))
