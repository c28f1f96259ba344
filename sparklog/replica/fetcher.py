"""Copies partitions from one leader: fetch, wait, append, fetch again.

    fetch      from the end of each log on, in one long poll for all partitions (replica/fetch_requests.py). The fetch
               offset also reports the follower's log end, so the next fetch follows once the records are written
    records    appended as they are: offsets, leader epochs and segments are the leader's, so the files become equal
    diverging  the log is truncated (replica/divergence.py), and the next fetch starts at its new end
    OFFSET_OUT_OF_RANGE   the leader no longer has the log's next record, or the log is empty and ends beyond the
               leader's: the log is emptied, and begins at the leader's oldest segment
    any other error       the partition pauses: leader or follower has not learned of a leader change yet, or the data
               is damaged. Nothing is written, and the partition is fetched again
    no response           all partitions pause. Pauses grow up to replica.fetch.backoff.ms

Every response also sets the high watermark and the log start offset to the leader's, up to the log's end. Closed
segments that the leader has replaced are synced beside fetching (replica/segment_sync.py).

Adding a partition cancels the waiting poll, so that the partition is fetched at once: the acknowledgement of a new
topic's first record waits for it. The next poll is short and not cancelled. Otherwise partitions that are added one
after the other would keep the others from being copied.

Steps that may wait for a disk (truncating, rolling, flushing) run in a thread, as the partition's `work`. Removing the
partition waits for that work, and no later step follows. Appends run on the event loop, like those of producers.

A broker may follow ten thousand partitions, of which few change at a time. So a fetch looks only at those partitions
whose part of the request may have changed since the last request:

    added, removed
    answered             the response may have changed the log
    not fetched          the partition is busy, pauses, or is held back by the throttle, and may be fetched at any time
    behind its leader    or its lag is not known: the throttle may hold it back at any time
    all of them          if a session begins, the broker has got or lost a replica, a log has changed other than by
                         append (retention of a former leader may end late), or `LOOK_AT_ALL_S` have passed
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct, structs

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    FetchSessionIdNotFound,
    FetchSessionTopicIdError,
    InvalidFetchSessionEpoch,
    KafkaError,
    OffsetOutOfRange,
    UnexpectedGap,
)
from sparklog.base.ids import TopicPartition
from sparklog.log.epochs import NO_EPOCH, EpochEnd
from sparklog.log.log import Log
from sparklog.records.batch import check_batch
from sparklog.replica.divergence import where_to_cut
from sparklog.replica.fetch_requests import FetchSessionHandler
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import FetchedPartition, FetchPartition, ReplicaFetch, ReplicaFetchResponse
from sparklog.replica.segment_sync import Ask, SegmentSync
from sparklog.replica.state_changes import InitialFetchState
from sparklog.replica.throttle import ReplicationThrottle, is_listed

FIRST_PAUSE_MS = 50
LOOK_AT_ALL_S = 10
"""After this time a fetch looks at all partitions, in case one has changed in a way that is not noticed."""
SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)
logger = logging.getLogger(__name__)


class PartitionFetchState:
    """One partition that this broker copies, and the state of its copying."""

    __slots__ = ("failures", "lag", "name", "place", "retry_at", "segment_sync", "state", "work")

    def __init__(self, name: TopicPartition, state: InitialFetchState, segment_sync: SegmentSync) -> None:
        self.name = name
        self.state = state
        self.place = 0
        """The fetcher's partitions are in the order of their places: that in which they were added."""
        self.failures = 0
        self.retry_at = 0.0
        """Time of the next fetch after a pause, in seconds on the event loop's clock."""
        self.lag: int | None = None
        """Offsets by which the log is behind the leader's high watermark; None: not known."""
        self.work: asyncio.Task[None] | None = None
        self.segment_sync = segment_sync

    @property
    def is_busy(self) -> bool:
        """Whether work that waits for a disk is running; until its end, the partition is not fetched."""
        return self.work is not None and not self.work.done()


class BlockingStep(NamedTuple):
    """Work that waits for a disk, and the rest of the leader's response to handle after it, if any."""

    work: Callable[[], None]
    then: FetchedPartition | None = None


class FetcherContext(Struct, frozen=True, kw_only=True):
    """Dependencies shared by all fetchers of a broker."""

    replicas: ReplicaManager
    config: BrokerConfig
    ask: Ask
    throttle: ReplicationThrottle
    broker_epoch: Callable[[], int]
    """Returns this broker's own epoch."""
    log_changes: Callable[[], int] = lambda: 0
    """Returns another number after a change of the broker's logs other than by append, such as a log start."""


