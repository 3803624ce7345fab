"""MatrixOne: log service, transaction nodes, compute nodes, proxies, and clusters of them, by upstream's API.

`types` has the thirteen kinds. `validate` says what cannot be carried out, `defaults` what stands for what is not said,
`specs` which child objects follow.
"""

from __future__ import annotations

from mooring.operators.matrixone.types import KINDS

__all__ = ["KINDS"]
