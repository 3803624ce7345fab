"""The public API is what docs/api.txt lists: a change shows in review, and nobody's operator breaks unseen."""

from __future__ import annotations

import difflib
import importlib
import importlib.resources
import inspect
import pkgutil
from collections.abc import Iterator

import pytest
from hack.api import LISTING, PACKAGES, listing

import mooring


def public_modules() -> Iterator[str]:
    for name in PACKAGES:
        package = importlib.import_module(name)
        yield name
        for found in pkgutil.walk_packages(package.__path__, f"{name}."):
            if not found.name.startswith("mooring.kube.objects"):
                yield found.name


def test_the_public_api_is_the_listed_one() -> None:
    difference = "\n".join(
        difflib.unified_diff(
            LISTING.read_text().splitlines(),
            listing().splitlines(),
            "docs/api.txt",
            "the code",
            lineterm="",
            n=1,
        )
    )
    assert not difference, f"run `make api` and have the difference reviewed:\n{difference}"


@pytest.mark.parametrize("name", list(public_modules()))
def test_what_a_module_exports_is_there_and_told_of(name: str) -> None:
    module = importlib.import_module(name)
    for exported in getattr(module, "__all__", ()):
        value = getattr(module, exported)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{name}.{exported} has no docstring"


def test_the_package_says_that_it_is_typed() -> None:
    assert (importlib.resources.files(mooring) / "py.typed").is_file()
