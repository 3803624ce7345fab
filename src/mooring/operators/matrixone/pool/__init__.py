"""Warm compute nodes: pools that keep them, claims that take them one by one, and sets of claims.

A claim binds a pod by one write to the pod, fenced by the version that was seen; the claim records it afterwards, fenced
in the same way. Read `claim` first: it has the rules. The CNSet of a pool tells MatrixOne what the labels of its pods
say (`mooring.operators.matrixone.cnset.pooling`).
"""

__all__: list[str] = []
