"""The programs in examples/, as modules."""

from __future__ import annotations

import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

__all__ = ["EXAMPLES", "load"]

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@cache
def load(path: str) -> ModuleType:
    """The module of an example, such as ``deployment-operator/mooring_operator.py``."""
    name = Path(path).stem
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # a Struct's annotations are resolved in it
    spec.loader.exec_module(module)
    return module
