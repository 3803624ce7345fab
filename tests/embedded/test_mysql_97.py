"""MySQL 9.7 lives, switches and survives faults as MariaDB does: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import (
    test_mysql_faults,
    test_mysql_life,
    test_mysql_switch,
)

IMAGE = "mysql:9.7"
#: Those that take long and tell least of a version: test_mysql_97_changes.py runs them by night.
BY_NIGHT = (
    "test_a_deleted_cluster_leaves_its_data_to_the_next_of_its_name",
    "test_even_sizes_are_as_good_as_odd_ones",
    "test_a_cluster_of_two_survives_its_primary_and_says_what_it_costs",
    "test_an_operator_that_ends_in_the_middle_of_a_failover_is_continued_by_the_next",
)
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
    globals().update(
        {
            name: test
            for name, test in vars(_module).items()
            if name.startswith("test_") and name not in BY_NIGHT
        }
    )
