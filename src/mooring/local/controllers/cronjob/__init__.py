"""CronJobs: Jobs at given times."""

from mooring.local.controllers.cronjob.controller import CronJobController

__all__ = ["CronJobController"]
