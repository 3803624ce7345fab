"""Accounts, passwords and certificates on MySQL 9.7 are as on MariaDB: the same tests on its servers."""

from __future__ import annotations

import pytest
from tests.embedded import test_mysql_access

IMAGE = "mysql:9.7"
pytestmark = [
    pytest.mark.embedded,
    pytest.mark.nightly,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(240),
]
#: About Kubernetes alone: another flavour adds nothing.
_LEFT_OUT = ("test_the_tutorials_kind_needs_size_and_image_alone_and_is_removed_without_its_data",)

globals().update(
    {
        name: test
        for name, test in vars(test_mysql_access).items()
        if name.startswith("test_") and name not in _LEFT_OUT
    }
)
