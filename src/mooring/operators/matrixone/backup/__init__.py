"""Backups by the server's own BACKUP statement, and restores into an empty path that a new cluster begins with.

The server writes the data itself, to the object store or a shared directory; a Job of Mooring's image sends it the
statement, then reads everything back, compares it with the server's own list and writes the manifest with the SHA-256 of
every object. A backup without a manifest is not a backup. A restore verifies all of it, then copies it to where the
server looks for its data. Read in this order:

- `places`: where things are in a store; `contents`: what the server wrote, checked; `statement`: its SQL.
- `agent`: what the Job does; `request`: what it is told; `run`: the Job.
- `scratch`: the throw-away server that a backup is tried out on; `catalog`: the tables that are compared; `verification`: the rules.
- `rules`: what a BackupJob or a RestoreJob does next; `calendar`: the runs of a schedule, and which backups go.
- `gauges`: the metrics of schedules.
- `job_actor`, `restore_actor`, `record_actor`: BackupJob, RestoreJob, Backup.
"""

__all__: list[str] = []
