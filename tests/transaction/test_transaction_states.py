"""The table of a transactional id's states."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from sparklog.transaction.changes import completed, extended, fenced, initialised, prepared
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARE_EPOCH_FENCE,
    TRANSITIONS,
    IllegalTransactionTransition,
    TransactionState,
    check_transition,
    print_table,
)
from sparklog.transaction_topic.records import TransactionValue

ILLEGAL = [pair for pair in product(TransactionState, TransactionState) if pair not in TRANSITIONS]
OVER = {EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}
KAFKA_S_PREVIOUS = {
    EMPTY: OVER,
    ONGOING: OVER | {ONGOING},
    PREPARE_COMMIT: {ONGOING},
    PREPARE_ABORT: OVER | {ONGOING, PREPARE_EPOCH_FENCE},
    COMPLETE_COMMIT: {PREPARE_COMMIT},
    COMPLETE_ABORT: {PREPARE_ABORT},
    DEAD: OVER,
    PREPARE_EPOCH_FENCE: {ONGOING},
}
"""The transitions of org.apache.kafka.coordinator.transaction.TransactionState in 4.3."""


@pytest.mark.parametrize(("state", "target"), ILLEGAL, ids=lambda each: each.name)
def test_a_transition_that_is_not_in_the_table_raises(state: TransactionState, target: TransactionState) -> None:
    with pytest.raises(IllegalTransactionTransition, match=f"{target.text} after {state.text}"):
        check_transition(state, target)


def test_the_table_has_kafka_s_transitions() -> None:
    assert {(state, target) for target, states in KAFKA_S_PREVIOUS.items() for state in states} == set(TRANSITIONS)


@pytest.mark.parametrize("state", TransactionState, ids=lambda each: each.name)
def test_changes_refuse_states_that_they_cannot_follow(state: TransactionState) -> None:
    value = TransactionValue(producer_id=1, producer_epoch=2, timeout_ms=3, status=state, last_update_ms=4)
    changes = {
        EMPTY: lambda: initialised(value, producer_id=1, epoch=3, last_epoch=2, timeout_ms=3, now_ms=5),
        ONGOING: lambda: extended(value, [], 2, 5),
        PREPARE_COMMIT: lambda: prepared(value, is_commit=True, version=2, fresh_producer_id=9, now_ms=5),
        PREPARE_ABORT: lambda: prepared(value, is_commit=False, version=2, fresh_producer_id=9, now_ms=5),
        PREPARE_EPOCH_FENCE: lambda: fenced(value, last_epoch=2, fresh_producer_id=9, now_ms=5),
    }
    for target, change in changes.items():
        if state in KAFKA_S_PREVIOUS[target]:
            assert change().last_update_ms == 5
        else:
            with pytest.raises(IllegalTransactionTransition):
                change()
    if state in {PREPARE_COMMIT, PREPARE_ABORT}:
        assert completed(value, 5).status == state + 2
    else:
        with pytest.raises(IllegalTransactionTransition):
            completed(value, 5)


def test_states_have_kafka_s_numbers_and_names() -> None:
    assert {state.value: state.text for state in TransactionState} == {
        0: "Empty",
        1: "Ongoing",
        2: "PrepareCommit",
        3: "PrepareAbort",
        4: "CompleteCommit",
        5: "CompleteAbort",
        6: "Dead",
        7: "PrepareEpochFence",
    }


def test_the_documentation_shows_the_table() -> None:
    documentation = Path(__file__).parents[2] / "docs" / "concepts" / "transactions.md"

    assert print_table() in documentation.read_text()
