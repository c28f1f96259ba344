"""TxnOffsetCommit in Kafka's protocol. Generation, member and instance are sent from version 3 on (KIP-447)."""

from __future__ import annotations

from collections.abc import Mapping

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import txn_offset_commit
from sparklog.coordinator.transaction_messages import TransactionProtocol
from sparklog.group.requests import NO_MEMBER, OffsetToCommit, TxnOffsetCommit
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation

FIRST_WITH_ABORTABLE = 4
FIRST_OF_PROTOCOL_2 = 5


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none."""
    response = await call.serve(txn_offset_commit.API, _commit(call, request))
    return _answer(call, response.errors)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    return _answer(call, _commit(call, request).refused(error).errors)


def _commit(call: KafkaCall, request: Message) -> TxnOffsetCommit:
    return TxnOffsetCommit(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        group_id=request.group_id,
        generation_or_epoch=getattr(request, "generation_id", -1),
        member_id=getattr(request, "member_id", NO_MEMBER),
        group_instance_id=getattr(request, "group_instance_id", None),
        protocol=TransactionProtocol(
            enrols=call.version >= FIRST_OF_PROTOCOL_2, knows_abortable=call.version >= FIRST_WITH_ABORTABLE
        ),
        offsets=[
            OffsetToCommit(
                partition=TopicPartition(topic.name, part.partition_index),
                offset=part.committed_offset,
                leader_epoch=getattr(part, "committed_leader_epoch", -1),
                metadata=part.committed_metadata or "",
            )
            for topic in request.topics
            for part in topic.partitions
        ],
    )


def _answer(call: KafkaCall, errors: Mapping[TopicPartition, KafkaError | None]) -> Message:
    topics = by_topic((name.topic, (name.partition, error)) for name, error in errors.items())
    return call.answer(
        topics=[
            {
                "name": topic,
                "partitions": [{"partition_index": number, "error_code": error} for number, error in parts],
            }
            for topic, parts in topics.items()
        ]
    )


TRANSLATION = Translation(api=txn_offset_commit.API, serve=serve, refuse=refuse, wide=PARTITIONS)
