"""InitProducerId: the producer id and epoch of the next producer with a transactional id.

    state            without id and epoch in the request       with the present ones (KIP-360)     with the last ones
    no such id       a fresh id, epoch 0                       a fresh id, epoch 0                 a fresh id, epoch 0
    Ongoing          abort with a fenced epoch, ask again      abort with a fenced epoch, ask      PRODUCER_FENCED
                                                               again
    Prepare*         ask again                                 ask again                           ask again
    Empty, Complete* the next epoch                            the next epoch                      the present epoch

"Ask again" is CONCURRENT_TRANSACTIONS, on which clients retry. Any other id and epoch in the request is
PRODUCER_FENCED. After the last epoch that clients get, the next epoch is epoch 0 of a fresh producer id.

A request with the last id and epoch is a retry: its producer did not get the answer with the present ones. After a
fence by another producer there are no last ones, so the fenced producer stays fenced. In Kafka it would get the epoch
of the fence, and could continue until the other producer sends its next request.

Apache Kafka also aborts an open transaction on the request of a producer with an old epoch, and then refuses the
request; here such a request changes nothing.
"""

from __future__ import annotations

from sparklog.base.errors import ConcurrentTransactions, ProducerFenced
from sparklog.transaction.changes import created, fenced, initialised, is_exhausted, is_following, state_of
from sparklog.transaction.requests import InitProducerId
from sparklog.transaction.states import ONGOING, PREPARED
from sparklog.transaction_topic.records import NO_EPOCH, NO_PRODUCER_ID, TransactionValue


def initialise(
    value: TransactionValue | None, request: InitProducerId, fresh_producer_id: int, now_ms: int
) -> TransactionValue:
    """Return the next value of the transactional id. If that prepares an abort, the producer must ask again.

    Raises ProducerFenced or ConcurrentTransactions.
    """
    if value is None:
        return created(fresh_producer_id, request.timeout_ms, now_ms)
    is_known = request.producer_id != NO_PRODUCER_ID
    asks_again = is_known and _is_last(value, request)
    if is_known and not asks_again and not _is_present(value, request):
        raise ProducerFenced(
            f"producer {request.producer_id} with epoch {request.producer_epoch} is fenced by producer "
            f"{value.producer_id} with epoch {value.producer_epoch}"
        )
    if state_of(value) in PREPARED:
        raise ConcurrentTransactions("the former transaction is about to end")
    last_epoch = value.producer_epoch if is_known else NO_EPOCH
    if state_of(value) is ONGOING:
        if asks_again:
            raise ProducerFenced(f"producer {value.producer_id} has begun a transaction since")
        return fenced(value, last_epoch=last_epoch, fresh_producer_id=fresh_producer_id, now_ms=now_ms)
    producer_id, epoch = value.producer_id, value.producer_epoch + 1
    if asks_again:
        epoch, last_epoch = value.producer_epoch, value.last_producer_epoch
    elif is_exhausted(value.producer_epoch):
        producer_id, epoch = fresh_producer_id, 0
    return initialised(
        value,
        producer_id=producer_id,
        epoch=epoch,
        last_epoch=last_epoch,
        timeout_ms=request.timeout_ms,
        now_ms=now_ms,
    )


def _is_present(value: TransactionValue, request: InitProducerId) -> bool:
    """Return whether the request has the present id and epoch, or those of its producer's next transaction."""
    asking = request.producer_id, request.producer_epoch
    return asking == (value.producer_id, value.producer_epoch) or is_following(value, *asking)


def _is_last(value: TransactionValue, request: InitProducerId) -> bool:
    """Return whether the request has the id and epoch that the present ones have replaced."""
    if request.producer_epoch == NO_EPOCH or request.producer_epoch != value.last_producer_epoch:
        return False
    owner = value.previous_producer_id if is_exhausted(request.producer_epoch) else value.producer_id
    return request.producer_id == owner
