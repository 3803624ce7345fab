"""Backups, once for all operators: what a backup is, where it is stored, when one is due, and the Job that moves the data.

Every run is one Job. Its container ``data`` (the database's own image, a shell script) and its container ``store``
(Mooring's image, ``mooring objects``) are joined by a FIFO, so that data is streamed and never staged. The operator
itself moves no data: it reads the result from the pod's status. Read in this order:

- `layout`, `manifest`: names of objects; a backup without a manifest is not a backup.
- `types`: the fields that all kinds share.
- `run`: the Job of a run from a `run.Run`; `shell`: what its script can rely on.
- `outcome`: what became of a run, from its Job and pods; `agent`: what ``mooring objects`` does in it.
- `rules`: what a backup object does next; `retention`, `schedule`: which backups go, and when one is due.
- `restore_rules`: what the restore of a new cluster does next; `restores`: where its data comes from, and its Jobs.
- `runs`: the cached Jobs and pods of an operator's objects, and the effects; `actor`, `schedules`: the actors.
"""

__all__: list[str] = []
