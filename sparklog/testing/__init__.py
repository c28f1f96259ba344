"""Test helpers: a real broker in this process, or a cluster of brokers, each on a folder of its own.

Brokers serve Kafka's clients as well as sparklog's, with groups and transactions.

pytest finds the fixtures `sparklog_broker` and `sparklog_cluster` by itself.

    with start_broker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparklog.base.lazy import lazy

__all__ = ["BrokerOptions", "RunningBroker", "RunningCluster", "SimClock", "start_broker", "start_cluster"]

_MODULES = {
    "BrokerOptions": "sparklog.testing.options",
    "RunningBroker": "sparklog.testing.broker",
    "RunningCluster": "sparklog.testing.cluster",
    "SimClock": "sparklog.testing.sim.clock",
    "start_broker": "sparklog.testing.broker",
    "start_cluster": "sparklog.testing.cluster",
}

# These names load on first use. pytest imports this package for its plugin in every project that has sparklog
# installed, and a project that never starts a broker should not wait a tenth of a second for the import of gRPC.
if TYPE_CHECKING:
    from sparklog.testing.broker import RunningBroker, start_broker
    from sparklog.testing.cluster import RunningCluster, start_cluster
    from sparklog.testing.options import BrokerOptions
    from sparklog.testing.sim.clock import SimClock
else:
    __getattr__, __dir__ = lazy(__name__, _MODULES, __all__)
