"""The way of a transaction through its coordinator, in both protocols, with everything that can go wrong on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidRegularExpression,
    InvalidRequest,
    InvalidTransactionTimeout,
    InvalidTxnState,
    NotEnoughReplicas,
    PolicyViolation,
    ProducerFenced,
    RequestTimedOut,
    TransactionalIdNotFound,
)
from sparklog.base.ids import TopicPartition
from sparklog.transaction import transaction_machine
from sparklog.transaction.events import SendMarkers
from sparklog.transaction.requests import TV1, TV2, DescribeTransactions, EndTxn, ListTransactions
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
)
from support.transactions.coordinator import ID, TIMEOUT_MS, SimCoordinator, partitions_named

LAST = 32_766
"""The last epoch that a client gets."""


@pytest.fixture
def it() -> SimCoordinator:
    return SimCoordinator()


def producer(response: Any) -> tuple[int, int]:
    assert response.error is None
    return response.producer_id, response.producer_epoch


def present(it: SimCoordinator) -> tuple[int, int]:
    return it.value().producer_id, it.value().producer_epoch


def at_epoch(it: SimCoordinator, epoch: int) -> tuple[int, int]:
    """Raise the producer's epoch to this one, without a transaction."""
    producer_id, _ = producer(it.init())
    it.put(_with(it, producer_epoch=epoch))
    return producer_id, epoch


def _with(it: SimCoordinator, **fields: Any) -> Any:
    return replace(it.value(), **fields)


# The whole way


@pytest.mark.parametrize(("commit", "last"), [(True, COMPLETE_COMMIT), (False, COMPLETE_ABORT)])
@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_transaction_ends_when_all_its_markers_are_written(it: SimCoordinator, version: int, *, commit, last) -> None:
    me = producer(it.init())
    assert it.add("a-0 b-1", me, version=version).errors == dict.fromkeys(partitions_named("a-0 b-1"))
    it.add("a-1", me, version=version)

    answer = it.end(me, commit=commit, version=version)

    epoch = me[1] + (version == TV2)
    assert producer(answer) == ((me[0], epoch) if version == TV2 else (-1, -1))
    assert it.markers == [
        SendMarkers(
            transactional_id=ID,
            producer_id=me[0],
            producer_epoch=epoch,
            is_commit=commit,
            partitions=tuple(partitions_named("a-0 a-1 b-1")),
            transaction_version=version,
        )
    ]
    it.write_markers("a-0 b-1")
    assert it.states()[-1] in {PREPARE_COMMIT, PREPARE_ABORT}
    it.write_markers("a-1")
    assert it.states() == [EMPTY, ONGOING, ONGOING, last - 2, last]
    assert it.value().partitions == ()
    it.write_markers()
    assert len(it.states()) == 5, "a marker that is reported again changes nothing"


def test_the_next_transaction_of_version_2_has_the_epoch_that_the_last_one_ended_with(it: SimCoordinator) -> None:
    me = producer(it.init())
    for _ in range(3):
        it.add("t-0", me, version=TV2)
        me = producer(it.end(me, commit=True, version=TV2))
        with pytest.raises(ConcurrentTransactions):
            it.add("t-0", me, version=TV2)
        it.write_markers()
    assert me == (100, 3)


