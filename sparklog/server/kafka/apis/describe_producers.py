"""DescribeProducers in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import describe_producers
from sparklog.broker.apis.describe_producers import ActiveProducer, DescribeProducersRequest, PartitionProducers
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.translation import READ_PARTITIONS, KafkaCall, Translation
from sparklog.server.kafka.wide_requests import answer_in_parts

WIDE = READ_PARTITIONS._replace(response_arrays=(*READ_PARTITIONS.response_arrays, "active_producers"))


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the producers of each partition; many producers are translated in parts."""
    names = [TopicPartition(topic.name, number) for topic in request.topics for number in topic.partition_indexes]
    response = await call.serve(describe_producers.API, DescribeProducersRequest(partitions=names))

    def make(parts: list[tuple[PartitionProducers, list[ActiveProducer]]]) -> Message:
        return call.answer(
            topics=[
                {"name": topic, "partitions": [_partition(part, producers) for part, producers in some]}
                for topic, some in groupby(parts, lambda part: part[0].topic)
            ]
        )

    return await answer_in_parts(call, response.partitions, lambda part: part.producers, make, WIDE.response_arrays)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    topics = []
    for topic in request.topics:
        parts = [
            PartitionProducers(topic=topic.name, partition=number, error=error) for number in topic.partition_indexes
        ]
        topics.append({"name": topic.name, "partitions": [_partition(part, ()) for part in parts]})
    return call.answer(topics=topics)


def _partition(part: PartitionProducers, producers: Sequence[ActiveProducer]) -> dict[str, object]:
    return {
        "partition_index": part.partition,
        "error_code": part.error,
        "error_message": str(part.error) if part.error else None,
        "active_producers": [
            {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "last_sequence": each.last_sequence,
                "last_timestamp": each.last_timestamp_ms,
                "coordinator_epoch": each.coordinator_epoch,
                "current_txn_start_offset": each.transaction_first_offset,
            }
            for each in producers
        ],
    }


TRANSLATION = Translation(api=describe_producers.API, serve=serve, refuse=refuse, wide=WIDE)
