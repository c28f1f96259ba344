"""Import of `server/grpc/payloads.py` on first use.

Importing Arrow and the compiled kernels takes as long as starting a broker (0.3 to 0.6 s against 0.4 s). A broker that
only receives batches never needs them.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

_PAYLOADS = "sparklog.server.grpc.payloads"
_loaded: list[Any] = []
"""The module, once its import has ended; `sys.modules` has it as soon as that begins."""


async def load_payloads() -> Any:
    """Return the module. It is imported in a thread, so that other requests do not wait."""
    return _loaded[0] if _loaded else await asyncio.to_thread(_load)


def _load() -> Any:
    module = importlib.import_module(_PAYLOADS)
    _loaded[:] = [module]
    return module
