"""The password of a running cluster, the same for both Redis operators: no restart, and no client that is refused.

Servers are asked which of our passwords they accept and present (`seen`), pure rules choose one step (`plan`), and a step
changes servers (`steps`). The cluster's Secret has a new password before any server hears of it, so that every step can be
repeated. Moves, status and logs know passwords by label alone.
"""
