"""Brokers that are cut off from the cluster answer with old metadata, and clients ask other brokers too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from random import Random
from typing import Any
from uuid import UUID

import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.errors import (
    InconsistentTopicId,
    NotCoordinator,
    NotEnoughReplicas,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.client.aio import AsyncConsumer, AsyncProducer
from sparklog.client.cluster import Cluster
from sparklog.client.config import ClientConfig
from sparklog.client.coordinator import Coordinator
from sparklog.records.records import Record, write_records
from sparklog.v1 import admin_pb2, groups_pb2, groups_pb2_grpc, log_pb2
from support.brokers.scripted import ScriptedBroker, running
from support.patience import PATIENCE_MS, PATIENCE_S

OLD, NEW = 0, 1
NOBODY = -1
PARTITION = TopicPartition("t", 0)
TOPIC, ANOTHER = UUID(int=1), UUID(int=2)


class Opinionated(ScriptedBroker, groups_pb2_grpc.GroupsServicer):
    """A broker with its own view of leader, epoch and coordinator."""

    def __init__(self, leader: int, epoch: int) -> None:
        super().__init__(partitions=1)
        self.leader, self.epoch, self.topic_id = leader, epoch, str(TOPIC)
        self.coordinator = leader
        self.all: list[Opinionated] = []
        self.is_hung = False

    async def DescribeCluster(self, request: Any, context: Any) -> Any:  # noqa: N802
        brokers = [admin_pb2.Broker(id=number, grpc_address=each.address) for number, each in enumerate(self.all)]
        return admin_pb2.DescribeClusterResponse(cluster_id="c", controller_id=NEW, brokers=brokers)

    async def DescribeTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        described = {"leader": self.leader, "leader_epoch": self.epoch}
        parts = [admin_pb2.PartitionDescription(partition=number, **described) for number in range(self.partitions)]
        topic = admin_pb2.TopicDescription(name="t", partitions=parts, topic_id=self.topic_id)
        if not self.partitions:
            topic.error.code = UnknownTopicOrPartition.code
        return admin_pb2.DescribeTopicsResponse(topics=[topic])

    async def FindCoordinator(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.is_hung:
            await asyncio.sleep(3_600)
        address = self.all[self.coordinator].address
        found = groups_pb2.Coordinator(group_id="g", broker_id=self.coordinator, grpc_address=address)
        return groups_pb2.FindCoordinatorResponse(coordinators=[found])

    async def Heartbeat(self, request: Any, context: Any) -> Any:  # noqa: N802
        error = NotCoordinator("another broker is it")
        refused = groups_pb2.HeartbeatResponse()
        refused.error.code, refused.error.message = error.code, str(error)
        return refused if self.leader == OLD else groups_pb2.HeartbeatResponse()

    async def OffsetFetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        at = groups_pb2.CommittedOffset(topic="t", partition=0, offset=10, leader_epoch=5, topic_id=self.topic_id)
        return groups_pb2.OffsetFetchResponse(partitions=[at])

    async def Fetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        [asked] = request.partitions
        part = log_pb2.PartitionFetched(topic="t", partition=0, high_watermark=11, next_offset=asked.fetch_offset)
        if asked.topic_id != self.topic_id:
            part.error.code = InconsistentTopicId.code
        elif self.epoch < 5:
            error = OffsetOutOfRange("offset 10 is not in t-0, with offsets 0 to 7")
            part.error.code, part.error.message = error.code, str(error)
        elif asked.fetch_offset == 10:
            part.batches, part.next_offset = bytes(write_records([Record(offset=10, value=b"next")])), 11
        return log_pb2.FetchResponse(partitions=[part])

    async def ListOffsets(self, request: Any, context: Any) -> Any:  # noqa: N802
        return log_pb2.ListOffsetsResponse(partitions=[log_pb2.PartitionOffset(topic="t", partition=0, offset=7)])


@pytest.fixture
async def brokers() -> AsyncIterator[list[Opinionated]]:
    """Two brokers: in its own view the first is still the leader; the second is."""
    both = [Opinionated(OLD, 4), Opinionated(NEW, 5)]
    async with AsyncExitStack() as stack:
        for broker in both:
            broker.all = both
            await stack.enter_async_context(running(broker))
        yield both


@pytest.fixture
async def cluster(brokers: list[Opinionated]) -> AsyncIterator[Cluster]:
    addresses = ",".join(broker.address for broker in brokers)
    cluster = Cluster(ClientConfig.parse({"bootstrap_servers": addresses}), SystemClock(), Random(0))
    yield cluster
    await cluster.close()


async def test_who_sends_a_producer_to_a_leader_that_takes_nothing_is_not_the_only_one_asked(
    brokers: list[Opinionated],
) -> None:
    cut_off, leader = brokers
    cut_off.script.extend([NotEnoughReplicas("nobody copies from here")] * 1_000)
    options = {"linger_ms": 0, "retry_backoff_ms": 1, "retry_backoff_max_ms": 5}
    async with AsyncProducer(bootstrap_servers=[each.address for each in brokers], **options) as producer:
        async with asyncio.timeout(PATIENCE_S):
            assert (await (await producer.send("t", b"v", partition=0))).offset == 0
    assert leader.values[PARTITION] == [b"v"]


async def test_a_leader_of_an_older_epoch_than_is_known_is_not_believed(
    brokers: list[Opinionated], cluster: Cluster
) -> None:
    cut_off, _ = brokers
    cut_off.leader, cut_off.epoch = NEW, 5
    assert (await cluster.topic("t", PATIENCE_MS)).leader_of(0) == NEW
    cut_off.leader, cut_off.epoch = OLD, 4
    told = []
    for _ in range(4):
        cluster.lost_leader(PARTITION)
        told.append((await cluster.topic("t", PATIENCE_MS)).leader_of(0))
    assert set(told) == {NEW, NOBODY}


async def test_a_broker_that_has_not_heard_of_more_partitions_takes_none_away(
    brokers: list[Opinionated], cluster: Cluster
) -> None:
    cut_off, leader = brokers
    cut_off.leader, cut_off.epoch = NEW, 5
    cut_off.partitions = leader.partitions = 2
    assert (await cluster.topic("t", PATIENCE_MS)).leaders == (NEW, NEW)
    cut_off.partitions = 1
    told = []
    for _ in range(4):
        cluster.lost_leader(PARTITION)
        told.append((await cluster.topic("t", PATIENCE_MS)).leaders)
    assert set(told) == {(NEW, NOBODY), (NEW, NEW)}


async def test_a_partition_that_is_not_known_yet_is_looked_up(brokers: list[Opinionated], cluster: Cluster) -> None:
    """A group's leader has heard of it, and has assigned it to a member with older metadata."""
    cut_off, leader = brokers
    assert (await cluster.topic("t", PATIENCE_MS)).leaders == (OLD,)
    cut_off.leader, cut_off.epoch, cut_off.partitions, leader.partitions = NEW, 5, 2, 2
    added = TopicPartition("t", 1)
    cluster.lost_leader(added)
    await cluster.topic("t", PATIENCE_MS)
    known = cluster.known_leader(added)
    assert known is not None
    assert known.address == leader.address


