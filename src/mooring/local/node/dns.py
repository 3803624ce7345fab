"""The cluster's DNS server: Services and pods by name (Kubernetes DNS specification 1.1.0).

:class:`Zone` answers from Services and EndpointSlices and does no I/O; :class:`DnsServer` speaks UDP and TCP
and forwards what is not of the cluster to the machine's own resolver.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from ipaddress import AddressValueError, IPv4Address
from pathlib import Path
from typing import NamedTuple

import structlog

from mooring.kube.objects.core import Service
from mooring.kube.objects.discovery import EndpointSlice
from mooring.local.node.services import SERVICE_NAME_LABEL, is_ready

__all__ = ["Answer", "DnsServer", "Record", "Zone"]

log = structlog.get_logger("mooring.node")

A, CNAME, SOA, PTR, TXT, AAAA, SRV, OPT, ANY = 1, 5, 6, 12, 16, 28, 33, 41, 255
NOERROR, FORMERR, SERVFAIL, NXDOMAIN, NOTIMP = 0, 1, 2, 3, 4
TTL = 5
_UDP_LIMIT, _UDP_MOST = 512, 1232
_FORWARD_TIMEOUT = 3.0


class Record(NamedTuple):
    """A resource record: owner, type and data (encoded)."""

    name: str
    kind: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """What the zone says to a question."""

    code: int
    records: tuple[Record, ...] = ()
    extra: tuple[Record, ...] = ()


@dataclass(slots=True)
class Zone:
    """The names of the cluster, rebuilt from the caches when they changed."""

    domain: str
    services: Callable[[], Iterable[Service]]
    slices: Callable[[], Iterable[EndpointSlice]]
    namespaces: Callable[[], Iterable[str]] = tuple
    _names: dict[str, list[Record]] | None = field(init=False, default=None)

    def changed(self) -> None:
        """Services or EndpointSlices changed."""
        self._names = None

    def holds(self, name: str) -> bool:
        """Whether we answer for the name (the cluster's domain, and reverse names we know)."""
        return (
            name == self.domain
            or name.endswith(f".{self.domain}")
            or (name.endswith(".in-addr.arpa") and name in self._index())
        )

    def answer(self, name: str, kind: int) -> Answer:
        """Records for a name, ``NXDOMAIN`` if it does not exist, no records if it has none of the kind."""
        index = self._index()
        found = index.get(name)
        if found is None and (address := self._pod_address(name)) is not None:
            found = [Record(name, A, address.packed)]
        if found is None:
            return Answer(NXDOMAIN)
        records = [record for record in found if kind in (record.kind, ANY) or record.kind == CNAME]
        random.shuffle(records)
        extra = {
            other
            for record in records
            if record.kind == SRV
            for other in index.get(_target(record.data), ())
            if other.kind == A
        }
        return Answer(NOERROR, tuple(records), tuple(extra))

    def soa(self) -> Record:
        """The record that says how long a missing name may be remembered."""
        numbers = struct.pack(">IIIII", 1, 7200, 1800, 86400, TTL)
        names = encode_name(f"ns.dns.{self.domain}") + encode_name(f"hostmaster.{self.domain}")
        return Record(self.domain, SOA, names + numbers)

    def _pod_address(self, name: str) -> IPv4Address | None:
        """``10-99-1-4.ns.pod.<domain>`` stands for that address."""
        tail = f".pod.{self.domain}"
        if not name.endswith(tail):
            return None
        dashed, _, namespace = name.removesuffix(tail).partition(".")
        try:
            return IPv4Address(dashed.replace("-", ".")) if namespace and "." not in namespace else None
        except AddressValueError:
            return None

    def _index(self) -> dict[str, list[Record]]:
        if self._names is None:
            self._names = self._build()
        return self._names

    def _build(self) -> dict[str, list[Record]]:
        index: dict[str, list[Record]] = {}
        for name in (self.domain, f"svc.{self.domain}", f"pod.{self.domain}"):
            index.setdefault(name, [])
        for namespace in self.namespaces():
            index.setdefault(f"{namespace}.svc.{self.domain}", [])
        by_service: dict[tuple[str, str], list[EndpointSlice]] = {}
        for piece in self.slices():
            name = (piece.metadata.labels or {}).get(SERVICE_NAME_LABEL, "")
            by_service.setdefault((piece.metadata.namespace or "", name), []).append(piece)
        for service in self.services():
            key = (service.metadata.namespace or "", service.metadata.name or "")
            self._add_service(index, service, by_service.get(key, []))
        return index

    def _add_service(
        self, index: dict[str, list[Record]], service: Service, slices: list[EndpointSlice]
    ) -> None:
        spec, name = service.spec, f"{service.metadata.name}.{service.metadata.namespace}.svc.{self.domain}"
        index.setdefault(f"{service.metadata.namespace}.svc.{self.domain}", [])
        own = index.setdefault(name, [])
        if spec is None:
            return
        if spec.type == "ExternalName":
            own.append(Record(name, CNAME, encode_name((spec.external_name or "").rstrip("."))))
        elif spec.cluster_ip and spec.cluster_ip != "None":
            address = IPv4Address(spec.cluster_ip)
            own.append(Record(name, A, address.packed))
            _add(index, Record(_reverse(address), PTR, encode_name(name)))
            for port in spec.ports or ():
                self._add_port(index, name, name, port.name, port.protocol, port.port)
        else:
            self._add_headless(index, name, slices, unready=bool(spec.publish_not_ready_addresses))

    def _add_headless(
        self, index: dict[str, list[Record]], name: str, slices: list[EndpointSlice], *, unready: bool
    ) -> None:
        for piece in slices:
            for endpoint in piece.endpoints or ():
                if not (unready or is_ready(endpoint)):
                    continue
                for text in endpoint.addresses or ():
                    with suppress(AddressValueError):
                        address = IPv4Address(text)
                        label = endpoint.hostname or text.replace(".", "-")
                        host = f"{label}.{name}"
                        _add(index, Record(name, A, address.packed))
                        _add(index, Record(host, A, address.packed))
                        if endpoint.hostname:
                            _add(index, Record(_reverse(address), PTR, encode_name(host)))
                        for port in piece.ports or ():
                            self._add_port(index, name, host, port.name, port.protocol, port.port)

    def _add_port(
        self,
        index: dict[str, list[Record]],
        name: str,
        target: str,
        port_name: str | None,
        protocol: str | None,
        port: int | None,
    ) -> None:
        data = struct.pack(">HHH", 0, 100, port or 0) + encode_name(target)
        _add(index, Record(name, SRV, data))
        if port_name:
            group = f"_{(protocol or 'TCP').lower()}.{name}"
            index.setdefault(group, [])
            _add(index, Record(f"_{port_name}.{group}", SRV, data))


def _add(index: dict[str, list[Record]], record: Record) -> None:
    records = index.setdefault(record.name, [])
    if record not in records:
        records.append(record)


def _reverse(address: IPv4Address) -> str:
    return address.reverse_pointer


def _target(data: bytes) -> str:
    return decode_name(data, 6)[0]


# --- wire format (RFC 1035)


class MalformedQuery(ValueError):
    """The packet is not a question."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question as it arrived."""

    id: int
    recursion: bool
    name: str
    kind: int
    raw: bytes
    """The question section, to be repeated in the answer."""
    limit: int
    """Largest answer the asker takes by UDP."""


def encode_name(name: str) -> bytes:
    """A name as length-prefixed labels."""
    labels = [label.encode() for label in name.split(".") if label]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def decode_name(data: bytes, offset: int) -> tuple[str, int]:
    """The name at an offset (lower case), and the offset after it; raises :class:`MalformedQuery`."""
    labels: list[str] = []
    while True:
        if offset >= len(data):
            raise MalformedQuery("name runs over the end")
        length = data[offset]
        offset += 1
        if length == 0:
            return ".".join(labels).lower(), offset
        if length > 63 or offset + length > len(data):
            raise MalformedQuery("bad label")
        labels.append(data[offset : offset + length].decode("ascii", errors="replace"))
        offset += length


def parse(packet: bytes) -> Question:
    """The question of a packet; raises :class:`MalformedQuery`."""
    if len(packet) < 12:
        raise MalformedQuery("too short")
    number, flags, questions, _answers, _authority, extra = struct.unpack_from(">HHHHHH", packet)
    if flags & 0x8000 or flags & 0x7800 or questions != 1:
        raise MalformedQuery("not a standard query with one question")
    name, end = decode_name(packet, 12)
    if end + 4 > len(packet):
        raise MalformedQuery("no type")
    kind, _class = struct.unpack_from(">HH", packet, end)
    limit = _UDP_LIMIT
    if extra and packet[end + 4 : end + 5] == b"\0" and len(packet) >= end + 9:
        option, size = struct.unpack_from(">HH", packet, end + 5)
        limit = max(_UDP_LIMIT, min(size, _UDP_MOST)) if option == OPT else limit
    return Question(number, bool(flags & 0x100), name, kind, packet[12 : end + 4], limit)


def reply(question: Question, answer: Answer, *, soa: Record, limit: int | None) -> bytes:
    """The answer's packet; one that does not fit ``limit`` says so and carries no records."""
    authority = () if answer.records else (soa,)
    sections = (answer.records, authority, answer.extra)
    body = b"".join(_encode(record) for section in sections for record in section)
    flags = 0x8400 | (0x100 if question.recursion else 0) | 0x80 | answer.code
    counts = [len(section) for section in sections]
    if limit is not None and 12 + len(question.raw) + len(body) > limit:
        flags, body, counts = flags | 0x200, b"", [0, 0, 0]
    return struct.pack(">HHHHHH", question.id, flags, 1, *counts) + question.raw + body


def _encode(record: Record) -> bytes:
    head = struct.pack(">HHIH", record.kind, 1, TTL, len(record.data))
    return encode_name(record.name) + head + record.data


def failure(packet: bytes, code: int) -> bytes:
    """An answer that only says what is wrong."""
    number = packet[:2] if len(packet) >= 2 else b"\0\0"
    return number + struct.pack(">HHHHH", 0x8080 | code, 0, 0, 0, 0)


# --- the server


@dataclass(slots=True)
class DnsServer:
    """Listens on UDP and TCP of one address."""

    zone: Zone
    address: IPv4Address
    port: int = 53
    upstream: tuple[str, ...] = ()
    """Resolvers of the machine, for other names; without one those are answered with SERVFAIL."""
    _udp: asyncio.DatagramTransport | None = field(init=False, default=None)
    _tcp: asyncio.Server | None = field(init=False, default=None)
    _tasks: set[asyncio.Task[None]] = field(init=False, default_factory=set)

    async def start(self) -> None:
        """Open both sockets."""
        loop = asyncio.get_running_loop()
        where = (str(self.address), self.port)
        self._udp, _ = await loop.create_datagram_endpoint(lambda: _Udp(self), local_addr=where)
        self._tcp = await asyncio.start_server(self._serve_tcp, *where)

    async def stop(self) -> None:
        """Close both."""
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()
            await self._tcp.wait_closed()
        for task in self._tasks:
            task.cancel()

    async def respond(self, packet: bytes, *, udp: bool) -> bytes:
        """The answer to a packet."""
        try:
            question = parse(packet)
        except MalformedQuery:
            return failure(packet, FORMERR)
        if self.zone.holds(question.name):
            answer = self.zone.answer(question.name, question.kind)
            return reply(question, answer, soa=self.zone.soa(), limit=question.limit if udp else None)
        for server in self.upstream:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(_FORWARD_TIMEOUT):
                    return await (_ask_udp if udp else _ask_tcp)(server, packet)
        return failure(packet, SERVFAIL)

    def datagram(self, packet: bytes, sender: tuple[str, int]) -> None:
        """Answer a datagram; questions of the cluster are answered without a task switch."""
        task = asyncio.get_running_loop().create_task(self._answer(packet, sender))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, packet: bytes, sender: tuple[str, int]) -> None:
        response = await self.respond(packet, udp=True)
        if self._udp is not None:
            self._udp.sendto(response, sender)

    async def _serve_tcp(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(asyncio.IncompleteReadError, TimeoutError, ConnectionError):
                while True:
                    async with asyncio.timeout(10):
                        size = int.from_bytes(await reader.readexactly(2), "big")
                        packet = await reader.readexactly(size)
                    response = await self.respond(packet, udp=False)
                    writer.write(len(response).to_bytes(2, "big") + response)
                    await writer.drain()
        finally:
            writer.close()


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.datagram(data, addr)


async def _ask_udp(server: str, packet: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET6 if ":" in server else socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.setblocking(False)
        await loop.sock_connect(asking, (server, 53))
        await loop.sock_sendall(asking, packet)
        return await loop.sock_recv(asking, 4096)


async def _ask_tcp(server: str, packet: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(server, 53)
    try:
        writer.write(len(packet).to_bytes(2, "big") + packet)
        size = int.from_bytes(await reader.readexactly(2), "big")
        return await reader.readexactly(size)
    finally:
        writer.close()


def machine_resolvers(path: Path = Path("/etc/resolv.conf")) -> tuple[str, ...]:
    """The name servers that the machine itself uses."""
    found = []
    with suppress(OSError):
        for line in path.read_text().splitlines():
            words = line.split()
            if len(words) > 1 and words[0] == "nameserver":
                found.append(words[1])
    return tuple(found[:3])
