"""DeleteRecords in Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence

from sparklog.base.errors import KafkaError
from sparklog.broker.apis import delete_records
from sparklog.broker.apis.delete_records import DeleteRecordsRequest, RecordDeletionResult, RecordsToDelete
from sparklog.server.kafka.messages import Message, whole_ms
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import PARTITIONS, KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the low watermark or the error of each partition."""
    wanted = DeleteRecordsRequest(partitions=_parts(request), timeout_ms=whole_ms(request.timeout))
    response = await call.serve(delete_records.API, wanted)
    return _answer(call, response.partitions)


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each partition."""
    return _answer(
        call,
        [RecordDeletionResult(topic=part.topic, partition=part.partition, error=error) for part in _parts(request)],
    )


def _parts(request: Message) -> list[RecordsToDelete]:
    return [
        RecordsToDelete(topic=topic.name, partition=part.partition_index, before_offset=part.offset)
        for topic in request.topics
        for part in topic.partitions
    ]


def _answer(call: KafkaCall, parts: Sequence[RecordDeletionResult]) -> Message:
    topics = by_topic(
        (
            part.topic,
            {
                "partition_index": part.partition,
                "low_watermark": part.log_start_offset,
                "error_code": part.error,
            },
        )
        for part in parts
    )
    return call.answer(topics=[{"name": name, "partitions": partitions} for name, partitions in topics.items()])


TRANSLATION = Translation(api=delete_records.API, serve=serve, refuse=refuse, wide=PARTITIONS)
