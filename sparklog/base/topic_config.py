"""The configuration keys of topics (org.apache.kafka.common.config.TopicConfig).

A key with a broker-wide default names the broker's key as `broker_key`; `BrokerConfig.topic_defaults` holds the
defaults.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from sparklog.base.config_keys import (
    CLUSTER_WIDE,
    DAY_MS,
    MAX_INT,
    MAX_LONG,
    MINUTE_MS,
    boolean,
    declared_keys,
    integer,
    key,
    level,
    nearest,
    one_of,
    real,
    replicas,
    some_of,
    text,
)
from sparklog.base.errors import ConfigError, InvalidConfig

PRODUCER, UNCOMPRESSED = "producer", "uncompressed"
"""Values of compression.type that do not name a codec."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The configuration of one topic."""

    cleanup_policy: tuple[str, ...] = key(
        ("delete",),
        some_of("delete", "compact"),
        "delete: remove old segments by retention.ms and retention.bytes. compact: keep the newest record of each key.",
        broker_key="log.cleanup.policy",
    )
    compaction_strategy: str = key(
        "offset",
        one_of("offset", "timestamp", "header"),
        "Which record of a key is the newest (KIP-280): the one with the greatest offset, timestamp, or number in the "
        "header that compaction.strategy.header names; of equal ones, the one with the greater offset.",
        broker_key="log.cleaner.compaction.strategy",
    )
    compaction_strategy_header: str = key(
        "version",
        text(),
        "The header that holds a record's version, 8 bytes big-endian; a record without it is older than any other.",
    )
    compression_type: str = key(
        "producer",
        one_of(PRODUCER, UNCOMPRESSED, "gzip", "snappy", "lz4", "zstd"),
        "The codec of stored batches. producer: the codec that the producer chose. With any other value, the broker "
        "recompresses batches of another codec.",
        broker_key="compression.type",
    )
    compression_gzip_level: int = key(
        -1,
        level(1, 9),
        "The level of gzip, for batches that the broker compresses: -1 is zlib's default.",
        broker_key="compression.gzip.level",
    )
    compression_zstd_level: int = key(
        3,
        integer(-131_072, 22),
        "The level of zstd, for batches that the broker compresses. lz4 has one level here.",
        broker_key="compression.zstd.level",
    )
    delete_retention_ms: int = key(
        DAY_MS,
        integer(0),
        "How long a tombstone stays after the first cleaning that saw it.",
        broker_key="log.cleaner.delete.retention.ms",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = key(
        (),
        replicas(),
        "Replicas that send at most leader.replication.throttled.rate to followers out of sync.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = key(
        (),
        replicas(),
        "Replicas that copy at most follower.replication.throttled.rate while they are out of sync.",
    )
    file_delete_delay_ms: int = key(
        MINUTE_MS,
        integer(0),
        "How long a removed segment stays on disk as .deleted, for readers in flight.",
        broker_key="log.segment.delete.delay.ms",
    )
    flush_messages: int = key(
        MAX_LONG,
        integer(1),
        "Flush to disk once this many records were appended since the last flush.",
        broker_key="log.flush.interval.messages",
    )
    flush_ms: int = key(
        MAX_LONG,
        integer(0),
        "Flush to disk once this long has passed since the last flush.",
        broker_key="log.flush.interval.ms",
    )
    index_interval_bytes: int = key(
        4096,
        integer(0, MAX_INT),
        "Bytes of log between two index entries.",
        broker_key="log.index.interval.bytes",
    )
    max_compaction_lag_ms: int = key(
        MAX_LONG,
        integer(1),
        "Maximum time until a record is compacted.",
        broker_key="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = key(
        1_048_588,
        integer(0, MAX_INT),
        "Maximum bytes of a record batch, compressed and with its header.",
        broker_key="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = key(
        3_600_000,
        integer(0),
        "The broker refuses a record whose timestamp is later than now by more than this (CreateTime only).",
        broker_key="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = key(
        MAX_LONG,
        integer(0),
        "The broker refuses a record whose timestamp is earlier than now by more than this (CreateTime only).",
        broker_key="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = key(
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "The source of timestamps: the producer's clock (CreateTime) or the broker's (LogAppendTime).",
        broker_key="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = key(
        0.5,
        real(0, 1),
        "Compact once this share of the log has not been compacted.",
        broker_key="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = key(
        0,
        integer(0),
        "Minimum time before a record is compacted.",
        broker_key="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = key(
        1,
        integer(1, MAX_INT),
        "The broker refuses acks=all while fewer replicas than this are in sync.",
        broker_key="min.insync.replicas",
    )
    retention_archive: str = key(
        "",
        text(),
        "A Delta table to which the retention job copies closed segments. Then only that job deletes by time and size, "
        "and only segments that are in the table; empty: segments are deleted without a copy.",
        broker_key="log.retention.archive",
    )
    retention_bytes: int = key(
        -1,
        integer(-1),
        "Delete the oldest segments while a partition is larger than this; -1: never.",
        broker_key="log.retention.bytes",
    )
    retention_ms: int = key(
        7 * DAY_MS,
        integer(-1),
        "Delete segments whose newest record is older than this; -1: never.",
        broker_key="log.retention.ms",
    )
    segment_bytes: int = key(
        1 << 30,
        integer(1 << 20, MAX_INT),
        "Roll to a new segment before the file would grow beyond this.",
        broker_key="log.segment.bytes",
    )
    internal_segment_bytes: int = key(
        0,
        integer(0, MAX_INT),
        "For tests: segment.bytes without its lower bound; 0: not set.",
    )
    segment_index_bytes: int = key(
        10 << 20,
        integer(4, MAX_INT),
        "Roll to a new segment when an index has reached this size.",
        broker_key="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = key(
        0,
        integer(0),
        "Roll up to this much earlier than segment.ms, at random, so that partitions do not roll at once.",
        broker_key="log.roll.jitter.ms",
    )
    segment_ms: int = key(
        7 * DAY_MS,
        integer(1),
        "Roll to a new segment when the first record of the active one is older than this.",
        broker_key="log.roll.ms",
    )
    unclean_leader_election_enable: bool = key(
        False,
        boolean(),
        "Whether a replica that is not in sync may become leader, at the price of lost records.",
        broker_key="unclean.leader.election.enable",
    )

    @property
    def roll_bytes(self) -> int:
        """Size in bytes beyond which a segment does not grow."""
        return self.internal_segment_bytes or self.segment_bytes

    @classmethod
    def parse(cls, overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
        """Return `defaults` overridden by a topic's own keys.

        Raises InvalidConfig for an unknown key (naming the nearest known one) or a value that is not allowed.
        """
        try:
            values = {TOPIC_KEYS[name].field: TOPIC_KEYS[name].parse(raw) for name, raw in overrides.items()}
        except KeyError as unknown:
            name = str(unknown.args[0])
            raise InvalidConfig(f"Unknown topic config name: {name}{nearest(name, TOPIC_KEYS)}") from None
        except ConfigError as bad:
            raise InvalidConfig(str(bad)) from None
        return dataclasses.replace(defaults, **values)


TOPIC_KEYS = declared_keys(TopicConfig)
BROKER_DEFAULTS_OF_TOPICS = {
    item.broker_key: dataclasses.replace(item, update_mode=CLUSTER_WIDE)
    for item in TOPIC_KEYS.values()
    if item.broker_key
}
"""Topic keys with a broker-wide default, by the broker's key. These defaults may change at any time."""
