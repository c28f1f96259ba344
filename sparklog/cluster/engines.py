"""The cluster store that a broker's configuration names.

zookeeper.connect       a ZooKeeper ensemble: for brokers on several machines
cluster.store           an SQLite file that brokers on one machine share
neither                 cluster.sqlite in the broker's first log directory: a cluster of one broker
"""

from __future__ import annotations

from sparklog.base.config import BrokerConfig
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.store import Store

CLUSTER_STORE = "cluster.sqlite"


def open_store(config: BrokerConfig) -> Store:
    """Open the cluster store that the configuration names. Blocks.

    Raises StoreError if the file cannot be opened, or if no ZooKeeper server answers in time.
    """
    if config.zookeeper_connect:
        # Imported here: kazoo would cost every start a tenth of a second.
        from sparklog.cluster.zookeeper import ZookeeperStore

        return ZookeeperStore.open(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
    return SqliteStore.open(store_file(config), session_timeout_ms=config.cluster_store_session_timeout_ms)


def session_timeout_ms(config: BrokerConfig) -> int:
    """Return how long a broker may be silent before other brokers consider it dead."""
    return config.zookeeper_session_timeout_ms if config.zookeeper_connect else config.cluster_store_session_timeout_ms


def store_file(config: BrokerConfig) -> str:
    return config.cluster_store or f"{config.log_dirs[0]}/{CLUSTER_STORE}"
