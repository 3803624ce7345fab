"""Jobs: pods that run until enough of them have succeeded. CronJobs: Jobs at given times."""

from mooring.local.controllers.job.controller import JobController

__all__ = ["JobController"]
