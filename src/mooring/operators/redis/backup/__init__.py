"""Backups of both kinds of RedisCluster: read from replicas by a Job, restored into the first volume of a new cluster.

`types` has the kinds, `sync` and `reader` read a snapshot as a replica does, `jobs` has the Jobs and `scripts` what
runs in them, `actor` the actors of backups and schedules, `restore` how a cluster begins with a backup.
"""

__all__: list[str] = []
