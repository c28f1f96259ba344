"""The states of a transactional id, and the table of their transitions.

    Empty                 the producer has its id and epoch; no transaction yet
    Ongoing               a transaction is open: it has partitions
    PrepareCommit         the commit is decided: markers are being written to the partitions
    PrepareAbort          the abort is decided: markers are being written to the partitions
    CompleteCommit        all markers of the commit are written
    CompleteAbort         all markers of the abort are written
    PrepareEpochFence     another producer takes the id over; never written: PrepareAbort follows in the same step
    Dead                  the id has expired; never written: a tombstone deletes the id

The decision between commit and abort is final once its Prepare state is in the log: the present coordinator of the id,
and each later one, writes the markers of that decision. `python -m sparklog.transaction.states` prints the table as the
documentation shows it.
"""

from __future__ import annotations

import sys
from enum import IntEnum

from sparklog.base.errors import SparklogError


class TransactionState(IntEnum):
    """A state; the value is its number in the records of `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def text(self) -> str:
        """The state's name, as Kafka prints it."""
        return self.name.title().replace("_", "")


EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)
PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The transaction's end is decided, and its markers are being written."""
OPEN = PREPARED | {ONGOING}
"""A transaction has begun and is not complete."""
BY_NAME = {state.text: state for state in TransactionState}

_NEXT_PRODUCER = "a producer with the id starts, or asks for a new epoch"
_FIRST_PARTITION = "the first partition joins a transaction"
_ABORT_OF_NOTHING = "the client aborts a transaction that has no partition (KIP-890)"
_EXPIRED = "the id was not used for transactional.id.expiration.ms"
TRANSITIONS: dict[tuple[TransactionState, TransactionState], str] = {
    (EMPTY, EMPTY): _NEXT_PRODUCER,
    (EMPTY, ONGOING): _FIRST_PARTITION,
    (EMPTY, PREPARE_ABORT): _ABORT_OF_NOTHING,
    (EMPTY, DEAD): _EXPIRED,
    (ONGOING, ONGOING): "another partition joins the transaction",
    (ONGOING, PREPARE_COMMIT): "the client commits",
    (ONGOING, PREPARE_ABORT): "the client aborts",
    (ONGOING, PREPARE_EPOCH_FENCE): "another producer with the id starts, or the transaction's time is up",
    (PREPARE_EPOCH_FENCE, PREPARE_ABORT): "at once: the epoch of the open transaction is fenced",
    (PREPARE_COMMIT, COMPLETE_COMMIT): "the last marker is written",
    (PREPARE_ABORT, COMPLETE_ABORT): "the last marker is written",
    (COMPLETE_COMMIT, EMPTY): _NEXT_PRODUCER,
    (COMPLETE_COMMIT, ONGOING): _FIRST_PARTITION,
    (COMPLETE_COMMIT, PREPARE_ABORT): _ABORT_OF_NOTHING,
    (COMPLETE_COMMIT, DEAD): _EXPIRED,
    (COMPLETE_ABORT, EMPTY): _NEXT_PRODUCER,
    (COMPLETE_ABORT, ONGOING): _FIRST_PARTITION,
    (COMPLETE_ABORT, PREPARE_ABORT): _ABORT_OF_NOTHING,
    (COMPLETE_ABORT, DEAD): _EXPIRED,
}
"""When a state becomes another."""


class IllegalTransactionTransition(SparklogError):
    """A transition that is not in the table: a bug in the coordinator."""


def check_transition(state: TransactionState, target: TransactionState) -> TransactionState:
    """Return `target`. Raises IllegalTransactionTransition if the table has no transition to it."""
    if (state, target) not in TRANSITIONS:
        raise IllegalTransactionTransition(f"{target.text} after {state.text}")
    return target


def print_table() -> str:
    """Return the transitions as a Markdown table."""
    lines = ["| State | when | becomes |", "| --- | --- | --- |"]
    lines += [f"| {state.text} | {when} | {target.text} |" for (state, target), when in TRANSITIONS.items()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(print_table())
