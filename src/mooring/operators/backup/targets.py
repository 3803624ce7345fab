"""What of a target is refused before a run is made. Pure, but for one variable of the process."""

from __future__ import annotations

import os
from typing import Final

from mooring.objectstore import Problem, Target, validate

__all__ = ["DIRECTORIES", "problems"]

DIRECTORIES: Final = "MOORING_DIRECTORY_TARGETS"
"""The variable of the operator's process: ``forbid`` refuses `Target.directory`."""


def problems(target: Target, field: str) -> list[Problem]:
    """What `objectstore.validate` says, and the directory of a node where this operator may not mount one.

    A run mounts it by hostPath: who may only declare backups would reach files of the node through the operator.
    """
    found = validate(target, field)
    if target.directory is not None and os.environ.get(DIRECTORIES) == "forbid":
        text = (
            "this operator does not mount directories of nodes; use a claim or a bucket, or ask an administrator to set the "
            "chart's value backups.directories to true"
        )
        found.append(Problem(field=f"{field}.directory", message=text))
    return found