async def test_a_leader_of_an_older_epoch_than_that_of_a_commit_is_not_read_from(brokers: list[Opinionated]) -> None:
    """Its log ends below the committed offset, so the group would begin again."""
    cut_off, leader = brokers
    cut_off.all = [cut_off, leader]
    async with AsyncConsumer(
        bootstrap_servers=cut_off.address, group_id="g", auto_offset_reset="earliest", retry_backoff_ms=1
    ) as consumer:
        consumer.assign([PARTITION])
        async with asyncio.timeout(PATIENCE_S):
            while not (records := await consumer.poll(100)):
                assert consumer.known_position(PARTITION) in (None, 10)
                cut_off.leader, cut_off.epoch = leader.leader, leader.epoch  # it hears of it
    assert [record.value for record in records] == [b"next"]


@pytest.mark.parametrize("knows_earlier", [True, False], ids=["the topic before it", "no such topic"])
@pytest.mark.parametrize("group_id", ["g", None])
async def test_a_broker_that_has_not_heard_of_a_new_topic_takes_nobodys_position(
    brokers: list[Opinionated], *, knows_earlier: bool, group_id: str | None
) -> None:
    cut_off, _ = brokers
    cut_off.topic_id, cut_off.coordinator = str(ANOTHER), NEW
    cut_off.partitions = int(knows_earlier)
    async with AsyncConsumer(
        bootstrap_servers=cut_off.address, group_id=group_id, auto_offset_reset="earliest", retry_backoff_ms=1
    ) as consumer:
        consumer.assign([PARTITION])
        if group_id is None:
            consumer._assignment.state(PARTITION).begin_at(10, 5, str(TOPIC))
        async with asyncio.timeout(PATIENCE_S):
            while not (records := await consumer.poll(100)):
                assert consumer.known_position(PARTITION) in (None, 10)
    assert [record.value for record in records] == [b"next"]


async def test_a_topic_that_was_created_again_begins_with_its_own_epochs(
    brokers: list[Opinionated], cluster: Cluster
) -> None:
    for broker in brokers:
        broker.leader, broker.epoch = NEW, 5
    await cluster.topic("t", PATIENCE_MS)
    for broker in brokers:
        broker.leader, broker.epoch, broker.topic_id = OLD, 0, str(ANOTHER)
    cluster.outdated("t")
    assert (await cluster.topic("t", PATIENCE_MS)).leader_of(0) == OLD


async def test_who_names_a_coordinator_that_is_none_is_not_the_only_one_asked(cluster: Cluster) -> None:
    coordinator = Coordinator(cluster, "g")
    async with asyncio.timeout(PATIENCE_S):
        answer = await coordinator.ask_until("Heartbeat", groups_pb2.HeartbeatRequest(group_id="g"), PATIENCE_MS)
    assert not answer.HasField("error")


@pytest.mark.slow
async def test_a_broker_that_was_silent_once_is_asked_again_when_the_other_is_wrong(
    brokers: list[Opinionated], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.client.coordinator.LEARNING_TIMEOUT_MS", 200)
    brokers[NEW].is_hung = True
    coordinator = Coordinator(cluster, "g")
    request = groups_pb2.HeartbeatRequest(group_id="g")
    for _ in range(2):
        assert (await coordinator.ask("Heartbeat", request, PATIENCE_MS)).error.code == NotCoordinator.code
    brokers[NEW].is_hung = False
    async with asyncio.timeout(PATIENCE_S):
        await coordinator.ask_until("Heartbeat", request, PATIENCE_MS)


@pytest.mark.slow
async def test_a_broker_that_hangs_does_not_keep_the_coordinator_from_being_found_for_a_session(
    brokers: list[Opinionated], cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sparklog.client.coordinator.LEARNING_TIMEOUT_MS", 200, raising=False)
    brokers[OLD].is_hung = True
    request = groups_pb2.HeartbeatRequest(group_id="g")
    async with asyncio.timeout(PATIENCE_S):
        answer = await Coordinator(cluster, "g").ask("Heartbeat", request, PATIENCE_MS)
    assert not answer.HasField("error")
