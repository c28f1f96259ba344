"""Checks of sinks' requests: limits, and the batch, run and producer that a request belongs to (sink_machine.py)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sparklog.base.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTxnState,
    PolicyViolation,
    ProducerFenced,
)
from sparklog.base.ids import TopicPartition
from sparklog.transaction.changes import state_of
from sparklog.transaction.sink_changes import sink_of
from sparklog.transaction.sink_requests import AbortBatch, CommitBatch, JoinBatch, JoinBatchResponse, Winner
from sparklog.transaction.states import ONGOING, PREPARE_COMMIT
from sparklog.transaction_topic.records import NO_EPOCH, NO_PRODUCER_ID, TransactionValue
from sparklog.transaction_topic.sinks import NO_RUN, SinkProducer, SinkProducerRole, bitmap_size

MOST_PRODUCERS = 5_000
"""Maximum number of task attempts in one batch; each of its records has all of them."""
FEWEST_RESERVED, MOST_RESERVED = 8, 256
MOST_MARKERS = 1_000_000
"""Maximum of producers times partitions of one batch."""
MOST_BYTES = 900_000
"""Maximum size of a batch's producers and partitions: a record must fit into max.message.bytes."""
MOST_RUN_ID = 128
"""Maximum number of characters in a run's id."""

RunRequest = JoinBatch | CommitBatch | AbortBatch


def check_run(value: TransactionValue, request: RunRequest) -> None:
    """Raise ProducerFenced for a run that was replaced; only a join makes a run the present one."""
    sink = sink_of(value)
    is_present = request.run_id == sink.run_id
    if request.run_id in sink.former_run_ids or not (is_present or isinstance(request, JoinBatch)):
        why = f"was replaced by run {sink.run_id}" if sink.run_id != NO_RUN else "has given up its batch, or is older"
        raise ProducerFenced(f"run {request.run_id} of {request.sink_id!r} {why}")


def reserved_at_once(present: int) -> int:
    """Return the number of fresh producers for a batch whose present ones are all taken."""
    return max(1, min(max(present, FEWEST_RESERVED), MOST_RESERVED, MOST_PRODUCERS - present))


def check_size(value: TransactionValue) -> None:
    """Raise PolicyViolation if the batch has too many producers or partitions."""
    partitions = value.partitions or ()
    producers = sum(each.role is not SinkProducerRole.SPARE for each in sink_of(value).producers)
    size = sum(len(topic) + 8 for topic in {topic for topic, _ in partitions}) + 4 * len(partitions)
    size += producers * (16 + bitmap_size(len(partitions)))
    if producers > MOST_PRODUCERS or producers * len(partitions) > MOST_MARKERS or size > MOST_BYTES:
        raise PolicyViolation(
            f"{producers} task attempts that write to {len(partitions)} partitions are more than one batch may have "
            f"({MOST_PRODUCERS} attempts, {MOST_MARKERS} of both multiplied): write with fewer tasks"
        )


def check_request(request: RunRequest) -> None:
    """Raise InvalidRequest unless the ids of the sink, the run and the batch are valid."""
    if not request.sink_id:
        raise InvalidRequest("the id of the sink is empty")
    if not 0 < len(request.run_id) <= MOST_RUN_ID:
        raise InvalidRequest(f"a run id of {len(request.run_id)} characters: 1 to {MOST_RUN_ID}")
    if request.batch_id < 0:
        raise InvalidRequest(f"batch {request.batch_id}")


def is_open(value: TransactionValue, request: RunRequest) -> bool:
    """Return whether the request is about the batch that is open, of the run that has begun it."""
    sink = sink_of(value)
    return state_of(value) is ONGOING and (request.run_id, request.batch_id) == (sink.run_id, sink.batch_id)


def last_committed(value: TransactionValue) -> int:
    """Return the id of the last batch with a decided commit, or NO_BATCH."""
    sink = sink_of(value)
    return sink.batch_id if state_of(value) is PREPARE_COMMIT else sink.committed_batch_id


def already_committed(value: TransactionValue, request: JoinBatch) -> JoinBatchResponse:
    """Return the answer to a join of a batch that another run has committed.

    Raises InvalidTxnState for the run that has committed the batch.
    """
    sink = sink_of(value)
    by_run = sink.run_id if state_of(value) is PREPARE_COMMIT else sink.committed_run_id
    if request.run_id == by_run:
        raise InvalidTxnState(
            f"this run has committed batch {request.batch_id} of {request.sink_id!r} already: a query that writes "
            "twice in one batch needs a sink of its own for each write"
        )
    return JoinBatchResponse(is_committed=True)


def check_repetition(value: TransactionValue, request: CommitBatch) -> None:
    """Raise InvalidTxnState for a repeated commit of the last batch with other producers than the first commit."""
    sink = sink_of(value)
    named = [(each.producer_id, each.producer_epoch) for each in request.winners]
    if (sink.winner_id, sink.winner_epoch) != min(named, default=(NO_PRODUCER_ID, NO_EPOCH)):
        raise InvalidTxnState(
            f"batch {request.batch_id} of {request.sink_id!r} was committed without these task attempts: a query that "
            "writes twice in one batch needs a sink of its own for each write"
        )


def check_producer(value: TransactionValue, producer_id: int, epoch: int) -> SinkProducer:
    """Return the producer of a task attempt of the present batch.

    Raises InvalidProducerIdMapping if it has not joined, ProducerFenced if its epoch is another or it is spare.
    """
    found = next((each for each in sink_of(value).producers if each.producer_id == producer_id), None)
    if found is None:
        raise InvalidProducerIdMapping(f"producer {producer_id} has not joined the batch")
    if found.producer_epoch != epoch or found.role is SinkProducerRole.SPARE:
        raise ProducerFenced(f"producer {producer_id} with epoch {epoch} is not part of the present batch")
    return found


def checked_winners(value: TransactionValue, winners: Sequence[Winner]) -> Mapping[int, Sequence[TopicPartition]]:
    """Return the partitions of each chosen producer, by its id.

    Raises ProducerFenced for a producer that is not part of the batch, InvalidRequest for one that is named twice, and
    InvalidTxnState for a partition that is not part of the batch.
    """
    known = {each.producer_id: each for each in sink_of(value).producers if each.role is SinkProducerRole.JOINED}
    partitions = set(value.partitions or ())
    chosen: dict[int, Sequence[TopicPartition]] = {}
    for winner in winners:
        producer = known.get(winner.producer_id)
        if producer is None or producer.producer_epoch != winner.producer_epoch:
            raise ProducerFenced(
                f"producer {winner.producer_id} with epoch {winner.producer_epoch} is not part of the batch"
            )
        if winner.producer_id in chosen:
            raise InvalidRequest(f"producer {winner.producer_id} is named twice")
        names = [TopicPartition(topic, number) for topic, numbers in winner.topics.items() for number in numbers]
        if strange := next((name for name in names if name not in partitions), None):
            raise InvalidTxnState(f"no producer of the batch has written to {strange}")
        chosen[winner.producer_id] = names
    return chosen
