"""Ports of processes that tests start, and start again."""

from __future__ import annotations

import socket
import weakref


def reserve_port(owner: object) -> int:
    """A port of 127.0.0.1 that nobody else gets while `owner` is in memory, whether a server listens there or not.

    It is bound, so that the system chooses it for nobody, be it a server or a connection that goes out; a port that
    was only seen to be free may be gone when the process that was started has come so far. And it is not listened on,
    so that a server which asks for exactly this port, with SO_REUSEADDR as servers do, gets it.
    """
    held = socket.socket()
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    held.bind(("127.0.0.1", 0))
    weakref.finalize(owner, held.close)
    return int(held.getsockname()[1])
