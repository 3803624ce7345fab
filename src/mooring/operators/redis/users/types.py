"""Users in a declaration and in a status: the same in both kinds."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from mooring.kube.part import Part
from mooring.operators.workload.rollout import TIME
from mooring.runtime.crd import F

__all__ = ["OFF", "RESTRICTED", "DefaultUserSpec", "UserResult", "UserSecret", "UserSpec"]

RESTRICTED = "Restricted"
OFF = "Off"

_Rule = Annotated[str, F(min_length=1, max_length=1000)]


class UserSecret(Part, frozen=True, kw_only=True):
    """A password: one key of a Secret in the cluster's namespace."""

    name: Annotated[str | None, F("Name of the Secret.", required=True, min_length=1, max_length=253)] = None
    key: Annotated[str | None, F("Key in it.", default="password", max_length=253)] = None


class UserSpec(Part, frozen=True, kw_only=True):
    """A user that the operator keeps on every server as it is declared; Redis 6.0 and later."""

    name: Annotated[str, F("Its name.", required=True, min_length=1, max_length=64)] = ""
    rules: Annotated[
        list[_Rule] | None,
        F('As Redis writes them: "~app:*", "&news", "+@read", "-@dangerous".', max_items=100),
    ] = None
    password_secrets: Annotated[
        list[UserSecret] | None,
        F("Its passwords; each of them is valid.", min_items=1, max_items=4),
    ] = None
    enabled: Annotated[bool | None, F("false: it cannot connect, and is disconnected.", default=True)] = None


class DefaultUserSpec(Part, frozen=True, kw_only=True):
    """The user of clients that name none."""

    mode: Annotated[
        str | None,
        F(
            "Unchanged: everything, with the cluster's password; Restricted: what rules say; Off: it cannot connect.",
            enum=("Unchanged", RESTRICTED, OFF),
            default="Unchanged",
        ),
    ] = None
    rules: Annotated[
        list[_Rule] | None, F("With mode Restricted: what it may do; absent: nothing.", max_items=100)
    ] = None


class UserResult(Part, frozen=True, kw_only=True):
    """What became of a declared user."""

    state: Annotated[
        str, F("Applied, Changing (an old password is still valid), Pending, Refused or SecretMissing.")
    ] = ""
    message: Annotated[str | None, F("What is in the way.")] = None
    refused: Annotated[str | None, F("Digest of what servers refused; tried again when it changes.")] = None
    since: Annotated[datetime | None, F("Since when it is so.", schema=TIME)] = None
