"""Descriptions of a replica's log, for planning maintenance: plain values for the broker, jobs and tests."""

from __future__ import annotations

from msgspec import Struct, field

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.epochs import EpochStart


class SegmentDescription(Struct, frozen=True, kw_only=True):
    """A segment. Timestamps are in ms; -1 if there is none."""

    base_offset: int
    next_offset: int
    """The next segment's base offset; for the last segment, the log end offset."""
    size_bytes: int
    largest_timestamp_ms: int
    """The greatest timestamp of its records."""
    first_timestamp_ms: int
    """The max timestamp of its first batch."""
    identity: str = ""
    """An opaque id that changes whenever the segment's files are replaced or truncated."""


NO_SUM = -1


class SegmentSum(Struct, frozen=True, kw_only=True):
    """The values of a closed segment by which replicas compare it."""

    base_offset: int
    next_offset: int
    size_bytes: int
    crc32c: int = NO_SUM
    """The CRC-32C of the whole file; NO_SUM if it has not been computed."""
    identity: str = ""
    """See `SegmentDescription.identity`."""

    def is_as(self, other: SegmentSum) -> bool:
        """Return whether the two files are the same; checksums are compared only if both are known."""
        mine = (self.base_offset, self.next_offset, self.size_bytes)
        is_summed = NO_SUM not in (self.crc32c, other.crc32c)
        return mine == (other.base_offset, other.next_offset, other.size_bytes) and (
            not is_summed or self.crc32c == other.crc32c
        )


class LogDescription(Struct, frozen=True, kw_only=True):
    """One replica's log."""

    partition: TopicPartition
    cluster_id: str = ""
    topic_id: str = ""
    """The topic id in Kafka's text form; it changes if the topic is deleted and created again."""
    broker_id: int = 0
    is_leader: bool = True
    leader_epoch: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    """The offset below which every transaction has ended."""
    log_end_offset: int = 0
    cleaned_offset: int = 0
    """The offset below which everything has been compacted."""
    folder: str = ""
    """The path of the partition's folder on the broker."""
    config: TopicConfig = field(default_factory=TopicConfig)
    segments: tuple[SegmentDescription, ...] = ()
    """Oldest first; the last is the active one."""
    epochs: tuple[EpochStart, ...] = ()
    producer_ids: tuple[int, ...] = ()
    """The ids of the producers that the broker knows. Compaction keeps their last batches, from which a broker rebuilds
    producer state if it has to start from the log."""

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments' batches, the active one's included."""
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def closed_segments(self) -> tuple[SegmentDescription, ...]:
        """All segments but the active one, oldest first."""
        return self.segments[:-1]
