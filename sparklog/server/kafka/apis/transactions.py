"""The transaction coordinator's APIs in Kafka's protocol.

- AddPartitionsToTxn has one transaction up to version 3, from clients; several from version 4 on, from brokers.
- PRODUCER_FENCED is sent as INVALID_PRODUCER_EPOCH to clients that do not know it (KIP-588).
- From version 5 on, EndTxn answers the producer id and epoch of the next transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sparklog.base.errors import InvalidProducerEpoch, KafkaError, ProducerFenced
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import transactions
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import KafkaCall, Translation, WideArrays
from sparklog.transaction.requests import AddPartitions, DescribeTransactions, EndTxn, ListTransactions

FIRST_WITH_FENCED = 2
"""The version of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn that knows PRODUCER_FENCED."""
FIRST_WITH_SEVERAL = 4
FIRST_OF_PROTOCOL_2 = 5
"""The version of EndTxn that clients of protocol 2 send."""
NO_DURATION = -1


def known_error(error: KafkaError | None, *, knows_fenced: bool) -> KafkaError | None:
    """Return the error in a form that the client's version knows."""
    if isinstance(error, ProducerFenced) and not knows_fenced:
        return InvalidProducerEpoch(str(error))
    return error


async def add_partitions(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none: of one transaction, or of several from version 4 on."""
    if call.version < FIRST_WITH_SEVERAL:
        response = await call.serve(transactions.ADD_PARTITIONS, _of_a_client(request))
        return call.answer(results_by_topic_v3_and_below=_by_topic(call, response.errors))
    wanted = transactions.AddPartitionsOfMany(transactions=[_of_a_broker(each) for each in request.transactions])
    answer = await call.serve_step(transactions.ADD_PARTITIONS_OF_MANY, wanted)
    return _answer(call, wanted, [each.errors for each in answer.transactions])


def refuse_add_partitions(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error: up to version 3 in each partition, from version 4 on at the top."""
    if call.version < FIRST_WITH_SEVERAL:
        errors: dict[TopicPartition, KafkaError | None] = dict.fromkeys(_of_a_client(request).partitions, error)
        return call.answer(results_by_topic_v3_and_below=_by_topic(call, errors))
    return call.answer(error_code=error, results_by_transaction=[])


def _of_a_client(request: Message) -> AddPartitions:
    return AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        partitions=list(_partitions(request.v3_and_below_topics)),
    )


def _of_a_broker(asked: Message) -> AddPartitions:
    return AddPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=list(_partitions(asked.topics)),
        is_verify_only=asked.verify_only,
        transaction_version=0 if asked.verify_only else 2,
    )


def _partitions(topics: Iterable[Message]) -> Iterable[TopicPartition]:
    return (TopicPartition(topic.name, number) for topic in topics for number in topic.partitions)


def _answer(
    call: KafkaCall, wanted: transactions.AddPartitionsOfMany, errors: Iterable[Mapping[TopicPartition, Any]]
) -> Message:
    return call.answer(
        error_code=None,
        results_by_transaction=[
            {"transactional_id": asked.transactional_id, "topic_results": _by_topic(call, each)}
            for asked, each in zip(wanted.transactions, errors, strict=True)
        ],
    )


def _by_topic(call: KafkaCall, errors: Mapping[TopicPartition, KafkaError | None]) -> list[dict[str, Any]]:
    knows_fenced = call.version >= FIRST_WITH_FENCED
    topics = by_topic(
        (name.topic, (name.partition, known_error(error, knows_fenced=knows_fenced))) for name, error in errors.items()
    )
    return [
        {
            "name": topic,
            "results_by_partition": [
                {"partition_index": number, "partition_error_code": error} for number, error in parts
            ],
        }
        for topic, parts in topics.items()
    ]


async def add_offsets(call: KafkaCall, request: Message) -> Message:
    """Return the error of the group's partition, or none."""
    wanted = transactions.AddOffsets(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
    )
    response = await call.serve(transactions.ADD_OFFSETS, wanted)
    return call.answer(error_code=known_error(response.error, knows_fenced=call.version >= FIRST_WITH_FENCED))


async def end(call: KafkaCall, request: Message) -> Message:
    """Return the error, or none, and from version 5 on the producer id and epoch of the next transaction."""
    wanted = EndTxn(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        transaction_version=2 if call.version >= FIRST_OF_PROTOCOL_2 else 0,
    )
    response = await call.serve(transactions.END, wanted)
    error = known_error(response.error, knows_fenced=call.version >= FIRST_WITH_FENCED)
    return call.answer(error_code=error, producer_id=response.producer_id, producer_epoch=response.producer_epoch)


def refuse_end(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without a producer."""
    return call.answer(error_code=error, producer_id=-1, producer_epoch=-1)


async def describe(call: KafkaCall, request: Message) -> Message:
    """Return the transaction or the error of each id."""
    wanted = DescribeTransactions(transactional_ids=request.transactional_ids)
    response = await call.serve(transactions.DESCRIBE, wanted)
    return call.answer(
        transaction_states=[
            {
                "error_code": found.error,
                "transactional_id": found.transactional_id,
                "transaction_state": found.state,
                "transaction_timeout": found.timeout_ms,
                "transaction_start_time": found.start_ms,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "topics": [
                    {"topic": topic, "partitions": numbers}
                    for topic, numbers in by_topic((each.topic, each.partition) for each in found.partitions).items()
                ],
            }
            for found in response.transactions
        ]
    )


def refuse_describe(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each id."""
    return call.answer(
        transaction_states=[
            {
                "error_code": error, "transactional_id": each, "transaction_state": "", "transaction_timeout": 0,
                "transaction_start_time": 0, "producer_id": 0, "producer_epoch": 0, "topics": [],
            }
            for each in request.transactional_ids
        ]
    )  # fmt: skip


async def list_transactions(call: KafkaCall, request: Message) -> Message:
    """Return the ids that pass the filters, and an error if the list is not complete yet."""
    duration_ms = getattr(request, "duration_filter", NO_DURATION)
    wanted = ListTransactions(
        states=request.state_filters,
        producer_ids=request.producer_id_filters,
        duration_ms=duration_ms,
        id_pattern=getattr(request, "transactional_id_pattern", None) or "",
    )
    response = await call.serve(transactions.LIST, wanted)
    return call.answer(
        error_code=response.error,
        unknown_state_filters=response.unknown_states,
        transaction_states=[
            {
                "transactional_id": listed.transactional_id,
                "producer_id": listed.producer_id,
                "transaction_state": listed.state,
            }
            for listed in response.transactions
        ],
    )


def refuse_list(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error and without ids."""
    return call.answer(error_code=error, unknown_state_filters=[], transaction_states=[])


ADD_PARTITIONS_TO_TXN = Translation(api=transactions.ADD_PARTITIONS, serve=add_partitions, refuse=refuse_add_partitions)
ADD_OFFSETS_TO_TXN = Translation(api=transactions.ADD_OFFSETS, serve=add_offsets)
END_TXN = Translation(api=transactions.END, serve=end, refuse=refuse_end)
DESCRIBE_TRANSACTIONS = Translation(
    api=transactions.DESCRIBE,
    serve=describe,
    refuse=refuse_describe,
    wide=WideArrays(("transactional_ids",), ("transaction_states",), once=True),
)
LIST_TRANSACTIONS = Translation(api=transactions.LIST, serve=list_transactions, refuse=refuse_list)
