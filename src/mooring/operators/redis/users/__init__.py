"""ACL users of both Redis operators: declared ones, the default user, and the operator's own accounts.

Servers are asked for their users in the snapshot (`seen`), pure rules choose one step (`plan`), and a step changes servers
(`steps`) before the cluster's Secret keeps what they accepted (`held`): a server that restarts reads it at its start.
Names and rules are no secrets. Passwords and their hashes stay in `Access`.
"""
