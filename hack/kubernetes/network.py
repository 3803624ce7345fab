"""The addresses of a cluster with a node: its own, joined to this machine by one pair of interfaces.

The node lives in a network namespace. Between that and the machine there is a link of four addresses: the API server
listens on the machine's end, the kubelet on the other. Pods and Services are routed through it, so that a test
reaches them as another pod would. Everything vanishes with the namespace.
"""

from __future__ import annotations

import os
import socket
import subprocess
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network

__all__ = ["UPLINK", "Network", "ip"]

#: The node's end of the link, in its namespace.
UPLINK = "uplink"
#: Clusters that one machine can hold at a time.
CHOICES = 8


@dataclass(frozen=True)
class Network:
    """One cluster's addresses, the `number`th choice: pods and the link in 10.(180+2n), Services in the next."""

    number: int
    claim: socket.socket | None = field(default=None, repr=False, compare=False)

    @classmethod
    def choose(cls) -> Network:
        """The first that no other cluster of this machine uses; it is ours while this process lives."""
        for number in range(CHOICES):
            claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            try:
                claim.bind(f"\0mooring-kubernetes-{number}")
            except OSError:
                claim.close()
                continue
            return cls(number, claim)
        raise OSError(
            f"{CHOICES} clusters with nodes run on this machine already: end one (make kubernetes-down)"
        )

    @property
    def range(self) -> IPv4Network:
        """All addresses but those of Services."""
        return IPv4Network(f"10.{180 + 2 * self.number}.0.0/16")

    @property
    def pods(self) -> IPv4Network:
        """The bridge's; its first address is the pods' gateway."""
        return next(self.range.subnets(new_prefix=17))

    @property
    def services(self) -> IPv4Network:
        """The Services'."""
        return IPv4Network(f"10.{181 + 2 * self.number}.0.0/16")

    @property
    def dns(self) -> IPv4Address:
        """The Service of the cluster's DNS."""
        return self.services[10]

    @property
    def host(self) -> IPv4Address:
        """The machine's end of the link."""
        return self.range[-3]

    @property
    def node(self) -> IPv4Address:
        """The node's end of the link."""
        return self.range[-2]

    @property
    def link(self) -> str:
        """The machine's end of the link, as an interface."""
        return f"mooring-k8s{self.number}"

    def join(self, pid: int) -> None:
        """Join the network namespace of a process to this machine, and route to what is behind it."""
        subprocess.run(["ip", "link", "delete", self.link], stderr=subprocess.DEVNULL, check=False)
        ip("link", "add", self.link, "type", "veth", "peer", "name", UPLINK, "netns", str(pid))
        ip("address", "add", f"{self.host}/30", "dev", self.link)
        ip("link", "set", self.link, "up")
        for behind in (self.pods, self.services):
            ip("route", "replace", str(behind), "via", str(self.node), "dev", self.link)


def ip(*words: str) -> None:
    """Run ip(8); OSError with its words when it refuses."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, env=dict(os.environ), check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")
