"""A real cluster that somebody else runs, as a bed needs it: its own kubelet, scheduler and controllers, on this machine.

The operators are not in this process: a chart brings them, as it does for users. Processes inside the pods are found
by the ids of their containers, so that faults strike them as they do on the embedded node.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from mooring.kube import Client, Config, HttpTransport

__all__ = ["Cluster", "Containers"]


class Cluster:
    """A cluster by its kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self._transport = HttpTransport(Config.load(kubeconfig))
        self.agent = Containers()

    def client(self, field_manager: str) -> Client:
        """An administrator's client."""
        return Client(self._transport, field_manager=field_manager)

    async def start(self) -> None:
        """It runs already."""

    async def stop(self) -> None:
        """Close the connections; the cluster goes on."""
        await self._transport.close()


class Containers:
    """The containers of this machine's pods, whoever runs them."""

    def program_pid(self, namespace: str, pod: str, container: str) -> int:
        """The pid, out here, of a container's first process; LookupError when there is none, or more than one.

        Containers are told apart by the names of pod and container: two pods of one name are not.
        """
        found = [
            int(process.name)
            for process in Path("/proc").iterdir()
            if process.name.isdigit() and _is_first(process) and _names(process) == (pod, container)
        ]
        if len(found) != 1:
            raise LookupError(f"{len(found)} containers {container} of pods {namespace}/{pod} run here")
        return found[0]


def _is_first(process: Path) -> bool:
    """Whether it is the first process of a pid namespace inside of a node's."""
    with suppress(OSError):
        for line in (process / "status").read_text().splitlines():
            if line.startswith("NSpid:"):
                return len(line.split()) >= 4 and line.split()[-1] == "1"
    return False


def _names(process: Path) -> tuple[str, str]:
    """Pod and container: the one is its host's name, the other in the path of what the kubelet mounts for it."""
    with suppress(OSError):
        for line in (process / "mountinfo").read_text().splitlines():
            root, place = line.split()[3:5]
            if place == "/dev/termination-log" and "/containers/" in root:
                hostname = (process / "root" / "etc" / "hostname").read_text().strip()
                return hostname, root.split("/containers/")[1].split("/")[0]
    return "", ""
