"""The pods' network on this machine.

Every pod has a network namespace and one address, reached by a point-to-point link (a veth pair) and a /32
route; the machine routes between them. There is no shared bridge, on purpose: packets between two pods then
always pass the routing hooks, so Service addresses translate both ways without the ``br_netfilter`` module
(which a plain user cannot load), a pod may be balanced to itself, and a partition between two pods is one
element of a set. Hardware addresses are derived from the IP and told to both sides, so nobody asks by ARP.

All names carry the plane's id, so that planes with different address ranges live side by side:

    mr<id>         interface that carries the addresses of the nodes and of DNS
    mr<id>-<hex>   the machine's end of a pod's link (hex: the low 16 bits of its address)
    mooring_<id>   nftables table (family ip)
"""

from __future__ import annotations

import asyncio
import errno
import socket
import subprocess
import time
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Final

from mooring.local.claims import claim
from mooring.local.node import nft
from mooring.local.node.namespaces import PodNamespaces, in_fresh_thread
from mooring.local.node.netlink import Link, Netlink

__all__ = ["Network", "NetworkConfig", "PodNetwork", "RangeInUse", "abandoned_planes", "delete_leftovers"]

_HOST_MAC = bytes.fromhex("eeeeeeeeeeee")
_GATEWAY = IPv4Address("169.254.1.1")
_PODS, _SERVICES = IPv4Network("10.99.0.0/16"), IPv4Network("10.96.0.0/16")
_DNS = IPv4Address("10.96.0.10")

_ALIAS = "mooring plane"
#: For another plane to finish removing what this one left when it was killed.
SWEEP_SECONDS: Final = 2.0


class RangeInUse(RuntimeError):
    """Another plane has these addresses; the message names them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkConfig:
    """Address ranges of a plane. The Service range must lie outside the pods'."""

    plane: str
    pod_cidr: IPv4Network = _PODS
    service_cidr: IPv4Network = _SERVICES
    dns_address: IPv4Address = _DNS
    nodes: int = 1
    cursor: Path | None = None
    """File that remembers the last address given, so that a restarted plane does not give it again soon."""

    def __post_init__(self) -> None:
        if self.pod_cidr.overlaps(self.service_cidr):
            raise ValueError(f"pod range {self.pod_cidr} and Service range {self.service_cidr} overlap")
        if self.pod_cidr.num_addresses < 64 or self.nodes >= self._first_pod - 2:
            raise ValueError(f"pod range {self.pod_cidr} is too small for {self.nodes} node(s)")

    @property
    def table(self) -> str:
        """Name of the nftables table."""
        return f"mooring_{self.plane}"

    @property
    def anchor(self) -> str:
        """Name of the interface that carries the plane's own addresses."""
        return f"mr{self.plane}"

    @property
    def _first_pod(self) -> int:
        return 256 if self.pod_cidr.num_addresses >= 1024 else 16

    def node_address(self, index: int) -> IPv4Address:
        """Address of the n-th node (from 0)."""
        return self.pod_cidr[1 + index]

    @property
    def probe_address(self) -> IPv4Address:
        """Where probes come from: other than the operators', so that a partition can leave them be."""
        return self.pod_cidr[1 + self.nodes]

    def pod_addresses(self) -> tuple[int, int]:
        """First and one past the last number, in the range, of addresses that pods get."""
        return self._first_pod, self.pod_cidr.num_addresses - 1


@dataclass(slots=True)
class PodNetwork:
    """A pod's place on the network."""

    address: IPv4Address
    namespaces: PodNamespaces
    link: str


