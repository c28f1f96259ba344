"""Sinks: the batches of a Spark query, or of a Spark job, each written once and seen as a whole or not at all.

A sink is a transactional id whose batch has many producers, one for each attempt of a task. One record commits the
batch:

    JoinBatch         an attempt gets a producer id of its own; the first one begins the batch. The attempt then writes
                      transactional records, and leaders enrol the partitions as for any transaction
    CommitBatch       the driver names the attempts that count. The Prepare record is the commit point: it has their
                      partitions and the id of the batch. Then the chosen ones get COMMIT markers and all others ABORT
                      markers (effect SendSinkMarkers); `markers_written` ends the batch
    AbortBatch        the driver aborts the batch and ends its run: Spark does not wait for the end of tasks, and a late
                      join must not open the batch again

Spark writes a batch again, with the same id, if its driver stopped between the commit here and Spark's own commit log:

    request            batch is committed           batch is open, of this run     otherwise
    JoinBatch          by another run: is_committed a producer id                  a new batch
                       by this run: refused
    CommitBatch        done before                  PrepareCommit                  INVALID_TXN_STATE
    AbortBatch         INVALID_TXN_STATE            PrepareAbort                   nothing

A new run of the query replaces the former one: its first join aborts an open batch of the former run, whose requests
get PRODUCER_FENCED from then on. A batch of the same run with a lower id than the present one is fenced too; one with a
higher id aborts the present one. While a batch ends, requests get CONCURRENT_TRANSACTIONS, on which clients retry.

A join of the run that has committed the batch already comes from a second write of the same query, which needs a sink
of its own. An answer with is_committed would lose the rows of the second write, and so would a successful answer to a
second commit with other attempts. So both are refused.

The log gets three records of a batch, with any number of tasks: a batch begins with the producers and partitions of the
batch before, and only further ones are written when they join.

A batch stays open for its timeout after the last join, renewal or new partition. Renewals are not in the log; a new
coordinator counts from its start.

A refused request raises a KafkaError before anything has changed.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Sequence
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    PolicyViolation,
    ProducerFenced,
    TransactionalIdNotFound,
)
from sparklog.base.ids import TopicPartition
from sparklog.runtime.state_machine import Decision, DecisionBuilder
from sparklog.transaction.changes import state_of
from sparklog.transaction.events import SendSinkMarkers, SinkChange, SinkTimer
from sparklog.transaction.pending import PendingChanges
from sparklog.transaction.requests import AddPartitions, AddPartitionsResponse
from sparklog.transaction.sink_changes import (
    SinkMarkers,
    aborting,
    committing,
    ended,
    enrolled,
    joined,
    markers_of_batch,
    sink_of,
    without_run,
)
from sparklog.transaction.sink_requests import (
    AbortBatch,
    AbortBatchResponse,
    CommitBatch,
    CommitBatchResponse,
    JoinBatch,
    JoinBatchResponse,
    ResetSink,
    ResetSinkResponse,
)
from sparklog.transaction.sink_rules import (
    already_committed,
    check_producer,
    check_repetition,
    check_request,
    check_run,
    check_size,
    checked_winners,
    is_open,
    last_committed,
    reserved_at_once,
)
from sparklog.transaction.states import ONGOING, OPEN, PREPARED
from sparklog.transaction_topic.records import NO_PRODUCER_ID, TransactionKey, TransactionRecord, TransactionValue
from sparklog.transaction_topic.sinks import NO_RUN, SinkProducer, SinkProducerRole

RETRY_MS = 500
MOST_SINKS = 10_000
"""Maximum number of sinks in one partition of `__transaction_state`."""
MOST_PRODUCERS_IN_ALL = 200_000
"""Maximum number of producers of all sinks of one partition; each takes about 100 bytes of memory."""
MOST_EXPECTED_IN_ALL = 200_000
"""Maximum number of partitions that the next batches of all sinks of one partition begin with."""
MOST_EXPIRED = 1_000
NEVER = -1

Work = DecisionBuilder[TransactionRecord]


class SinkMachine:
    """The sinks of one partition of `__transaction_state`: a state machine (runtime/state_machine.py).

    Implements Machine.
    """

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._found: dict[str, TransactionValue] = {}
        self._pending = PendingChanges()
        self._renewed_ms: dict[str, int] = {}
        """Time of the last join, renewal or new partition of an open batch, if later than its record."""
        self._producers = 0
        self._taken: dict[str, set[int]] = {}
        """The producers of an open batch that tasks may have. A batch without an entry may have given out all."""
        self._expected: dict[str, Sequence[TopicPartition]] = {}
        """The partitions of each sink's last batch, with which the next one begins."""

    @property
    def sink_ids(self) -> Collection[str]:
        """The ids of all sinks: a view, which changes with them."""
        return self._found.keys()

    def find(self, sink_id: str) -> TransactionValue | None:
        """Return the value of a sink; None if there is none."""
        return self._found.get(sink_id)

    def needed_producer_ids(self, sink_id: str) -> int:
        """Return the number of fresh producer ids to pass to the next `join_batch`; 0 if it needs none.

        Without a needed id, `join_batch` raises ConcurrentTransactions. The number grows with the batch, so that most
        joins need no record.
        """
        value = self.find(sink_id)
        if value is None:
            return reserved_at_once(0)
        if self._free(sink_id, value):
            return 0
        return reserved_at_once(len(sink_of(value).producers))

    def writers(self, sink_id: str) -> int:
        """Return the number of producers that tasks may have, of the batch that is open or ending."""
        value = self.find(sink_id)
        present = (
            []
            if value is None
            else [each for each in sink_of(value).producers if each.role is not SinkProducerRole.SPARE]
        )
        return len(self._taken.get(sink_id, present))

    # Requests

    def join_batch(
        self, request: JoinBatch, fresh_producer_ids: Sequence[int], now_ms: int
    ) -> Decision[TransactionRecord, JoinBatchResponse]:
        """Give a task attempt its producer id. Fresh ids are used only if no other is free.

        The response has the producer id and epoch, or `is_committed`. A request with a producer id only renews the
        batch.
        """
        check_request(request)
        if not 0 < request.timeout_ms <= self._config.transaction_max_timeout_ms:
            raise InvalidTransactionTimeout(
                f"a timeout of {request.timeout_ms} ms: 1 to {self._config.transaction_max_timeout_ms} ms"
            )
        name, value = request.sink_id, self.find(request.sink_id)
        self._pending.check_idle(name)
        if value is None and len(self._found) >= MOST_SINKS:
            raise PolicyViolation(f"more than {MOST_SINKS} sinks in one partition of __transaction_state")
        if value is not None:
            check_run(value, request)
            if request.batch_id <= last_committed(value):
                return Decision(response=already_committed(value, request))
            if state_of(value) in PREPARED:
                raise ConcurrentTransactions("the former batch is about to end")
            if state_of(value) is ONGOING and (abort := self._abort_former(name, value, request, now_ms)):
                return abort
        if request.producer_id != NO_PRODUCER_ID:
            return self._renew(value, request, now_ms)
        return self._join(name, value, request, fresh_producer_ids, now_ms)

    def add_partitions(self, request: AddPartitions, now_ms: int) -> Decision[TransactionRecord, AddPartitionsResponse]:
        """Add partitions to the batch for one of its producers, or only verify that they are part of it.

        A partition that is not part of it has InvalidTxnState in the response.
        """
        name = request.transactional_id
        self._pending.check_idle(name)
        value = self._get(name)
        check_producer(value, request.producer_id, request.producer_epoch)
        if state_of(value) in PREPARED:
            raise ConcurrentTransactions("the batch is about to end")
        errors: dict[TopicPartition, KafkaError | None] = dict.fromkeys(request.partitions)
        present = set(value.partitions or ())
        added = [partition for partition in errors if partition not in present]
        if request.is_verify_only:
            missing = InvalidTxnState("the partition is not part of the batch")
            return Decision(response=AddPartitionsResponse(errors={**errors, **dict.fromkeys(added, missing)}))
        work = Work()
        if added:
            following = enrolled(value, added, now_ms)
            check_size(following)
            self._change(name, following, work, is_extension=True)
        self._renewed_ms[name] = now_ms
        return work.decide(AddPartitionsResponse(errors=errors))

    def commit_batch(self, request: CommitBatch, now_ms: int) -> Decision[TransactionRecord, CommitBatchResponse]:
        """Commit a batch. A repeated commit gets the same answer."""
        check_request(request)
        name = request.sink_id
        self._pending.check_idle(name)
        value = self._get(name)
        check_run(value, request)
        if request.batch_id == last_committed(value):
            check_repetition(value, request)
            return Decision(response=CommitBatchResponse())
        if request.batch_id < last_committed(value):
            raise ProducerFenced(f"batch {request.batch_id} is older than the last one, {last_committed(value)}")
        if not is_open(value, request):
            raise InvalidTxnState(f"batch {request.batch_id} is not open: it was aborted, or its time was up")
        winners = checked_winners(value, request.winners)
        if self._pending.is_extending(name):
            raise ConcurrentTransactions("task attempts or partitions are joining the batch")
        work = Work()
        self._end(name, committing(value, winners, self._taken.get(name), now_ms), work)
        self._expect(name, winners.values())
        return work.decide(CommitBatchResponse())

    def abort_batch(self, request: AbortBatch, now_ms: int) -> Decision[TransactionRecord, AbortBatchResponse]:
        """Abort the batch if it is open; end its run if no batch is open.

        The request of a replaced run changes nothing. Raises InvalidTxnState if the batch is committed, ProducerFenced
        if its run is not the present one, and ConcurrentTransactions while a batch ends or is joined.
        """
        check_request(request)
        name = request.sink_id
        self._pending.check_idle(name)
        value = self.find(name)
        if value is None:
            return Decision(response=AbortBatchResponse())
        if request.batch_id <= last_committed(value):
            raise InvalidTxnState(f"batch {request.batch_id} is committed")
        work = Work()
        if request.run_id in sink_of(value).former_run_ids:
            return work.decide(AbortBatchResponse())
        check_run(value, request)
        if state_of(value) in PREPARED or self._pending.is_extending(name):
            raise ConcurrentTransactions("task attempts or partitions are joining the batch, or a batch is ending")
        if is_open(value, request):
            self._end(name, aborting(value, self._taken.get(name), now_ms, NO_RUN), work)
        elif state_of(value) is not ONGOING:
            self._change(name, without_run(value), work)
        return work.decide(AbortBatchResponse())

    def reset(self, request: ResetSink, now_ms: int) -> Decision[TransactionRecord, ResetSinkResponse]:
        """Delete a sink. An open batch is aborted first: ConcurrentTransactions until that is done."""
        name = request.sink_id
        self._pending.check_idle(name)
        value = self.find(name)
        if value is None:
            raise TransactionalIdNotFound(f"there is no sink {name!r}")
        if state_of(value) in PREPARED or self._pending.is_extending(name):
            raise ConcurrentTransactions("the sink's batch is about to end")
        work = Work()
        if state_of(value) is ONGOING:
            self._end(name, aborting(value, self._taken.get(name), now_ms), work)
            return work.decide(request.refused(ConcurrentTransactions("the sink's open batch is being aborted")))
        self._delete([name], work)
        return work.decide(ResetSinkResponse())

    # Markers

    def markers_written(
        self, sink_id: str, markers: Sequence[SinkMarkers], now_ms: int
    ) -> Decision[TransactionRecord, None]:
        """Complete a batch: all its markers are written. A report of other markers is ignored."""
        work = Work()
        value = self.find(sink_id)
        is_present = value is not None and state_of(value) in PREPARED and not self._pending.is_pending(sink_id)
        if value is not None and is_present and markers_of_batch(value) == tuple(markers):
            self._change(sink_id, ended(value, now_ms), work)
        return work.decide()

    # The clock

    def timed_out(self, now_ms: int, among: Iterable[str] | None = None) -> Sequence[str]:
        """Return the sinks, of all or of `among`, whose batch has been open for longer than its timeout."""
        return [name for name in (self._found if among is None else among) if self._is_timed_out(name, now_ms)]

    def abort_timed_out(self, sink_id: str, now_ms: int) -> Decision[TransactionRecord, None]:
        """Abort a batch after its timeout."""
        work = Work()
        if self._is_timed_out(sink_id, now_ms):
            self._end(sink_id, aborting(self._found[sink_id], self._taken.get(sink_id), now_ms), work)
        return work.decide()

    def expire(self, now_ms: int, among: Iterable[str] | None = None) -> Decision[TransactionRecord, None]:
        """Delete expired sinks, of all or of `among`; at most MOST_EXPIRED in one call."""
        expired: list[str] = []
        for name in self._found if among is None else among:
            value = self.find(name)
            if value is None or state_of(value) in OPEN or self._pending.is_pending(name):
                continue
            kept_ms = self._config.sink_id_expiration_ms
            if sink_of(value).is_one_off:
                kept_ms = self._config.transactional_id_expiration_ms
            if kept_ms != NEVER and value.last_update_ms <= now_ms - kept_ms:
                expired.append(name)
                if len(expired) == MOST_EXPIRED:
                    break
        work = Work()
        if expired:
            self._delete(expired, work)
        return work.decide()

    # The log and the shell

    def replay(self, record: TransactionRecord) -> None:
        """Apply a record of the log."""
        name = record.key.transactional_id
        if former := self._found.pop(name, None):
            self._producers -= len(sink_of(former).producers)
        if record.value is None or state_of(record.value) is not ONGOING:
            self._renewed_ms.pop(name, None)
            self._taken.pop(name, None)
        if record.value is None:
            self._expected.pop(name, None)
        else:
            self._found[name] = record.value
            self._producers += len(sink_of(record.value).producers)

    def loaded(self, now_ms: int, among: Iterable[str] | None = None) -> Decision[TransactionRecord, None]:
        """Send the markers of prepared batches, of all sinks or of `among`, after the whole log is replayed."""
        work = Work()
        for name in self._found if among is None else among:
            value = self.find(name)
            if value is not None and state_of(value) in PREPARED:
                work.once_committed(SendSinkMarkers(sink_id=name, markers=markers_of_batch(value)))
            elif value is not None and state_of(value) is ONGOING:
                self._renewed_ms[name] = now_ms
        return work.decide()

    def timer_fired(self, key: Hashable, now_ms: int) -> Decision[TransactionRecord, None]:
        """Write a prepared batch again if its last record has failed."""
        work = Work()
        if isinstance(key, SinkTimer):
            value = self.find(key.sink_id)
            if value is not None and state_of(value) in PREPARED and not self._pending.is_pending(key.sink_id):
                self._end(key.sink_id, value, work)
        return work.decide()

    def written(self, event: Any, error: KafkaError | None, now_ms: int) -> Decision[TransactionRecord, None]:
        work = Work()
        if isinstance(event, SinkChange):
            for name in event.sink_ids:
                self._pending.ended(name, is_extension=event.is_extension)
                value = self.find(name)
                if error is not None and value is not None and state_of(value) in PREPARED:
                    work.set_timer(SinkTimer(sink_id=name), RETRY_MS)
        return work.decide()

    # Steps

    def _abort_former(
        self, name: str, value: TransactionValue, request: JoinBatch, now_ms: int
    ) -> Decision[TransactionRecord, JoinBatchResponse] | None:
        """Abort the open batch if the join is for another batch or from a new run; None if it joins the open one."""
        sink = sink_of(value)
        is_same_run = request.run_id == sink.run_id
        if is_same_run and request.batch_id == sink.batch_id:
            return None
        if is_same_run and request.batch_id < sink.batch_id:
            raise ProducerFenced(f"batch {request.batch_id} was replaced by batch {sink.batch_id}")
        if self._pending.is_extending(name):
            raise ConcurrentTransactions("task attempts or partitions are joining the former batch")
        work = Work()
        self._end(name, aborting(value, self._taken.get(name), now_ms, request.run_id), work)
        return work.decide(request.refused(ConcurrentTransactions("the former batch is being aborted")))

    def _join(
        self,
        name: str,
        value: TransactionValue | None,
        request: JoinBatch,
        fresh_producer_ids: Sequence[int],
        now_ms: int,
    ) -> Decision[TransactionRecord, JoinBatchResponse]:
        work = Work()
        is_open = value is not None and state_of(value) is ONGOING
        free = self._free(name, value) if value is not None else []
        if not free and not fresh_producer_ids:
            raise ConcurrentTransactions("a fresh producer id is needed")
        if not (is_open and free):
            following = joined(value, request, fresh_producer_ids, self._expected.get(name, ()), now_ms)
            check_size(following)
            if self._producers >= MOST_PRODUCERS_IN_ALL:
                raise ConcurrentTransactions(f"batches have {MOST_PRODUCERS_IN_ALL} task attempts in all")
            before = sink_of(value).producers if is_open and value is not None else ()
            self._taken[name] = {each.producer_id for each in before}
            self._change(name, following, work, is_extension=True)
            free = sink_of(following).producers[len(before) :]
        producer = free[0]
        self._taken[name].add(producer.producer_id)
        self._renewed_ms[name] = now_ms
        return work.decide(JoinBatchResponse(producer_id=producer.producer_id, producer_epoch=producer.producer_epoch))

    def _free(self, name: str, value: TransactionValue) -> Sequence[SinkProducer]:
        """Return the producers that a task may get without a fresh id."""
        producers = sink_of(value).producers
        if state_of(value) is not ONGOING:
            return producers
        taken = self._taken.get(name)
        return [] if taken is None else [each for each in producers if each.producer_id not in taken]

    def _expect(self, name: str, written: Iterable[Sequence[TopicPartition]]) -> None:
        """Keep the partitions of this batch, with which the next one begins."""
        self._expected.pop(name, None)
        partitions = tuple(sorted({partition for names in written for partition in names}))
        if sum(map(len, self._expected.values())) + len(partitions) <= MOST_EXPECTED_IN_ALL:
            self._expected[name] = partitions

    def _renew(
        self, value: TransactionValue | None, request: JoinBatch, now_ms: int
    ) -> Decision[TransactionRecord, JoinBatchResponse]:
        if value is None or not is_open(value, request):
            raise InvalidTxnState(f"batch {request.batch_id} is not open: it was aborted, or its time was up")
        check_producer(value, request.producer_id, request.producer_epoch)
        self._renewed_ms[request.sink_id] = now_ms
        return Decision(
            response=JoinBatchResponse(producer_id=request.producer_id, producer_epoch=request.producer_epoch)
        )

    def _change(self, name: str, value: TransactionValue, work: Work, *, is_extension: bool = False) -> None:
        work.write(TransactionRecord(TransactionKey(transactional_id=name), value))
        self._pending.begin(name, is_extension=is_extension)
        work.once_written(SinkChange(sink_ids=[name], is_extension=is_extension))

    def _delete(self, names: Sequence[str], work: Work) -> None:
        work.write(*(TransactionRecord(TransactionKey(transactional_id=name)) for name in names))
        for name in names:
            self._pending.begin(name)
        work.once_written(SinkChange(sink_ids=names))

    def _end(self, name: str, value: TransactionValue, work: Work) -> None:
        """Write a prepared batch and send its markers; without markers, complete it at once."""
        self._change(name, value, work)
        if markers := markers_of_batch(value):
            work.once_committed(SendSinkMarkers(sink_id=name, markers=markers))
        else:
            following = ended(value, value.last_update_ms)
            work.write(TransactionRecord(TransactionKey(transactional_id=name), following))

    def _get(self, name: str) -> TransactionValue:
        if found := self._found.get(name):
            return found
        raise InvalidProducerIdMapping(f"there is no sink {name!r}")

    def _is_timed_out(self, name: str, now_ms: int) -> bool:
        value = self.find(name)
        if value is None or state_of(value) is not ONGOING or self._pending.is_pending(name):
            return False
        return max(value.last_update_ms, self._renewed_ms.get(name, 0)) + value.timeout_ms < now_ms
