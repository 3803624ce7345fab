"""The passwords of the operator's own accounts and of root: as declared, and as the servers know them.

The Secret ``NAME-credentials`` has one entry for each account, and may be edited; a copy beside it has those in force. An
entry that differs is a change to carry out: both are accepted, then the copy takes the new one (`Credentials.published`).
Where the Secret or an entry is missing, the copy brings it back. Decisions, status and logs know passwords by label alone
(``operator-password``, ``operator-password-previous``); the texts stay in `Credentials`.
"""

from __future__ import annotations

import secrets
import ssl
import string
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from mooring.kube.objects import core
from mooring.operators.mysql.names import BACKUP, MONITOR, OPERATOR_USER, REPLICATION
from mooring.operators.workload.credentials import secret_value

__all__ = ["ACCOUNTS", "OWN", "PREVIOUS", "ROOT", "Credentials", "credentials_in", "generated"]

ROOT: Final = "root"
ACCOUNTS: Final[Mapping[str, str]] = {
    ROOT: "root-password",
    OPERATOR_USER: "operator-password",
    REPLICATION: "replication-password",
    MONITOR: "monitor-password",
    BACKUP: "backup-password",
}
"""Label of the password in force, by account."""
OWN: Final = (
    *((ROOT, "localhost"), (ROOT, "%"), (OPERATOR_USER, "%"), (REPLICATION, "%")),
    *((MONITOR, "localhost"), (BACKUP, "%")),
)
"""Name and host of each account that a new server is given."""
PREVIOUS: Final = "-previous"
_ALPHABET: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Texts by label; never shown, never in a snapshot."""

    texts: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    """How to connect; ``None``: without encryption."""
    plain: frozenset[str] = frozenset()
    """Addresses of servers that were started without a certificate of the cluster's."""

    def text(self, label: str) -> str:
        """The text of a label; "" where there is none."""
        return self.texts.get(label, "")

    def of(self, account: str) -> list[tuple[str, str]]:
        """Labels and texts to try for an account: the declared password, then the one before."""
        label = ACCOUNTS[account]
        known = ((name, self.texts.get(name)) for name in (label, label + PREVIOUS))
        return [(name, text) for name, text in known if text]

    @property
    def changed(self) -> frozenset[str]:
        """Labels of passwords that are declared and not in force yet."""
        return frozenset(label for label in ACCOUNTS.values() if label + PREVIOUS in self.texts)

    @property
    def declared(self) -> dict[str, str]:
        """The declared passwords by label."""
        return {label: self.text(label) for label in ACCOUNTS.values()}

    @property
    def in_force(self) -> dict[str, str]:
        """The passwords by label that all servers are known to accept."""
        return {label: self.text(label + PREVIOUS) or self.text(label) for label in ACCOUNTS.values()}

    def published(self) -> Credentials:
        """With the declared passwords in force."""
        return replace(self, texts=self.declared)

    @property
    def lost(self) -> bool:
        """Nothing tells by which password servers let the operator in."""
        return not self.texts.get(ACCOUNTS[OPERATOR_USER])

    def completed(self, *, founded: bool = False) -> Credentials:
        """With a generated password for every account that has none.

        Of a cluster that is ``founded`` the servers know others. A new one is declared, and takes effect as a change does:
        the text in its predecessor's place is none that a server takes. Where the operator's own is lost, none is made.
        """
        missing = [label for label in ACCOUNTS.values() if not self.texts.get(label)]
        if not missing or (founded and self.lost):
            return self
        labels = [*missing, *(label + PREVIOUS for label in missing)] if founded else missing
        return replace(self, texts={**self.texts, **{label: generated() for label in labels}})


def credentials_in(
    secret: core.Secret | None, copy: core.Secret | None = None, *, root: str | None = None
) -> Credentials:
    """Those of the cluster's Secret and its copy; ``root`` is the text of the user's own Secret, where one is named."""
    texts: dict[str, str] = {}
    for label in ACCOUNTS.values():
        given = root if root and label == ACCOUNTS[ROOT] else _text(secret, label)
        before = _text(copy, label)
        if given or before:
            texts[label] = given or before
        if given and before and given != before:
            texts[label + PREVIOUS] = before
    return Credentials(texts=texts)


def _text(secret: core.Secret | None, label: str) -> str:
    """A password without the line end that an editor left."""
    return secret_value(secret, label).rstrip("\r\n")


def generated() -> str:
    """A new password: 24 letters and digits, about 140 bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(24))