class AddressPool:
    """Gives the addresses of a range in turn, so that one given back is given out last."""

    def __init__(self, config: NetworkConfig) -> None:
        self._config = config
        self._used: set[int] = set()
        self._first, self._end = config.pod_addresses()
        self._next = self._read()

    def take(self) -> IPv4Address:
        """The next free address; raises RuntimeError when there is none."""
        for _ in range(self._end - self._first):
            number, self._next = self._next, self._next + 1
            if self._next >= self._end:
                self._next = self._first
            if number not in self._used:
                self._used.add(number)
                self._write()
                return self._config.pod_cidr[number]
        raise RuntimeError(f"no free address in {self._config.pod_cidr}")

    def give_back(self, address: IPv4Address) -> None:
        """The pod is gone."""
        self._used.discard(int(address) - int(self._config.pod_cidr.network_address))

    def _read(self) -> int:
        try:
            number = int((self._config.cursor or Path("/nonexistent")).read_text())
        except (OSError, ValueError):
            return self._first
        return number if self._first <= number < self._end else self._first

    def _write(self) -> None:
        if self._config.cursor:
            self._config.cursor.write_text(str(self._next))


@dataclass(slots=True)
class Network:
    """Attaches pods to the network and, for tests of faults, cuts them off again."""

    config: NetworkConfig
    _pool: AddressPool = field(init=False)
    _links: dict[IPv4Address, str] = field(init=False, default_factory=dict)
    _cuts: set[tuple[IPv4Address, IPv4Address]] = field(init=False, default_factory=set)
    _lock: asyncio.Lock = field(init=False, default_factory=asyncio.Lock)
    _claim: socket.socket | None = field(init=False, default=None)

    async def start(self) -> None:
        """Remove what a killed plane left, then make the plane's interface, routes and table."""
        try:
            await asyncio.to_thread(self._start)
        except BaseException:
            self._let_go()
            raise

    async def stop(self) -> None:
        """Remove everything again."""
        await asyncio.to_thread(delete_leftovers, self.config)
        self._let_go()

    def _let_go(self) -> None:
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    async def attach(self, *, hostname: str) -> PodNetwork:
        """Make a pod's namespaces and its link; takes a few milliseconds."""
        address = await asyncio.to_thread(self._pool.take)
        link = f"{self.config.anchor}-{int(address) & 0xFFFF:04x}"
        making = asyncio.wrap_future(in_fresh_thread(lambda: self._attach(address, link, hostname)))
        try:
            namespaces = await asyncio.shield(making)
        except BaseException:
            await asyncio.shield(self._undo(making, address, link))
            raise
        self._links[address] = link
        return PodNetwork(address, namespaces, link)

    async def _undo(self, making: asyncio.Future[PodNamespaces], address: IPv4Address, link: str) -> None:
        """Take a network back that could not be made, or that nobody waits for any more."""
        try:
            namespaces = await making
        except (OSError, RuntimeError):
            self._pool.give_back(address)
        else:
            self._links[address] = link
            await self.detach(PodNetwork(address, namespaces, link))

    async def detach(self, pod: PodNetwork) -> None:
        """Remove the link and let go of the namespaces; may be called again."""
        pod.namespaces.close()
        if self._links.pop(pod.address, None) is None:
            return
        await asyncio.to_thread(_delete_link, pod.link)
        await self.heal(pod.address)
        self._pool.give_back(pod.address)

    async def cut(
        self, some: Iterable[IPv4Address], others: Iterable[IPv4Address], *, one_way: bool = False
    ) -> None:
        """Drop every packet from ``some`` to ``others`` and, unless ``one_way``, back (a partition)."""
        pairs = {(a, b) for a in some for b in others if a != b}
        if not one_way:
            pairs |= {(b, a) for a, b in pairs}
        async with self._lock:
            new = pairs - self._cuts
            await self._change_cuts("add", new)
            self._cuts |= new

    async def heal(self, *addresses: IPv4Address) -> None:
        """End the cuts that touch one of the addresses; without any, all cuts."""
        async with self._lock:
            gone = {pair for pair in self._cuts if not addresses or set(pair) & set(addresses)}
            await self._change_cuts("delete", gone)
            self._cuts -= gone

    async def delay(self, address: IPv4Address, *, milliseconds: int) -> None:
        """Delay what a pod receives (0 ends it); needs the kernel's ``sch_netem`` and says so without it."""
        await asyncio.to_thread(_delay, self._links[address], milliseconds)

    def host_addresses(self) -> tuple[IPv4Address, ...]:
        """The addresses of processes on the machine (operators, clients) for cutting a pod off from them.

        Probes and DNS have other ones: like a real node's, they go on working in a partition.
        """
        return tuple(self.config.node_address(index) for index in range(self.config.nodes))

    async def _change_cuts(self, verb: str, pairs: set[tuple[IPv4Address, IPv4Address]]) -> None:
        if pairs:
            elements = ", ".join(f"{a} . {b}" for a, b in sorted(pairs))
            await nft.apply(f"{verb} element ip {self.config.table} cuts {{ {elements} }}\n")

    def __post_init__(self) -> None:
        self._pool = AddressPool(self.config)

    def _start(self) -> None:
        config = self.config
        self._claim = _take_claim(config.plane, patience=SWEEP_SECONDS)
        delete_leftovers(config)
        _check_free(config)
        with Netlink() as netlink:
            netlink.add_bridge(config.anchor)
            index = socket.if_nametoindex(config.anchor)
            netlink.set_alias(index, _ALIAS)
            for number in range(config.nodes):
                netlink.add_address(index, config.node_address(number), 32)
            netlink.add_address(index, config.probe_address, 32)
            netlink.add_address(index, config.dns_address, 32)
            netlink.add_route(config.service_cidr, index, source=config.node_address(0))
            # For addresses no pod has; the table answers at once what is sent there.
            netlink.add_route(config.pod_cidr, index, source=config.node_address(0))
        nft.apply_blocking(_table(config))

    def _attach(self, address: IPv4Address, link: str, hostname: str) -> PodNamespaces:
        # The socket stays with the machine's network although the thread then leaves it.
        with Netlink() as outside:
            index: list[int] = []

            def setup(namespace: int) -> None:
                mac = b"\x0a\x58" + address.packed
                outside.add_veth(link, _HOST_MAC, peer="eth0", peer_mac=mac, namespace=namespace)
                index.extend(found.index for found in outside.links() if found.name == link)
                outside.set_up(index[0], forwarding=True)
                outside.add_neighbour(index[0], address, mac)
                outside.add_route(IPv4Network(address), index[0], source=self.config.node_address(0))
                _configure_inside(address)
                outside.wait_active(index[0])

            try:
                return PodNamespaces.make(hostname=hostname, setup=setup)
            except BaseException:
                outside.delete_link(link)
                raise


