"""MatrixOne's own RPC: what the operator asks its processes, and the few things it tells them.

    frames      what stands around a message on the wire
    wire        protocol buffers, as far as they are needed
    messages    the messages, field by field
    dial        one connection: bounded, without retries, every request behind the fence
    hakeeper    the log service: the cluster's state, states and labels of CNs
    compute     a CN: its sessions
    locks       the TN: lock tables that a CN hands over before it stops

An error or an empty answer is unknown, never "nothing there". Nothing is sent that is known to end a server: see
`frames` and `messages`.
"""

from __future__ import annotations

__all__: list[str] = []
