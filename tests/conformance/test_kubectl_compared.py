"""The same kubectl invocations against both servers: the same exit codes, the same words."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from hack.kubernetes.binaries import KUBECTL, build
from tests.conformance.kubectl_sessions import MANIFESTS, SESSIONS, Invocation
from tests.conformance.servers import Pair, pair

#: Invocations compared, at least.
_LEAST = 60
_NORMAL = (
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uid>"),
    (re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)"), "<time>"),
    (re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d \S+"), "<time>"),
    (re.compile(r'(resourceVersion"?: ?)"\d+"'), r"\1<rv>"),
    (re.compile(r"https://127\.0\.0\.1:\d+"), "<server>"),
    (re.compile(r"kube-api-access-\w{5}"), "kube-api-access-<random>"),
    (re.compile(r"Resource Version: +\d+"), "Resource Version: <rv>"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+ \+\d+"), "<time>"),
    (re.compile(r"\b\d+(ms|s)\b"), "<age>"),
    (re.compile(r"/tmp/\S+"), "<file>"),
    (re.compile(r" +"), " "),
    # The embedded server says that it is one.
    (re.compile(r"\+mooring"), ""),
)


@dataclass(frozen=True)
class _Result:
    """How an invocation ended, without what must differ."""

    code: int
    output: str


@dataclass(frozen=True)
class _Kubectl:
    """One version of kubectl; its cache of what servers offer is kept for each server."""

    program: str
    home: Path

    def run(self, invocation: Invocation, config: Path, namespace: str, files: Path) -> _Result:
        """Run one invocation."""
        home = self.home / config.parent.name
        home.mkdir(parents=True, exist_ok=True)
        words = [
            word.replace("{ns}", namespace).replace("{dir}", str(files)) for word in _words(invocation.line)
        ]
        done = subprocess.run(
            [self.program, "--kubeconfig", str(config), "-n", namespace, *words],
            input=invocation.stdin.replace("{ns}", namespace),
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "HOME": str(home), "KUBE_EDITOR": invocation.editor},
            check=False,
        )
        shown = _shown(invocation, done.stdout)
        return _Result(done.returncode, _normal(f"{shown}--\n{done.stderr}", namespace))


def _shown(invocation: Invocation, output: str) -> str:
    """Return an output without what two servers may word otherwise.

    The keys of an object come in any order, also of a ConfigMap that is described. The embedded server has the names, types and choices of the
    built-in kinds' fields, and not their prose.
    """
    if "--raw" in invocation.line and output.startswith("{"):
        return json.dumps(json.loads(output), sort_keys=True)
    if invocation.line.startswith("describe cm"):
        return "\n".join(sorted(output.splitlines()))
    if invocation.line.startswith("explain") and "example.com" not in invocation.line:
        told = re.compile(r"(GROUP|KIND|VERSION|FIELD):|\s*\S+\t<|\s*enum:")
        return "\n".join(line for line in output.splitlines() if told.match(line))
    return output


def _words(line: str) -> Sequence[str]:
    """Split a line at its spaces; quotes belong to the words, and a comma stands for a space in a schedule."""
    words = line.split(" ")
    return [word.replace(",", " ") if word.startswith("--schedule=") else word for word in words]


def _normal(text: str, namespace: str) -> str:
    for pattern, shown in _NORMAL:
        text = pattern.sub(shown, text)
    return text.replace(namespace, "<ns>")


@pytest.fixture(scope="module")
def servers() -> Iterator[Pair]:
    with pair() as both:
        yield both


@pytest.fixture(scope="module", params=["pinned", "installed"])
def kubectl(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> _Kubectl:
    """The kubectl of the pinned Kubernetes, and the one that is on this machine."""
    program = str(build(KUBECTL) / "kubectl") if request.param == "pinned" else shutil.which("kubectl")
    if program is None:
        pytest.skip("no kubectl is installed")
    return _Kubectl(program, tmp_path_factory.mktemp("home"))


@pytest.mark.kubernetes
@pytest.mark.timeout(300)
@pytest.mark.parametrize("session", SESSIONS)
def test_kubectl_says_the_same_to_both(
    session: str, kubectl: _Kubectl, servers: Pair, tmp_path: Path
) -> None:
    namespace = servers.namespace()
    for name, text in MANIFESTS.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace("{ns}", namespace))

    def all_of(config: Path) -> list[_Result]:
        return [kubectl.run(invocation, config, namespace, tmp_path) for invocation in SESSIONS[session]]

    with ThreadPoolExecutor(2) as pool:
        ours, theirs = pool.map(all_of, (servers.embedded_config, servers.real_config))
    different = [
        f"kubectl {shlex.join(invocation.line.split())}\n--- embedded: {our.code}\n{our.output}\n"
        f"--- real: {their.code}\n{their.output}"
        for invocation, our, their in zip(SESSIONS[session], ours, theirs, strict=True)
        if our != their
    ]
    assert not different, "\n\n".join(different)


def test_so_many_different_commands_are_compared() -> None:
    assert len({invocation for session in SESSIONS.values() for invocation in session}) >= _LEAST
