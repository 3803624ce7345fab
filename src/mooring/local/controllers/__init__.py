"""What kube-controller-manager and kube-scheduler do, for the embedded control plane.

Every controller is a pure plan (what is needed next, table-tested) and a thin class that carries it out.
They wake on changes, never on a timer; names they give are made from what they are for, so that doing
something twice does it once; when all is as it should be they write nothing.
"""

from mooring.local.controllers.registration import register, register_for_nodes, register_for_tests

__all__ = ["register", "register_for_nodes", "register_for_tests"]
