"""Configuration and creation of internal topics: created on first use, or adopted from existing folders."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import DAY_MS, MAX_LONG
from sparklog.base.errors import TopicAlreadyExists
from sparklog.broker.topics import Topics
from sparklog.cluster.history import HISTORY_TOPIC
from sparklog.group.coordinator import OFFSETS_TOPIC
from sparklog.transaction.coordinator import TRANSACTIONS_TOPIC

HISTORY_RETENTION_MS = 30 * DAY_MS


def overrides_of(name: str, config: BrokerConfig) -> Mapping[str, str] | None:
    """Return the configuration overrides of an internal topic; None for any other topic."""
    known: dict[str, Mapping[str, str]] = {
        OFFSETS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(config.offsets_topic_segment_bytes),
        },
        TRANSACTIONS_TOPIC: {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "min.insync.replicas": str(config.transaction_state_log_min_isr),
            "segment.bytes": str(config.transaction_state_log_segment_bytes),
        },
        HISTORY_TOPIC: {
            "min.insync.replicas": "1",  # the history must record the loss of the other replicas
            "message.timestamp.after.max.ms": str(MAX_LONG),
            "retention.ms": str(HISTORY_RETENTION_MS),
        },
    }
    return known.get(name)


async def create_internal(
    topics: Topics, config: BrokerConfig, name: str, partitions: int, replication_factor: int
) -> None:
    """Create an internal topic, or wait for its leaders. replication_factor: -1: default.replication.factor."""
    factor = replication_factor
    try:
        await topics.create(
            name,
            partitions=partitions,
            replication_factor=factor if factor > 0 else None,
            overrides=overrides_of(name, config),
        )
    except TopicAlreadyExists:
        await topics.wait_for(name)  # a concurrent request, here or on another broker, created it
