"""The two servers that are compared: the embedded one, and a real kube-apiserver without controllers.

Without controllers nothing writes but the requests that are compared, so resource versions, generations and
managedFields are equal too. Each scenario has a namespace of its own on both.
"""

from __future__ import annotations

import itertools
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from hack.kubernetes.controlplane import ControlPlane
from tests.conformance.comparing import Server, Step, run
from tests.conformance.embedded import Embedded

from mooring.kube import Config

__all__ = ["Difference", "Pair", "pair"]

Json = Any

_numbers = itertools.count()
#: How often a scenario is sent again whose differences may hang on the moment.
_AGAIN = 3


@dataclass(frozen=True)
class Difference:
    """A request of a scenario that the two servers answer differently."""

    scenario: str
    number: int
    step: Step
    ours: Json
    theirs: Json

    @property
    def request(self) -> str:
        """Name the request within its scenario."""
        return f"{self.number} {self.step.method} {self.step.path}"

    @property
    def momentary(self) -> bool:
        """Whether it may hang on the moment at which each of the servers was asked.

        - A list at a resource version, 0 above all, is answered from the watch cache of the real server: with what
          it holds, newest or not.
        - A patch is first tried on the object of that cache. When that is not the newest, it is tried again, and the
          warnings of the first try stay in the answer.
        - What changes nothing but the time of an owner is a write when the second is another than before.
        """
        if self.step.method == "GET":
            return "resourceVersion=" in self.step.path and "watch=" not in self.step.path
        if _unversioned(self.ours) == _unversioned(self.theirs):
            return True
        same = all(self.ours[key] == self.theirs[key] for key in ("status", "type", "body"))
        return (
            same and self.step.method == "PATCH" and set(self.ours["warnings"]) < set(self.theirs["warnings"])
        )

    def __str__(self) -> str:
        lines = [f"{self.scenario}: {self.request} {self.step.type} {str(self.step.body)[:400]}"]
        found = itertools.islice(_differences(self.ours, self.theirs, ""), 8)
        for path, ours, theirs in found:
            lines.append(f"  {path}\n    embedded {str(ours)[:600]}\n    real     {str(theirs)[:600]}")
        return "\n".join(lines)


def _differences(ours: Json, theirs: Json, path: str) -> Iterator[tuple[str, Json, Json]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in sorted({*ours, *theirs}):
            missing = "(absent)"
            yield from _differences(ours.get(key, missing), theirs.get(key, missing), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from _differences(our, their, f"{path}[{number}]")
    elif ours != theirs:
        yield path or ".", ours, theirs


def _unversioned(answer: Json) -> Json:
    """An answer without the version of its object."""
    body = answer["body"]
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        return answer
    metadata = {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}
    return {**answer, "body": {**body, "metadata": metadata}}


@dataclass(frozen=True)
class Pair:
    """Both servers, and kubeconfigs for programs."""

    embedded: Server
    real: Server
    embedded_config: Path
    real_config: Path

    def namespace(self) -> str:
        """Make a namespace with its default account on both: pods are refused without."""
        name = f"c{os.getpid()}x{next(_numbers)}x"
        for server in (self.embedded, self.real):
            server.send(Step("POST", ""), "/api/v1/namespaces", {"metadata": {"name": name}})
            accounts = f"/api/v1/namespaces/{name}/serviceaccounts"
            answer = server.send(Step("POST", ""), accounts, {"metadata": {"name": "default"}})
            assert answer.status == 201, answer
        return name

    def compare(self, name: str, steps: Sequence[Step]) -> list[Difference]:
        """Run a scenario on both and return the answers that differ."""
        namespace = self.namespace()
        ours, theirs = run(self.embedded, steps, namespace), run(self.real, steps, namespace)
        return [
            Difference(name, number, step, our, their)
            for number, (step, our, their) in enumerate(zip(steps, ours, theirs, strict=True))
            if our != their
        ]

    def lasting(
        self, name: str, steps: Sequence[Step], *, known: Collection[str] = frozenset()
    ) -> list[Difference]:
        """As `compare`, again when the first difference that is not `known` is a momentary one: it counts if it stays."""
        found = self.compare(name, steps)
        for _ in range(_AGAIN):
            first = next((one for one in found if one.request not in known), None)
            if first is None or not first.momentary:
                break
            found = self.compare(name, steps)
        return found

    def compare_all(
        self,
        scenarios: Mapping[str, Sequence[Step]],
        *,
        known: Mapping[str, Collection[str]] = MappingProxyType({}),
        workers: int = 6,
    ) -> dict[str, list[Difference]]:
        """Compare scenarios, several at once; those whose names begin with the same word one after another.

        `known`: the requests of a scenario that are answered otherwise for a reason.
        """
        groups: dict[str, list[str]] = defaultdict(list)
        for name in scenarios:
            groups[name.partition(" ")[0]].append(name)

        def one_group(names: list[str]) -> dict[str, list[Difference]]:
            return {name: self.lasting(name, scenarios[name], known=known.get(name, ())) for name in names}

        with ThreadPoolExecutor(workers) as pool:
            return {
                name: found for part in pool.map(one_group, groups.values()) for name, found in part.items()
            }


@contextmanager
def pair() -> Iterator[Pair]:
    """Start both servers, and end them."""
    with (
        TemporaryDirectory(prefix="mooring-conformance-") as directory,
        ControlPlane(controllers=False) as plane,
    ):
        thread = Embedded(Path(directory))
        thread.start()
        try:
            config = Config.load(plane.kubeconfig)
            context = config.ssl_context()
            assert context is not None
            embedded_config = Path(directory) / "kubeconfig"
            thread.write_kubeconfig(embedded_config)
            both = Pair(thread.client(), Server(config.server, context), embedded_config, plane.kubeconfig)
            yield both
            both.embedded.close()
            both.real.close()
        finally:
            thread.stop()
