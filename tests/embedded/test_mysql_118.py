"""MariaDB 11.8 lives and switches as 10.11 does: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import (
    test_mysql_life,
    test_mysql_switch,
)

IMAGE = "mariadb:11.8"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.full,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

for _module in (
    test_mysql_life,
    test_mysql_switch,
):
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})
