"""Backups of both kinds of RedisCluster: read from replicas by a Job, restored into a new cluster.

`types` has the kinds, `sync` and `reader` read a snapshot as a replica does, `entries` and `load` send its keys to a Redis
Cluster, `wire` is the connection of both, `jobs` has the Jobs and `scripts` what runs in them, `actor` the actors of
backups and schedules. How a cluster begins with a backup is in each kind's `restore`.
"""

__all__: list[str] = []