def test_partitions_that_are_known_are_not_written_again(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0 t-1", me)
    written = len(it.log)

    assert it.add("t-1 t-0 t-1", me).errors == dict.fromkeys(partitions_named("t-0 t-1"))
    assert len(it.log) == written
    it.add("u-0 t-2", me)
    assert it.value().partitions == tuple(partitions_named("t-0 t-1 t-2 u-0"))


def test_verification_tells_partitions_of_the_transaction_from_others(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)

    errors = it.add("t-0 t-1", me, verify=True).errors

    assert errors[TopicPartition("t", 0)] is None
    assert isinstance(errors[TopicPartition("t", 1)], InvalidTxnState)
    assert it.value().partitions == (TopicPartition("t", 0),)
    with pytest.raises(ProducerFenced):
        it.add("t-0", (me[0], me[1] + 1), verify=True)
    with pytest.raises(InvalidProducerIdMapping):
        it.add("t-0", (me[0] + 1, me[1]), verify=True)
    with pytest.raises(InvalidProducerIdMapping):
        it.add("t-0", me, name="unknown", verify=True)
    it.end(me, commit=True)
    with pytest.raises(ConcurrentTransactions):
        it.add("t-0", me, verify=True)
    it.write_markers()
    assert isinstance(it.add("t-0", me, verify=True).errors[TopicPartition("t", 0)], InvalidTxnState)


def test_requests_that_name_nothing_or_another_producer_are_refused(it: SimCoordinator) -> None:
    me = producer(it.init())
    written = len(it.log)
    for refused in (
        lambda: it.init(""),
        lambda: it.add("t-0", me, name=""),
        lambda: it.end(me, commit=True, name=""),
        lambda: it.init(known=(me[0], -1)),
        lambda: it.init(known=(-1, 0)),
    ):
        with pytest.raises(InvalidRequest):
            refused()
    with pytest.raises(InvalidProducerIdMapping):
        it.end((me[0] + 1, me[1]), commit=True)
    with pytest.raises(InvalidProducerIdMapping):
        it.end(me, commit=True, name="unknown")
    for timeout_ms in (0, -1, BrokerConfig().transaction_max_timeout_ms + 1):
        with pytest.raises(InvalidTransactionTimeout):
            it.init(timeout_ms=timeout_ms)
    assert len(it.log) == written


# Producers that come and go


def test_each_new_producer_gets_a_higher_epoch(it: SimCoordinator) -> None:
    first, second = producer(it.init()), producer(it.init())

    assert (first, second) == ((100, 0), (100, 1))
    with pytest.raises(ProducerFenced):
        it.add("t-0", first)
    with pytest.raises(ProducerFenced):
        it.end(first, commit=False)


def test_a_new_producer_gets_the_settings_of_its_own_request(it: SimCoordinator) -> None:
    it.init(timeout_ms=5_000)
    it.init(timeout_ms=7_000)
    assert it.value().timeout_ms == 7_000


def test_the_last_epoch_is_followed_by_a_fresh_producer_id(it: SimCoordinator) -> None:
    at_epoch(it, LAST - 1)

    assert producer(it.init()) == (100, LAST)
    assert producer(it.init()) == (101, 0)


def test_a_producer_that_goes_on_after_an_error_gets_the_next_epoch_and_again_the_same(it: SimCoordinator) -> None:
    """KIP-360: a request that is repeated, since its answer was lost, raises no epoch twice."""
    me = producer(it.init())

    for _ in range(3):
        assert producer(it.init(known=me)) == (me[0], 1)
    it.fail_over()
    assert producer(it.init(known=me)) == (me[0], 1)
    for stranger in ((me[0] + 1, 0), (me[0] + 1, 1)):
        with pytest.raises(ProducerFenced):
            it.init(known=stranger)
    other = producer(it.init())
    for old in (me, (me[0], 1)):
        with pytest.raises(ProducerFenced):
            it.init(known=old)
    assert other == (me[0], 2)


def test_a_producer_that_goes_on_with_the_last_epoch_gets_the_same_fresh_id_again(it: SimCoordinator) -> None:
    me = at_epoch(it, LAST)

    for _ in range(3):
        assert producer(it.init(known=me)) == (101, 0)
    it.fail_over()
    assert producer(it.init(known=me)) == (101, 0)
    assert producer(it.init(known=(101, 0))) == (101, 1)
    with pytest.raises(ProducerFenced):
        it.init(known=me)


def test_an_expired_id_is_created_again_for_a_continuing_producer(it: SimCoordinator) -> None:
    assert producer(it.init(known=(7, 3))) == (100, 0)


# Fencing an open transaction


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_new_producer_aborts_the_open_transaction_with_one_higher_epoch(it: SimCoordinator, version: int) -> None:
    """kafka#19910, kafka#19976: the fence and the abort raised the epoch once each, so that it ran past the last."""
    old = producer(it.init())
    it.add("t-0", old, version=version)

    answer = it.init()

    assert isinstance(answer.error, ConcurrentTransactions)
    assert (it.states()[-1], present(it)) == (PREPARE_ABORT, (old[0], old[1] + 1))
    assert it.markers[0].producer_epoch == old[1] + 1
    assert not it.markers[0].is_commit
    with pytest.raises(ConcurrentTransactions):
        it.init()
    it.write_markers()
    assert producer(it.init()) == (old[0], old[1] + 2)


def test_a_producer_that_was_fenced_stays_fenced(it: SimCoordinator) -> None:
    old = producer(it.init())
    it.add("t-0", old, version=TV2)
    it.init()
    for refused in (
        lambda: it.init(known=old),
        lambda: it.add("t-0", old, version=TV2),
        lambda: it.end(old, commit=True, version=TV2),
        lambda: it.end(old, commit=False, version=TV2),
    ):
        with pytest.raises(ProducerFenced):
            refused()
    it.write_markers()
    before = it.value()
    for refused in (
        lambda: it.init(known=old),
        lambda: it.end(old, commit=True, version=TV2),
        lambda: it.end(old, commit=False, version=TV2),
    ):
        with pytest.raises(ProducerFenced):
            refused()
    assert it.value() == before


def test_a_producer_with_an_old_epoch_aborts_no_transaction(it: SimCoordinator) -> None:
    old = producer(it.init())
    new = producer(it.init())
    it.add("t-0", new)

    with pytest.raises(ProducerFenced):
        it.init(known=old)

    assert it.states()[-1] is ONGOING
    it.end(new, commit=True)


def test_a_producer_that_goes_on_aborts_its_own_transaction_and_gets_the_epoch_of_the_fence(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)

    assert isinstance(it.init(known=me).error, ConcurrentTransactions)
    it.write_markers()
    assert producer(it.init(known=me)) == (me[0], me[1] + 1)


def test_a_fence_of_the_last_epoch_goes_on_with_a_fresh_id(it: SimCoordinator) -> None:
    """Kafka before 4.3 gave the epoch 32767 to a client, which could not be fenced any more."""
    me = at_epoch(it, LAST)
    it.add("t-0", me, version=TV2)

    it.init()

    assert it.markers[0].producer_epoch == LAST + 1
    assert it.markers[0].producer_id == me[0]
    it.write_markers()
    assert (it.states()[-1], present(it)) == (COMPLETE_ABORT, (101, 0))
    assert producer(it.init()) == (101, 1)


def test_a_transaction_that_kafka_opened_with_epoch_32767_can_be_aborted(it: SimCoordinator) -> None:
    me = at_epoch(it, LAST)
    it.add("t-0", me, version=TV2)
    it.put(_with(it, producer_epoch=LAST + 1))

    it.init()

    assert (it.markers[0].producer_epoch, it.markers[0].transaction_version) == (LAST + 1, TV1)
    it.write_markers()
    assert producer(it.init()) == (101, 1)


# The end in version 2


def test_the_answer_to_an_end_with_the_last_epoch_names_the_fresh_id(it: SimCoordinator) -> None:
    """kafka#18758: the answer named the former id with epoch 32767; the producer then fenced itself."""
    me = at_epoch(it, LAST)
    it.add("t-0", me, version=TV2)

    answer = it.end(me, commit=True, version=TV2)

    assert producer(answer) == (101, 0)
    assert (it.markers[0].producer_id, it.markers[0].producer_epoch) == (me[0], LAST + 1)
    with pytest.raises(ConcurrentTransactions):
        it.end(me, commit=True, version=TV2)
    it.fail_over()
    following = (101, 0)
    requests: list[Callable[[], Any]] = [
        lambda: it.add("t-0", following, version=TV2),
        lambda: it.end(following, commit=False, version=TV2),
        lambda: it.init(known=following),
    ]
    for request in requests:
        with pytest.raises(ConcurrentTransactions):
            request()
    it.write_markers()
    assert producer(it.end(me, commit=True, version=TV2)) == (101, 0)
    it.fail_over()
    assert producer(it.end(me, commit=True, version=TV2)) == (101, 0)
    it.add("t-0", (101, 0), version=TV2)


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_repeated_gets_the_same_answer(it: SimCoordinator, *, commit: bool) -> None:
    me = producer(it.init())
    it.add("t-0", me, version=TV2)
    answer = it.end(me, commit=commit, version=TV2)

    with pytest.raises(ConcurrentTransactions):
        it.end(me, commit=commit, version=TV2)
    it.write_markers()
    assert it.end(me, commit=commit, version=TV2) == answer
    assert it.states().count(COMPLETE_COMMIT if commit else COMPLETE_ABORT) == 1


def test_a_late_end_cannot_end_a_later_transaction(it: SimCoordinator) -> None:
    """jepsen.io/analyses/bufstream-0.1.0: before KIP-890 a delayed commit or abort ended the next transaction."""
    me = producer(it.init())
    it.add("t-0", me, version=TV2)
    later = producer(it.end(me, commit=True, version=TV2))
    it.write_markers()
    it.add("t-0", later, version=TV2)

    for commit in (True, False):
        with pytest.raises(ProducerFenced):
            it.end(me, commit=commit, version=TV2)

    assert it.states()[-1] is ONGOING


def test_late_partitions_cannot_join_a_later_transaction(it: SimCoordinator) -> None:
    """KIP-890: they would be in a transaction that no client ends."""
    me = producer(it.init())
    it.add("t-0", me, version=TV2)
    it.end(me, commit=True, version=TV2)
    it.write_markers()

    with pytest.raises(ProducerFenced):
        it.add("t-1", me, version=TV2)

    assert it.states()[-1] is COMPLETE_COMMIT


@pytest.mark.parametrize("before", ["nothing", "commit", "abort"])
def test_an_abort_of_nothing_raises_the_epoch_without_markers(it: SimCoordinator, before: str) -> None:
    me = producer(it.init())
    if before != "nothing":
        it.add("t-0", me, version=TV2)
        me = producer(it.end(me, commit=before == "commit", version=TV2))
        it.write_markers()
    written = len(it.log)

    answer = it.end(me, commit=False, version=TV2)

    assert producer(answer) == (me[0], me[1] + 1)
    assert it.states()[written:] == [PREPARE_ABORT, COMPLETE_ABORT]
    assert it.markers == []
    assert it.end(me, commit=False, version=TV2) == answer
    with pytest.raises(InvalidTxnState):
        it.end((me[0], me[1] + 1), commit=True, version=TV2)


def test_an_abort_of_nothing_with_the_last_epoch_goes_on_with_a_fresh_id(it: SimCoordinator) -> None:
    me = at_epoch(it, LAST)
    for _ in range(2):
        assert producer(it.end(me, commit=False, version=TV2)) == (101, 0)


# Time


@pytest.mark.parametrize("version", [TV1, TV2])
def test_a_transaction_is_aborted_when_its_time_is_up(it: SimCoordinator, version: int) -> None:
    me = producer(it.init())
    it.add("t-0", me, version=version)
    it.now_ms += TIMEOUT_MS - 1
    it.add("t-1", me, version=version)
    it.now_ms += 1
    it.abort_timed_out()
    assert it.states()[-1] is ONGOING
    it.now_ms += 1

    it.abort_timed_out()

    assert (it.states()[-1], present(it)) == (PREPARE_ABORT, (me[0], me[1] + 1))
    it.abort_timed_out()
    it.write_markers()
    assert it.states().count(PREPARE_ABORT) == 1
    with pytest.raises(ProducerFenced):
        it.end(me, commit=True, version=version)
    if version == TV2:
        assert producer(it.end(me, commit=False, version=version)) == (me[0], me[1] + 1)
    else:
        assert producer(it.init(known=me)) == (me[0], me[1] + 1)


def test_a_late_abort_after_the_time_was_up_with_the_last_epoch_gets_the_fresh_id(it: SimCoordinator) -> None:
    me = at_epoch(it, LAST)
    it.add("t-0", me, version=TV2)
    it.now_ms += TIMEOUT_MS + 1
    it.abort_timed_out()
    it.write_markers()

    assert producer(it.end(me, commit=False, version=TV2)) == (101, 0)
    assert producer(it.init(known=me)) == (101, 0)


def test_the_time_of_a_transaction_begins_with_its_first_partition(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.now_ms += 2 * TIMEOUT_MS
    it.abort_timed_out()
    it.add("t-0", me)
    it.abort_timed_out()
    assert it.states() == [EMPTY, ONGOING]


def test_unused_ids_are_deleted_but_none_with_a_transaction(it: SimCoordinator) -> None:
    for name in ("unused", "committed", "open", "prepared", "busy"):
        me = producer(it.init(name))
        if name != "unused":
            it.add("t-0", me, name=name)
        if name == "prepared":
            it.end(me, commit=True, name=name)
        if name == "committed":
            it.end(me, commit=True, name=name)
            it.markers_written(it.markers.pop(), partitions_named("t-0"))
    it.now_ms += it.config.transactional_id_expiration_ms - 1
    it.expire()
    assert len(it.machine.transactional_ids) == 5
    it.now_ms += 1

    it.hold()
    it.expire()
    with pytest.raises(ConcurrentTransactions):
        it.init("unused")
    it.release()

    assert sorted(it.machine.transactional_ids) == ["busy", "open", "prepared"]
    assert [record.key.transactional_id for record in it.records() if record.value is None] == ["unused", "committed"]
    assert producer(it.init("unused"))[1] == 0
    it.fail_over()
    assert len(it.machine.transactional_ids) == 4


def test_many_unused_ids_are_deleted_in_several_calls(it: SimCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_machine, "MOST_EXPIRED", 2)
    for number in range(5):
        it.init(f"id-{number}")
    it.now_ms += it.config.transactional_id_expiration_ms

    left = []
    for _ in range(3):
        it.expire()
        left.append(len(it.machine.transactional_ids))

    assert left == [3, 1, 0]


# The log


def test_nothing_has_changed_if_the_log_takes_no_record(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me, version=TV2)
    before = it.value()
    it.is_broken = True
    for failing in (
        lambda: it.init("new"),
        it.init,
        lambda: it.add("t-1", me, version=TV2),
        lambda: it.end(me, commit=True, version=TV2),
    ):
        with pytest.raises(NotEnoughReplicas):
            failing()
    it.now_ms += TIMEOUT_MS + 1
    with pytest.raises(NotEnoughReplicas):
        it.abort_timed_out()

    assert (it.value(), it.markers) == (before, [])
    assert list(it.machine.transactional_ids) == [ID]
    it.is_broken = False
    assert producer(it.end(me, commit=True, version=TV2)) == (me[0], 1)


def test_markers_wait_until_the_decision_cannot_be_lost(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)
    it.hold()

    assert it.end(me, commit=True) is None, "the request waits"
    assert it.markers == []
    for refused in (
        lambda: it.end(me, commit=True),
        lambda: it.add("t-1", me),
        it.init,
    ):
        with pytest.raises(ConcurrentTransactions):
            refused()
    it.release()

    assert len(it.markers) == 1


def test_partitions_join_while_others_are_being_written(it: SimCoordinator) -> None:
    """A client of version 2 sends to several brokers at once, and each asks for its own partitions."""
    me = producer(it.init())
    it.hold()
    for names in ("t-0", "t-1", "t-2"):
        assert it.add(names, me, version=TV2) is None
    with pytest.raises(ConcurrentTransactions):
        it.end(me, commit=True, version=TV2)
    it.release()

    it.end(me, commit=True, version=TV2)
    assert it.markers[0].partitions == tuple(partitions_named("t-0 t-1 t-2"))


def test_a_decision_that_is_in_the_log_is_carried_out_even_if_its_commit_came_late(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)
    it.hold()
    answers: list[Any] = []
    request = EndTxn(transactional_id=ID, producer_id=me[0], producer_epoch=me[1], is_commit=True)
    it.carry_out(it.machine.end_txn(request, -1, it.now_ms), answers.append)
    it.time_out()
    assert isinstance(answers[0], RequestTimedOut)
    assert (it.markers, it.states()[-1]) == ([], PREPARE_COMMIT)

    it.release()
    it.is_broken = True
    it.fire_timers()
    it.is_broken = False
    it.fire_timers()
    it.write_markers()

    assert it.states()[-1] is COMPLETE_COMMIT
    assert it.timers == {}


def test_a_transaction_whose_end_could_not_be_written_is_completed_later(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)
    it.end(me, commit=True)
    it.is_broken = True
    with pytest.raises(NotEnoughReplicas):
        it.write_markers()
    it.is_broken = False
    it.fire_timers()

    assert it.states()[-1] is COMPLETE_COMMIT


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_coordinator_ends_what_was_prepared_in_the_same_way(it: SimCoordinator, *, commit: bool) -> None:
    me = producer(it.init())
    it.add("t-0 t-1", me, version=TV2)
    it.end(me, commit=commit, version=TV2)
    it.write_markers("t-0")
    sent = it.markers

    it.fail_over()

    assert it.markers == sent, "all markers again: nobody knows which are written"
    it.write_markers()
    assert it.states()[-1] is (COMPLETE_COMMIT if commit else COMPLETE_ABORT)


def test_a_decision_that_was_lost_with_its_coordinator_was_not_carried_out(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me)
    it.hold()
    it.end(me, commit=True)

    it.fail_over(it.committed)

    assert (it.states()[-1], it.markers) == (ONGOING, [])
    it.end(me, commit=False)
    it.write_markers()
    assert it.states()[-1] is COMPLETE_ABORT


def test_a_report_of_another_epoch_changes_nothing(it: SimCoordinator) -> None:
    me = producer(it.init())
    it.add("t-0", me, version=TV2)
    it.end(me, commit=True, version=TV2)
    old = it.markers.pop()
    it.markers_written(old, old.partitions)
    me = producer(it.end(me, commit=True, version=TV2))
    it.add("t-0", me, version=TV2)
    it.markers_written(old, old.partitions)
    it.end(me, commit=False, version=TV2)

    it.markers_written(old, old.partitions)

    assert it.states()[-1] is PREPARE_ABORT


# Limits


def test_a_transaction_has_a_limited_number_of_partitions(it: SimCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_machine, "MOST_PARTITIONS", 3)
    me = producer(it.init())
    it.add("t-0 t-1", me)
    with pytest.raises(PolicyViolation):
        it.add("t-2 t-3", me)
    it.add("t-2", me)
    it.end(me, commit=True)
    it.write_markers()
    it.add("t-4 t-5 t-6", me)


@pytest.mark.slow
def test_the_names_of_a_transaction_s_partitions_fit_into_a_record(it: SimCoordinator) -> None:
    me = producer(it.init())
    names = " ".join(f"{'x' * 240}{number}-0" for number in range(1_900))
    it.add(names, me)
    with pytest.raises(PolicyViolation):
        it.add(names.replace("x", "y"), me)
    it.end(me, commit=True)
    assert max(len(value or b"") for _, value in it.log) < 1_000_000


def test_open_transactions_have_a_limited_number_of_partitions(
    it: SimCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_machine, "MOST_PARTITIONS_IN_ALL", 3)
    first, second = producer(it.init("first")), producer(it.init("second"))
    it.add("t-0 t-1", first, name="first")
    with pytest.raises(ConcurrentTransactions):
        it.add("t-2 t-3", second, name="second")
    it.end(first, commit=True, name="first")
    with pytest.raises(ConcurrentTransactions):
        it.add("t-2 t-3", second, name="second")
    it.write_markers()
    it.add("t-2 t-3", second, name="second")


def test_a_partition_has_a_limited_number_of_ids(it: SimCoordinator, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_machine, "MOST_IDS", 1)
    it.init("first")
    with pytest.raises(PolicyViolation):
        it.init("second")
    it.init("first")


def test_without_a_fresh_id_a_producer_has_to_ask_again(it: SimCoordinator) -> None:
    me = at_epoch(it, LAST)
    assert it.machine.needs_producer_id(ID)
    assert it.machine.needs_producer_id("unknown")
    it.fresh = lambda name: -1  # type: ignore[method-assign]
    for refused in (it.init, lambda: it.init("unknown"), lambda: it.end(me, commit=False, version=TV2)):
        with pytest.raises(ConcurrentTransactions):
            refused()


# What people see


def test_describes_open_transactions(it: SimCoordinator) -> None:
    me = producer(it.init(timeout_ms=5_000))
    it.add("b-0 a-1", me)
    it.end(me, commit=True)
    it.write_markers("b-0")

    one, unknown, empty = it.shard.describe(DescribeTransactions(transactional_ids=[ID, "x", ""])).transactions

    assert (one.state, one.timeout_ms, one.start_ms, one.partitions) == (
        "PrepareCommit",
        5_000,
        1_000,
        partitions_named("a-1"),
    )
    assert (one.producer_id, one.producer_epoch) == me
    assert isinstance(unknown.error, TransactionalIdNotFound)
    assert isinstance(empty.error, InvalidRequest)


def test_lists_ids_by_state_producer_duration_and_pattern(it: SimCoordinator) -> None:
    for name in ("app-1", "app-2", "other"):
        me = producer(it.init(name))
        if name != "other":
            it.add("t-0", me, name=name)
        it.now_ms += 1_000

    def listed(**filters: Any) -> list[str]:
        found = it.shard.list(ListTransactions(**filters), it.now_ms)
        return [each.transactional_id for each in found.transactions]

    assert listed() == ["app-1", "app-2", "other"]
    assert listed(states=["Ongoing"]) == ["app-1", "app-2"]
    assert listed(states=["Empty", "Ongoing"]) == ["app-1", "app-2", "other"]
    assert listed(producer_ids=[101, 102]) == ["app-2", "other"]
    assert listed(duration_ms=2_500, states=["Ongoing"]) == ["app-1"]
    assert listed(id_pattern="app") == []
    assert listed(id_pattern="app-.*") == ["app-1", "app-2"]
    assert listed(states=["ongoing"]) == []
    assert it.shard.list(ListTransactions(states=["No", "Empty"]), 0).unknown_states == ["No"]
    assert [each.transactional_id for each in it.shard.list(ListTransactions(), 0, ["other", "gone"]).transactions] == [
        "other"
    ]
    with pytest.raises(InvalidRegularExpression):
        listed(id_pattern="(")
