"""EndTxn: each state, with each epoch that a request may have, in both protocols."""

from __future__ import annotations

import pytest

from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTxnState,
    KafkaError,
    ProducerFenced,
)
from sparklog.transaction.end_txn import EndTxnOutcome, decide_end
from sparklog.transaction.requests import TV1, TV2, EndTxn
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    TransactionState,
)
from sparklog.transaction_topic.records import TransactionValue

AGAIN, INVALID, FENCED = ConcurrentTransactions, InvalidTxnState, ProducerFenced
PREPARE, NOTHING, DONE = EndTxnOutcome.PREPARE, EndTxnOutcome.ABORT_NOTHING, EndTxnOutcome.DONE
Outcome = EndTxnOutcome | type[KafkaError]
V1: dict[TransactionState, tuple[Outcome, Outcome]] = {
    EMPTY: (INVALID, INVALID),
    ONGOING: (PREPARE, PREPARE),
    PREPARE_COMMIT: (AGAIN, INVALID),
    PREPARE_ABORT: (INVALID, AGAIN),
    COMPLETE_COMMIT: (DONE, INVALID),
    COMPLETE_ABORT: (INVALID, DONE),
}
"""Commit, abort."""
V2: dict[TransactionState, tuple[Outcome, Outcome, Outcome, Outcome]] = {
    EMPTY: (INVALID, FENCED, NOTHING, FENCED),
    ONGOING: (PREPARE, FENCED, PREPARE, FENCED),
    PREPARE_COMMIT: (AGAIN, AGAIN, AGAIN, INVALID),
    PREPARE_ABORT: (AGAIN, FENCED, AGAIN, AGAIN),
    COMPLETE_COMMIT: (INVALID, DONE, NOTHING, INVALID),
    COMPLETE_ABORT: (INVALID, FENCED, NOTHING, DONE),
}
"""Commit with the present epoch, commit repeated, abort with the present epoch, abort repeated."""


def value(state: TransactionState, **fields: int) -> TransactionValue:
    known = {"producer_id": 7, "producer_epoch": 5, "last_producer_epoch": 4, "timeout_ms": 1, "last_update_ms": 1}
    return TransactionValue(**{**known, "status": state, **fields})


def outcome(value: TransactionValue, *, commit: bool, version: int, epoch: int, producer_id: int = 7) -> Outcome:
    request = EndTxn(
        transactional_id="tx",
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=commit,
        transaction_version=version,
    )
    try:
        return decide_end(value, request)
    except KafkaError as error:
        return type(error)


@pytest.mark.parametrize("state", V1, ids=lambda each: each.name)
def test_version_1_ends_transactions_of_the_same_epoch(state: TransactionState) -> None:
    assert tuple(outcome(value(state), commit=commit, version=TV1, epoch=5) for commit in (True, False)) == V1[state]
    for epoch in (4, 6, -1):
        assert outcome(value(state), commit=True, version=TV1, epoch=epoch) is FENCED
    assert outcome(value(state), commit=True, version=TV1, epoch=5, producer_id=8) is InvalidProducerIdMapping


@pytest.mark.parametrize("state", V2, ids=lambda each: each.name)
def test_version_2_tells_the_present_transaction_from_the_last_one(state: TransactionState) -> None:
    found = tuple(
        outcome(value(state), commit=commit, version=TV2, epoch=epoch) for commit in (True, False) for epoch in (5, 4)
    )

    assert found == V2[state]
    for epoch in (3, 6, -1):
        assert outcome(value(state), commit=False, version=TV2, epoch=epoch) is FENCED
    assert outcome(value(state), commit=False, version=TV2, epoch=5, producer_id=8) is InvalidProducerIdMapping


@pytest.mark.parametrize(("state", "commit"), [(COMPLETE_COMMIT, True), (COMPLETE_ABORT, False)])
def test_a_repeated_end_is_known_after_the_epochs_were_exhausted(state: TransactionState, *, commit: bool) -> None:
    """kafka#18758: the producer still has the former id and the last epoch that clients get."""
    now = value(state, producer_id=8, previous_producer_id=7, producer_epoch=0, last_producer_epoch=32_766)

    assert outcome(now, commit=commit, version=TV2, epoch=32_766) is DONE
    assert outcome(now, commit=not commit, version=TV2, epoch=32_766) is (INVALID if commit is not False else FENCED)
    assert outcome(now, commit=commit, version=TV2, epoch=32_766, producer_id=6) is InvalidProducerIdMapping
    assert outcome(now, commit=commit, version=TV2, epoch=32_765) is InvalidProducerIdMapping


def test_a_producer_that_another_one_has_fenced_repeats_nothing() -> None:
    for state in (PREPARE_ABORT, COMPLETE_ABORT):
        fenced = value(state, last_producer_epoch=-1)
        assert outcome(fenced, commit=False, version=TV2, epoch=4) is FENCED
