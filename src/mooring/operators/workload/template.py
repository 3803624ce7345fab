"""The names that moved to `mooring.operators.workload.statefulset`, for modules written before that."""

from mooring.operators.workload.statefulset import (
    apply_whole,
    is_current,
    kept_or_written,
    kept_template,
    mounted_config_maps,
    pending,
)

__all__ = [
    "apply_whole",
    "is_current",
    "kept_or_written",
    "kept_template",
    "mounted_config_maps",
    "pending",
]
