"""`server/payloads.py`, imported when it is first needed.

Arrow and the compiled kernels take longer to import than a broker takes to start (0.3 to 0.6 s against 0.4 s), and a
broker that only sees batches never needs them.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

_PAYLOADS = "sparklog.server.payloads"


async def load_payloads() -> Any:
    """The module; imported in a thread, so that requests beside this one do not wait."""
    return sys.modules.get(_PAYLOADS) or await asyncio.to_thread(importlib.import_module, _PAYLOADS)
