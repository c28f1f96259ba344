"""Messages about partitions between controller, leaders and followers (gRPC service Replication).

    LeaderAndIsr   controller → broker   the broker's partitions and their leaders
    StopReplica    controller → broker   stop leading or following partitions; delete their logs if requested
    ReplicaFetch   follower → leader     fetch records from the follower's log end on, which it thereby reports
    DescribeFiles  follower → leader     list the closed segments, for comparison with the follower's
    ReadFile       follower → leader     read a piece of a file that differs
    DescribePositions   group coordinator → leader   describe the progress of partitions since committed offsets
    AlterIsr       leader → store        the new in-sync replicas, by compare and set

The receiver refuses outdated requests of a controller:

    controller epoch   older than the newest that the receiver has seen: STALE_CONTROLLER_EPOCH
    broker epoch       the epoch of the receiving broker (`Node.created` of its node in the store); older than the
                       receiver's: STALE_BROKER_EPOCH, as the request was meant for the broker before its restart
    number             lower than that of a request already received: a late copy changes nothing
    leader epoch       of each partition; older than the receiver's: FENCED_LEADER_EPOCH
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import Struct, field

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentSum
from sparklog.log.epochs import EpochEnd

NO_LEADER = -1
NO_BROKER_EPOCH = -1
NO_GENERATION = -1


class LeaderAndIsrPartitionState(Struct, frozen=True, kw_only=True):
    """One partition's state in the cluster store (LeaderAndIsrPartitionState)."""

    name: TopicPartition
    topic_id: UUID
    leader: int
    """NO_LEADER: the partition has no leader, and its replicas wait."""
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    partition_epoch: int
    """Version of the partition's node in the store; a leader's ISR change compares with it."""
    is_new: bool = False
    """Whether the partition is new, so that no replica can have records yet."""

    @property
    def is_restored(self) -> bool:
        """Whether the store had lost the ISR, so that the partition has no leader until its replicas are compared."""
        return self.leader == NO_LEADER and not self.isr


class LeaderAndIsr(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[LeaderAndIsrPartitionState, ...]
    overrides: Mapping[str, Mapping[str, str]]
    """Each topic's own configuration keys."""
    number: int = 0
    """Increases with each request of a controller to a broker, so that a late copy is recognized."""
    store_id: str = ""
    """The id of the controller's cluster store; empty: not known."""


class LogEnd(Struct, frozen=True, kw_only=True):
    """The end of a replica's log. The replica of a partition with the greatest one has all acknowledged records."""

    name: TopicPartition
    leader_epoch: int
    """The leader epoch of the last record; -1: the log has no record."""
    end_offset: int


class LeaderAndIsrResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    ends: tuple[LogEnd, ...] = ()
    """The log ends of partitions whose ISR the store has lost."""


class StopPartition(Struct, frozen=True, kw_only=True):
    name: TopicPartition
    leader_epoch: int
    """LEADER_EPOCH_DURING_DELETE: the topic is being deleted; the epoch is not checked."""
    delete: bool = False


LEADER_EPOCH_DURING_DELETE = -2


class StopReplica(Struct, frozen=True, kw_only=True):
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopPartition, ...]
    number: int = 0
    store_id: str = ""


class StopReplicaResponse(Struct, frozen=True, kw_only=True):
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)


class AlterIsr(Struct, frozen=True, kw_only=True):
    """An ISR change that a leader writes to its partition's node, if the node has not changed since it was read."""

    name: TopicPartition
    topic_id: UUID
    """A newer topic of the name may have a node of the same version."""
    leader: int
    leader_epoch: int
    controller_epoch: int
    """Epoch of the controller that made it the leader; the node keeps it."""
    isr: tuple[int, ...]
    partition_epoch: int
    """The version that the node must have."""
    joining: Mapping[int, int] = field(default_factory=dict)
    """Brokers that join the ISR, each with its broker epoch when it reached the log's end. The change is refused if a
    broker has another epoch now: a restarted broker must catch up again."""


