"""The console: services created, watched and deleted in a browser, with the rights of the one who is signed in.

Every request to the API server carries the user's own credential, so RBAC decides, and audit shows the user. What many
look at is read from shared watch caches, and what each may see of them is asked by SelfSubjectAccessReview.
There is no database: a session is a sealed cookie, everything else is in Kubernetes.
"""

from mooring.console.access import Access, Decision
from mooring.console.api import Upgrades
from mooring.console.problems import Problem
from mooring.console.server import Console, ConsoleOptions
from mooring.console.session import Session, Sessions, SignedOut
from mooring.console.settings import Prometheus, Settings, SettingsError, load_settings, prometheus_problem
from mooring.console.templates import distinct
from mooring.console.upstream import Upstream
from mooring.console.watches import Watches

__all__ = [
    "Access",
    "Console",
    "ConsoleOptions",
    "Decision",
    "Problem",
    "Prometheus",
    "Session",
    "Sessions",
    "Settings",
    "SettingsError",
    "SignedOut",
    "Upgrades",
    "Upstream",
    "Watches",
    "distinct",
    "load_settings",
    "prometheus_problem",
]
