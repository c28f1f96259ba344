"""WriteTxnMarkers in Kafka's protocol. Version 2 has the transaction's version (KIP-1228)."""

from __future__ import annotations

from typing import Any

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import write_txn_markers
from sparklog.coordinator.transaction_messages import MarkerResult, TransactionMarker, WriteTxnMarkers
from sparklog.server.kafka.messages import Message
from sparklog.server.kafka.responses import by_topic
from sparklog.server.kafka.translation import KafkaCall, Translation


async def serve(call: KafkaCall, request: Message) -> Message:
    """Return the error of each partition, or none, grouped by producer."""
    markers = [_marker(marker) for marker in request.markers]
    response = await call.serve(write_txn_markers.API, WriteTxnMarkers(markers=markers))
    return call.answer(markers=[_marker_result(written) for written in response.markers])


def refuse(call: KafkaCall, request: Message, error: KafkaError) -> Message:
    """Return the answer with the error in each marker's partitions."""
    markers = map(_marker, request.markers)
    return call.answer(
        markers=[
            _marker_result(MarkerResult(producer_id=each.producer_id, errors=dict.fromkeys(each.partitions, error)))
            for each in markers
        ]
    )


def _marker(marker: Message) -> TransactionMarker:
    return TransactionMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        is_commit=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=getattr(marker, "transaction_version", 0),
        partitions=[
            TopicPartition(topic.name, partition) for topic in marker.topics for partition in topic.partition_indexes
        ],
    )


def _marker_result(written: MarkerResult) -> dict[str, Any]:
    errors = by_topic((name.topic, (name.partition, error)) for name, error in written.errors.items())
    return {
        "producer_id": written.producer_id,
        "topics": [
            {
                "name": topic,
                "partitions": [{"partition_index": number, "error_code": error} for number, error in parts],
            }
            for topic, parts in errors.items()
        ],
    }


TRANSLATION = Translation(api=write_txn_markers.API, serve=serve, refuse=refuse)
