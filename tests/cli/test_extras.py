"""``pip install mooring`` is enough for the operators; what needs more says which extra it is."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: What the extras bring, and the part of the package that is not in the container image.
EXTRAS = ("cel_expr_python", "re2")
RUN = """
import sys
for name in {blocked!r}:
    sys.modules[name] = None
from mooring.cli.main import main
main({arguments!r})
"""


def run_without(blocked: tuple[str, ...], *arguments: str) -> tuple[int, str, str]:
    """Run a command in a process of its own where these modules cannot be imported."""
    program = RUN.format(blocked=blocked, arguments=list(arguments))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "arguments",
    ["run --help", "crds", "why --help", "replay --help", "plan-upgrade --help", "remove-clusters --help"],
)
def test_the_operators_need_no_extra_and_no_embedded_control_plane(arguments: str) -> None:
    status, said, error = run_without((*EXTRAS, "mooring.local"), *arguments.split())
    assert (status, error) == (0, "")
    assert "kind: CustomResourceDefinition" in said or "usage: mooring" in said


def test_every_module_of_the_operators_and_of_the_framework_is_imported_without_extras() -> None:
    program = f"""
import sys
for name in {(*EXTRAS, "mooring.local")!r}:
    sys.modules[name] = None
from importlib import import_module
from pkgutil import walk_packages
for package in ("kube", "cache", "runtime", "actor", "operators"):
    top = import_module(f"mooring.{{package}}")
    for found in walk_packages(top.__path__, f"{{top.__name__}}."):
        import_module(found.name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("command", "extra"), [("up", "local"), ("demo", "local"), ("console", "console"), ("image", "local")]
)
def test_a_command_that_needs_an_extra_names_it(command: str, extra: str) -> None:
    status, _, error = run_without(EXTRAS, command, "--help")
    assert status == 1
    assert error.splitlines()[-1].endswith(f"pip install 'mooring[{extra}]'")
    assert len(error.splitlines()) == 1


def test_the_image_of_the_operators_says_that_it_has_no_control_plane() -> None:
    status, _, error = run_without((*EXTRAS, "mooring.local"), "up", "--help")
    assert status == 1
    assert "this image holds the operators alone" in error


def test_time_zones_are_known_where_the_system_has_none() -> None:
    program = (
        "from mooring.kube.cron import parse_schedule\n"
        "print(type(parse_schedule('0 3 * * *', 'Europe/Berlin')).__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONTZPATH": ""},
    )
    assert (done.returncode, done.stderr) == (0, "")
