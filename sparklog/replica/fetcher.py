"""Copies partitions from one of their leaders: asks, waits, writes, asks again, on and on.

    ask        from the end of each log on, in one long poll for all partitions (replica/fetch_requests.py). That also
               tells the leader how far each log goes, so nothing is asked for before what came last is written
    records    appended as they are: offsets, leader epochs and segments are the leader's, so the files become equal
    diverging  the log is cut (replica/divergence.py), and the next request is from its new end
    OFFSET_OUT_OF_RANGE   what the log needs next is no longer there, or it is empty and the leader has less: it is
               emptied, and begins where the leader's oldest segment does
    any other error       the partition is left alone for a while: the leader does not know yet that it is one, or this
               broker does not know yet that it is one no longer. What a disk or the network has damaged is an error
               too: nothing of it is written, and it is fetched again
    no answer  all partitions are left alone for a while. Pauses grow up to replica.fetch.backoff.ms

With every answer the high watermark and the log start become the leader's, as far as the log goes. Where the leader has
replaced closed segments since, they are taken over beside that (replica/segment_sync.py).

A partition that comes gives up the poll that waits, so that it is asked for at once; who acknowledges a new topic's
first record waits for that. The next poll is not given up, but a short one: many that come one after the other would
else keep all the others from being copied.

What may wait for a disk (cutting, rolling, flushing) is done in a thread, as the partition's `work`: whoever takes the
partition away waits for that, and no later step is taken then. Appends stay on the event loop, as those of producers.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
from sparklog.replica.fetch_requests import FetchRequests
from sparklog.replica.following import FetchState
from sparklog.replica.manager import Replica, ReplicaManager
from sparklog.replica.messages import FetchedPartition, FetchPartition, ReplicaFetch, ReplicaFetchResponse
from sparklog.replica.segment_sync import Ask, SegmentSync
from sparklog.replica.throttle import Throttle, is_listed

FIRST_PAUSE_MS = 50
SESSION_ERRORS = (FetchSessionIdNotFound, InvalidFetchSessionEpoch, FetchSessionTopicIdError)
Wanted = dict[TopicPartition, FetchPartition]
logger = logging.getLogger(__name__)


class Followed:
    """One partition that is copied."""

    __slots__ = ("failures", "lag", "mirror", "name", "retry_at", "state", "work")

    def __init__(self, name: TopicPartition, state: FetchState, mirror: SegmentSync) -> None:
        self.name = name
        self.state = state
        self.failures = 0
        self.retry_at = 0.0
        """On the loop's clock."""
        self.lag: int | None = None
        """How far the log is behind the leader's high watermark; None: not known."""
        self.work: asyncio.Task[None] | None = None
        self.mirror = mirror

    @property
    def is_busy(self) -> bool:
        return self.work is not None and not self.work.done()


class Step(NamedTuple):
    """Work that waits for a disk, and what is left of the leader's answer after it."""

    work: Callable[[], None]
    then: FetchedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherContext:
    """What all fetchers of a broker work with."""

    replicas: ReplicaManager
    config: BrokerConfig
    ask: Ask
    throttle: Throttle


