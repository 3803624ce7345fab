"""MySQL 9.7 lives on a real node as MariaDB does: the same tests on its servers, from an image with a first start of its own."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hack.images import packaged
from hack.images.recipes import build
from hack.kubernetes.controlplane import ControlPlane
from tests.charts import test_mysql
from tests.charts.test_mysql import image, stage

__all__ = ["image", "stage"]

IMAGE = "mysql:9.7"
pytestmark = [*test_mysql.pytestmark, pytest.mark.nightly]


@pytest.fixture(scope="module")
def real_cluster() -> Iterator[ControlPlane]:
    """A cluster with a node that has Mooring's image and MySQL."""
    if os.geteuid() != 0:
        pytest.skip("a real node needs root")
    with ControlPlane(images=[build("mooring"), packaged.build(IMAGE)]) as plane:
        yield plane


globals().update({name: test for name, test in vars(test_mysql).items() if name.startswith("test_")})
