"""``python -m memcached_operator run | crd | why NAME``."""

from memcached_operator import OPERATOR
from mooring.cli.alone import main

main(OPERATOR)