class LeaderFetcher:
    """Copies partitions from the broker `leader`, in a task of its own. Used on the event loop."""

    def __init__(self, leader: int, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self._replicas = context.replicas
        self._parts: dict[TopicPartition, Followed] = {}
        self._requests = FetchRequests()
        self._failures = 0
        self._woken = asyncio.Event()
        self._poll: asyncio.Future[ReplicaFetchResponse] | None = None
        self._may_give_up = True
        """The last poll has had its answer. Of two in a row one does, however fast partitions come."""
        self._task = asyncio.create_task(self._run(), name=f"copying from broker {leader}")

    def __len__(self) -> int:
        return len(self._parts)

    def add(self, part: Followed) -> None:
        self._parts[part.name] = part
        self._woken.set()
        if self._poll and self._may_give_up:
            self._may_give_up = False
            self._poll.cancel()

    def remove(self, name: TopicPartition) -> None:
        self._parts.pop(name, None)

    def stop(self) -> asyncio.Task[None]:
        """Ask no more; -> the task, which is about to end."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        while True:
            self._woken.clear()
            try:
                await self._ask_once()
            except Exception as error:  # noqa: BLE001 - nobody else would begin to copy again
                self._requests.begin_anew()
                await self._failed(error)

    async def _ask_once(self) -> None:
        if wanted := self._wanted():
            if (response := await self._ask(wanted)) is not None:
                await self._take(wanted, response)
        else:
            await self._wait()

    # Asking

    def _wanted(self) -> Wanted:
        now = asyncio.get_running_loop().time()
        wanted: Wanted = {}
        for part in tuple(self._parts.values()):
            replica = self._replicas.find(part.name)
            if replica is None:  # its disk has failed
                del self._parts[part.name]
                part.mirror.end()
            elif not part.is_busy and part.retry_at <= now and not self._is_held_back(part, replica, now):
                wanted[part.name] = self._want(part, replica.log)
        return wanted

    def _want(self, part: Followed, log: Log) -> FetchPartition:
        return FetchPartition(
            name=part.name,
            topic_id=part.state.topic_id,
            fetch_offset=log.log_end_offset,
            max_bytes=self._context.config.replica_fetch_max_bytes,
            current_leader_epoch=part.state.leader_epoch,
            last_fetched_epoch=None if log.latest_epoch == NO_EPOCH else log.latest_epoch,
            log_start_offset=log.log_start_offset,
        )

    def _is_held_back(self, part: Followed, replica: Replica, now: float) -> bool:
        if not self._is_throttled(part, replica):
            return False
        if pause := self._context.throttle.pause(now):
            part.retry_at = now + pause
        return pause > 0

    def _is_throttled(self, part: Followed, replica: Replica) -> bool:
        listed = replica.config.follower_replication_throttled_replicas
        return part.lag != 0 and is_listed(listed, part.name.partition, self._context.config.broker_id)

    async def _wait(self) -> None:
        """Until a partition comes, or the first of those that pause is due."""
        now = asyncio.get_running_loop().time()
        due = min((part.retry_at for part in self._parts.values() if part.retry_at > now), default=None)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                await self._woken.wait()

    async def _ask(self, wanted: Wanted) -> ReplicaFetchResponse | None:
        """None: there is no answer, and the pause after that is over."""
        poll = self._poll = asyncio.ensure_future(self._context.ask(self.leader, self._request(wanted)))
        try:
            await asyncio.wait([poll])
        finally:
            self._poll = None
            poll.cancel()  # without effect once it is done
        self._may_give_up = not poll.cancelled()
        if not poll.cancelled() and poll.exception() is None:
            self._failures = 0
            response = poll.result()
            self._requests.answered(response.session_id)
            return response
        self._requests.begin_anew()
        if not poll.cancelled() and not isinstance(error := poll.exception(), SESSION_ERRORS):
            await self._failed(error)
        return None

    def _request(self, wanted: Wanted) -> ReplicaFetch:
        config = self._context.config
        changes = self._requests.next(wanted)
        wait_ms = config.replica_fetch_wait_max_ms
        return ReplicaFetch(
            replica_id=config.broker_id,
            broker_epoch=self._replicas.broker_epoch,
            max_wait_ms=wait_ms if self._may_give_up else min(wait_ms, FIRST_PAUSE_MS),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=changes.session_id,
            session_epoch=changes.session_epoch,
            partitions=changes.partitions,
            forgotten=changes.forgotten,
        )

    async def _failed(self, error: BaseException | None) -> None:
        self._failures += 1
        is_expected = isinstance(error, KafkaError)
        if self._failures == 1 or not is_expected:
            text = "broker %d could not be asked for %d partitions: %s"
            logger.warning(text, self.leader, len(self._parts), error, exc_info=None if is_expected else error)
        await asyncio.sleep(self._pause_ms(self._failures) / 1000)

    def _pause_ms(self, failures: int) -> int:
        return min(self._context.config.replica_fetch_backoff_ms, FIRST_PAUSE_MS << min(failures - 1, 16))

    # Writing

    async def _take(self, wanted: Wanted, response: ReplicaFetchResponse) -> None:
        for got in response.partitions:
            part, replica, asked = self._parts.get(got.name), self._replicas.find(got.name), wanted.get(got.name)
            if part is None or replica is None or asked is None or not self._is_as_asked(part, replica, asked):
                continue
            if self._is_throttled(part, replica):
                self._context.throttle.sent(len(got.records), asyncio.get_running_loop().time())
            try:
                work = self._handle(part, replica, got)
            except Exception as error:  # noqa: BLE001 - one partition's, whatever it is: the others are copied on
                self._delay(part, error)
                continue
            if work:
                part.work = asyncio.create_task(self._carry_out(part, work))
                await asyncio.shield(part.work)
            if not (got.error or got.diverging):
                part.mirror.tell(replica, got.generation)

    def _is_as_asked(self, part: Followed, replica: Replica, asked: FetchPartition) -> bool:
        """Whether the answer is for the log as it is now: another leader may be followed by now, or another topic."""
        return (part.state.topic_id, part.state.leader_epoch, replica.log.log_end_offset) == (
            asked.topic_id,
            asked.current_leader_epoch,
            asked.fetch_offset,
        )

    def _handle(self, part: Followed, replica: Replica, got: FetchedPartition) -> Coroutine[None, None, None] | None:
        """Do at once what can be; -> what must wait for a disk."""
        if isinstance(got.error, OffsetOutOfRange):
            return self._begin_anew(replica, got)
        if got.error:
            raise got.error
        if got.diverging:
            return self._cut(replica, got.diverging)
        if step := self._append(replica, got):
            return self._append_after(part, replica, step)
        part.failures, part.lag = 0, max(0, got.high_watermark - replica.log.log_end_offset)
        return asyncio.to_thread(replica.log.flush) if replica.log.must_flush else None

    async def _carry_out(self, part: Followed, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - as in `_take`
            self._delay(part, error)

    def _append(self, replica: Replica, got: FetchedPartition) -> Step | None:
        """Write what came; -> what is to be done before, if anything."""
        log = replica.log
        if got.segment_base_offset >= 0 and not log.is_at_segment(got.segment_base_offset):
            return Step(partial(log.follow_segment, got.segment_base_offset), got)
        if got.records:
            if (begin := _begin_across(replica, got.records)) is not None:
                logger.warning("%r is cut to %d: there the leader has a batch that goes beyond its end", log, begin)
                return Step(partial(log.truncate_to, begin), got)
            try:
                log.append_as_follower(got.records, rolls=False, takes_gaps=False)
            except UnexpectedGap:
                return Step(partial(log.append_with_gaps, got.records), dataclasses.replace(got, records=b""))
        self._replicas.followed(replica, got.high_watermark)
        if (start := min(got.log_start_offset, log.log_end_offset)) > log.log_start_offset:
            log.advance_log_start(start)
        return None

    async def _append_after(self, part: Followed, replica: Replica, step: Step) -> None:
        left: Step | None = step
        while left:
            await asyncio.to_thread(left.work)
            self._replicas.truncated(replica)  # it may have been a cut
            if self._parts.get(part.name) is not part:
                return
            step, left = left, self._append(replica, left.then)
        part.failures, part.lag = 0, max(0, step.then.high_watermark - replica.log.log_end_offset)
        if replica.log.must_flush:
            await asyncio.to_thread(replica.log.flush)

    async def _cut(self, replica: Replica, leader: EpochEnd) -> None:
        log, committed = replica.log, replica.partition.high_watermark
        offset = where_to_cut(log.stored_epochs, log.log_end_offset, leader)
        if offset >= log.log_end_offset:  # its epochs do not say where it departs
            offset = log.first_base_offset
        logger.info("%r is cut to %d: the leader's epoch %d ends at %d", log, offset, *leader)
        if offset < committed:
            logger.warning(
                "%r loses committed records from %d to %d: its leader has not got them", log, offset, committed
            )
        await asyncio.to_thread(log.truncate_to, offset)
        self._replicas.truncated(replica)

    async def _begin_anew(self, replica: Replica, got: FetchedPartition) -> None:
        log = replica.log
        logger.warning("%r begins anew at %d: %s", log, got.segment_base_offset, got.error)
        await asyncio.to_thread(log.truncate_fully_and_start_at, got.segment_base_offset)
        self._replicas.truncated(replica)

    def _delay(self, part: Followed, error: Exception) -> None:
        """Leave the partition alone for a while."""
        part.failures += 1
        part.retry_at = asyncio.get_running_loop().time() + self._pause_ms(part.failures) / 1000
        if not isinstance(error, KafkaError):
            logger.error("%s could not be copied", part.name, exc_info=error)
        elif part.failures == 1:
            logger.info("%s: from broker %d: %s %s", part.name, self.leader, error.name, error)


def _begin_across(replica: Replica, records: bytes | memoryview) -> int | None:
    """Where the first batch begins, if the log ends in the middle of it; None: it does not.

    Logs that agree never do: a cut that the epochs asked for has left this one so, in the middle of what the leader has
    as one batch. Where the log has committed records from there on nothing is cut: what came is more likely damaged.
    Raises CorruptRecord.
    """
    log = replica.log
    if int.from_bytes(records[:8], "big", signed=True) >= log.log_end_offset:
        return None
    header = check_batch(records, 0)
    is_empty = log.first_base_offset == log.log_end_offset
    may_be_cut = is_empty or header.base_offset >= replica.partition.high_watermark
    return header.base_offset if may_be_cut and header.last_offset >= log.log_end_offset else None