def _configure_inside(address: IPv4Address) -> None:
    with Netlink() as inside:
        inside.set_up(1)
        inside.set_up(2)
        inside.add_address(2, address, 32)
        inside.add_route(IPv4Network(_GATEWAY), 2)
        inside.add_neighbour(2, _GATEWAY, _HOST_MAC)
        inside.add_route(IPv4Network("0.0.0.0/0"), 2, gateway=_GATEWAY)
        inside.wait_active(2)


def _table(config: NetworkConfig) -> str:
    """The plane's table with empty sets; :mod:`mooring.local.node.services` fills the Service part."""
    pods, services, node = config.pod_cidr, config.service_cidr, config.node_address(0)
    key = "ip daddr . meta l4proto . th dport"
    return f"""
add table ip {config.table}
delete table ip {config.table}
table ip {config.table} {{
  map services {{ type ipv4_addr . inet_proto . inet_service : verdict; }}
  set refused {{ type ipv4_addr . inet_proto . inet_service; }}
  set hairpin {{ type ipv4_addr . ipv4_addr; }}
  set cuts {{ type ipv4_addr . ipv4_addr; }}
  chain prerouting {{
    type nat hook prerouting priority -100; policy accept;
    ip saddr {pods} {key} vmap @services
  }}
  chain host {{
    type nat hook output priority -100; policy accept;
    {key} vmap @services
  }}
  chain postrouting {{
    type nat hook postrouting priority 100; policy accept;
    ip saddr . ip daddr @hairpin snat to {node}
    ip saddr {pods} ip daddr != {pods} oifname != "{config.anchor}*" masquerade
  }}
  chain routed {{
    type filter hook forward priority filter; policy accept;
    ip saddr . ip daddr @cuts drop
    ip saddr {pods} ip daddr {services} meta l4proto tcp reject with tcp reset
    ip saddr {pods} ip daddr {services} reject
    oifname "{config.anchor}" reject with icmp type host-unreachable
  }}
  chain received {{
    type filter hook input priority filter; policy accept;
    ip saddr . ip daddr @cuts drop
  }}
  chain sent {{
    type filter hook output priority filter; policy accept;
    ip saddr . ip daddr @cuts drop
    {key} @refused meta l4proto tcp reject with tcp reset
    ct status dnat accept comment "oifname is the one from before the translation"
    oifname "{config.anchor}" ip daddr {services} reject
    oifname "{config.anchor}" reject with icmp type host-unreachable
  }}
}}
"""


