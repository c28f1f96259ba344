"""For tests: a real broker in this process, or a cluster of them, on a folder of its own. pytest finds the fixtures
`sparklog_broker` and `sparklog_cluster` itself.

with start_broker() as broker:
    producer = Producer(bootstrap_servers=broker.bootstrap)
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparklog.testing.broker import RunningBroker, start_broker
    from sparklog.testing.cluster import RunningCluster, start_cluster
    from sparklog.testing.sim_clock import SimClock

__all__ = ["RunningBroker", "RunningCluster", "SimClock", "start_broker", "start_cluster"]

_MODULES = {
    "RunningBroker": "sparklog.testing.broker",
    "RunningCluster": "sparklog.testing.cluster",
    "SimClock": "sparklog.testing.sim_clock",
    "start_broker": "sparklog.testing.broker",
    "start_cluster": "sparklog.testing.cluster",
}


def __getattr__(name: str) -> Any:
    # Found when first used: pytest imports this package (for its plugin) in every project that has sparklog installed,
    # which should not cost those that never start a broker a tenth of a second for gRPC.
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)
