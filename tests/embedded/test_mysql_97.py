"""MySQL 9.7 lives, switches and survives faults as MariaDB does: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import (
    test_mysql_faults,
    test_mysql_life,
    test_mysql_switch,
)

IMAGE = "mysql:9.7"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

for _module in (
    test_mysql_life,
    test_mysql_switch,
    test_mysql_faults,
):
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})
