"""Compute nodes as pods and claims of the CNSet: which one is made, drained, stopped, and brought back into service.

Read `plan` first: it has the order of the rules. `members` says which pods have to go and why, `drain` how one goes.
"""

__all__: list[str] = []
