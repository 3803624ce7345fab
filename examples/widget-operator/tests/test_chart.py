"""The chart has the definition that the code has."""

from pathlib import Path

from mooring.runtime.crd import render_crds, to_yaml

from widget_operator import OPERATOR

CHART = Path(__file__).resolve().parents[1] / "chart"


def test_the_definition_in_the_chart_is_the_one_of_the_code() -> None:
    rendered = "---\n".join(map(to_yaml, render_crds(OPERATOR.kinds)))
    assert (CHART / "crds" / "widgets.yaml").read_text() == rendered, "make crd writes it"
