"""MariaDB 11.8 lives and switches as 10.11 does: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import (
    test_mysql_life,
    test_mysql_switch,
)

IMAGE = "mariadb:11.8"
#: Those that take long and tell least of a version: test_mysql_118_changes.py runs them by night.
BY_NIGHT = (
    "test_a_deleted_cluster_leaves_its_data_to_the_next_of_its_name",
    "test_even_sizes_are_as_good_as_odd_ones",
    "test_many_switches_round_robin_leave_every_replica_following",
    "test_a_cluster_at_rest_writes_nothing",
    "test_a_statement_that_lasts_does_not_hold_writes_for_ever",
    "test_a_replica_that_was_pointed_elsewhere_is_repaired_before_it_leads",
    "test_a_switch_to_a_pod_that_does_not_exist_is_refused",
    "test_a_namespace_is_deleted_with_its_cluster_while_no_operator_runs",
    "test_nothing_is_done_while_a_cluster_is_paused",
    "test_no_password_stands_in_a_pod_or_a_status",
    "test_read_only_holds_writes_on_every_server_and_lets_them_go_on",
    "test_a_fenced_primary_hands_over_and_serves_no_client",
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
):
    globals().update(
        {
            name: test
            for name, test in vars(_module).items()
            if name.startswith("test_") and name not in BY_NIGHT
        }
    )
