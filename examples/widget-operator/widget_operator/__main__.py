"""``python -m widget_operator run | crd | why NAME``."""

from mooring.cli.alone import main

from widget_operator import OPERATOR

main(OPERATOR)
