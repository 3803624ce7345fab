"""Names that one process at a time can hold."""

from __future__ import annotations

import uuid

import pytest

from mooring.local.claims import claim


def test_a_name_is_one_holders_until_it_lets_go() -> None:
    name = f"test-{uuid.uuid4().hex}"
    held = claim(name)
    assert held is not None
    assert claim(name) is None
    held.close()
    again = claim(name)
    assert again is not None
    again.close()


def test_a_name_that_cannot_be_is_no_name_in_use() -> None:
    with pytest.raises(OSError, match="too long"):
        claim("x" * 200)
