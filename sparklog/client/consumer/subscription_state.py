"""The positions of a consumer in its partitions, and its queued records: fetched, but not yet returned.

    position     offset of the next record to return; None until it is looked up as `reset` says, at first as the
                 group's committed offset if there is a group
    chunks       fetched batches, oldest first; the first may begin before `position`
    fetch_from   offset of the next fetch: after the last chunk
    last_epoch   leader epoch of the last record before `fetch_from`, as fetched or committed; -1: not known
    begin_epoch  the same for `position`, if there is no chunk
    topic_id     id of the topic to which all of this belongs, from the first fetch on; void once the topic is recreated
    generation   number of changes of the position; an answer to a fetch of an earlier generation is ignored

Pure, except for the lock that callers hold (`SubscriptionState.lock`): the fetcher adds chunks on its event loop while
`poll` takes them in the user's thread.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple

from sparklog.base.errors import InvalidRequest, KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.client.offsets import OffsetSpec
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.records.arrow import decode
from sparklog.records.batch import last_leader_epoch

COMMITTED: Literal["committed"] = "committed"
Reset = OffsetSpec | Literal["committed"] | None
"""Lookup of a position. None: as auto_offset_reset says, which also applies without a committed offset."""


class FetchPosition(NamedTuple):
    """Position to read from.

    leader_epoch: epoch of the last record before the position, or of a record fetched with it; -1: not known. With it
    the leader detects truncation (KIP-320). topic_id: id of the position's topic (KIP-516); empty: not
    known.
    """

    offset: int
    leader_epoch: int = -1
    topic_id: str = ""


class Chunk(NamedTuple):
    """Batches of one partition from one fetch; the next fetch begins at `next_offset`."""

    data: bytes
    next_offset: int
    last_epoch: int
    """Leader epoch of the last record, or of the record before an empty chunk."""
    aborted: AbortedRanges
    """Transactions whose batches are not returned."""


class TopicPartitionState:
    """One assigned partition. Fields are public for reading; only methods change them."""

    __slots__ = (
        "begin_epoch",
        "chunks",
        "doubted_by",
        "error",
        "failures",
        "fetch_from",
        "fetching",
        "generation",
        "high_watermark",
        "last_epoch",
        "partition",
        "paused",
        "position",
        "queued_bytes",
        "read_replica",
        "read_replica_until_ms",
        "reset",
        "retry_at_ms",
        "rows",
        "topic_id",
    )

    def __init__(self, partition: TopicPartition, reset: Reset = None) -> None:
        self.partition = partition
        self.position: int | None = None
        self.reset = reset
        self.paused = False
        self.topic_id = ""
        self.doubted_by = ""
        """Id of another topic that the name had at the last refused fetch; empty: fetches have not been refused."""
        self.high_watermark = -1
        self.read_replica = -1
        """Replica that the leader has named for reading, until `read_replica_until_ms`; -1: the leader."""
        self.read_replica_until_ms = 0
        self.generation = 0
        self.fetching = False
        self.failures = 0
        self.retry_at_ms = 0
        self._forget()

    def _forget(self) -> None:
        self.chunks: deque[Chunk] = deque()
        self.rows: Any = None  # the first chunk's records from `position` on, decoded
        self.queued_bytes = 0
        self.fetch_from = -1
        self.begin_epoch = self.last_epoch = -1
        self.error: KafkaError | None = None
        self.generation += 1

    def begin_at(self, offset: int, leader_epoch: int = -1, topic_id: str = "") -> None:
        """Set the position to `offset` of the topic with that id; empty: of any topic with the name."""
        self.move_to(offset, leader_epoch)
        self.topic_id, self.doubted_by = topic_id, ""

    def move_to(self, offset: int, leader_epoch: int = -1) -> None:
        """Set the position to `offset` of the same topic."""
        self._forget()
        self.position = self.fetch_from = offset
        self.begin_epoch = self.last_epoch = leader_epoch

    def begin_fetch(self) -> None:
        """Note that a request for the partition is under way, so that no other one begins."""
        self.fetching = True

    def end_fetch(self) -> None:
        """Note that the request has ended."""
        self.fetching = False

    def note_answer(self, high_watermark: int) -> None:
        """Note that a fetch succeeded, and reset the count of failures."""
        self.failures = 0
        self.doubted_by = ""
        self.high_watermark = high_watermark

    def note_failure(self) -> int:
        """Note that a request failed; return how many have failed in a row."""
        self.failures += 1
        return self.failures

    def doubt_topic(self, other_id: str) -> bool:
        """Note that a fetch was refused, as the name is that of another topic; return whether the last one was, too."""
        before, self.doubted_by = self.doubted_by, other_id
        return before == other_id

    def wait_until(self, retry_at_ms: int) -> None:
        """Begin no request before `retry_at_ms` (monotonic ms)."""
        self.retry_at_ms = retry_at_ms

    def retry_at_once(self) -> None:
        """End a pause after a failure."""
        self.retry_at_ms = 0

    def block(self, error: KafkaError) -> None:
        """Begin no request until `take_error` has returned `error` to `poll`, or the position is changed."""
        self.error = error

    def take_error(self) -> KafkaError | None:
        """Return the error that blocks the partition, if any, and end the block."""
        error, self.error = self.error, None
        return error

    def set_paused(self, *, paused: bool) -> None:
        """Set whether `poll` returns no records of the partition."""
        self.paused = paused

    def read_from(self, broker_id: int, until_ms: int) -> None:
        """Fetch from this replica instead of the leader, until `until_ms` (monotonic ms)."""
        self.read_replica, self.read_replica_until_ms = broker_id, until_ms

    def read_from_leader(self) -> bool:
        """Fetch from the leader again; return whether another replica was used before."""
        was_nearer, self.read_replica = self.read_replica >= 0, -1
        return was_nearer

    def bind(self, topic_id: str) -> None:
        """Set the id of the topic to which the position belongs, unless it is known already."""
        self.topic_id = self.topic_id or topic_id

    def go_back_to(self, offset: int) -> None:
        """Set the position back to `offset`, to return records again that were taken."""
        self.move_to(offset, self.epoch_before)

    def drop_ahead(self) -> None:
        """Drop the queued records and fetch from `position` on again; keep `last_epoch`."""
        assert self.position is not None
        begin_epoch, last_epoch = self.begin_epoch, self.last_epoch
        self.move_to(self.position, begin_epoch)
        self.last_epoch = last_epoch

    @property
    def epoch_before(self) -> int:
        """Leader epoch of the last record before `position`, or of a record fetched with it; -1: not known."""
        return self.chunks[0].last_epoch if self.chunks else self.begin_epoch

    def look_up(self, reset: Reset) -> None:
        """Clear the position, to be looked up as `reset` says."""
        self._forget()
        self.position = None
        self.topic_id = ""
        self.reset = reset

    def add(self, data: bytes, next_offset: int, aborted: AbortedRanges = NONE_ABORTED) -> None:
        """Queue batches fetched from `fetch_from` up to `next_offset`; records of `aborted` are not returned."""
        self.fetch_from = next_offset
        if data:
            self.last_epoch = last_leader_epoch(data)
        self.chunks.append(Chunk(data, next_offset, self.last_epoch, aborted))
        self.queued_bytes += len(data)

    def take(self, most: int, *, check_crc: bool) -> Any | None:
        """Return up to `most` records from the position on, as a pa.RecordBatch; None if there is none.

        Moves the position after them. A chunk is decoded once, for its first record, and dropped after its last.
        Raises CorruptRecord, without a change of the position, if a chunk cannot be decoded.
        """
        while self.chunks:
            if self.rows is None:
                assert self.position is not None
                data, aborted = self.chunks[0].data, self.chunks[0].aborted
                self.rows = decode(data, offset_from=self.position, check_crc=check_crc, aborted=aborted)
                self.queued_bytes -= len(data)  # makes room for the next fetch
            if self.rows.num_rows == 0:
                self._drop_chunk()
                continue
            rows, self.rows = self.rows.slice(0, most), self.rows.slice(most)
            if self.rows.num_rows == 0:
                self._drop_chunk()
            else:
                self.position = rows.column("offset")[-1].as_py() + 1
            return rows
        return None

    def _drop_chunk(self) -> None:
        """Drop the first chunk: all its records have been returned."""
        chunk = self.chunks.popleft()
        self.rows = None
        self.position, self.begin_epoch = chunk.next_offset, chunk.last_epoch


class SubscriptionState:
    """The partitions that a consumer reads, in the order in which it takes records from them."""

    def __init__(self, begin: Reset = None) -> None:
        """`begin` is the lookup for the position of a new partition."""
        self._begin = begin
        self.from_group = False
        """Whether a group assigns the partitions, and revokes those of deleted topics."""
        self.unread: deque[Any] = deque()
        """Records that an iteration has polled and not yet yielded."""
        self.lock = threading.Lock()
        self._states: dict[TopicPartition, TopicPartitionState] = {}

    def __iter__(self) -> Iterator[TopicPartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def set_from_group(self, from_group: bool) -> None:
        """Set whether a group assigns the partitions."""
        self.from_group = from_group

    def state(self, partition: TopicPartition) -> TopicPartitionState:
        """Return the state of an assigned partition; raises InvalidRequest for any other."""
        found = self._states.get(partition)
        if found is None:
            raise InvalidRequest(f"partition {partition} is not assigned to this consumer")
        return found

    def chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartitionState]:
        """Return the states of these assigned partitions, or of all if there are none."""
        return [self.state(partition) for partition in partitions] or list(self)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others; partitions that were assigned before keep their positions."""
        before = self._states
        self._states = {
            partition: before.get(partition) or TopicPartitionState(partition, self._begin) for partition in partitions
        }
        for partition, state in before.items():
            if partition not in self._states:
                state.look_up(None)  # outdates its requests under way

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions, sorted; takes the lock."""
        with self.lock:
            return sorted(self._states)

    def held(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, TopicPartitionState]:
        """Return the states of the assigned ones; takes the lock. A partition assigned again has a new state."""
        with self.lock:
            return {partition: self._states[partition] for partition in partitions if partition in self._states}

    def positions(self) -> dict[TopicPartition, FetchPosition]:
        """Return the known positions, before records that an iteration has left unread; takes the lock."""
        unread = self._first_unread()
        with self.lock:
            return {
                state.partition: FetchPosition(
                    unread.get(state.partition, state.position), state.epoch_before, state.topic_id
                )
                for state in self
                if state.position is not None
            }

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, str]:
        """Return the known ids of the assigned partitions' topics; takes the lock."""
        return {item: state.topic_id for item, state in self.held(partitions).items() if state.topic_id}

    def put_back(self) -> None:
        """Set positions back before the records that an iteration has left unread; with the lock held."""
        for partition, offset in self._first_unread().items():
            if partition in self._states:
                self._states[partition].go_back_to(offset)
        self.unread.clear()

    def drop_unread(self, states: Iterable[TopicPartitionState]) -> None:
        """Drop the unread records of these partitions, whose positions change."""
        moved = {state.partition for state in states}
        kept = [item for item in self.unread if TopicPartition(item.topic, item.partition) not in moved]
        self.unread.clear()
        self.unread.extend(kept)

    def _first_unread(self) -> dict[TopicPartition, int]:
        first: dict[TopicPartition, int] = {}
        for record in self.unread:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def is_current(self, state: TopicPartitionState, generation: int) -> bool:
        """Return whether the partition is still assigned, with an unchanged position since `generation`."""
        return self._states.get(state.partition) is state and state.generation == generation

    def to_the_end(self, state: TopicPartitionState) -> None:
        """Move this partition to the end of the order, after its turn."""
        self._states[state.partition] = self._states.pop(state.partition)

    def to_the_front(self, partitions: Iterable[TopicPartition]) -> None:
        """Move these partitions to the front of the order."""
        self._states = {partition: self._states[partition] for partition in partitions} | self._states

    @property
    def queued_bytes(self) -> int:
        """Bytes of fetched chunks that are not decoded yet."""
        return sum(state.queued_bytes for state in self._states.values())
