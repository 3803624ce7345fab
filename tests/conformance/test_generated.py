"""Random sequences of requests: the embedded server answers as a real one (see generate.py for long runs)."""

from __future__ import annotations

import pytest
from tests.conformance.generate import generated, prepare
from tests.conformance.generating import sequence
from tests.conformance.servers import pair

_SEED = "tier"
_SEQUENCES, _LENGTH = 50, 40


@pytest.mark.kubernetes
@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_answers_to_random_sequences_are_those_of_a_real_server() -> None:
    with pair() as servers:
        prepare(servers)
        found = list(generated(servers, (f"{_SEED}-{number}" for number in range(_SEQUENCES)), _LENGTH))
    assert not found, "\n\n".join(map(str, found))


def test_a_seed_makes_the_same_sequence_again() -> None:
    assert sequence("a", 20) == sequence("a", 20) != sequence("b", 20)
