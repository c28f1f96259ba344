"""Sinks: what each request does to a batch, and what a crash at each step leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    KafkaError,
    NotEnoughReplicas,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TransactionalIdNotFound,
)
from sparklog.transaction import sink_machine, sink_rules
from sparklog.transaction.listing import describe_sink, list_sink
from sparklog.transaction.requests import DescribeTransactions, InitProducerId, ListTransactions
from sparklog.transaction.sink_requests import JoinBatch
from sparklog.transaction.states import COMPLETE_ABORT, COMPLETE_COMMIT, ONGOING, PREPARE_ABORT, PREPARE_COMMIT
from sparklog.transaction_topic.sinks import NO_BATCH
from support.transactions.coordinator import TIMEOUT_MS, partitions_named
from support.transactions.sinks import SINK, Producer, SimSinks


@pytest.fixture
def it() -> SimSinks:
    return SimSinks()


def producer(answer: Any) -> Producer:
    assert not answer.is_committed
    if answer.error is not None:
        raise answer.error
    return answer.producer_id, answer.producer_epoch


def write(it: SimSinks, batch: int, *, run: str = "run", names: str = "t-0", name: str = SINK) -> Producer:
    """A task attempt that writes to partitions."""
    me = producer(it.join(batch, run, name=name))
    it.enrol(names, me, name=name)
    return me


def commit(it: SimSinks, batch: int, run: str = "run") -> Producer:
    """A whole batch of one task."""
    me = write(it, batch, run=run)
    it.commit_batch(batch, {me: "t-0"}, run)
    it.write_markers()
    return me


def outcomes(it: SimSinks) -> dict[Producer, tuple[bool, str]]:
    """Return the markers to send, by producer: commit or abort, and the partitions."""
    return {
        (each.producer_id, each.producer_epoch): (each.is_commit, " ".join(map(str, each.partitions)))
        for effect in it.markers
        for each in effect.markers
    }


# One batch


def test_a_commit_names_the_attempts_that_count_and_aborts_all_others(it: SimSinks) -> None:
    first, second, loser = write(it, 0, names="t-0 t-2"), write(it, 0, names="t-1"), write(it, 0, names="u-0")

    it.commit_batch(0, {first: "t-0 t-2", second: "t-1"})

    assert outcomes(it) == {
        (first[0], 1): (True, "t-0 t-2"),
        (second[0], 1): (True, "t-1"),
        (loser[0], 1): (False, "t-0 t-2 t-1 u-0"),
    }
    assert it.states(SINK)[-1] is PREPARE_COMMIT
    it.write_markers()
    assert it.states(SINK)[-1] is COMPLETE_COMMIT
    assert it.sink().committed_batch_id == 0


def test_each_attempt_gets_a_producer_id_of_its_own(it: SimSinks) -> None:
    assert len({producer(it.join(0)) for _ in range(5)}) == 5


def test_the_next_batch_uses_the_same_ids_with_the_next_epochs(it: SimSinks) -> None:
    """Partitions remember each producer id for a day: new ids for each batch would fill their memory."""
    first = {write(it, 0), write(it, 0)}
    it.commit_batch(0, dict.fromkeys(first, "t-0"))
    it.write_markers()

    second = {write(it, 1), write(it, 1)}

    assert second == {(producer_id, epoch + 1) for producer_id, epoch in first}


def test_ids_whose_epochs_are_used_up_are_not_given_again(it: SimSinks) -> None:
    me = write(it, 0)
    it.commit_batch(0, {me: "t-0"})
    it.write_markers()
    it.put(_with_epoch(it, 32_765), SINK)

    last = commit(it, 1)
    assert last == (me[0], 32_765)
    assert producer(it.join(2))[0] != me[0]


def _with_epoch(it: SimSinks, epoch: int) -> Any:
    spare = it.sink().producers[0]
    return replace(it.value(SINK), sink=replace(it.sink(), producers=(spare._replace(producer_epoch=epoch),)))


def test_a_batch_without_rows_of_its_attempts_is_over_at_once(it: SimSinks) -> None:
    me = producer(it.join(0))

    it.commit_batch(0, {me: ""})

    assert (it.markers, it.states(SINK)[-1], it.sink().committed_batch_id) == ([], COMPLETE_COMMIT, 0)


def test_an_abort_ends_every_attempt(it: SimSinks) -> None:
    first, second = write(it, 0, names="t-0"), write(it, 0, names="t-1")

    it.abort_batch(0)

    assert outcomes(it) == {(first[0], 1): (False, "t-0 t-1"), (second[0], 1): (False, "t-0 t-1")}
    it.write_markers()
    assert (it.states(SINK)[-1], it.sink().committed_batch_id) == (COMPLETE_ABORT, NO_BATCH)
    it.abort_batch(0)
    assert it.states(SINK)[-1] is COMPLETE_ABORT


@pytest.mark.parametrize("end", ["abort", "timeout", "another batch"])
def test_tasks_of_an_aborted_run_do_not_open_a_batch_again(it: SimSinks, end: str) -> None:
    """Spark calls abort() while other tasks of the batch are still running."""
    if end == "another batch":
        commit(it, 0)
    else:
        write(it, 1)
    if end == "timeout":
        it.now_ms += TIMEOUT_MS + 1
        it.abort_timed_out()
        it.write_markers()
    it.abort_batch(1)
    it.write_markers()
    for _ in range(2):
        it.abort_batch(1)
        for batch in (1, 2):
            with pytest.raises(ProducerFenced, match="has given up"):
                it.join(batch)
        it.fail_over()
    commit(it, 1, "restarted")
    assert it.sink().committed_batch_id == 1
    assert it.sink().former_run_ids == ("run",)


@pytest.mark.parametrize("is_complete", [False, True])
def test_an_abort_never_undoes_a_commit(it: SimSinks, *, is_complete: bool) -> None:
    """Spark calls abort() with the same batch if commit() raised, as after a lost answer."""
    me = write(it, 0)
    it.commit_batch(0, {me: "t-0"})
    if is_complete:
        it.write_markers()

    with pytest.raises(InvalidTxnState):
        it.abort_batch(0)

    assert it.states(SINK)[-1] is (COMPLETE_COMMIT if is_complete else PREPARE_COMMIT)


def test_a_commit_may_be_repeated(it: SimSinks) -> None:
    me = write(it, 0)
    for _ in range(2):
        assert it.commit_batch(0, {me: "t-0"}).error is None
    it.write_markers()
    assert it.commit_batch(0, {me: "t-0"}).error is None
    assert it.states(SINK).count(PREPARE_COMMIT) == 1


@pytest.mark.parametrize(
    ("winners", "error"),
    [
        ({(7, 0): "t-0"}, ProducerFenced),
        ({(100, 1): "t-0"}, ProducerFenced),
        ({(100, 0): "t-0 t-9"}, InvalidTxnState),
    ],
    ids=["unknown attempt", "another epoch", "a partition that nobody enrolled"],
)
def test_a_commit_with_attempts_of_no_batch_changes_nothing(
    it: SimSinks, winners: dict[Producer, str], error: type[KafkaError]
) -> None:
    assert write(it, 0) == (100, 0)

    with pytest.raises(error):
        it.commit_batch(0, winners)

    assert it.states(SINK)[-1] is ONGOING


def test_a_zombie_is_refused_once_the_batch_ends(it: SimSinks) -> None:
    me, zombie = write(it, 0), write(it, 0)
    it.commit_batch(0, {me: "t-0"})
    with pytest.raises(ProducerFenced):
        it.enrol("t-1", zombie)
    it.write_markers()
    with pytest.raises(ProducerFenced):
        it.enrol("t-1", zombie)
    commit(it, 1)
    with pytest.raises(ProducerFenced):
        it.enrol("t-1", zombie)


def test_partitions_are_verified_for_attempts_only(it: SimSinks) -> None:
    me = write(it, 0)
    answer = it.enrol("t-0 t-1", me, verify=True)
    assert answer.errors[partitions_named("t-0")[0]] is None
    assert isinstance(answer.errors[partitions_named("t-1")[0]], InvalidTxnState)
    with pytest.raises(InvalidProducerIdMapping):
        it.enrol("t-0", (me[0] + 1_000, 0))


# Runs and batches


def test_a_batch_that_an_earlier_run_has_committed_is_not_written_again(it: SimSinks) -> None:
    me = write(it, 5)
    it.commit_batch(5, {me: "t-0"})
    for _ in range(2):
        for batch in (5, 4):
            answer = it.join(batch, "restarted")
            assert (answer.is_committed, answer.producer_id) == (True, -1)
        it.write_markers()
        it.fail_over()
    assert producer(it.join(6, "restarted"))


def test_a_second_write_of_the_same_batch_is_refused_rather_than_dropped(it: SimSinks) -> None:
    commit(it, 5)
    with pytest.raises(InvalidTxnState, match="a sink of its own"):
        it.join(5)


def test_a_second_commit_of_the_same_batch_with_other_attempts_is_refused_rather_than_taken_for_done(
    it: SimSinks,
) -> None:
    """Two writes at the same time in one batch of a query."""
    first, second, third = write(it, 5), write(it, 5), write(it, 5)
    it.commit_batch(5, {third: "t-0", second: "t-0"})
    for _ in range(2):
        with pytest.raises(InvalidTxnState, match="a sink of its own"):
            it.commit_batch(5, {first: "t-0"})
        with pytest.raises(InvalidTxnState, match="a sink of its own"):
            it.commit_batch(5, {})
        assert it.commit_batch(5, {second: "t-0", third: "t-0"}).error is None
        it.write_markers()
        it.fail_over()


def test_a_new_run_aborts_what_the_former_has_left_open_and_fences_it(it: SimSinks) -> None:
    old = write(it, 3, run="old")

    assert isinstance(it.join(3, "new").error, ConcurrentTransactions)

    assert outcomes(it) == {(old[0], 1): (False, "t-0")}
    it.write_markers()
    for refused in (
        lambda: it.join(3, "old"),
        lambda: it.join(4, "old"),
        lambda: it.commit_batch(3, {old: "t-0"}, "old"),
    ):
        with pytest.raises(ProducerFenced):
            refused()
    it.abort_batch(3, "old")
    commit(it, 3, "new")
    assert (it.sink().committed_run_id, it.sink().former_run_ids) == ("new", ("old",))


def test_two_drivers_on_copies_of_a_checkpoint_commit_a_batch_once(it: SimSinks) -> None:
    write(it, 0, run="first")
    it.join(0, "second")
    it.write_markers()
    winner = write(it, 0, run="second")
    with pytest.raises(ProducerFenced):
        it.commit_batch(0, {winner: "t-0"}, "first")
    it.commit_batch(0, {winner: "t-0"}, "second")
    it.write_markers()
    assert it.states(SINK).count(PREPARE_COMMIT) == 1


def test_a_later_batch_of_the_same_run_replaces_an_open_one(it: SimSinks) -> None:
    write(it, 3)
    assert isinstance(it.join(4).error, ConcurrentTransactions)
    it.write_markers()
    me = write(it, 4)
    with pytest.raises(ProducerFenced):
        it.join(3)
    it.commit_batch(4, {me: "t-0"})


def test_requests_wait_while_a_batch_ends(it: SimSinks) -> None:
    me = write(it, 0)
    it.commit_batch(0, {me: "t-0"})
    with pytest.raises(ConcurrentTransactions):
        it.join(1)
    with pytest.raises(ConcurrentTransactions):
        it.reset()
    it.write_markers()
    assert producer(it.join(1))


def test_attempts_join_while_others_are_being_written(it: SimSinks) -> None:
    it.hold()
    assert [it.join(0) for _ in range(3)] == [None, None, None]
    with pytest.raises(ConcurrentTransactions):
        it.abort_batch(0)
    it.release()
    assert it.sinks.writers(SINK) == 3


def test_a_batch_costs_three_records_whatever_the_number_of_its_tasks(it: SimSinks) -> None:
    """From the second batch on; the first one does not know yet how many producers and which partitions it needs."""

    def batch(number: int) -> int:
        before = len(it.log)
        attempts = [write(it, number, names=f"t-{task % 5}") for task in range(40)]
        it.commit_batch(number, {me: f"t-{task % 5}" for task, me in enumerate(attempts)})
        it.write_markers()
        return len(it.log) - before

    assert [batch(number) for number in range(3)] == [11, 3, 3]


def test_producers_that_no_task_has_get_no_markers(it: SimSinks) -> None:
    many = [write(it, 0) for _ in range(10)]
    it.commit_batch(0, dict.fromkeys(many, "t-0"))
    it.write_markers()

    me = write(it, 1)
    it.commit_batch(1, {me: "t-0"})

    assert outcomes(it) == {(me[0], me[1] + 1): (True, "t-0")}
    it.write_markers()
    assert {each.producer_epoch for each in it.sink().producers} == {0, 1, 2}


def test_after_a_failover_any_producer_may_have_been_given_to_a_task(it: SimSinks) -> None:
    first, second = write(it, 0), write(it, 0)

    it.fail_over()
    third = write(it, 0)

    assert third[0] > max(first[0], second[0])
    it.commit_batch(0, {first: "t-0", third: "t-0"})
    sent = outcomes(it)
    assert [sent[each[0], 1][0] for each in (first, second, third)] == [True, False, True]


def test_bad_requests_change_nothing(it: SimSinks) -> None:
    for refused, error in (
        (lambda: it.join(0, name=""), InvalidRequest),
        (lambda: it.join(-1), InvalidRequest),
        (lambda: it.join(0, ""), InvalidRequest),
        (lambda: it.join(0, "r" * 129), InvalidRequest),
        (lambda: it.join(0, timeout_ms=0), InvalidTransactionTimeout),
        (lambda: it.join(0, timeout_ms=BrokerConfig().transaction_max_timeout_ms + 1), InvalidTransactionTimeout),
        (lambda: it.commit_batch(0, {}), InvalidProducerIdMapping),
        (it.reset, TransactionalIdNotFound),
    ):
        with pytest.raises(error):
            refused()
    assert it.abort_batch(0).error is None
    assert it.log == []


def test_a_batch_that_is_too_large_is_refused_before_it_is_open_too_far(
    it: SimSinks, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink_rules, "MOST_PRODUCERS", 2)
    monkeypatch.setattr(sink_rules, "FEWEST_RESERVED", 1)
    me = write(it, 0)
    write(it, 0)
    with pytest.raises(PolicyViolation, match="write with fewer tasks"):
        it.join(0)
    monkeypatch.setattr(sink_rules, "MOST_MARKERS", 3)
    with pytest.raises(PolicyViolation):
        it.enrol("t-1", me)
    it.commit_batch(0, {me: "t-0"})


def test_sinks_are_limited(it: SimSinks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sink_machine, "MOST_SINKS", 1)
    it.join(0)
    with pytest.raises(PolicyViolation):
        it.join(0, name="other")


def test_an_id_is_either_a_producer_s_or_a_sink(it: SimSinks) -> None:
    it.init("tx")
    it.join(0)
    with pytest.raises(InvalidRequest):
        it.join(0, name="tx")
    with pytest.raises(InvalidRequest):
        it.ask(lambda: it.shard.init_producer_id(_init(SINK), 1, it.now_ms))


def _init(name: str) -> Any:
    return InitProducerId(transactional_id=name, timeout_ms=1_000)


# Time


def test_a_batch_is_aborted_when_its_time_is_up(it: SimSinks) -> None:
    me = write(it, 0)
    it.now_ms += TIMEOUT_MS + 1

    it.abort_timed_out()

    assert outcomes(it) == {(me[0], 1): (False, "t-0")}
    with pytest.raises(ConcurrentTransactions):
        it.join(0)
    it.write_markers()
    with pytest.raises(InvalidTxnState, match="not open"):
        it.commit_batch(0, {me: "t-0"})
    assert it.states(SINK).count(PREPARE_ABORT) == 1


@pytest.mark.parametrize("renewal", ["join", "enrol", "renew", "failover"])
def test_a_batch_goes_on_while_something_happens_in_it(it: SimSinks, renewal: str) -> None:
    me = write(it, 0)
    it.now_ms += TIMEOUT_MS
    written = len(it.log)
    if renewal == "join":
        it.join(0)
    elif renewal == "enrol":
        it.enrol("t-0", me)
    elif renewal == "renew":
        assert producer(it.join(0, known=me)) == me
    else:
        it.fail_over()
    it.now_ms += TIMEOUT_MS
    it.abort_timed_out()
    assert it.states(SINK)[-1] is ONGOING
    assert renewal == "join" or len(it.log) == written, "a renewal is not written"

    it.now_ms += 1
    it.abort_timed_out()
    assert it.states(SINK)[-1] is PREPARE_ABORT
    with pytest.raises(ConcurrentTransactions):
        it.join(0, known=me)
    it.write_markers()
    with pytest.raises(InvalidTxnState):
        it.join(0, known=me)


def test_sinks_are_kept_but_those_of_one_batch_expire(it: SimSinks) -> None:
    commit(it, 0)
    it.join(0, name="job", is_one_off=True)
    it.abort_batch(0, name="job")
    it.now_ms += 400 * it.config.transactional_id_expiration_ms
    it.expire()
    assert list(it.sinks.sink_ids) == [SINK]

    it.config = BrokerConfig(sink_id_expiration_ms=1_000)
    it.fail_over()
    it.expire()
    assert list(it.sinks.sink_ids) == []
    assert it.join(0, "restarted").is_committed is False


# The log


def test_nothing_has_changed_if_the_log_takes_no_record(it: SimSinks) -> None:
    me = write(it, 0)
    before = it.value(SINK)
    it.is_broken = True
    for failing in (
        lambda: it.join(1),
        lambda: it.enrol("t-1", me),
        lambda: it.commit_batch(0, {me: "t-0"}),
        lambda: it.abort_batch(0),
    ):
        with pytest.raises(NotEnoughReplicas):
            failing()
    assert (it.value(SINK), it.markers) == (before, [])
    it.is_broken = False
    it.commit_batch(0, {me: "t-0"})


@pytest.mark.parametrize("is_commit", [True, False])
def test_the_next_coordinator_sends_the_markers_of_what_was_decided(it: SimSinks, *, is_commit: bool) -> None:
    me, loser = write(it, 0), write(it, 0)
    if is_commit:
        it.commit_batch(0, {me: "t-0"})
    else:
        it.abort_batch(0)
    sent = outcomes(it)

    it.fail_over()

    assert outcomes(it) == sent
    assert sent[loser[0], 1][0] is False
    it.write_markers()
    assert it.states(SINK)[-1] is (COMPLETE_COMMIT if is_commit else COMPLETE_ABORT)


def test_a_commit_that_is_in_the_log_is_carried_out_even_if_its_answer_came_late(it: SimSinks) -> None:
    me = write(it, 0)
    it.hold()
    assert it.commit_batch(0, {me: "t-0"}) is None, "the request waits"
    it.time_out()
    assert (it.markers, it.states(SINK)[-1]) == ([], PREPARE_COMMIT)
    it.release()
    it.fire_timers()
    it.write_markers()
    assert it.states(SINK)[-1] is COMPLETE_COMMIT
    assert it.timers == {}


def test_a_report_of_other_markers_changes_nothing(it: SimSinks) -> None:
    write(it, 0)
    it.abort_batch(0)
    [first] = it.markers
    it.write_markers()
    write(it, 0, run="restarted")
    it.abort_batch(0, "restarted")

    it.report(first)

    assert it.states(SINK)[-1] is PREPARE_ABORT


# What people and tools see


def test_a_sink_is_described_and_shown_among_the_transactional_ids(it: SimSinks) -> None:
    commit(it, 4)
    write(it, 5, names="t-1")
    shown = describe_sink(SINK, it.sinks.find(SINK), it.sinks.writers(SINK))
    assert (shown.state, shown.batch_id, shown.committed_batch_id, shown.producers) == ("Ongoing", 5, 4, 1)
    assert list(shown.partitions) == partitions_named("t-0 t-1"), "the former batch's, and one more"
    assert list_sink(SINK, it.value(SINK)).committed_batch_id == 4
    assert isinstance(describe_sink("x", None, 0).error, TransactionalIdNotFound)
    [listed] = it.shard.list(ListTransactions(states=["Ongoing"]), it.now_ms).transactions
    assert listed.transactional_id == SINK
    [described] = it.shard.describe(DescribeTransactions(transactional_ids=[SINK])).transactions
    assert list(described.partitions) == partitions_named("t-0 t-1")


def test_a_sink_that_is_reset_begins_anew(it: SimSinks) -> None:
    commit(it, 4)
    write(it, 5)
    assert isinstance(it.reset().error, ConcurrentTransactions), "its open batch is aborted first"
    it.write_markers()
    assert it.reset().error is None
    assert it.sinks.find(SINK) is None
    assert producer(it.join(0, "later"))


def test_answers_that_come_too_late_are_errors(it: SimSinks) -> None:
    it.hold()
    answers: list[Any] = []
    request = JoinBatch(sink_id=SINK, run_id="run", batch_id=0, timeout_ms=TIMEOUT_MS)
    it.carry_out(it.shard.join_batch(request, [1], it.now_ms), answers.append)
    it.time_out()
    assert isinstance(answers[0], RequestTimedOut)
