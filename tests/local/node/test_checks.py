"""Checks: what a probe concludes when the command itself cannot be started."""

from __future__ import annotations

import errno
from ipaddress import IPv4Address
from typing import Any, cast

import pytest

from mooring.kube.objects.core import Container, ExecAction, Probe
from mooring.local.node.checks import Checker, CheckFailed
from mooring.local.node.exec import Entrance


class Dying:
    """The way into a container whose first process has just died."""

    async def spawn(self, command: Any, **_: Any) -> Any:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")


async def test_a_command_that_cannot_be_started_is_a_failed_probe_and_not_the_end_of_probing() -> None:
    checker = Checker(
        entrance=cast(Entrance, Dying()), container=Container(name="main"), address=IPv4Address("127.0.0.1")
    )

    with pytest.raises(CheckFailed, match="Cannot allocate memory"):
        await checker.probe(Probe(exec=ExecAction(command=["true"])), timeout=1)
