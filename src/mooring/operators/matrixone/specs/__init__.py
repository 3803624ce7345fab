"""The child objects of MatrixOne's kinds: pure functions of declarations.

A pod refers only to content-named, immutable ConfigMaps, to Secrets of the user's, and to its claims. Nothing here knows what
is there already: the planner decides which template is written when, by `inputs`, a digest of what the user decided about
the pods. What an operator of another version renders differently is no change of it.
"""

from __future__ import annotations

from mooring.operators.matrixone.specs.cluster import ClusterSpecs
from mooring.operators.matrixone.specs.compute import CNSpecs
from mooring.operators.matrixone.specs.logs import LogSpecs
from mooring.operators.matrixone.specs.pods import LogService
from mooring.operators.matrixone.specs.proxies import ProxySpecs
from mooring.operators.matrixone.specs.transactions import DNSpecs
from mooring.operators.matrixone.specs.ui import Credential, UISpecs

__all__ = [
    "CNSpecs",
    "ClusterSpecs",
    "Credential",
    "DNSpecs",
    "LogService",
    "LogSpecs",
    "ProxySpecs",
    "UISpecs",
]
