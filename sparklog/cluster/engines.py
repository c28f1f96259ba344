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
    """Blocks. Raises StoreError where the file cannot be opened, or no ZooKeeper server answers in time."""
    if config.zookeeper_connect:
        # kazoo is loaded only where it is used: it would cost every start a tenth of a second
        from sparklog.cluster.zookeeper import ZookeeperStore

        return ZookeeperStore(
            config.zookeeper_connect,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            connection_timeout_ms=config.zookeeper_connection_timeout_ms,
        )
    return SqliteStore(store_file(config), session_timeout_ms=config.cluster_store_session_timeout_ms)


def session_timeout_ms(config: BrokerConfig) -> int:
    """How long a broker may be silent before others take it for dead."""
    return config.zookeeper_session_timeout_ms if config.zookeeper_connect else config.cluster_store_session_timeout_ms


def store_file(config: BrokerConfig) -> str:
    return config.cluster_store or f"{config.log_dirs[0]}/{CLUSTER_STORE}"
