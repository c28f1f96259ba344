"""State of a server process, which probes read (metrics_http.py)."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import NamedTuple

LIVE_WITHIN_S = 5.0
"""An event loop that runs no callback for this long is stuck: a step of a request takes less than 0.1 s."""


class Health(NamedTuple):
    """State of the server process."""

    takes_records: bool = True
    troubles: Mapping[str, object] = {}
    """Current problems by name."""
    not_ready: str = ""
    """The reason for which clients should use other servers; empty if they should use this one."""


def is_loop_running(loop: asyncio.AbstractEventLoop, within_s: float = LIVE_WITHIN_S) -> bool:
    """Return whether the event loop runs a callback within `within_s` seconds. Blocks: do not call it in the loop."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # the loop is closed
        return False
    return turned.wait(within_s)
