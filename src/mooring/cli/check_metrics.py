"""``mooring check-metrics URL``: what `helm test` runs in the cluster; it answers, and somebody leads."""

from __future__ import annotations

import argparse
import re
import time
import urllib.error
import urllib.request

__all__ = ["add_parser"]

#: Seconds until somebody has to lead: a Lease of a killed process runs out meanwhile.
PATIENCE = 30.0
_LEADS = re.compile(r"^leader_election_master_status\{[^}]*\} 1(\.0)?$", re.MULTILINE)


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Declare the command."""
    parser = commands.add_parser("check-metrics", help="check that operators answer and one of them leads")
    parser.add_argument("url", help="of the metrics Service, which balances over all operators")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Ask until one that leads answers, at most for `PATIENCE` seconds."""
    deadline, said = time.monotonic() + PATIENCE, "no operator that answers leads"
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(options.url, timeout=5) as answer:  # noqa: S310
                if _LEADS.search(answer.read().decode()):
                    print("The operator answers and leads.")
                    return 0
        except (OSError, urllib.error.URLError) as error:
            said = str(error)
        time.sleep(0.5)
    raise RuntimeError(f"{options.url}: {said}, for {PATIENCE:g} s; see the operator's pods and its Lease")