def delete_leftovers(config: NetworkConfig) -> list[str]:
    """Remove a plane's interfaces (the routes go with them) and table; returns what there was."""
    with Netlink() as netlink:
        left = leftover_links(netlink.links(), config)
        gone = [f"interface {link.name}" for link in left if netlink.delete_link(link.name)]
    nft.apply_blocking(f"add table ip {config.table}\ndelete table ip {config.table}\n")
    return gone


def leftover_links(links: Iterable[Link], config: NetworkConfig) -> list[Link]:
    """Those of the interfaces that belong to the plane."""
    return [link for link in links if link.name == config.anchor or link.name.startswith(f"{config.anchor}-")]


def _take_claim(plane: str, *, patience: float = 0.0) -> socket.socket:
    """A name that only a living plane holds, in the very scope of what it makes: its network namespace.

    With ``patience``, seconds, another process may be about to let go of it.
    """
    deadline = time.monotonic() + patience
    while (held := claim(f"plane-{plane}")) is None:
        if time.monotonic() >= deadline:
            raise RangeInUse(f"a plane with the id {plane} (the same data directory) runs already")
        time.sleep(0.02)
    return held


def abandoned_planes() -> Iterator[str]:
    """The ids of planes whose interface is here although nobody holds their claim any more.

    Each is claimed until the next is asked for, so that it cannot come back while its remains are removed.
    """
    with Netlink() as netlink:
        marked = [link.name for link in netlink.links() if link.alias == _ALIAS]
    for plane in (name.removeprefix("mr") for name in marked):
        try:
            held = _take_claim(plane)
        except RangeInUse:
            continue
        with closing(held):
            yield plane


def _check_free(config: NetworkConfig) -> None:
    """Refuse ranges that another plane of this machine uses, before anything of it is disturbed."""
    for address in (config.node_address(0), config.dns_address):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            try:
                asking.bind((str(address), 0))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
                raise
        raise RangeInUse(
            f"{address} is in use on this machine, by another plane or program: choose other ranges than "
            f"{config.pod_cidr} for pods and {config.service_cidr} for Services"
        )


def _delete_link(name: str) -> None:
    with Netlink() as netlink:
        netlink.delete_link(name)


def _delay(link: str, milliseconds: int) -> None:
    change = ["replace", "dev", link, "root", "netem", "delay", f"{milliseconds}ms"]
    argv = ["tc", "qdisc", *(change if milliseconds else ["del", "dev", link, "root"])]
    done = subprocess.run(argv, capture_output=True)
    if done.returncode != 0:
        words = done.stderr.decode(errors="replace").strip()
        raise RuntimeError(f"cannot delay packets on {link}: {words} (is the kernel module sch_netem there?)")
