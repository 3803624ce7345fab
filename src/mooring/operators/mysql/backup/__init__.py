"""Backups of MySQLClusters: made by a Job from a replica, restored into the first volume of a new cluster.

`types` has the kinds, `scripts` what runs in the database's image, `jobs` the Jobs, `actor` the actors of backups and
schedules, `restore` how a cluster begins with a backup.
"""

__all__: list[str] = []
