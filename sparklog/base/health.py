"""State of a server process, as `metrics_http.py` tells it to whoever probes the process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from typing import NamedTuple

LIVE_WITHIN_S = 5.0
"""A loop that has not turned for this long is stuck: no step of a request takes a tenth of a second."""


class Health(NamedTuple):
    """State of the server process."""

    takes_records: bool = True
    troubles: Mapping[str, object] = {}
    """Current problems by name; empty if there are none."""
    not_ready: str = ""
    """Why clients should use other servers; empty if they should use this one."""


def is_loop_running(loop: asyncio.AbstractEventLoop, within_s: float = LIVE_WITHIN_S) -> bool:
    """Return whether the event loop runs a callback within `within_s` seconds. Blocks; not for the loop's thread."""
    turned = threading.Event()
    try:
        loop.call_soon_threadsafe(turned.set)
    except RuntimeError:  # the loop is closed
        return False
    return turned.wait(within_s)
