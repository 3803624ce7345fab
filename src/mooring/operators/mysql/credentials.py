"""The passwords of the operator's own accounts and of root, in the Secret ``NAME-credentials``.

Each account has one entry of the Secret. While a password changes there are up to three: the one in force, ``-next`` and
``-previous``. Decisions, status and logs know them by label alone (``operator-password``, ``operator-password-next``); the
texts stay in `Credentials`.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from mooring.kube.objects import core
from mooring.operators.mysql.names import MONITOR, OPERATOR_USER, REPLICATION
from mooring.operators.workload.credentials import secret_value

__all__ = ["ACCOUNTS", "NEXT", "PREVIOUS", "ROOT", "Credentials", "credentials_in", "generated"]

ROOT: Final = "root"
ACCOUNTS: Final[Mapping[str, str]] = {
    ROOT: "root-password",
    OPERATOR_USER: "operator-password",
    REPLICATION: "replication-password",
    MONITOR: "monitor-password",
}
"""Label of the password in force, by account."""
NEXT: Final = "-next"
PREVIOUS: Final = "-previous"
_ALPHABET: Final = string.ascii_letters + string.digits


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """Texts by label; never shown, never in a snapshot."""

    texts: Mapping[str, str] = field(default_factory=dict, repr=False)

    def text(self, label: str) -> str:
        """The text of a label; "" where there is none."""
        return self.texts.get(label, "")

    def of(self, account: str) -> list[tuple[str, str]]:
        """Labels and texts to try for an account: the password in force first, then the next, then the previous one."""
        label = ACCOUNTS[account]
        known = ((name, self.texts.get(name)) for name in (label, label + NEXT, label + PREVIOUS))
        return [(name, text) for name, text in known if text]

    def completed(self) -> Credentials:
        """With a generated password for every account that has none."""
        missing = {label: generated() for label in ACCOUNTS.values() if not self.texts.get(label)}
        return Credentials(texts={**self.texts, **missing}) if missing else self


def credentials_in(secret: core.Secret | None, *, root: str | None = None) -> Credentials:
    """Those that the cluster's Secret has; ``root`` is the text of the user's own Secret, where one is named."""
    labels = [label + more for label in ACCOUNTS.values() for more in ("", NEXT, PREVIOUS)]
    texts = {label: text for label in labels if (text := secret_value(secret, label).rstrip("\n"))}
    if root:
        texts.setdefault(ACCOUNTS[ROOT], root)
    return Credentials(texts=texts)


def generated() -> str:
    """A new password: 24 letters and digits, about 140 bits."""
    return "".join(secrets.choice(_ALPHABET) for _ in range(24))
