"""The real client, and Kafka's protocol, in simulated clusters."""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable

import pytest

from sparklog.client.producer.producer import AsyncProducer
from sparklog.testing.sim.clients.users import SimUser
from sparklog.testing.sim.cluster import SimCluster
from sparklog.testing.sim.command import describe
from sparklog.testing.sim.faults import FaultKind
from sparklog.testing.sim.grpc import SimChannel
from sparklog.testing.sim.loop import SimLoop
from sparklog.testing.sim.run import as_the_seed_says, run
from sparklog.testing.sim.seed import scenario_of
from sparklog.v1 import log_pb2, records_pb2
from sparklog.v1.log_pb2_grpc import LogStub
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

Work = Callable[[SimCluster, SimUser], Awaitable[None]]


def in_a_cluster(work: Work) -> None:
    """Run it in a cluster of one broker without faults."""
    loop = SimLoop()
    with as_the_seed_says(1):
        cluster = SimCluster(loop, 1, brokers=1)

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
