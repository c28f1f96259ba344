"""EndTxn: the outcome of a client's commit or abort.

Transactions of TV1 keep the producer's epoch, which the request must name:

    state            commit                abort
    Empty            INVALID_TXN_STATE     INVALID_TXN_STATE
    Ongoing          PrepareCommit         PrepareAbort
    PrepareCommit    ask again             INVALID_TXN_STATE
    PrepareAbort     INVALID_TXN_STATE     ask again
    CompleteCommit   done                  INVALID_TXN_STATE
    CompleteAbort    INVALID_TXN_STATE     done

"Ask again" is CONCURRENT_TRANSACTIONS, on which clients retry. In TV2 each end raises the epoch (KIP-890). A request
with the present epoch ends the present transaction; one with the epoch before repeats the request that has ended the
last transaction:

    state            commit, present       commit, repeated      abort, present        abort, repeated
    Empty            INVALID_TXN_STATE     PRODUCER_FENCED       abort of nothing      PRODUCER_FENCED
    Ongoing          PrepareCommit         PRODUCER_FENCED       PrepareAbort          PRODUCER_FENCED
    PrepareCommit    ask again             ask again             ask again             INVALID_TXN_STATE
    PrepareAbort     ask again             PRODUCER_FENCED       ask again             ask again
    CompleteCommit   INVALID_TXN_STATE     done                  abort of nothing      INVALID_TXN_STATE
    CompleteAbort    INVALID_TXN_STATE     PRODUCER_FENCED       abort of nothing      done

A producer whose epochs are exhausted gets a fresh producer id, at epoch 0, in the answer to EndTxn. Requests with it
have to ask again while the markers are being written.

"Abort of nothing": a client sends an abort if it does not know whether a partition has joined the transaction. It may
do so while the markers of its former transaction are being written, as the answer to EndTxn, with the producer id and
epoch of the next transaction, does not wait for them. Kafka then answers PRODUCER_FENCED, on which clients close the
producer, though no other producer has fenced it.

Any other epoch is PRODUCER_FENCED, and so is a repeated request of a fenced producer. A repeated commit after an abort
means that the transaction had timed out: PRODUCER_FENCED, as in Kafka after 4.3 (KAFKA-20785), tells clients that they
can recover.
"""

from __future__ import annotations

from enum import Enum

from sparklog.base.errors import ConcurrentTransactions, InvalidProducerIdMapping, InvalidTxnState, ProducerFenced
from sparklog.transaction.changes import is_exhausted, is_following, state_of
from sparklog.transaction.requests import TV2, EndTxn
from sparklog.transaction.states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
)
from sparklog.transaction_topic.records import TransactionValue


class EndTxnOutcome(Enum):
    """The outcome of an accepted request."""

    PREPARE = "a Prepare record is written, and markers follow"
    ABORT_NOTHING = "an end without markers is written"
    DONE = "the request was carried out before"


def decide_end(value: TransactionValue, request: EndTxn) -> EndTxnOutcome:
    """Return the request's outcome.

    Raises InvalidProducerIdMapping, ProducerFenced, InvalidTxnState or ConcurrentTransactions.
    """
    return _end_v2(value, request) if request.transaction_version >= TV2 else _end_v1(value, request)


def _end_v1(value: TransactionValue, request: EndTxn) -> EndTxnOutcome:
    _check_producer_id(value, request, request.producer_id == value.producer_id)
    if request.producer_epoch != value.producer_epoch:
        raise _fenced(value, request)
    state = state_of(value)
    if state is ONGOING:
        return EndTxnOutcome.PREPARE
    if state is EMPTY or (state in {PREPARE_COMMIT, COMPLETE_COMMIT}) != request.is_commit:
        raise _invalid(value, request)
    return _done(value)


def _end_v2(value: TransactionValue, request: EndTxn) -> EndTxnOutcome:
    if is_following(value, request.producer_id, request.producer_epoch):
        raise _busy()
    state = state_of(value)
    is_same_id = request.producer_id == value.producer_id
    is_repeated = _is_repeated(value, request)
    _check_producer_id(value, request, is_same_id or is_repeated)
    if not is_repeated:
        if not is_same_id or request.producer_epoch != value.producer_epoch:
            raise _fenced(value, request)
        if state in PREPARED:
            raise _busy()
        if state is ONGOING:
            return EndTxnOutcome.PREPARE
        if request.is_commit:
            raise _invalid(value, request)
        return EndTxnOutcome.ABORT_NOTHING
    if state in {EMPTY, ONGOING}:
        raise _fenced(value, request)
    if request.is_commit and state in {PREPARE_ABORT, COMPLETE_ABORT}:
        raise _fenced(value, request)
    if not request.is_commit and state in {PREPARE_COMMIT, COMPLETE_COMMIT}:
        raise _invalid(value, request)
    return _done(value)


def _is_repeated(value: TransactionValue, request: EndTxn) -> bool:
    """Return whether the request has the producer id and epoch with which the last transaction ended."""
    if request.producer_epoch < 0 or request.producer_epoch != value.last_producer_epoch:
        return False
    if request.producer_id == value.producer_id:
        return value.producer_epoch == request.producer_epoch + 1
    # That end has exhausted the epochs of the previous producer id.
    is_first = value.producer_epoch == 0 and is_exhausted(request.producer_epoch)
    return is_first and request.producer_id == value.previous_producer_id


def _done(value: TransactionValue) -> EndTxnOutcome:
    if state_of(value) in PREPARED:
        raise _busy()
    return EndTxnOutcome.DONE


def _check_producer_id(value: TransactionValue, request: EndTxn, is_right: bool) -> None:
    if not is_right:
        raise InvalidProducerIdMapping(
            f"{request.transactional_id!r} does not belong to producer {request.producer_id}"
        )


def _busy() -> ConcurrentTransactions:
    return ConcurrentTransactions("the transaction's markers are being written")


def _fenced(value: TransactionValue, request: EndTxn) -> ProducerFenced:
    return ProducerFenced(f"epoch {request.producer_epoch} is fenced by {value.producer_epoch}")


def _invalid(value: TransactionValue, request: EndTxn) -> InvalidTxnState:
    return InvalidTxnState(f"{'commit' if request.is_commit else 'abort'} in the state {state_of(value).text}")
