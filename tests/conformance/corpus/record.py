"""Writes down which requests of the corpus are answered otherwise, for known.yaml: see its head.

python -m tests.conformance.corpus.record > tests/conformance/corpus/known.yaml
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import yaml
from tests.conformance.corpus.operations import scenarios
from tests.conformance.servers import Difference, pair

__all__ = ["main", "reason_of"]

_HEAD = """# Requests of the corpus that the embedded server answers otherwise than a real one, by reason.
# docs/limits.md says the same in a few words. What is not listed here has to be equal.
"""
_REASONS = {
    "rules": "Rules: a Service without a name is refused before an address is sought for it; an apply to the status of a"
    " policy that is not there makes none; an applied handler that is fixed is not judged by its form as well.",
    "ephemeral": "Ephemeral containers are refused: the node agent has none.",
    "scale": "Owners of fields that scale changes: a real server splits and forgets owners then, and knows appliers.",
    "signing": "Signing requests: who asks is another user, and fields that their subresources reset are kept.",
    "namespace": "Namespaces go by their controller, which runs beside neither server here; the end of one that nobody"
    " finalizes differs.",
    "resize": "A pod's resize takes its resources alone and is written as an update.",
    "prose": "Words: the group or kind an error names, warnings of a deprecated kind on paths that do not exist, which"
    " of two refusals comes first.",
    "other": "Versions, generations and owners after writes that the lines above tell of, or that change nothing.",
}


def reason_of(difference: Difference) -> str:
    """Return the key of the reason a difference has."""
    name, path = difference.scenario, difference.step.path
    ours, theirs = difference.ours.get("status"), difference.theirs.get("status")
    for mark, key in (("ephemeralcontainers", "ephemeral"), ("/scale", "scale"), ("/resize", "resize")):
        if mark in path:
            return key
    for mark, key in (("certificatesigningrequests", "signing"), ("v1/namespaces", "namespace")):
        if name.startswith(mark) or mark in name:
            return key
    if theirs == 422 or (ours == 422 and theirs != 200):
        return "rules"
    return "prose" if 400 <= int(theirs or 0) < 500 else "other"


def known(differences: Mapping[str, list[Difference]]) -> str:
    """Return the text of known.yaml."""
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for scenario, listed in differences.items():
        for difference in listed:
            found[reason_of(difference)].setdefault(scenario, []).append(difference.request)
    entries = [{"reason": text, "requests": found[key]} for key, text in _REASONS.items() if key in found]
    return _HEAD + yaml.safe_dump(entries, sort_keys=False, width=118)


def main() -> None:
    """Compare the whole corpus and print what differs."""
    with pair() as servers:
        print(known(servers.compare_all(scenarios())))  # noqa: T201


if __name__ == "__main__":
    main()
