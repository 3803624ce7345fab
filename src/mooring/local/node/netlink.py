"""Network interfaces, addresses and routes, spoken to the kernel directly (rtnetlink).

A pod's network is about ten small changes in two network namespaces. As ``ip`` commands that is several
processes and tens of milliseconds per pod; as one socket per namespace it is well under one millisecond,
and it needs no ``ip netns`` mounts that a killed plane would leave behind. Only what the node uses is here.

The calls are short and synchronous; the caller keeps them off the event loop (removing an interface waits
for a grace period of the kernel).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network
from types import TracebackType

__all__ = ["Link", "Netlink", "NetlinkError"]

_NEWLINK, _DELLINK, _GETLINK, _SETLINK = 16, 17, 18, 19
_NEWADDR, _NEWROUTE, _NEWNEIGH = 20, 24, 28
_REQUEST, _ACK, _DUMP, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x300, 0x100, 0x200, 0x400
_ERROR, _DONE = 2, 3

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_LINKINFO, _IFLA_AF_SPEC, _IFLA_NET_NS_FD = 1, 3, 18, 26, 28
_IFLA_QDISC, _IFLA_IFALIAS = 6, 20
_ACTIVE_DEADLINE = 2.0
_INFO_KIND, _INFO_DATA, _VETH_PEER, _INET_CONF, _CONF_FORWARDING = 1, 2, 1, 1, 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PREFSRC = 1, 4, 5, 7
_NDA_DST, _NDA_LLADDR = 1, 2
_IFF_UP, _NUD_PERMANENT, _ONLINK = 0x1, 0x80, 0x4
_TABLE_MAIN, _PROTO_STATIC, _SCOPE_UNIVERSE, _SCOPE_LINK = 254, 4, 0, 253
_UNICAST = 1


class NetlinkError(OSError):
    """The kernel refused a change; ``errno`` says why, the message which change."""


@dataclass(frozen=True, slots=True)
class Link:
    """A network interface."""

    index: int
    name: str
    alias: str = ""


class Netlink:
    """A netlink socket; it belongs for good to the network namespace of the thread that made it."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        self._socket.bind((0, 0))
        self._sequence = 0

    def __enter__(self) -> Netlink:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def add_bridge(self, name: str) -> None:
        """A bridge without ports: it only carries addresses (and exists where ``dummy`` is not built)."""
        info = _nest(_IFLA_LINKINFO, _text(_INFO_KIND, "bridge"))
        self._change(
            f"add interface {name}",
            _NEWLINK,
            _CREATE | _EXCL,
            _link_header(change=_IFF_UP, flags=_IFF_UP) + _text(_IFLA_IFNAME, name) + info,
        )

    def add_veth(self, name: str, mac: bytes, *, peer: str, peer_mac: bytes, namespace: int) -> None:
        """A pair: ``name`` here and ``peer``, with index 2, in the namespace of that file descriptor."""
        other = (
            _link_header(index=2)
            + _text(_IFLA_IFNAME, peer)
            + _attribute(_IFLA_ADDRESS, peer_mac)
            + _attribute(_IFLA_NET_NS_FD, struct.pack("=I", namespace))
        )
        info = _nest(_IFLA_LINKINFO, _text(_INFO_KIND, "veth") + _nest(_INFO_DATA, _nest(_VETH_PEER, other)))
        body = _link_header() + _text(_IFLA_IFNAME, name) + _attribute(_IFLA_ADDRESS, mac) + info
        self._change(f"add interface {name}", _NEWLINK, _CREATE | _EXCL, body)

    def set_up(self, index: int, *, forwarding: bool = False) -> None:
        """Bring an interface up; ``forwarding``: packets that come in by it may be routed on."""
        body = _link_header(index=index, flags=_IFF_UP, change=_IFF_UP)
        if forwarding:
            conf = _nest(_INET_CONF, _attribute(_CONF_FORWARDING, struct.pack("=I", 1)))
            body += _nest(_IFLA_AF_SPEC, _nest(socket.AF_INET, conf))
        self._change(f"bring interface {index} up", _SETLINK, 0, body)

    def set_alias(self, index: int, alias: str) -> None:
        """Note on an interface what it is."""
        body = _link_header(index=index) + _attribute(_IFLA_IFALIAS, alias.encode())
        self._change(f"describe interface {index}", _SETLINK, 0, body)

    def delete_link(self, name: str) -> bool:
        """Remove an interface (and its peer); false if there is none of that name."""
        try:
            self._change(f"delete interface {name}", _DELLINK, 0, _link_header() + _text(_IFLA_IFNAME, name))
        except NetlinkError as error:
            if error.errno == errno.ENODEV:
                return False
            raise
        return True

    def add_address(self, index: int, address: IPv4Address, prefix: int) -> None:
        """Give an interface an address; one it has already is no error."""
        body = struct.pack("=BBBBI", socket.AF_INET, prefix, 0, _SCOPE_UNIVERSE, index)
        body += _attribute(_IFA_LOCAL, address.packed) + _attribute(_IFA_ADDRESS, address.packed)
        self._change(f"add address {address}", _NEWADDR, _CREATE | _REPLACE, body)

    def add_route(
        self,
        network: IPv4Network,
        index: int,
        *,
        gateway: IPv4Address | None = None,
        source: IPv4Address | None = None,
    ) -> None:
        """Route a network by an interface; ``source`` is the address that packets from here carry."""
        scope = _SCOPE_UNIVERSE if gateway else _SCOPE_LINK
        flags = _ONLINK if gateway else 0
        body = struct.pack(
            "=BBBBBBBBI",
            socket.AF_INET,
            network.prefixlen,
            0,
            0,
            _TABLE_MAIN,
            _PROTO_STATIC,
            scope,
            _UNICAST,
            flags,
        )
        if network.prefixlen:
            body += _attribute(_RTA_DST, network.network_address.packed)
        body += _attribute(_RTA_OIF, struct.pack("=I", index))
        if gateway:
            body += _attribute(_RTA_GATEWAY, gateway.packed)
        if source:
            body += _attribute(_RTA_PREFSRC, source.packed)
        self._change(f"add route {network}", _NEWROUTE, _CREATE | _REPLACE, body)

    def add_neighbour(self, index: int, address: IPv4Address, mac: bytes) -> None:
        """Say for good which hardware address an IP has, so that nobody needs to ask."""
        body = struct.pack("=BBHiHBB", socket.AF_INET, 0, 0, index, _NUD_PERMANENT, 0, 0)
        body += _attribute(_NDA_DST, address.packed) + _attribute(_NDA_LLADDR, mac)
        self._change(f"add neighbour {address}", _NEWNEIGH, _CREATE | _REPLACE, body)

    def wait_active(self, index: int) -> None:
        """Wait until an interface that is up takes packets.

        A new veth sends what it is given into nothing until the kernel has noticed, in a task of its own,
        that the other end is up too: a pod's first question to the DNS server would be lost.
        """
        deadline = time.monotonic() + _ACTIVE_DEADLINE
        while self._queue_of(index) in ("", "noop"):
            if time.monotonic() > deadline:
                raise NetlinkError(errno.ETIMEDOUT, f"interface {index} does not become active")
            time.sleep(0.0002)

    def _queue_of(self, index: int) -> str:
        self._send(_GETLINK, 0, _link_header(index=index))
        kind, payload = next(self._answers())
        if kind == _ERROR:
            raise NetlinkError(-struct.unpack_from("=i", payload)[0], f"look at interface {index}")
        return dict(_attributes(payload[16:])).get(_IFLA_QDISC, b"").rstrip(b"\0").decode()

    def links(self) -> list[Link]:
        """All interfaces of the namespace."""
        self._send(_GETLINK, _DUMP, _link_header())
        found: list[Link] = []
        for kind, payload in self._answers():
            if kind == _DONE:
                break
            if kind == _ERROR:
                raise NetlinkError(-struct.unpack_from("=i", payload)[0], "list interfaces")
            index = struct.unpack_from("=i", payload, 4)[0]
            values = dict(_attributes(payload[16:]))
            name, alias = (values.get(kind, b"").rstrip(b"\0") for kind in (_IFLA_IFNAME, _IFLA_IFALIAS))
            found.append(Link(index, name.decode(), alias.decode(errors="replace")))
        return found

    def _change(self, what: str, kind: int, flags: int, body: bytes) -> None:
        self._send(kind, flags | _ACK, body)
        for answer, payload in self._answers():
            if answer != _ERROR:
                continue
            code = -struct.unpack_from("=i", payload)[0]
            if code:
                raise NetlinkError(code, f"{what}: {os.strerror(code)}")
            return

    def _send(self, kind: int, flags: int, body: bytes) -> None:
        self._sequence += 1
        header = struct.pack("=IHHII", 16 + len(body), kind, _REQUEST | flags, self._sequence, 0)
        self._socket.send(header + body)

    def _answers(self) -> Iterator[tuple[int, bytes]]:
        while True:
            data = self._socket.recv(1 << 16)
            while len(data) >= 16:
                length, kind, _flags, sequence, _pid = struct.unpack_from("=IHHII", data)
                if sequence == self._sequence:
                    yield kind, data[16:length]
                data = data[_aligned(length) :]


def _link_header(*, index: int = 0, flags: int = 0, change: int = 0) -> bytes:
    return struct.pack("=BBHiII", socket.AF_UNSPEC, 0, 0, index, flags, change)


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + b"\0" * (_aligned(length) - length)


def _nest(kind: int, value: bytes) -> bytes:
    return _attribute(kind | 0x8000, value)


def _text(kind: int, value: str) -> bytes:
    return _attribute(kind, value.encode() + b"\0")


def _attributes(data: bytes) -> Iterable[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & 0x3FFF, data[4:length]
        data = data[_aligned(length) :]
