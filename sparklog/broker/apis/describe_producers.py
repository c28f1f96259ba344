"""DescribeProducers: list the producers that partitions remember (key 61, version 0; KIP-664).

A producer is listed until its state expires (log/producers/producer_state.py). An error of one partition is in its own
part of the response. Only the leader answers: NOT_LEADER_OR_FOLLOWER elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from operator import itemgetter

from msgspec import Struct

from sparklog.base.acls import AclOperation
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.broker.api import Api
from sparklog.broker.rights import TOPIC, OnEach, topic_of
from sparklog.log.producers.producer_state import ProducerState
from sparklog.replica.manager import ReplicaManager
from sparklog.runtime.slices import Slices, of_many

TOGETHER = 1_000
"""Number of producers that are described in one go: a few milliseconds of work."""


class DescribeProducersRequest(Struct, frozen=True, kw_only=True):
    partitions: Sequence[TopicPartition]


class ActiveProducer(Struct, frozen=True, kw_only=True):
    """One producer's state. -1 means that there is no value."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int
    transaction_first_offset: int


class PartitionProducers(Struct, frozen=True, kw_only=True):
    topic: str
    partition: int
    error: KafkaError | None = None
    producers: Sequence[ActiveProducer] = ()


class DescribeProducersResponse(Struct, frozen=True, kw_only=True):
    partitions: Sequence[PartitionProducers]


async def handle(
    request: DescribeProducersRequest, *, replicas: ReplicaManager, slices: Slices
) -> DescribeProducersResponse:
    """Return the producers of each partition, in the order of the request and of their ids.

    Other requests are served meanwhile: a partition may have a great many producers.
    """

    async def active(states: Sequence[tuple[int, ProducerState]]) -> list[ActiveProducer]:
        return [_active(producer_id, state) for producer_id, state in states]

    async def describe(name: TopicPartition) -> PartitionProducers:
        try:
            producers = replicas.get_leader(name).log.producers
        except KafkaError as error:
            return PartitionProducers(topic=name.topic, partition=name.partition, error=error)
        states = sorted(producers.items(), key=itemgetter(0))
        found = await slices.each(of_many(states, TOGETHER), active)
        return PartitionProducers(
            topic=name.topic, partition=name.partition, producers=list(chain.from_iterable(found))
        )

    return DescribeProducersResponse(partitions=await slices.each(request.partitions, describe))


def _active(producer_id: int, state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        producer_id=producer_id,
        producer_epoch=state.epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.timestamp_ms,
        coordinator_epoch=state.coordinator_epoch,
        transaction_first_offset=state.transaction_first_offset,
    )


def _refused(part: TopicPartition, error: KafkaError) -> PartitionProducers:
    return PartitionProducers(topic=part.topic, partition=part.partition, error=error)


API = Api(
    name="DescribeProducers",
    handle=handle,
    rights=(OnEach(AclOperation.READ, TOPIC, "partitions", topic_of, _refused, "partitions"),),
    key=61,
    versions=(0, 0),
)
