"""What internal topics go by, and how they come to be: when somebody first needs them, or in folders that are found."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import DAY_MS, MAX_LONG
from sparklog.base.errors import TopicAlreadyExists
from sparklog.broker.topics import Topics
from sparklog.cluster.history import HISTORY_TOPIC
from sparklog.group.coordinator import OFFSETS_TOPIC

TRANSACTIONS_TOPIC = "__transaction_state"
HISTORY_RETENTION_MS = 30 * DAY_MS


def overrides_of(name: str, config: BrokerConfig) -> Mapping[str, str] | None:
    """The configuration with which a broker makes an internal topic; None for any other topic."""
    known: dict[str, Mapping[str, str]] = {
        OFFSETS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        TRANSACTIONS_TOPIC: {"cleanup.policy": "compact", "compression.type": "producer"},
        HISTORY_TOPIC: {
            "min.insync.replicas": "1",  # one replica that is in sync is enough to tell of the others
            "message.timestamp.after.max.ms": str(MAX_LONG),
            "retention.ms": str(HISTORY_RETENTION_MS),
        },
    }
    return known.get(name)


async def create_internal(topics: Topics, config: BrokerConfig, name: str, partitions: int) -> None:
    """Internal topics have as many replicas as the offsets topic."""
    factor = config.offsets_topic_replication_factor
    try:
        await topics.create(
            name,
            partitions=partitions,
            replication_factor=factor if factor > 0 else None,
            overrides=overrides_of(name, config),
        )
    except TopicAlreadyExists:
        await topics.wait_for(name)  # a request that came at the same moment, or another broker, was first
