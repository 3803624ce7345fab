"""The transaction nodes. There is no way to hand one over: a restart stops all writes for 13 seconds, so one is rolled
only when its own template changed, and only while the log service is settled."""

__all__: list[str] = []
