"""Import of `server/grpc/payloads.py` on first use.

The import of Arrow and the compiled kernels takes as long as a broker's start (0.3 to 0.6 s against 0.4 s). A broker
that only receives batches does not need them.
"""

from __future__ import annotations

import asyncio
import importlib
from typing import Any

_PAYLOADS = "sparklog.server.grpc.payloads"
_loaded: list[Any] = []
"""The module, from the end of its import; in `sys.modules` it is from the beginning."""


async def load_payloads() -> Any:
    """Return the module, imported in a thread."""
    return _loaded[0] if _loaded else await asyncio.to_thread(_load)


def _load() -> Any:
    module = importlib.import_module(_PAYLOADS)
    _loaded[:] = [module]
    return module
