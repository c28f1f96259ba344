"""Two brokers of one cluster: replication, leaders, groups, and a broker that stops and returns."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from sparklog.base.errors import NotCoordinator, NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import delete_topics, find_coordinator, metadata
from sparklog.cluster.brokers import broker_path
from sparklog.cluster.topics import ALL_BROKERS, NO_LEADER
from sparklog.group.coordinator import OFFSETS_TOPIC
from sparklog.group.requests import OffsetCommit, OffsetFetch, OffsetToCommit
from sparklog.records.batch import Codec, read_header
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.logs.replacements import stop_halfway
from support.patience import PATIENCE_MS

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
Batch = Callable[..., bytearray]


@pytest.fixture
async def two() -> AsyncIterator[BrokersOnOneLoop]:
    made = BrokersOnOneLoop()
    await made.start(1, 2)
    yield made
    await made.stop_all()


async def test_acknowledged_records_are_on_both_brokers(two: BrokersOnOneLoop, batch: Batch) -> None:
    await two.create("t", [[2, 1]])
    assert (await two.produce(2, T0, batch([b"a", b"b"]))).error is None
    assert isinstance((await two.produce(1, T0, batch([b"c"]))).error, NotLeaderOrFollower)
    logs = [two.brokers[each].services.replicas.get(T0).log for each in (1, 2)]
    assert logs[0].read(0, 1 << 20).read() == logs[1].read(0, 1 << 20).read() == await two.read(2, T0)


async def test_the_other_broker_leads_after_a_failure(two: BrokersOnOneLoop, batch: Batch) -> None:
    await two.create("t", [[2, 1]])
    await two.produce(2, T0, batch([b"a"]))
    zombie = two.cut_off(2)
    await two.until_led(T0, 1, isr={1})
    assert (await two.produce(1, T0, batch([b"b"]))).error is None
    await zombie.stop()
    await two.start(2)
    await two.until_led(T0, 1, isr={1, 2})
    log = two.brokers[2].services.replicas.get(T0).log
    assert log.read(0, 1 << 20).read() == await two.read(1, T0)


async def test_a_broker_that_stops_has_handed_over_before(two: BrokersOnOneLoop, batch: Batch) -> None:
    await two.create("t", [[1, 2]])
    await two.produce(1, T0, batch([b"a"]))
    await two.stop(1)  # it was the controller, too
    await two.until_led(T0, 2, isr={2})
    assert (await two.produce(2, T0, batch([b"b"]))).error is None


async def test_a_broker_whose_session_has_ended_registers_again_and_begins_another_life(
    two: BrokersOnOneLoop, batch: Batch
) -> None:
    await two.create("t", [[2, 1]])
    first = two.brokers[2].services.registration.epoch
    two.expire(2)
    await two.until_led(T0, 1, isr={1, 2})
    assert two.brokers[2].services.registration.epoch > first
    assert two.tree.find(broker_path(2)).created == two.brokers[2].services.registration.epoch
    assert (await two.produce(1, T0, batch([b"a"]))).error is None


async def test_groups_move_with_the_leader_of_their_partition(two: BrokersOnOneLoop) -> None:
    await two.create("t", [[1, 2]])
    (found,) = (await ask_coordinator(two, 1)).coordinators
    assert found.broker is not None
    before = found.broker.broker_id
    after = 3 - before
    groups = {each: two.brokers[each].services.groups for each in (1, 2)}
    commit = OffsetCommit(group_id="g", offsets=[OffsetToCommit(partition=T0, offset=5)])
    assert (await groups[before].commit(commit)).errors == {T0: None}
    assert isinstance((await groups[after].commit(commit)).errors[T0], NotCoordinator)

    zombie = two.cut_off(before)
    await two.until_led(TopicPartition(OFFSETS_TOPIC, groups[after].partition_for("g")), after)
    await groups[after].partitions.loaded()

    fetched = await groups[after].fetch_offsets(OffsetFetch(group_id="g", partitions=[T0]))
    assert (fetched.error, fetched.offsets[0].offset) == (None, 5)
    assert (await ask_coordinator(two, after)).coordinators[0].broker.broker_id == after
    await zombie.stop()


async def test_every_broker_knows_all_brokers_and_topics(two: BrokersOnOneLoop) -> None:
    await two.create("t", [[2, 1]])
    zombie = two.cut_off(2)
    await two.until_led(T0, 1)
    answer = await two.brokers[1].serve(metadata.API, metadata.MetadataRequest())
    assert ([each.broker_id for each in answer.brokers], answer.controller_id) == ([1], 1)
    (part,) = answer.topics[0].partitions
    assert (part.leader, part.replicas, part.offline_replicas) == (1, (2, 1), (2,))
    await zombie.stop()


async def test_a_topic_that_was_deleted_meanwhile_is_deleted_on_a_returning_broker(
    two: BrokersOnOneLoop, batch: Batch
) -> None:
    await two.create("t", [[1, 2]])
    await two.produce(1, T0, batch([b"a"]))
    await two.stop(2)
    await two.until_led(T0, 1, isr={1})
    wanted = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name="t")])
    answer = await two.brokers[1].serve(delete_topics.API, wanted)
    assert answer.topics[0].error is None
    await two.start(2)
    await two.brokers[1].services.topics.until_removed("t", PATIENCE_MS)
    assert two.brokers[2].services.replicas.find(T0) is None
    assert "t-0" not in two.folders(2)


async def ask_coordinator(two: BrokersOnOneLoop, broker_id: int) -> find_coordinator.FindCoordinatorResponse:
    request = find_coordinator.FindCoordinatorRequest(keys=["g"])
    return await two.brokers[broker_id].serve(find_coordinator.API, request)


async def test_a_follower_has_the_bytes_that_the_leader_compressed(two: BrokersOnOneLoop, batch: Batch) -> None:
    await two.create("t", [[2, 1]], compression_type="zstd")
    sent = batch([b"a" * 1_000, b"b"])
    assert (await two.produce(2, T0, sent)).error is None
    logs = [two.brokers[each].services.replicas.get(T0).log for each in (1, 2)]
    found = logs[0].read(0, 1 << 20).read()
    assert found == logs[1].read(0, 1 << 20).read()
    assert read_header(found).codec is Codec.ZSTD
    assert len(found) < len(sent)


async def test_a_default_that_allows_unclean_elections_gives_offline_partitions_leaders(
    two: BrokersOnOneLoop, batch: Batch
) -> None:
    await two.create("t", [[1, 2]])
    await two.stop(2)
    await two.until_led(T0, 1, isr={1})
    assert (await two.produce(1, T0, batch([b"a"]))).error is None
    await two.stop(1)
    await two.start(2)  # it is not in sync, and waits for the other
    services = two.brokers[2].services
    info = services.metadata.find_partition(T0)
    assert info is not None
    assert info.leader == NO_LEADER
    await services.topics.alter_broker(ALL_BROKERS, lambda _: {"unclean.leader.election.enable": "true"})
    await two.until_led(T0, 2, isr={2})


async def test_the_other_broker_leads_where_one_log_has_stopped_alone(two: BrokersOnOneLoop, batch: Batch) -> None:
    await two.create("t", [[2, 1], [2, 1]])
    for value in (b"a", b"b"):
        await two.produce(2, T0, batch([value]))
        two.brokers[2].services.replicas.get(T0).log.roll()
    log = two.brokers[2].services.replicas.get(T0).log
    stop_halfway(two.disk(2), log, log.replacer.describe()[:2])
    await two.until_led(T0, 1, isr={1})
    assert (await two.produce(1, T0, batch([b"c"]))).error is None
    assert (await two.produce(2, T0._replace(partition=1), batch([b"d"]))).error is None
    await two.stop(2)
    await two.start(2)
    await two.until_led(T0, 1, isr={1, 2})
