"""The log service: which store may start, be recreated, be repaired, or leave.

Read `plan` first: it has the order of the rules. `quorum` says what a shard still needs, `gate` which store may start,
`scale` how the number of stores changes, `repair` what becomes of one that failed.
"""

__all__: list[str] = []
