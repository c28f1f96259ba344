"""Import of `server/payloads.py` on first use.

Importing Arrow and the compiled kernels takes as long as starting a broker (0.3 to 0.6 s against 0.4 s). A broker that
only receives batches never needs them.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
from typing import Any

_PAYLOADS = "sparklog.server.payloads"


async def load_payloads() -> Any:
    """Return the module. It is imported in a thread, so that other requests do not wait."""
    return sys.modules.get(_PAYLOADS) or await asyncio.to_thread(importlib.import_module, _PAYLOADS)
