"""Write down what every plan of every packaged entry renders: python -m tests.catalog.record_golden"""

from __future__ import annotations

from pathlib import Path

import yaml

from mooring.catalog import defaults, packaged, render

GOLDEN = Path(__file__).parent / "golden"


def main() -> None:
    """Write all files, and take away those of plans that are gone."""
    GOLDEN.mkdir(exist_ok=True)
    for old in GOLDEN.glob("*.yaml"):
        old.unlink()
    for entry in packaged():
        for plan in entry.spec.plans:
            values = defaults(entry, plan.name)
            if "cluster" in entry.parameters:
                values["cluster"] = "one"
            manifest = render(entry, name="one", namespace="team-a", values=values)
            (GOLDEN / f"{entry.name}-{plan.name}.yaml").write_text(yaml.safe_dump(manifest, sort_keys=False))


if __name__ == "__main__":
    main()
