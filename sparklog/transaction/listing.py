"""Descriptions and lists of transactional ids and sinks, for operators' tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from sparklog.base.errors import InvalidRequest, TransactionalIdNotFound
from sparklog.base.ids import TopicPartition
from sparklog.base.pattern import compile_pattern
from sparklog.transaction.changes import state_of
from sparklog.transaction.requests import (
    DescribedTransaction,
    DescribeTransactions,
    DescribeTransactionsResponse,
    ListedTransaction,
    ListTransactions,
    ListTransactionsResponse,
)
from sparklog.transaction.sink_changes import producers_of, sink_of
from sparklog.transaction.sink_requests import DescribedSink, ListedSink
from sparklog.transaction.states import BY_NAME
from sparklog.transaction_topic.records import TransactionValue


def describe(
    request: DescribeTransactions,
    find: Callable[[str], TransactionValue | None],
    partitions_of: Callable[[str], Iterable[TopicPartition]],
) -> DescribeTransactionsResponse:
    """Return a description of each id, in their order; missing ids have TransactionalIdNotFound.

    find: returns the value of an id. partitions_of: returns the partitions to show for an existing id.
    """

    def one(name: str) -> DescribedTransaction:
        if not name:
            return DescribedTransaction(transactional_id=name, error=InvalidRequest("the transactional id is empty"))
        value = find(name)
        if value is None:
            return DescribedTransaction(
                transactional_id=name, error=TransactionalIdNotFound(f"there is no transactional id {name!r}")
            )
        return DescribedTransaction(
            transactional_id=name,
            state=state_of(value).text,
            timeout_ms=value.timeout_ms,
            start_ms=value.start_ms,
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            partitions=sorted(partitions_of(name)),
        )

    return DescribeTransactionsResponse(transactions=[one(name) for name in request.transactional_ids])


def list_transactions(
    request: ListTransactions, values: Iterable[tuple[str, TransactionValue]], now_ms: int
) -> ListTransactionsResponse:
    """Return the ids that pass all filters, and the names of unknown states. Raises InvalidRegularExpression.

    As in Kafka, an id without a transaction passes the filter by duration. A sink has many producers, and is listed
    once for each of them in the filter: tools look for the transactional id of a producer.
    """
    states = {BY_NAME[name] for name in request.states if name in BY_NAME}
    producer_ids = frozenset(request.producer_ids)
    pattern = compile_pattern(request.id_pattern) if request.id_pattern else None

    def producers(value: TransactionValue) -> Sequence[int]:
        present = producers_of(value)
        return [each for each in present if each in producer_ids] if producer_ids else present[:1]

    def passes(name: str, value: TransactionValue) -> bool:
        return (
            (not request.states or state_of(value) in states)
            and (request.duration_ms < 0 or now_ms - value.start_ms > request.duration_ms)
            and (pattern is None or pattern.matches(name))
        )

    return ListTransactionsResponse(
        unknown_states=[name for name in request.states if name not in BY_NAME],
        transactions=[
            ListedTransaction(transactional_id=name, producer_id=producer_id, state=state_of(value).text)
            for name, value in values
            if passes(name, value)
            for producer_id in producers(value)
        ],
    )


def describe_sink(sink_id: str, value: TransactionValue | None, writers: int) -> DescribedSink:
    """Return the description of a sink; a missing one has TransactionalIdNotFound. writers: its number of producers"""
    if value is None:
        return DescribedSink(sink_id=sink_id, error=TransactionalIdNotFound(f"there is no sink {sink_id!r}"))
    sink = sink_of(value)
    return DescribedSink(
        sink_id=sink_id,
        state=state_of(value).text,
        run_id=sink.run_id,
        batch_id=sink.batch_id,
        committed_run_id=sink.committed_run_id,
        committed_batch_id=sink.committed_batch_id,
        last_update_ms=value.last_update_ms,
        timeout_ms=value.timeout_ms,
        producers=writers,
        partitions=value.partitions or (),
    )


def list_sink(sink_id: str, value: TransactionValue) -> ListedSink:
    """Return a sink's entry in a list."""
    return ListedSink(
        sink_id=sink_id,
        state=state_of(value).text,
        committed_batch_id=sink_of(value).committed_batch_id,
        last_update_ms=value.last_update_ms,
    )
