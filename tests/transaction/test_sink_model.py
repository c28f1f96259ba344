"""Drivers that crash at any step, task attempts that retry and outlive their batch, coordinators that come and go.

Readers of committed records must see each batch once, of one run, and whole. Hypothesis chooses the order of the steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparklog.base.errors import KafkaError, NotEnoughReplicas
from sparklog.base.ids import TopicPartition
from sparklog.transaction.requests import TV2, AddPartitions
from sparklog.transaction.sink_requests import AbortBatch, CommitBatch, JoinBatch, Winner
from sparklog.transaction.states import OPEN, PREPARE_COMMIT, TRANSITIONS, TransactionState
from support.runs.seeds import examples
from support.transactions.coordinator import TIMEOUT_MS
from support.transactions.sinks import SINK, Producer, SimPartitions, SimSinks, by_topic

pytestmark = pytest.mark.slow

PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TASKS = 2
Draw = Callable[..., Any]


@dataclass(eq=False)
class Attempt:
    """A task attempt; its rows are (batch, task) with the attempt itself."""

    run: Run
    batch: int
    task: int
    producer: Producer | None = None
    is_skipped: bool = False
    partitions: set[TopicPartition] = field(default_factory=set)
    is_done: bool = False
    """All its rows are acknowledged; a commit may name it."""
    under_way: list[tuple[TopicPartition, int]] = field(default_factory=list)
    """Appends to enrolled partitions: the partition, and the ticket of its verification."""


@dataclass(eq=False)
class Run:
    """One run of the query: a driver, with the batch that it writes."""

    name: str
    batch: int
    attempts: list[Attempt] = field(default_factory=list)
    is_stopped: bool = False


class Query(RuleBasedStateMachine):
    @initialize(most_fresh=st.integers(1, 4))
    def begin(self, most_fresh: int) -> None:
        self.it = SimSinks()
        self.most_fresh = most_fresh
        """Number of producer ids of a join; a small number runs out soon."""
        self.leaders = SimPartitions()
        self.logged = 0
        """The batch that follows the last one in Spark's commit log."""
        self.runs: list[Run] = []
        self.old: list[Attempt] = []
        self.late: list[Any] = []
        """Effects whose markers are written, and may be written and reported again."""
        self.told: dict[int, set[Attempt]] = {}
        """Batches whose commit was acknowledged, with the attempts that were named."""
        self.refused: list[set[Attempt]] = []

    @property
    def run(self) -> Run | None:
        return self.runs[-1] if self.runs and not self.runs[-1].is_stopped else None

    @rule(data=st.data(), steps=st.integers(2, 12))
    def go_on(self, data: st.DataObject, steps: int) -> None:
        for _ in range(steps):
            can: list[Callable[[Draw], None]] = [self._restart] if self.run is None else [self._task] * 5
            can += [self._commit] * 3 if self.run and self._done(self.run) else []
            can += [self._markers] * 3 if self.it.markers else []
            can += [self._append_late] if any(each.under_way for each in self.old) else []
            data.draw(st.sampled_from(can))(data.draw)

    # The driver

    def _restart(self, draw: Draw) -> None:
        self.runs.append(Run(f"run-{len(self.runs)}", self.logged))

    @rule(data=st.data())
    def disturb(self, data: st.DataObject) -> None:
        it = self.it
        can: list[Callable[[Draw], None]] = [self._fail_over, self._turn_disk, self._fire_timers, self._pass_time]
        can += [self._crash, self._fail_job] if self.run else []
        can += [self._zombie] * 3 if self.old else []
        can += [self._write_again] if self.late else []
        can += [self._release] * 3 if it.is_holding else [self._hold]
        data.draw(st.sampled_from(can))(data.draw)

    def _crash(self, draw: Draw) -> None:
        assert self.run
        self.old += self.run.attempts
        self.run.is_stopped = True

    def _done(self, run: Run) -> list[Attempt] | None:
        """The first attempt of each task that is done, if all tasks have one."""
        found = {each.task: each for each in reversed(run.attempts) if each.is_done}
        return list(found.values()) if len(found) == TASKS else None

    def _commit(self, draw: Draw) -> None:
        run = self.run
        assert run
        winners = self._done(run)
        assert winners
        skipped = {each.is_skipped for each in winners}
        assert len(skipped) == 1 or self._is_fenced(run), "a batch that is committed for some of its tasks only"
        if len(skipped) == 2:
            self._crash(draw)
            return
        if not skipped.pop():
            named = [
                Winner(producer_id=each.producer[0], producer_epoch=each.producer[1], topics=by_topic(each.partitions))
                for each in winners
                if each.producer
            ]
            request = CommitBatch(sink_id=SINK, run_id=run.name, batch_id=run.batch, winners=named)
            answer = self._ask(lambda: self.it.sinks.commit_batch(request, self.it.now_ms))
            if answer is None or not draw(st.sampled_from([True, True, True, False])):
                self._abort(run)
                self._crash(draw)
                return
            if isinstance(answer, KafkaError):
                if not answer.retriable:
                    self.refused.append(set(winners))
                    self._crash(draw)
                return
            self.told[run.batch] = set(winners)
        if draw(st.sampled_from([True, True, False])):
            self.logged = run.batch + 1
            self.old += run.attempts
            run.batch, run.attempts = self.logged, []
        else:
            self._crash(draw)

    def _abort(self, run: Run) -> None:
        """Spark calls abort() after a commit() that raised."""
        request = AbortBatch(sink_id=SINK, run_id=run.name, batch_id=run.batch)
        self._ask(lambda: self.it.sinks.abort_batch(request, self.it.now_ms))

    def _fail_job(self, draw: Draw) -> None:
        """A task fails too often: the driver aborts the batch, and the query ends."""
        assert self.run
        self._abort(self.run)
        self._crash(draw)

    def _is_fenced(self, run: Run) -> bool:
        return run.name in self.it.sink().former_run_ids

    # Tasks

    def _task(self, draw: Draw) -> None:
        run = self.run
        assert run
        going = [each for each in run.attempts if not each.is_done]
        left = set(range(TASKS)) - {each.task for each in run.attempts}
        if left or not going or draw(st.sampled_from([True, *[False] * 7])):
            task = min(left) if left else draw(st.integers(0, TASKS - 1))
            attempt = Attempt(run, run.batch, task)
            run.attempts.append(attempt)
            self._join(attempt)
        else:
            self._advance(draw(st.sampled_from(going)), draw)

    def _zombie(self, draw: Draw) -> None:
        """An attempt of an ended batch, or of a stopped run, still sends requests."""
        attempt = draw(st.sampled_from(self.old[-8:]))
        if attempt.producer is None and not attempt.is_skipped:
            self._join(attempt)
        else:
            self._advance(attempt, draw)

    def _join(self, attempt: Attempt) -> None:
        it = self.it
        request = JoinBatch(sink_id=SINK, run_id=attempt.run.name, batch_id=attempt.batch, timeout_ms=TIMEOUT_MS)
        fresh = it.fresh_for(SINK)[: self.most_fresh]
        answer = self._ask(lambda: it.shard.join_batch(request, fresh, it.now_ms))
        if answer is None or isinstance(answer, KafkaError) or answer.error is not None:
            return
        if answer.is_committed:
            attempt.is_skipped = attempt.is_done = True
        else:
            attempt.producer = (answer.producer_id, answer.producer_epoch)

    def _advance(self, attempt: Attempt, draw: Draw) -> None:
        if attempt.is_done:
            return
        if attempt.producer is None:
            self._join(attempt)
        elif attempt.under_way:
            self._append(attempt)
        elif attempt.partitions and draw(st.sampled_from([True, True, False])):
            attempt.is_done = True
        else:
            self._enrol(attempt, draw(st.sampled_from(PARTITIONS)))

    def _enrol(self, attempt: Attempt, partition: TopicPartition) -> None:
        assert attempt.producer
        if partition in attempt.partitions:
            return
        ticket = self.leaders.verification(partition, attempt.producer[0])
        request = AddPartitions(
            transactional_id=SINK,
            producer_id=attempt.producer[0],
            producer_epoch=attempt.producer[1],
            partitions=[partition],
            transaction_version=TV2,
        )
        answer = self._ask(lambda: self.it.shard.add_partitions(request, self.it.now_ms))
        if answer is not None and not isinstance(answer, KafkaError):
            attempt.under_way.append((partition, ticket))

    def _append(self, attempt: Attempt) -> None:
        assert attempt.producer
        partition, ticket = attempt.under_way.pop()
        if self.leaders.append(partition, attempt.producer, (attempt, partition), ticket):
            attempt.partitions.add(partition)

    def _append_late(self, draw: Draw) -> None:
        self._append(draw(st.sampled_from([each for each in self.old if each.under_way])))

    # Markers, the log, time

    def _markers(self, draw: Draw) -> None:
        effect = draw(st.sampled_from(self.it.markers))
        self.it.markers.remove(effect)
        self._write(effect)

    def _write(self, effect: Any) -> None:
        taken = self.leaders.mark(effect.markers)
        self.late.append(effect)
        if taken:
            self._quietly(lambda: self.it.report(effect))

    def _write_again(self, draw: Draw) -> None:
        self._write(draw(st.sampled_from(self.late[-3:])))

    def _fail_over(self, draw: Draw) -> None:
        self.it.fail_over(len(self.it.log) - draw(st.integers(0, 3)))

    def _hold(self, draw: Draw) -> None:
        self.it.hold()

    def _release(self, draw: Draw) -> None:
        if draw(st.booleans()):
            self.it.time_out()
        self.it.release()

    def _turn_disk(self, draw: Draw) -> None:
        self.it.is_broken = draw(st.sampled_from([False, False, True]))

    def _fire_timers(self, draw: Draw) -> None:
        self.it.fire_timers()

    def _pass_time(self, draw: Draw) -> None:
        self.it.now_ms += draw(st.sampled_from([1, TIMEOUT_MS // 2, TIMEOUT_MS + 1]))
        self._quietly(self.it.abort_timed_out)

    def _ask(self, decide: Callable[[], Any]) -> Any:
        try:
            return self.it.ask(decide)
        except KafkaError as error:
            return error

    @staticmethod
    def _quietly(do: Callable[[], None]) -> None:
        with suppress(NotEnoughReplicas):
            do()

    # What always holds

    @invariant()
    def batches_are_committed_once(self) -> None:
        states: list[tuple[TransactionState, int, str]] = []
        for record in self.it.records():
            if record.value is not None and record.value.sink is not None:
                sink = record.value.sink
                states.append((TransactionState(record.value.status), sink.batch_id, sink.run_id))
        for (before, *_), (after, *_) in pairwise(states):
            assert (before, after) in TRANSITIONS or before is after
        decided = {(batch, run) for state, batch, run in states if state is PREPARE_COMMIT}
        assert max(Counter(batch for batch, _ in decided).values(), default=1) == 1

    @invariant()
    def readers_see_rows_of_one_attempt_of_each_task(self) -> None:
        of_task: dict[tuple[int, int], set[Attempt]] = {}
        for attempt, _ in self.leaders.committed:
            of_task.setdefault((attempt.batch, attempt.task), set()).add(attempt)
        assert all(len(attempts) == 1 for attempts in of_task.values())
        rows = Counter((id(attempt), partition) for attempt, partition in self.leaders.committed)
        assert max(rows.values(), default=1) == 1

    def teardown(self) -> None:
        """Check that nothing hangs, acknowledged batches are readable whole, and refused ones not at all."""
        it = self.it
        it.is_broken = False
        it.release()
        it.fail_over()
        self._settle()
        it.now_ms += TIMEOUT_MS + 1
        it.abort_timed_out()
        self._settle()
        value = it.sinks.find(SINK)
        assert value is None or TransactionState(value.status) not in OPEN
        for attempt in self.old + [each for run in self.runs for each in run.attempts]:
            while attempt.under_way:
                self._append(attempt)
        assert not self.leaders.open, "a transaction that nobody ends"
        seen: dict[Attempt, set[TopicPartition]] = {}
        for attempt, partition in self.leaders.committed:
            seen.setdefault(attempt, set()).add(partition)
        for winners in self.told.values():
            assert all(seen.get(each) == each.partitions for each in winners)
        for attempts in self.refused:
            assert not attempts & seen.keys()
        assert {each.batch for each in seen} >= set(range(self.logged)), "a batch that Spark logged without its rows"

    def _settle(self) -> None:
        for effect in list(self.it.markers):
            self.it.markers.remove(effect)
            assert self.leaders.mark(effect.markers)
            self.it.report(effect)


TestQuery = pytest.mark.soak(Query.TestCase)
TestQuery.settings = settings(
    max_examples=examples(150),
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
