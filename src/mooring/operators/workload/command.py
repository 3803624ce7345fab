"""The output of a shell script in a container, by pods/exec."""

from __future__ import annotations

from typing import Final

from aiohttp import WSMsgType

from mooring.kube.transport import HttpTransport

__all__ = ["output_of"]

_OUT, _ERROR = 1, 3
_PROTOCOL: Final = "v4.channel.k8s.io"


async def output_of(
    transport: HttpTransport, namespace: str, pod: str, *, container: str, script: str
) -> str:
    """What ``sh -c script`` prints in this container; the caller sets the time limit.

    Raises `KubeError` where the API server or the node refuses: `ApiError` with 403 where the right is missing.
    """
    query = [("stdout", "true"), ("stderr", "false"), ("container", container)]
    query += [("command", word) for word in ("sh", "-c", script)]
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/exec"
    said = bytearray()
    async with transport.websocket(path, query=query, protocols=(_PROTOCOL,)) as socket:
        async for message in socket:
            if message.type != WSMsgType.BINARY or not message.data:
                continue
            if message.data[0] == _ERROR:
                break
            if message.data[0] == _OUT:
                said += message.data[1:]
    return said.decode(errors="replace")
