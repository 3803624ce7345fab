"""The commands of docs/operations.md, as they stand there, one after the other, and what they show."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hack.operations import at_hand, commands, differs, run
from tests.charts.helm import Provided, tell

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]


@pytest.mark.embedded_by_night
@pytest.mark.nightly
async def test_every_command_on_the_page_does_what_the_page_shows(provided: Provided, tmp_path: Path) -> None:
    environment = await asyncio.to_thread(at_hand, tmp_path, provided.kubeconfig)
    seconds: list[float] = []
    for command in commands():
        ran = await run(command, tmp_path, environment)
        assert differs(command, ran) == ""
        seconds.append(ran.seconds)
    assert len(seconds) > 15
    tell(f"{len(seconds)} commands in {sum(seconds):.0f} s")