class LeaderFetcher:
    """Copies partitions from the broker `leader`, in a task of its own from `start` on. Used on the event loop."""

    def __init__(self, leader: int, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self._replicas = context.replicas
        self._parts: dict[TopicPartition, PartitionFetchState] = {}
        self._places = itertools.count()
        self._session = FetchSessionHandler()
        self._unsettled: set[TopicPartition] = set()
        """The partitions to look at before the next request."""
        self._log_changes = (0, 0)
        """The generation of the replicas and `log_changes`, when this fetcher last looked at all partitions."""
        self._look_at_all_at = 0.0
        self._failures = 0
        self._woken = asyncio.Event()
        self._poll: asyncio.Future[ReplicaFetchResponse] | None = None
        self._may_cancel_poll = True
        """Whether `add` may cancel the poll: never two polls in a row."""
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._parts)

    def start(self) -> None:
        """Fetch until `stop`."""
        self._task = asyncio.create_task(self._run(), name=f"copying from broker {self.leader}")

    def add(self, part: PartitionFetchState) -> None:
        """Begin to copy a partition. The waiting poll is cancelled for it, but never two polls in a row."""
        part.place = next(self._places)
        self._parts[part.name] = part
        self._unsettled.add(part.name)
        self._woken.set()
        if self._poll and self._may_cancel_poll:
            self._may_cancel_poll = False
            self._poll.cancel()

    def remove(self, name: TopicPartition) -> None:
        """Stop copying a partition. Its `work` may still be running: the caller waits for it."""
        if self._parts.pop(name, None):
            self._unsettled.add(name)

    def stop(self) -> asyncio.Task[None]:
        """Stop fetching; return the task, which is about to end. `start` must have been called."""
        assert self._task
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._fetch_once()
            except Exception as error:  # noqa: BLE001 - nothing else would restart copying
                self._session.reset()
                await self._pause_all(error)

    async def _fetch_once(self) -> None:
        now = asyncio.get_running_loop().time()
        self._update_session(now)
        if len(self._session):
            if (response := await self._fetch()) is not None:
                await self._handle_response(response)
        else:
            await self._wait(now)

    # Fetching

    def _update_session(self, now: float) -> None:
        """Let the session have the partitions that can be fetched now."""
        names = self._unsettled
        if self._must_look_at_all(now):
            names = names.union(self._parts)
        self._unsettled = set()
        parts = []
        for name in names:
            if part := self._parts.get(name):
                parts.append(part)
            else:
                self._session.drop(name)
        for part in sorted(parts, key=attrgetter("place")):
            self._look_at(part, now)

    def _must_look_at_all(self, now: float) -> bool:
        log_changes = (self._replicas.generation, self._context.log_changes())
        if not self._session.is_new and log_changes == self._log_changes and now < self._look_at_all_at:
            return False
        self._log_changes, self._look_at_all_at = log_changes, now + LOOK_AT_ALL_S
        return True

    def _look_at(self, part: PartitionFetchState, now: float) -> None:
        replica = self._replicas.find(part.name)
        if replica is None:  # its disk has failed
            del self._parts[part.name]
            self._session.drop(part.name)
            part.segment_sync.end()
        elif part.is_busy or part.retry_at > now or self._is_held_back(part, replica, now):
            self._session.drop(part.name)
            self._unsettled.add(part.name)
        else:
            self._session.want(part.place, self._partition_request(part, replica.log))
            if part.lag != 0:
                self._unsettled.add(part.name)

    def _partition_request(self, part: PartitionFetchState, log: Log) -> FetchPartition:
        return FetchPartition(
            name=part.name,
            topic_id=part.state.topic_id,
            fetch_offset=log.log_end_offset,
            max_bytes=self._context.config.replica_fetch_max_bytes,
            current_leader_epoch=part.state.leader_epoch,
            last_fetched_epoch=None if log.latest_epoch == NO_EPOCH else log.latest_epoch,
            log_start_offset=log.log_start_offset,
        )

    def _is_held_back(self, part: PartitionFetchState, replica: Replica, now: float) -> bool:
        if not self._is_throttled(part, replica):
            return False
        if pause := self._context.throttle.pause(now):
            part.retry_at = now + pause
        return pause > 0

    def _is_throttled(self, part: PartitionFetchState, replica: Replica) -> bool:
        listed = replica.config.follower_replication_throttled_replicas
        return part.lag != 0 and is_listed(listed, part.name.partition, self._context.config.broker_id)

    async def _wait(self, now: float) -> None:
        """Wait until a partition is added or the first pause ends.

        now: as given to `_update_session`: a pause that has ended since then still ends the wait.
        """
        due = min((part.retry_at for part in self._parts.values() if part.retry_at > now), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._woken.wait()

    async def _fetch(self) -> ReplicaFetchResponse | None:
        """Return the leader's response. After an error, pause and return None."""
        poll = self._poll = asyncio.ensure_future(self._context.ask(self.leader, self._request()))
        try:
            await asyncio.wait([poll])
        finally:
            self._poll = None
            poll.cancel()  # no effect once it is done
        self._may_cancel_poll = not poll.cancelled()
        if not poll.cancelled() and poll.exception() is None:
            self._failures = 0
            response = poll.result()
            self._session.handle_response(response.session_id)
            return response
        self._session.reset()
        if not poll.cancelled() and not isinstance(error := poll.exception(), SESSION_ERRORS):
            await self._pause_all(error)
        return None

    def _request(self) -> ReplicaFetch:
        config = self._context.config
        changes = self._session.next_request()
        wait_ms = config.replica_fetch_wait_max_ms
        return ReplicaFetch(
            replica_id=config.broker_id,
            broker_epoch=self._context.broker_epoch(),
            max_wait_ms=wait_ms if self._may_cancel_poll else min(wait_ms, FIRST_PAUSE_MS),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=changes.session_id,
            session_epoch=changes.session_epoch,
            partitions=changes.partitions,
            forgotten=changes.forgotten,
        )

    async def _pause_all(self, error: BaseException | None) -> None:
        self._failures += 1
        is_expected = isinstance(error, KafkaError)
        if self._failures == 1 or not is_expected:
            text = "broker %d could not be asked for %d partitions: %s"
            logger.warning(text, self.leader, len(self._parts), error, exc_info=None if is_expected else error)
        await asyncio.sleep(self._pause_ms(self._failures) / 1000)

    def _pause_ms(self, failures: int) -> int:
        return min(self._context.config.replica_fetch_backoff_ms, FIRST_PAUSE_MS << min(failures - 1, 16))

    # Writing

    async def _handle_response(self, response: ReplicaFetchResponse) -> None:
        self._unsettled.update(fetched.name for fetched in response.partitions)
        for fetched in response.partitions:
            part, replica, request = (
                self._parts.get(fetched.name),
                self._replicas.find(fetched.name),
                self._session.find(fetched.name),
            )
            if part is None or replica is None or request is None or not self._matches_request(part, replica, request):
                continue
            if self._is_throttled(part, replica):
                self._context.throttle.sent(len(fetched.records), asyncio.get_running_loop().time())
            try:
                work = self._handle_partition(part, replica, fetched)
            except Exception as error:  # noqa: BLE001 - the error of one partition: copying the others continues
                self._pause_partition(part, error)
                continue
            if work:
                part.work = asyncio.create_task(self._run_work(part, work))
                await asyncio.shield(part.work)
            if not (fetched.error or fetched.diverging):
                part.segment_sync.update(replica, fetched.generation, fetched.segment_base_offset)

    def _matches_request(self, part: PartitionFetchState, replica: Replica, request: FetchPartition) -> bool:
        """Return whether the request still fits the log: leader, topic or log end may have changed meanwhile."""
        return (part.state.topic_id, part.state.leader_epoch, replica.log.log_end_offset) == (
            request.topic_id,
            request.current_leader_epoch,
            request.fetch_offset,
        )

    def _handle_partition(
        self, part: PartitionFetchState, replica: Replica, fetched: FetchedPartition
    ) -> Coroutine[None, None, None] | None:
        """Handle a partition's response as far as possible at once; return the work that waits for a disk, if any."""
        if isinstance(fetched.error, OffsetOutOfRange):
            return self._start_again(replica, fetched)
        if fetched.error:
            raise fetched.error
        if fetched.diverging:
            return self._truncate(replica, fetched.diverging)
        if step := self._append(replica, fetched):
            return self._append_after(part, replica, step, fetched.high_watermark)
        self._note_progress(part, replica, fetched.high_watermark)
        return None

    async def _run_work(self, part: PartitionFetchState, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in `_handle_response`
            self._pause_partition(part, error)

    def _append(self, replica: Replica, fetched: FetchedPartition) -> BlockingStep | None:
        """Append the records. Return the step that must run before that, or the flush that follows, if any."""
        log, must_flush = replica.log, False
        if fetched.segment_base_offset >= 0 and not log.as_follower.is_at_segment(fetched.segment_base_offset):
            return BlockingStep(partial(log.as_follower.follow_segment, fetched.segment_base_offset), fetched)
        if fetched.records:
            if (begin := _truncation_before(replica, fetched.records)) is not None:
                logger.warning("%r is cut to %d: there the leader has a batch that goes beyond its end", log, begin)
                return BlockingStep(partial(log.truncate_to, begin), fetched)
            try:
                must_flush = log.as_follower.append(fetched.records, rolls=False, takes_gaps=False).must_flush
            except UnexpectedGap:
                return BlockingStep(
                    partial(log.as_follower.append_with_gaps, fetched.records), structs.replace(fetched, records=b"")
                )
        self._replicas.followed(replica, fetched.high_watermark)
        if (start := min(fetched.log_start_offset, log.log_end_offset)) > log.log_start_offset:
            log.advance_log_start(start)
        return BlockingStep(log.flush) if must_flush else None

    async def _append_after(
        self, part: PartitionFetchState, replica: Replica, first: BlockingStep, high_watermark: int
    ) -> None:
        step: BlockingStep | None = first
        while step:
            await asyncio.to_thread(step.work)
            if step.then is None:
                break
            self._replicas.truncated(replica)  # the step may have truncated the log
            if self._parts.get(part.name) is not part:
                return
            step = self._append(replica, step.then)
        self._note_progress(part, replica, high_watermark)

    def _note_progress(self, part: PartitionFetchState, replica: Replica, high_watermark: int) -> None:
        part.failures, part.lag = 0, max(0, high_watermark - replica.log.log_end_offset)

    async def _truncate(self, replica: Replica, leader: EpochEnd) -> None:
        log, committed = replica.log, replica.partition.high_watermark
        offset = where_to_cut(log.stored_epochs, log.log_end_offset, leader)
        if offset >= log.log_end_offset:  # its epochs do not show where it diverges
            offset = log.first_base_offset
        logger.info("%r is cut to %d: the leader's epoch %d ends at %d", log, offset, *leader)
        if offset < committed:
            logger.warning(
                "%r loses committed records from %d to %d: its leader has not got them", log, offset, committed
            )
        await asyncio.to_thread(log.truncate_to, offset)
        self._replicas.truncated(replica)

    async def _start_again(self, replica: Replica, fetched: FetchedPartition) -> None:
        log = replica.log
        logger.warning("%r begins anew at %d: %s", log, fetched.segment_base_offset, fetched.error)
        await asyncio.to_thread(log.truncate_fully_and_start_at, fetched.segment_base_offset)
        self._replicas.truncated(replica)

    def _pause_partition(self, part: PartitionFetchState, error: Exception) -> None:
        """Pause the partition after an error."""
        part.failures += 1
        part.retry_at = asyncio.get_running_loop().time() + self._pause_ms(part.failures) / 1000
        if not isinstance(error, KafkaError):
            logger.error("%s could not be copied", part.name, exc_info=error)
        elif part.failures == 1:
            logger.info("%s: from broker %d: %s %s", part.name, self.leader, error.name, error)


def _truncation_before(replica: Replica, records: bytes | memoryview) -> int | None:
    """Return the first batch's base offset if the log ends within that batch and may be truncated to it, else None.

    Logs that agree never end within a batch: a truncation by leader epochs has ended this log inside a batch of the
    leader. A log with committed records from that offset on is not truncated: more likely the received batch is
    damaged. Raises CorruptRecord if the batch is damaged.
    """
    log = replica.log
    if int.from_bytes(records[:8], "big", signed=True) >= log.log_end_offset:
        return None
    header = check_batch(records, 0)
    is_empty = log.first_base_offset == log.log_end_offset
    may_be_cut = is_empty or header.base_offset >= replica.partition.high_watermark
    return header.base_offset if may_be_cut and header.last_offset >= log.log_end_offset else None
