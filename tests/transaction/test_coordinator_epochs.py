"""A coordinator that is elected again, and was not informed of the leader in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.coordinator.transaction_messages import TransactionMarker
from sparklog.testing.sim.clients.transactional import OutcomeUnknown, TransactionalProducer
from sparklog.testing.sim.cluster import SimCluster, logs_in_trace
from sparklog.testing.sim.kafka import SimKafka, raise_for
from sparklog.testing.sim.loop import SimLoop
from sparklog.testing.sim.run import as_the_seed_says
from sparklog.transaction.coordinator import TRANSACTIONS_TOPIC
from sparklog.transaction.marker_sender import MarkerFenced, MarkerSender

SETTINGS = {"transaction.state.log.num.partitions": "1", "transaction.state.log.min.isr": "1"}
CREATE_TOPICS, LIST_TRANSACTIONS = 19, 66
T, STATE = TopicPartition("t", 0), TopicPartition(TRANSACTIONS_TOPIC, 0)


async def create_topic(client: SimKafka) -> None:
    topic = {"name": T.topic, "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    await client.ask(client.anyone(), CREATE_TOPICS, 4, topics=[topic], timeout=5_000, validate_only=False)


async def is_open(client: SimKafka, address: str) -> bool:
    try:
        told = await client.ask(address, LIST_TRANSACTIONS, 0, state_filters=("PrepareCommit",), producer_id_filters=())
        raise_for(told.error_code)
    except KafkaError:
        return True
    return bool(told.transaction_states)


def test_a_coordinator_that_is_elected_again_sends_the_markers_that_an_epoch_in_between_has_fenced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[int] = []
    send = MarkerSender.send

    async def fence_first(self: MarkerSender, marker: TransactionMarker, is_wanted: Callable[[], bool]) -> bool:
        sent.append(marker.coordinator_epoch)
        if len(sent) == 1:
            raise MarkerFenced("a leader in between has ended a transaction")
        return await send(self, marker, is_wanted)

    monkeypatch.setattr(MarkerSender, "send", fence_first)
    loop = SimLoop()

    async def main() -> bool:
        await cluster.start()
        addresses = [node.name for node in cluster.nodes.values()]
        client, late = (SimKafka(name, cluster.network, addresses, cluster.stream(name)) for name in ("client", "late"))
        await create_topic(client)
        producer = TransactionalProducer(client, late, "payments", is_v2=False, timeout_ms=4_000)
        while not producer.is_ready:
            try:
                await producer.initialise(is_new_process=True)
            except OutcomeUnknown:
                continue
        await producer.begin([T])
        await producer.send(T, "paid")
        await producer.end(is_commit=True)
        leader = cluster.states()[STATE]["leader"]
        address = cluster.nodes[leader].name
        assert await is_open(client, address)
        await cluster.nodes[1 - leader].stop()  # the leader of the rest of the ISR gets a new epoch
        assert (cluster.states()[STATE]["leader"], cluster.states()[STATE]["leader_epoch"]) == (leader, 1)
        for _ in range(100):
            await asyncio.sleep(0.2)
            if not await is_open(client, address):
                return True
        return False

    with as_the_seed_says(1):
        cluster = SimCluster(loop, 1, brokers=2, settings=SETTINGS)
        with logs_in_trace(cluster):
            has_ended = loop.run(main())

    assert has_ended
    assert sent == [0, 1]
