"""Requests that name tens of thousands of partitions: an error for each of them is small.

The frames of an error take kilobytes. A garbage collection that visits them in thousands of errors blocks the event
loop for a tenth of a second.
"""

from __future__ import annotations

from uuid import UUID

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import PEER_APIS, fetch, produce, write_txn_markers
from sparklog.coordinator.transaction_messages import TransactionMarker, WriteTxnMarkers
from sparklog.replica.messages import FetchPartition, ReplicaFetch

COUNT = 50
NAMES = [TopicPartition("missing", number) for number in range(COUNT)]
DATA = bytes(100)


def produced() -> produce.ProduceRequest:
    parts = [produce.PartitionProduce(topic=topic, partition=number, data=bytearray(DATA)) for topic, number in NAMES]
    return produce.ProduceRequest(partitions=parts, creates_topics=False)


def fetched() -> fetch.FetchRequest:
    parts = [
        fetch.PartitionFetch(topic=topic, partition=number, fetch_offset=0, max_bytes=1) for topic, number in NAMES
    ]
    return fetch.FetchRequest(max_bytes=1, partitions=parts)


def followed() -> ReplicaFetch:
    parts = tuple(
        FetchPartition(
            name=name, topic_id=UUID(int=1), fetch_offset=0, max_bytes=1, current_leader_epoch=0,
            last_fetched_epoch=None, log_start_offset=0,
        )
        for name in NAMES
    )  # fmt: skip
    return ReplicaFetch(
        replica_id=1, broker_epoch=1, max_wait_ms=0, min_bytes=0, max_bytes=1, session_id=0, session_epoch=-1,
        partitions=parts,
    )  # fmt: skip


def marked() -> WriteTxnMarkers:
    marker = TransactionMarker(
        producer_id=1, producer_epoch=1, is_commit=True, coordinator_epoch=1, partitions=tuple(NAMES)
    )
    return WriteTxnMarkers(markers=[marker])


async def test_an_error_for_each_partition_holds_no_frames(world) -> None:
    broker = await world.start(auto_create_topics_enable="false")
    answers = {
        "Produce": [part.error for part in (await broker.serve(produce.API, produced())).partitions],
        "Fetch": [part.error for part in (await broker.serve(fetch.API, fetched())).partitions],
        "ReplicaFetch": [part.error for part in (await broker.serve(PEER_APIS[ReplicaFetch], followed())).partitions],
        "WriteTxnMarkers": [*(await broker.serve(write_txn_markers.API, marked())).markers[0].errors.values()],
    }
    for name, errors in answers.items():
        assert len(errors) == COUNT, name
        for error in errors:
            assert isinstance(error, KafkaError), name
            assert error.__traceback__ is None, name
