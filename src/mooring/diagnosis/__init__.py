"""Why an instance is not as it should be: one cause and one next step, from what the cluster says.

`gather` reads the facts with a user's own rights, `diagnose` derives the cause from them without asking anybody, and
`cause` and `step` say it in English or Chinese. A diagnosis is data: a code and parameters. `mooring why` and the
console share it.
"""

from mooring.diagnosis.causes import diagnose
from mooring.diagnosis.facts import Diagnosis, Facts, OperatorHint
from mooring.diagnosis.gather import gather, pods_of
from mooring.diagnosis.operators import alive, managers, scope_of
from mooring.diagnosis.safe import hidden, safe
from mooring.diagnosis.words import CODES, cause, step

__all__ = [
    "CODES",
    "Diagnosis",
    "Facts",
    "OperatorHint",
    "alive",
    "cause",
    "diagnose",
    "gather",
    "hidden",
    "managers",
    "pods_of",
    "safe",
    "scope_of",
    "step",
]
