"""What a page's commands are compared by, and what a pod's writes are told by."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hack.operations import Command, Ran, commands, differs
from hack.released import writes_of

PODS = Command(
    line="kubectl get pod",
    shown=("NAME   READY   AGE", "mooring-6f67d6df68-gdczj   1/1   25s", "The volumes stay, ..."),
)
OUTPUT = "NAME                       READY   AGE\nmooring-7c5b68bdb7-ksmcs   1/1     3m2s\nThe volumes stay, all.\n"


def ran(output: str, status: int = 0) -> Ran:
    return Ran(output=output, status=status, seconds=0.1)


def test_names_ages_widths_and_dots_may_differ_from_the_page() -> None:
    assert differs(PODS, ran(OUTPUT)) == ""


@pytest.mark.parametrize(
    "output", [OUTPUT.replace("1/1", "0/1"), OUTPUT.replace("volumes", "claims"), OUTPUT.partition("\n")[2]]
)
def test_a_line_of_the_page_that_is_not_shown_is_named(output: str) -> None:
    assert "not shown" in differs(PODS, ran(output))


def test_a_command_fails_where_the_page_shows_an_error_and_nowhere_else() -> None:
    refused = Command(line="helm upgrade", shown=("Error: UPGRADE FAILED: ...",))
    assert differs(refused, ran("Error: UPGRADE FAILED: late", 1)) == ""
    assert "status 0" in differs(refused, ran("Error: UPGRADE FAILED: late"))
    assert "status 1" in differs(PODS, ran(OUTPUT, 1))


def test_the_page_has_the_commands_of_a_whole_life() -> None:
    said = " ".join(command.line for command in commands())
    for words in (
        "helm install",
        "helm list",
        "plan-upgrade",
        "helm upgrade",
        "replicaCount=2",
        "helm uninstall",
    ):
        assert words in said


def test_a_pods_writes_are_those_of_its_own_token_since_then(tmp_path: Path) -> None:
    def event(verb: str, pod: str, code: int = 200) -> str:
        user = {"username": "mooring", "extra": {"authentication.kubernetes.io/pod-name": [pod]}}
        about = {"verb": verb, "user": user, "requestURI": f"/of/{pod}", "responseStatus": {"code": code}}
        return json.dumps(about) + "\n"

    before = event("patch", "one")
    admin = json.dumps({"verb": "create", "user": {"username": "admin"}, "requestURI": "/"}) + "\n"
    log = tmp_path / "audit.jsonl"
    log.write_text(before + event("get", "one") + event("patch", "other") + admin + event("delete", "one"))
    with log.open("a") as more:
        more.write(event("patch", "one", 409))

    assert writes_of(log, len(before), "one") == ["delete /of/one"]
