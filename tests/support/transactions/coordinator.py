"""A transaction coordinator in a world that stands still: the real machine, and a log in memory.

Records go through their bytes on the way to the log and back. A test says when records are committed, and when
partitions have their markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, NotEnoughReplicas, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.runtime.state_machine import Decision, SetTimer
from sparklog.transaction.events import SendMarkers
from sparklog.transaction.requests import TV1, AddPartitions, EndTxn, InitProducerId
from sparklog.transaction.shard import TransactionShard
from sparklog.transaction.states import TransactionState
from sparklog.transaction_topic.records import (
    NO_PRODUCER_ID,
    TransactionKey,
    TransactionRecord,
    TransactionValue,
    decode,
    encode,
)

ID = "tx"
TIMEOUT_MS = 60_000
Answer = Callable[[Any], None]


def ignore(_: Any) -> None: ...


def partitions_named(names: str) -> list[TopicPartition]:
    return [TopicPartition.parse(name) for name in names.split()]


@dataclass
class _Waiting:
    """A decision whose records, or the records before it, are not committed yet."""

    decision: Decision[TransactionRecord, Any]
    end: int
    answer: Answer


class SimCoordinator:
    """Carries out a machine's decisions as runtime/state_machine.py says."""

    def __init__(self, config: BrokerConfig | None = None, now_ms: int = 1_000) -> None:
        self.config = config or BrokerConfig()
        self._begin()
        self.log: list[tuple[bytes, bytes | None]] = []
        self._records: list[TransactionRecord] = []
        self.committed = 0
        self.now_ms = now_ms
        self.markers: list[Any] = []
        """Effects that have begun, and are not reported as done."""
        self.timers: dict[Any, int] = {}
        self.is_holding = self.is_broken = False
        self._waiting: list[_Waiting] = []
        self._ids = count(100)

    def _begin(self) -> None:
        self.shard = TransactionShard(self.config)
        self.machine = self.shard.transactions
        self.sinks = self.shard.sinks

    # Requests; what they return is the response, or None if it waits

    def init(self, name: str = ID, timeout_ms: int = TIMEOUT_MS, known: tuple[int, int] = (-1, -1)) -> Any:
        request = InitProducerId(
            transactional_id=name, timeout_ms=timeout_ms, producer_id=known[0], producer_epoch=known[1]
        )
        return self.ask(lambda: self.machine.init_producer_id(request, self.fresh(name), self.now_ms))

    def add(
        self, names: str, producer: tuple[int, int], *, name: str = ID, version: int = TV1, verify: bool = False
    ) -> Any:
        request = AddPartitions(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            partitions=partitions_named(names),
            is_verify_only=verify,
            transaction_version=version,
        )
        return self.ask(lambda: self.machine.add_partitions(request, self.now_ms))

    def end(self, producer: tuple[int, int], *, commit: bool, name: str = ID, version: int = TV1) -> Any:
        request = EndTxn(
            transactional_id=name,
            producer_id=producer[0],
            producer_epoch=producer[1],
            is_commit=commit,
            transaction_version=version,
        )
        return self.ask(lambda: self.machine.end_txn(request, self.fresh(name), self.now_ms))

    def abort_timed_out(self) -> None:
        for name in self.machine.timed_out(self.now_ms):
            self.carry_out(self.machine.abort_timed_out(name, self.fresh(name), self.now_ms))

    def expire(self) -> None:
        self.carry_out(self.machine.expire(self.now_ms))

    def fresh(self, name: str) -> int:
        return self.new_id() if self.machine.needs_producer_id(name) else NO_PRODUCER_ID

    def new_id(self) -> int:
        """A producer id that nobody else gets."""
        return next(self._ids)

    # Markers

    def write_markers(self, names: str | None = None) -> None:
        """All markers that are to be sent are written; with names, only those of these partitions."""
        for effect in list(self.markers):
            done = effect.partitions if names is None else partitions_named(names)
            self.markers_written(effect, done)
            if names is None:
                self.markers.remove(effect)

    def markers_written(self, effect: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        self.carry_out(
            self.machine.markers_written(
                effect.transactional_id, effect.producer_id, effect.producer_epoch, partitions, self.now_ms
            )
        )

    # The log

    def hold(self) -> None:
        """What is written from now on is not committed before `release`."""
        self.is_holding = True

    def release(self) -> None:
        self.is_holding = False
        self.commit(len(self.log))

    def commit(self, end: int) -> None:
        self.committed = max(self.committed, end)
        self._settle(lambda waiting: waiting.end <= self.committed, None)

    def time_out(self) -> None:
        """No commit comes in time for those that wait; the records stay in the log."""
        self._settle(lambda _: True, RequestTimedOut("no commit in time"))

    def fail_over(self, end: int | None = None) -> None:
        """Another broker has the log up to `end`, at least all that is committed, and all that wait get no answer."""
        end = max(self.committed, len(self.log) if end is None else end)
        del self.log[end:], self._records[end:]
        self._begin()
        self._waiting, self.markers, self.timers = [], [], {}
        self.is_holding = self.is_broken = False
        self.committed = len(self.log)
        for record in self.records():
            self.shard.replay(record)
        self.carry_out(self.shard.loaded(self.now_ms, tuple(self.shard.transactional_ids)))

    def records(self) -> Sequence[TransactionRecord]:
        return self._records

    def states(self, name: str = ID) -> list[TransactionState]:
        """The states that the log has of an id, in order."""
        mine = [record for record in self.records() if record.key.transactional_id == name]
        return [TransactionState(record.value.status) for record in mine if record.value is not None]

    def value(self, name: str = ID) -> TransactionValue:
        found = self.shard.find(name)
        assert found is not None
        return found

    def put(self, value: TransactionValue, name: str = ID) -> None:
        """Bring an id into any state, as if the log had it."""
        self._append([TransactionRecord(TransactionKey(transactional_id=name), value)])
        self.committed = len(self.log)

    def fire_timers(self) -> None:
        due, self.timers = self.timers, {}
        for key in due:
            try:
                self.carry_out(self.shard.timer_fired(key, self.now_ms))
            except KafkaError:
                self.timers.setdefault(key, self.now_ms)

    # The shell

    def ask(self, decide: Callable[[], Decision[TransactionRecord, Any]]) -> Any:
        answers: list[Any] = []
        self.carry_out(decide(), answers.append)
        if answers and isinstance(answers[0], KafkaError):
            raise answers[0]
        return answers[0] if answers else None

    def carry_out(self, decision: Decision[TransactionRecord, Any], answer: Answer = ignore) -> None:
        """Raises NotEnoughReplicas if the log takes no records."""
        if decision.records and self.is_broken:
            error = NotEnoughReplicas("broken")
            self._then(decision, error)
            raise error
        self._append(decision.records)
        self._set(decision)
        self._waiting.append(_Waiting(decision, len(self.log), answer))
        if not self.is_holding:
            self.commit(len(self.log))

    def _append(self, records: Sequence[TransactionRecord]) -> None:
        for record in records:
            key, value = encode(record)
            self.log.append((key, value))
            read = decode(key, value)
            assert read == record
            self._records.append(read)
            self.shard.replay(read)

    def _set(self, decision: Decision[TransactionRecord, Any]) -> None:
        for timer in decision.timers:
            assert isinstance(timer, SetTimer)
            self.timers[timer.key] = self.now_ms + timer.delay_ms

    def _settle(self, is_due: Callable[[_Waiting], bool], error: KafkaError | None) -> None:
        due = [waiting for waiting in self._waiting if is_due(waiting)]
        self._waiting = [waiting for waiting in self._waiting if not is_due(waiting)]
        for waiting in due:
            if error is None:
                self.markers.extend(waiting.decision.effects)
            self._then(waiting.decision, error)
            waiting.answer(error or waiting.decision.response)

    def _then(self, decision: Decision[TransactionRecord, Any], error: KafkaError | None) -> None:
        if decision.then is not None:
            self._set(self.shard.written(decision.then, error, self.now_ms))
