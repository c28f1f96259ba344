"""Decisions in a cluster are records of its topic `__cluster_history`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.errors import InvalidRecord, NetworkException, NotLeaderOrFollower, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker import cluster_history
from sparklog.broker.apis import create_partitions, delete_topics, partition_reassignments
from sparklog.broker.cluster_history import ClusterHistory
from sparklog.cluster.history import HISTORY, HISTORY_TOPIC, AppendHistory, HistoryKind
from sparklog.cluster.metadata_cache import MetadataCache
from sparklog.cluster.model import BrokerInfo, PartitionInfo, Topic
from sparklog.group.requests import JoinGroup, SyncGroup
from sparklog.records.batch import iterate_headers
from sparklog.records.records import iterate_records
from sparklog.replica.messages import LeaderAndIsr
from support import patience as wait
from support.brokers import on_one_loop
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS, PATIENCE_S

T0 = TopicPartition("t", 0)
SLOW_S = 0.1
Found = list[dict[str, Any]]


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_history, "LINGER_S", 0.001)
    monkeypatch.setattr(cluster_history, "RETRY_BACKOFF_S", 0.005)


def records_in(data: bytes) -> Found:
    positions = [position for position, _ in iterate_headers(data)]
    return [json.loads(record.value or b"") for position in positions for record in iterate_records(data, position)]


def leader_of_history(cluster: BrokersOnOneLoop) -> int:
    info = next(iter(cluster.brokers.values())).services.metadata.find_partition(HISTORY)
    return info.leader if info else -1


async def noted(cluster: BrokersOnOneLoop) -> Found:
    leader = leader_of_history(cluster)
    if leader not in cluster.brokers:
        return []
    try:
        return records_in(await cluster.read(leader, HISTORY))
    except (UnknownTopicOrPartition, NotLeaderOrFollower):
        return []


async def until(cluster: BrokersOnOneLoop, is_there: Callable[[dict[str, Any]], bool]) -> Found:
    """Return all records, once one of them is as wanted."""
    found: Found = []
    async with asyncio.timeout(PATIENCE_S):
        while not any(map(is_there, found)):
            await asyncio.sleep(0.005)
            found = await noted(cluster)
    return found


async def start(*ids: int, **settings: str) -> BrokersOnOneLoop:
    settings = {"controlled_shutdown_timeout_ms": str(PATIENCE_MS)} | settings
    cluster = BrokersOnOneLoop(cluster_history_enable="true", **settings)
    await cluster.start(*ids)
    metadata = cluster.brokers[ids[0]].services.metadata
    assert await metadata.wait_until(lambda: set(ids) <= metadata.brokers.keys(), PATIENCE_MS)
    return cluster


async def test_elections_and_brokers_that_come_and_go_are_in_the_history() -> None:
    cluster = await start(1, 2)
    await cluster.create("t", [[2, 1]])
    await cluster.stop(2)
    found = await until(cluster, lambda each: (each["kind"], each.get("broker")) == ("broker down", 2))
    await cluster.stop_all()

    assert [each["kind"] for each in found[:2]] == ["controller elected", "broker up"]
    assert [each["broker"] for each in found if each["kind"] == "broker up"] == [1, 2]
    elections = [each for each in found if each["kind"] == "leader elected" and each["topic"] == "t"]
    assert [(each["leader"], each["previous_leader"], each["reason"], each["unclean"]) for each in elections] == [
        (2, -1, "new", False),
        (1, 2, "controlled shutdown", False),
    ]
    assert elections[1]["leader_epoch"] > elections[0]["leader_epoch"]
    assert all(each["time_ms"] > 0 for each in found)


@pytest.mark.slow
async def test_isr_changes_of_leaders_that_do_not_lead_the_history_are_in_it() -> None:
    cluster = await start(1, 2, 3)
    await until(cluster, lambda each: each["kind"] == "broker up" and each["broker"] == 3)
    keeper = leader_of_history(cluster)
    leader, follower = [each for each in cluster.brokers if each != keeper]
    await cluster.create("t", [[leader, follower]])
    await cluster.stop(follower)
    await cluster.until_led(T0, leader, isr={leader})
    await cluster.start(follower)
    found = await until(cluster, lambda each: each["kind"] == "ISR changed" and each.get("topic") == "t")
    await cluster.stop_all()

    [change] = [each for each in found if each["kind"] == "ISR changed" and each["topic"] == "t"]
    assert (change["by"], change["leader"]) == (leader, leader)
    assert (change["previous_isr"], change["isr"]) == ([leader], [leader, follower])


@pytest.mark.slow
async def test_topics_configs_and_moves_are_in_the_history() -> None:
    cluster = await start(1, 2)
    broker = cluster.brokers[1]
    await cluster.create("t", [[1]], retention_ms="1000")
    await broker.serve(
        create_partitions.API,
        create_partitions.CreatePartitionsRequest(topics=[create_partitions.NewPartitions(name="t", total=2)]),
    )
    await broker.serve(
        partition_reassignments.ALTER_PARTITION_REASSIGNMENTS,
        partition_reassignments.AlterPartitionReassignmentsRequest(targets={T0: (2,)}),
    )
    await until(cluster, lambda each: each["kind"] == "reassignment completed")
    await broker.services.topics.alter("t", lambda topic: {**topic.overrides, "retention.ms": "2000"})
    await broker.services.topics.alter_broker(1, lambda given: {**given, "leader.replication.throttled.rate": "3000"})
    await until(cluster, lambda each: each["kind"] == "config changed" and each.get("broker") == 1)
    await broker.serve(
        delete_topics.API, delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name="t")])
    )
    found = await until(cluster, lambda each: each["kind"] == "topic deleted")
    await cluster.stop_all()

    def those(kind: HistoryKind) -> list[dict[str, Any]]:
        return [each for each in found if each["kind"] == kind.value and each.get("topic", "t") == "t"]

    assert [(each["partitions"], each["configs"]) for each in those(HistoryKind.TOPIC_CREATED)] == [
        (1, {"retention.ms": "1000"})
    ]
    assert [each["partitions"] for each in those(HistoryKind.PARTITIONS_ADDED)] == [2]
    assert [(each["origin"], each["target"]) for each in those(HistoryKind.REASSIGNMENT_BEGUN)] == [([1], [2])]
    assert [each["replicas"] for each in those(HistoryKind.REASSIGNMENT_COMPLETED)] == [[2]]
    changed = those(HistoryKind.CONFIG_CHANGED)
    assert changed[0]["configs"] == {"retention.ms": "2000"}
    assert (changed[-1]["broker"], changed[-1]["keys"]) == (1, ["leader.replication.throttled.rate"])
    assert len(those(HistoryKind.TOPIC_DELETED)) == 1


async def test_generations_of_groups_are_in_the_history() -> None:
    cluster = await start(1, offsets_topic_replication_factor="1")
    groups = cluster.brokers[1].services.groups
    join = JoinGroup(
        group_id="g", session_timeout_ms=600_000, rebalance_timeout_ms=600_000, client_id="c", client_host="h",
        protocol_type="consumer", protocols=[("range", b"")], requires_known_member_id=False,
    )  # fmt: skip
    joined = await groups.join(join)
    assert joined.error is None
    await groups.sync(SyncGroup(group_id="g", generation=joined.generation, member_id=joined.member_id))
    found = await until(cluster, lambda each: each["kind"] == "group generation")
    await cluster.stop_all()

    [begun] = [each for each in found if each["kind"] == "group generation"]
    assert (begun["group"], begun["protocol"], begun["generation"], begun["members"]) == ("g", "classic", 1, 1)


@pytest.mark.slow
async def test_a_record_whose_answer_was_lost_is_written_once(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = await start(1, 2, 3)
    await until(cluster, lambda each: each["kind"] == "broker up" and each["broker"] == 3)
    sender = next(each for each in cluster.brokers if each != leader_of_history(cluster))
    history = cluster.brokers[sender].services.history
    peers = history._peers
    lost: list[Any] = []

    class Forgetful:
        async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
            answer = await peers.call(broker, request, timeout_ms=timeout_ms)
            if len(lost) < 3:
                lost.append(answer)
                raise NetworkException("the answer is lost")
            return answer

    monkeypatch.setattr(history, "_peers", Forgetful())
    history.note(HistoryKind.JOB_RUN, job="first")
    await until(cluster, lambda each: each.get("job") == "first")
    history.note(HistoryKind.JOB_RUN, job="second")
    found = await until(cluster, lambda each: each.get("job") == "second")
    await cluster.stop_all()
    assert [each["job"] for each in found if each["by"] == sender and "job" in each] == ["first", "second"]
    assert len(lost) == 3


@pytest.mark.slow
async def test_a_clean_stop_writes_the_last_records() -> None:
    cluster = await start(1, 2, 3)
    await until(cluster, lambda each: each["kind"] == "broker up" and each["broker"] == 3)
    sender = next(each for each in cluster.brokers if each != leader_of_history(cluster))
    cluster.brokers[sender].services.history.note(HistoryKind.JOB_RUN, job="last")
    await cluster.stop(sender)
    assert [each["job"] for each in await noted(cluster) if "job" in each] == ["last"]
    await cluster.stop_all()


@pytest.mark.slow
async def test_decisions_of_a_stopping_controller_on_its_own_partitions_are_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = await start(1, 2)
    await until(cluster, lambda each: each["kind"] == "broker up" and each["broker"] == 2)
    await cluster.stop(2)  # so that the controller leads the history
    await cluster.start(2)
    await cluster.until_led(HISTORY, 1, isr={1, 2})
    await cluster.create("t", [[1, 2]])
    await until(cluster, lambda each: each["kind"] == "leader elected" and each["topic"] == "t")
    call = on_one_loop.Calls.call

    async def call_slowly(self: on_one_loop.Calls, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        if isinstance(request, LeaderAndIsr):
            await asyncio.sleep(SLOW_S)
        return await call(self, broker, request, timeout_ms=timeout_ms)

    monkeypatch.setattr(on_one_loop.Calls, "call", call_slowly)
    await cluster.brokers[1].stop()  # the others reach it meanwhile
    del cluster.brokers[1]
    await cluster.until_led(HISTORY, 2)
    found = [each for each in await noted(cluster) if each["kind"] == "leader elected" and each["topic"] == "t"]
    await cluster.stop_all()
    assert [(each["leader"], each["reason"]) for each in found] == [(1, "new"), (2, "controlled shutdown")]


class Keeper:
    """Implements Peers: accepts all records, or raises the given error."""

    def __init__(self) -> None:
        self.taken: Found = []
        self.error: Exception | None = None
        self.is_hanging = False

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        if self.is_hanging:
            await asyncio.Event().wait()
        if self.error:
            raise self.error
        assert isinstance(request, AppendHistory)
        self.taken += records_in(request.records)

    async def close(self) -> None:
        return


def history_at(keeper: Keeper) -> ClusterHistory:
    metadata = MetadataCache()
    part = PartitionInfo(leader=2, leader_epoch=0, replicas=(2,), in_sync_replicas=(2,))
    metadata.put(
        Topic(name=HISTORY_TOPIC, topic_id=UUID(int=1), partitions=(part,), overrides={}, config=TopicConfig())
    )
    metadata.brokers = {2: BrokerInfo(broker_id=2, grpc_address="two:1", listeners={}, rack="", version="")}

    async def some_id() -> int:
        return 7

    async def never() -> None:
        raise AssertionError("the topic is there")

    return ClusterHistory(
        broker_id=1, is_enabled=True, clock=SystemClock(), metadata=metadata, peers=keeper, new_producer_id=some_id,
        create_topic=never,
    )  # fmt: skip


async def until_nothing_waits(history: ClusterHistory) -> None:
    await wait.until(lambda: not history.waiting, "nothing waits to be written", tell=lambda: history.waiting)


async def test_records_dropped_from_memory_are_counted_and_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_history, "MAX_WAITING", 3)
    keeper = Keeper()
    history = history_at(keeper)
    for number in range(5):
        history.note(HistoryKind.JOB_RUN, job=str(number))
    assert (history.waiting, history.dropped) == (3, 2)
    history.start()
    await until_nothing_waits(history)
    await history.stop()
    assert (keeper.taken[0]["kind"], keeper.taken[0]["dropped"]) == ("history dropped", 2)
    assert [each["job"] for each in keeper.taken[1:]] == ["2", "3", "4"]


async def test_a_record_that_is_always_refused_does_not_block_later_ones() -> None:
    keeper = Keeper()
    keeper.error = InvalidRecord("no")
    history = history_at(keeper)
    history.note(HistoryKind.JOB_RUN, job="bad")
    history.start()
    await until_nothing_waits(history)
    keeper.error = None
    history.note(HistoryKind.JOB_RUN, job="good")
    await until_nothing_waits(history)
    await history.stop()
    assert [(each["kind"], each.get("job")) for each in keeper.taken] == [
        ("history dropped", None),
        ("job run", "good"),
    ]
    assert history.dropped == 1


async def test_a_broker_stops_while_the_history_leader_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_history, "FLUSH_WITHIN_S", 0.01)
    keeper = Keeper()
    keeper.is_hanging = True
    history = history_at(keeper)
    history.start()
    history.note(HistoryKind.JOB_RUN, job="never")
    async with asyncio.timeout(PATIENCE_S):
        await history.stop()
    assert history.waiting == 1


async def test_without_the_config_no_history_is_kept() -> None:
    cluster = BrokersOnOneLoop()
    await cluster.start(1)
    await cluster.create("t", [[1]])
    assert HISTORY_TOPIC not in cluster.brokers[1].services.metadata
    await cluster.stop_all()
