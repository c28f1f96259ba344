"""What controller, leaders and followers say to one another about partitions (gRPC service Replication).

    LeaderAndIsr   controller → broker   these partitions are yours, and this is who leads them
    StopReplica    controller → broker   follow or lead these no more; delete their logs, where it says so
    ReplicaFetch   follower → leader     records from the follower's log end on; and how far the follower is
    DescribeFiles  follower → leader     the closed segments, by which the follower compares its own
    ReadFile       follower → leader     a piece of one of them, where they differ
    AlterIsr       leader → store        the in-sync replicas as they are to be from now on, by compare and set

The controller's requests carry its epoch: one older than the last that was seen is refused with
STALE_CONTROLLER_EPOCH. They carry the epoch of the broker that they are for (`Node.created` of its node in the store):
one that is not the receiver's is refused with STALE_BROKER_EPOCH, as it was meant for the broker before its restart.
They are numbered: a request that was sent again, and whose first copy comes after a later one, changes nothing by that.
Each partition carries its leader epoch: an older one than the receiver knows gets FENCED_LEADER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.log.description import SegmentSum
from sparklog.log.epochs import EpochEnd

NO_LEADER = -1
NO_BROKER_EPOCH = -1
NO_GENERATION = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as the cluster store has it (LeaderAndIsrPartitionState)."""

    name: TopicPartition
    topic_id: UUID
    leader: int
    """NO_LEADER: nobody leads; who has a replica waits."""
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    partition_epoch: int
    """The version of the partition's node in the store: what a leader that changes the ISR must compare with."""
    is_new: bool = False
    """No replica of it can have records yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsr:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[PartitionState, ...]
    overrides: Mapping[str, Mapping[str, str]]
    """The configuration of each of the topics, as far as it is its own."""
    number: int = 0
    """Grows with each request of a controller's to a broker: a copy that comes late is older than what was seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderAndIsrResponse:
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopPartition:
    name: TopicPartition
    leader_epoch: int
    """LEADER_EPOCH_DURING_DELETE: the topic is being deleted, whatever epoch the broker knows."""
    delete: bool = False


LEADER_EPOCH_DURING_DELETE = -2


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplica:
    controller_id: int
    controller_epoch: int
    broker_epoch: int
    partitions: tuple[StopPartition, ...]
    number: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplicaResponse:
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterIsr:
    """What a leader wants its partition's node to say, if that is still what the leader last knew of it."""

    name: TopicPartition
    leader: int
    leader_epoch: int
    controller_epoch: int
    """Of the controller that made it the leader: stays in the node."""
    isr: tuple[int, ...]
    partition_epoch: int
    """The version that the node must have."""
    joining: Mapping[int, int] = field(default_factory=dict)
    """The brokers that come into the ISR, with the epoch that each had when it was seen at the log's end: the broker
    must still be in that life."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IsrAltered:
    """What the node says now: what was asked for; or, where a controller has written it meanwhile and left the leader
    and its epoch, what that one wrote."""

    isr: tuple[int, ...]
    partition_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchPartition:
    """What a follower asks of one partition. `fetch_offset` is its log end offset."""

    name: TopicPartition
    topic_id: UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int
    last_fetched_epoch: int | None
    """The leader epoch of its last record; None: its log is empty."""
    log_start_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetch:
    """`partitions` and `forgotten` change what the session reads, as in broker/fetch_sessions.py."""

    replica_id: int
    broker_epoch: int
    """Of the follower: what its life before a restart has fetched does not count (KIP-903)."""
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    session_id: int
    session_epoch: int
    partitions: tuple[FetchPartition, ...]
    forgotten: tuple[FetchPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedPartition:
    """Whole batches of one of the leader's segments."""

    name: TopicPartition
    error: KafkaError | None = None
    high_watermark: int = -1
    log_start_offset: int = -1
    records: bytes | memoryview = b""
    segment_base_offset: int = -1
    """Of the leader's segment that the records are in: the follower rolls where the leader has."""
    diverging: EpochEnd | None = None
    """Where the follower's log departs from the leader's: it truncates and asks again."""
    leader_epoch: int = -1
    generation: int = NO_GENERATION
    """Another one where closed segments of the leader's have been replaced since the follower has compared its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchResponse:
    session_id: int
    partitions: tuple[FetchedPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeFiles:
    """What the leader's log consists of, from the offset `since` on."""

    name: TopicPartition
    topic_id: UUID
    replica_id: int
    leader_epoch: int
    since: int
    wants_sums: bool
    """With checksums, also where the leader would leave them out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotFile:
    """A snapshot beside the segments (log/offset_snapshot.py)."""

    end_offset: int
    leader_epoch: int
    size_bytes: int
    """Of its record batches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesDescribed:
    generation: int
    segments: tuple[SegmentSum, ...]
    """Closed ones below the high watermark, oldest first; maybe not all."""
    closed_to: int
    """Where the segment begins that is written."""
    cleaned_offset: int
    """What has been said to be compacted ends there."""
    is_summed: bool
    """Whether the segments have checksums: nothing was ever replaced in a log that goes without."""
    snapshot: SnapshotFile | None = None
    """The newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A piece of a file of the leader's: of the segment that begins at `offset` and has that identity still; or, of the
    snapshot that ends there, if its record before has `snapshot_epoch`, from the record batches."""

    name: TopicPartition
    topic_id: UUID
    replica_id: int
    leader_epoch: int
    offset: int
    identity: str = ""
    snapshot_epoch: int | None = None
    """None: the segment."""
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRead:
    data: bytes
    """Empty where nothing may be sent for now."""
