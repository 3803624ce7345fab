"""MySQL 9.7 is scaled, seeded, rolled and configured as MariaDB is: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import (
    test_mysql_config,
    test_mysql_faults,
    test_mysql_life,
    test_mysql_roll,
    test_mysql_scale,
    test_mysql_seed,
    test_mysql_switch,
)
from tests.embedded.test_mysql_97 import BY_NIGHT

IMAGE = "mysql:9.7"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]

for _module in (
    test_mysql_scale,
    test_mysql_seed,
    test_mysql_roll,
    test_mysql_config,
):
    globals().update({name: test for name, test in vars(_module).items() if name.startswith("test_")})
for _module in (test_mysql_life, test_mysql_switch, test_mysql_faults):
    globals().update({name: test for name, test in vars(_module).items() if name in BY_NIGHT})
