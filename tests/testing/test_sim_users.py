"""The real client, and Kafka's protocol, in simulated clusters."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from sparklog.base.errors import LeaderNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.client.producer.producer import AsyncProducer
from sparklog.testing.sim.clients.users import SimUser
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.command import describe
from sparklog.testing.sim.faults import FaultKind
from sparklog.testing.sim.grpc import SimChannel
from sparklog.testing.sim.kafka import SimKafka
from sparklog.testing.sim.loop import SimLoop
from sparklog.testing.sim.run import as_the_seed_says, run
from sparklog.testing.sim.seed import scenario_of
from sparklog.v1 import log_pb2, records_pb2
from sparklog.v1.log_pb2_grpc import LogStub
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

CREATE_TOPICS = 19

Work = Callable[[SimCluster, SimUser], Awaitable[None]]


def in_a_cluster(work: Work, brokers: int = 1) -> None:
    """Run it in a cluster without faults but those it makes."""
    loop = SimLoop()
    with as_the_seed_says(1):
        cluster = SimCluster(loop, 1, brokers=brokers)

        async def main() -> None:
            await cluster.start()
            await work(cluster, SimUser("user", loop, cluster.network, [cluster.nodes[0].name], "1"))

        loop.run(main())
    assert (cluster.findings, loop.errors) == ([], [])


def test_records_are_written_by_the_real_client() -> None:
    async def work(_: SimCluster, user: SimUser) -> None:
        async with AsyncProducer(**user.options()) as producer:
            deliveries = [await producer.send("t", str(number), partition=0) for number in range(5)]
            assert [(await delivery).offset for delivery in deliveries] == list(range(5))

    in_a_cluster(work)


def test_a_produce_is_answered_though_the_store_loses_the_answer_to_a_topic_s_creation() -> None:
    async def work(cluster: SimCluster, user: SimUser) -> None:
        cluster.nodes[0].lose_answer()
        stub = LogStub(SimChannel(cluster.network, user.name, cluster.nodes[0].name))  # type: ignore[no-untyped-call]
        records = records_pb2.RecordList(records=[records_pb2.Record(value=b"v")])
        part = log_pb2.PartitionProduce(topic="t", partition=0, records=records)
        answer = await stub.Produce(log_pb2.ProduceRequest(partitions=[part]), timeout=10)
        [told] = answer.partitions
        assert not told.HasField("error") or told.error.retriable

    in_a_cluster(work)


def test_a_client_of_kafka_s_protocol_ignores_the_metadata_of_a_leader_that_has_been_replaced() -> None:
    name = TopicPartition("t", 0)

    async def work(cluster: SimCluster, _: SimUser) -> None:
        addresses = [node.name for node in cluster.nodes.values()]
        client, zombies = (
            SimKafka(each, cluster.network, [], cluster.stream(each)) for each in ("client", "client of zombies")
        )
        topic = {"name": "t", "num_partitions": 1, "replication_factor": 3, "assignments": (), "configs": ()}
        await zombies.ask(addresses[0], CREATE_TOPICS, 4, topics=[topic], timeout=5_000, validate_only=False)
        leader = cluster.states()[name]["leader"]
        for other in addresses:
            cluster.network.block(other, addresses[leader])
        cluster.nodes[leader].cut_store()
        assert await cluster.wait_until(lambda: cluster.states()[name]["leader"] != leader, 30, "a new leader")
        elected = cluster.states()[name]["leader"]
        await asyncio.sleep(1)  # virtual time, in which the controller informs the new leader

        async def look_up(asking: SimKafka, broker: int) -> tuple[str, int] | None:
            asking.forget_leader(name)
            asking.bootstrap = [addresses[broker]]
            try:
                return await asking.leader(name)
            except LeaderNotAvailable:
                return None

        assert await look_up(client, elected) == (addresses[elected], 1)
        assert await look_up(zombies, leader) == (addresses[leader], 0)
        assert await look_up(client, leader) is None
        assert await look_up(client, elected) == (addresses[elected], 1)

    in_a_cluster(work, brokers=3)


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    "kinds",
    [
        [FaultKind.KILL, FaultKind.PAUSE, FaultKind.LOST_ANSWER],
        [FaultKind.HANG, FaultKind.SLOW],
        [FaultKind.DAMAGE, FaultKind.RESTART],
        [FaultKind.DRIFT, FaultKind.CLOCK, FaultKind.DOUBLE],
    ],
    ids=str,
)
def test_users_lose_nothing(kinds: list[FaultKind]) -> None:
    for seed in seeds(1, soak=20):
        verdict = run(dataclasses.replace(scenario_of(seed, kinds=kinds), users=2, administers=True))
        assert verdict.anomalies == [], describe(verdict)