class AlterIsrResult(Struct, frozen=True, kw_only=True):
    """The node's content after an AlterIsr: the requested ISR, or the one that a controller wrote meanwhile with the
    same leader and leader epoch."""

    isr: tuple[int, ...]
    partition_epoch: int


class FetchPartition(Struct, frozen=True, kw_only=True):
    """A follower's fetch of one partition. `fetch_offset` is its log end offset."""

    name: TopicPartition
    topic_id: UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int | None
    """Leader epoch of the follower's last record; None: its log is empty."""
    log_start_offset: int


class ReplicaFetch(Struct, frozen=True, kw_only=True):
    """A follower's fetch. `partitions` and `forgotten` change the fetch session (broker/fetch_sessions.py)."""

    replica_id: int
    broker_epoch: int
    """The follower's own: fetches from before its restart do not count (KIP-903)."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[FetchPartition, ...] = ()


class FetchedPartition(Struct, frozen=True, kw_only=True):
    """Response for one partition: whole batches from one of the leader's segments."""

    name: TopicPartition
    error: KafkaError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    records: bytes | memoryview = b""
    segment_base_offset: int = -1
    """Base offset of the leader's segment with the records: the follower rolls where the leader did."""
    diverging: EpochEnd | None = None
    """Set if the follower's log diverges from the leader's: the follower truncates and fetches again."""
    leader_epoch: int = -1
    generation: int = NO_GENERATION
    """Changes when closed segments of the leader were replaced; the follower then compares its own."""


class ReplicaFetchResponse(Struct, frozen=True, kw_only=True):
    session_id: int
    partitions: tuple[FetchedPartition, ...]


class DescribeFiles(Struct, frozen=True, kw_only=True):
    """Request for the leader's closed segments from the offset `since` on."""

    name: TopicPartition
    topic_id: UUID
    replica_id: int
    leader_epoch: int
    since: int
    wants_sums: bool
    """Ask for checksums even if the leader would leave them out."""


class SnapshotFile(Struct, frozen=True, kw_only=True):
    """A snapshot beside the segments (log/offset_snapshots/snapshot.py)."""

    end_offset: int
    leader_epoch: int
    size_bytes: int
    """Size of its record batches."""


class DescribeFilesResponse(Struct, frozen=True, kw_only=True):
    generation: int
    segments: tuple[SegmentSum, ...]
    """Closed segments below the high watermark, oldest first; possibly not all of them."""
    closed_to: int
    """Base offset of the active segment."""
    cleaned_offset: int
    """End of the offsets that are known to be compacted."""
    is_summed: bool
    """Whether the segments have checksums; the leader may omit them only if its log never had a replacement."""
    snapshot: SnapshotFile | None = None
    """The newest snapshot, if any."""


class ReadReplicaFile(Struct, frozen=True, kw_only=True):
    """Request for a piece of a leader's file.

    The file is the segment with base offset `offset`, if it still has `identity`; or, with `snapshot_epoch`, the record
    batches of the snapshot that ends at `offset`, if the record before `offset` has that leader epoch.
    """

    name: TopicPartition
    topic_id: UUID
    replica_id: int
    leader_epoch: int
    offset: int
    identity: str = ""
    snapshot_epoch: int | None = None
    """None: the segment."""
    position: int


class ReadReplicaFileResponse(Struct, frozen=True, kw_only=True):
    data: bytes
    """Empty while the throttle forbids sending."""


class Position(Struct, frozen=True, kw_only=True):
    """An offset in a partition that a group has committed."""

    name: TopicPartition
    offset: int


class DescribePositions(Struct, frozen=True, kw_only=True):
    """Group coordinator → leader."""

    positions: tuple[Position, ...]


class DescribedPosition(Struct, frozen=True, kw_only=True):
    """The progress of a partition since a position."""

    high_watermark: int | None = None
    """None: unknown on this broker."""
    timestamp_ms: int | None = None
    """The timestamp of the batch with the first committed record from the position on; None if there is none."""


class DescribePositionsResponse(Struct, frozen=True, kw_only=True):
    """The response to DescribePositions, in the request's order."""

    positions: tuple[DescribedPosition, ...]
