"""What a replica tells of its log, for plans of upkeep: plain values, the same on the broker, in jobs and in tests."""

from __future__ import annotations

from dataclasses import dataclass, field

from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.epochs import EpochStart


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDescription:
    """A segment. Timestamps are in ms, -1 where there is none."""

    base_offset: int
    next_offset: int
    """The next segment's base offset; of the last segment, the log end offset."""
    size_bytes: int
    largest_timestamp_ms: int
    """Of its records."""
    first_timestamp_ms: int
    """Of its first batch."""
    identity: str = ""
    """Another one whenever its files are others, or were cut; means nothing else."""


NO_SUM = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentSum:
    """A closed segment, as replicas compare theirs."""

    base_offset: int
    next_offset: int
    size_bytes: int
    crc32c: int = NO_SUM
    """Of the whole file; NO_SUM: it has not been read."""
    identity: str = ""
    """As of a `SegmentDescription`."""

    def is_as(self, other: SegmentSum) -> bool:
        """Whether the two files are the same, as far as is known."""
        mine = (self.base_offset, self.next_offset, self.size_bytes)
        is_summed = NO_SUM not in (self.crc32c, other.crc32c)
        return mine == (other.base_offset, other.next_offset, other.size_bytes) and (
            not is_summed or self.crc32c == other.crc32c
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """One replica's log."""

    partition: TopicPartition
    cluster_id: str = ""
    topic_id: str = ""
    """As Kafka writes it; another one for a topic that was made again under the name."""
    broker_id: int = 0
    is_leader: bool = True
    leader_epoch: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    last_stable_offset: int = 0
    """Below it every transaction has ended."""
    log_end_offset: int = 0
    cleaned_offset: int = 0
    """Everything below has been compacted."""
    folder: str = ""
    """The partition's folder, as the broker names it."""
    config: TopicConfig = field(default_factory=TopicConfig)
    segments: tuple[SegmentDescription, ...] = ()
    """Oldest first; the last is the active one."""
    epochs: tuple[EpochStart, ...] = ()
    producer_ids: tuple[int, ...] = ()
    """Of the producers that the broker knows: by their last batches, where it has to begin from its log."""

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def closed_segments(self) -> tuple[SegmentDescription, ...]:
        return self.segments[:-1]
