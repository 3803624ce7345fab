"""The trial start's script on real servers of both flavours."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from mooring.operators.mysql import config, scripts
from mooring.operators.mysql.topology import Flavor
from mooring.testing.mysql import Servers, inside

from .test_steps import FLAVORS


class Trial:
    """The script as a Job's pod runs it."""

    def __init__(self, image: Path, directory: Path, reference: str) -> None:
        self.image, self.home, self.volume = image, directory / "home", directory / "volume"
        flavor: Flavor = "mysql" if reference.startswith("mysql") else "mariadb"
        for name in ("scripts", "live", "run"):
            (self.home / name).mkdir(parents=True)
        self.volume.mkdir()
        files = {
            "scripts/trial.sh": scripts.TRIAL,
            "scripts/base.cnf": config.base_cnf(flavor, {"innodb_use_native_aio": "OFF"}),
            "scripts/forced.cnf": config.forced_cnf(flavor),
            "scripts/extra.cnf": "require_secure_transport=ON\n",
            "live/live.cnf": config.live_cnf(config.live_defaults(flavor, 0)),
        }
        for name, text in files.items():
            (self.home / name).write_text(text)

    def run(self, **declared: str) -> tuple[int, str]:
        """Exit code, and what a pod would say of it."""
        command = [*inside(self.image, self.volume), "sh", "/run/mooring/scripts/trial.sh"]
        at = command.index("sh")
        command[at:at] = ["--bind", str(self.home), "/run/mooring"]
        for name, value in {
            "MOORING_HOME": "/run/mooring",
            "TERMINATION_LOG": "/run/mooring/said",
            "DECLARED": config.declared_lines(declared),
        }.items():
            command[at:at] = ["--setenv", name, value]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        said = self.home / "said"
        return done.returncode, said.read_text() if said.exists() else done.stderr


@pytest.fixture
async def trial(reference: str, tmp_path: Path) -> Trial:
    async with Servers(reference) as servers:
        (one,) = await servers.start(1)
        return Trial(one.image, tmp_path, reference)


@pytest.mark.parametrize("reference", FLAVORS)
async def test_a_configuration_that_the_version_takes_passes(trial: Trial) -> None:
    code, said = trial.run(max_connections="60", back_log="77")
    assert code == 0, said


@pytest.mark.parametrize("reference", FLAVORS)
async def test_a_key_that_the_version_does_not_know_is_named(trial: Trial) -> None:
    code, said = trial.run(no_such_key="1")
    assert code == 1
    assert said == "spec.config: this version does not know no_such_key; remove it\n"


@pytest.mark.parametrize("reference", FLAVORS)
async def test_a_value_that_the_version_refuses_is_named(trial: Trial) -> None:
    code, said = trial.run(thread_handling="by_pigeon")
    assert code == 1
    assert said.startswith("spec.config: it does not start with this configuration: ")
    assert "thread_handling" in said


@pytest.mark.parametrize("reference", ["mariadb:11.8"])
async def test_a_key_that_lost_its_effect_is_named(trial: Trial) -> None:
    code, said = trial.run(innodb_change_buffering="all")
    assert code == 1
    assert "innodb_change_buffering" in said
