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
    "test_two_primaries_killed_one_after_the_other",
    "test_a_primary_that_is_killed_right_after_the_creation_is_replaced",
    "test_a_primary_that_dies_while_no_operator_runs_is_replaced_by_the_next_one",
    "test_replicas_refuse_writes_after_a_restart_without_an_operator",
    "test_a_deleted_primary_hands_over_before_it_goes",
    "test_without_any_replica_writes_wait_and_go_on_with_the_first_that_returns",
    "test_many_switches_round_robin_leave_every_replica_following",
    "test_a_statement_that_lasts_does_not_hold_writes_for_ever",
    "test_a_replica_that_was_pointed_elsewhere_is_repaired_before_it_leads",
    "test_a_switch_to_a_pod_that_does_not_exist_is_refused",
    "test_a_namespace_is_deleted_with_its_cluster_while_no_operator_runs",
    "test_nothing_is_done_while_a_cluster_is_paused",
    "test_a_cluster_at_rest_writes_nothing",
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
    test_mysql_faults,
):
    globals().update(
        {
            name: test
            for name, test in vars(_module).items()
            if name.startswith("test_") and name not in BY_NIGHT
        }
    )
