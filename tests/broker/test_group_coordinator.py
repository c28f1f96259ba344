"""The group coordinator in a broker: where groups are, what a start finds, what a broken disk does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from copy import copy
from typing import Any

import pytest

from sparklog.base.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    CorruptRecord,
    InvalidGroupId,
    InvalidTopic,
    KafkaError,
    KafkaStorageError,
    NotCoordinator,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import delete_topics
from sparklog.coordinator import partitions
from sparklog.coordinator.runtime import CoordinatorRuntime
from sparklog.group import coordinator as module
from sparklog.group.coordinator import OFFSETS_TOPIC
from sparklog.group.requests import (
    DescribeGroups,
    JoinGroup,
    JoinGroupResponse,
    ListGroups,
    OffsetCommit,
    OffsetFetch,
    OffsetToCommit,
)
from sparklog.records.batch import read_header
from sparklog.records.records import read_records
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

World = Any  # that of conftest.py
ORDERS = TopicPartition("orders", 0)


@pytest.fixture
async def started(world: World) -> World:
    await world.start(offsets_topic_num_partitions="3")
    await world.create("orders")
    return world


async def commit(world: World, offset: int, group: str = "g") -> KafkaError | None:
    request = OffsetCommit(group_id=group, offsets=[OffsetToCommit(partition=ORDERS, offset=offset)])
    return (await world.broker.services.groups.commit(request)).errors[ORDERS]


async def fetch(world: World, group: str = "g") -> int | KafkaError:
    response = await world.broker.services.groups.fetch_offsets(OffsetFetch(group_id=group, partitions=[ORDERS]))
    return response.error or response.offsets[0].offset


async def fetch_when_loaded(world: World, group: str = "g") -> int | KafkaError:
    async with asyncio.timeout(PATIENCE_S):
        await world.broker.services.groups.partitions.loaded()
    return await fetch(world, group)


def join(world: World) -> asyncio.Task[JoinGroupResponse]:
    request = JoinGroup(
        group_id="g",
        client_id="c",
        client_host="/",
        protocol_type="consumer",
        protocols=[("range", b"")],
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        requires_known_member_id=False,
    )
    return asyncio.ensure_future(world.broker.services.groups.join(request))


async def test_the_offsets_topic_is_created_with_the_first_group(world: World) -> None:
    await world.start()

    listed = await world.broker.services.groups.list(ListGroups())

    assert (listed.error, list(listed.groups)) == (None, [])
    assert OFFSETS_TOPIC not in world.broker.services.metadata


async def test_the_offsets_topic_is_made_as_kafka_makes_it(started: World) -> None:
    await fetch(started)

    topic = started.broker.services.metadata.get(OFFSETS_TOPIC)
    assert len(topic.partitions) == 3
    assert topic.overrides == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


async def test_a_commit_is_one_batch_in_the_partition_of_its_group(started: World) -> None:
    groups = started.broker.services.groups
    await commit(started, 5)

    name = TopicPartition(OFFSETS_TOPIC, groups.partition_for("g"))
    data = started.broker.services.replicas.get(name).log.read(0, 1 << 20).read()

    header = read_header(data)
    assert (header.producer_id, header.base_sequence, header.record_count) == (-1, 0, 1)
    assert read_records(data)[0].timestamp_ms == started.clock.time_ms()


async def test_commits_and_groups_survive_a_restart(started: World) -> None:
    await commit(started, 5)
    await commit(started, 6, group="another")
    await started.broker.stop()
    await started.start(offsets_topic_num_partitions="7")  # it is the topic that counts

    assert await fetch_when_loaded(started) == 5
    assert await fetch_when_loaded(started, "another") == 6
    assert {group.group_id for group in (await started.broker.services.groups.list(ListGroups())).groups} == {
        "g",
        "another",
    }


@pytest.fixture
async def loading(started: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[threading.Event]:
    """Restart after a commit; the log is not read before the event is set."""
    await commit(started, 5)
    await started.broker.stop()
    go_on, read = threading.Event(), module.load

    def read_later(*arguments: Any) -> int:
        go_on.wait(PATIENCE_S)
        return read(*arguments)

    monkeypatch.setattr(module, "load", read_later)
    await started.start()
    yield go_on
    go_on.set()


async def test_requests_to_groups_of_a_loading_partition_are_refused(started: World, loading: threading.Event) -> None:
    groups = started.broker.services.groups

    assert isinstance(await commit(started, 6), CoordinatorLoadInProgress)
    assert isinstance(await fetch(started), CoordinatorLoadInProgress)
    assert isinstance((await groups.list(ListGroups())).error, CoordinatorLoadInProgress)
    (described,) = (await groups.describe(DescribeGroups(group_ids=["g"]))).groups
    assert isinstance(described.error, CoordinatorLoadInProgress)
    loading.set()
    assert await fetch_when_loaded(started) == 5


async def test_a_load_for_a_former_leader_is_dropped(started: World, loading: threading.Event) -> None:
    groups = started.broker.services.groups
    partition = groups.partition_for("g")

    groups.partitions.unload(partition)
    groups.partitions.load(partition, 100)  # leader again, in a later epoch
    loading.set()

    assert await fetch_when_loaded(started) == 5
    assert await commit(started, 7) is None
    assert await fetch(started) == 7


@pytest.mark.parametrize("failure", [CorruptRecord("as the test wants it"), TypeError("not foreseen")])
async def test_groups_of_an_unreadable_partition_are_refused_and_others_served(
    started: World, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    await commit(started, 5)
    await started.broker.stop()

    def fail(*_: Any) -> int:
        raise copy(failure)  # its traceback holds the log, and the parameter outlives the test

    monkeypatch.setattr(module, "load", fail)
    await started.start()
    groups = started.broker.services.groups
    other = next(str(number) for number in range(100) if groups.partition_for(str(number)) != groups.partition_for("g"))

    assert isinstance(await fetch_when_loaded(started), NotCoordinator)
    assert await commit(started, 6, group=other) is None


async def test_a_partition_that_cannot_be_read_for_a_moment_is_read_again(
    started: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "READ_AGAIN_MS", 10)
    await commit(started, 5)
    await started.broker.stop()
    read, failures = module.load, iter(range(3))

    def fail_first(*arguments: Any) -> int:
        if next(failures, None) is not None:
            raise KafkaStorageError("Too many open files")
        return read(*arguments)

    monkeypatch.setattr(module, "load", fail_first)
    await started.start()
    assert await fetch_when_loaded(started) == 5
    assert next(failures, None) is None


async def test_a_broker_stops_though_it_cannot_read_a_partition(
    started: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "READ_AGAIN_MS", 1000 * PATIENCE_S)
    await commit(started, 5)
    await started.broker.stop()
    has_failed = threading.Event()

    def fail(*_: Any) -> int:
        has_failed.set()
        raise KafkaStorageError("Too many open files")

    monkeypatch.setattr(module, "load", fail)
    await started.start()
    assert isinstance(await fetch(started), CoordinatorLoadInProgress)
    assert await asyncio.to_thread(has_failed.wait, PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        await started.broker.stop()


async def test_waiting_members_are_refused_when_the_leader_changes(started: World) -> None:
    groups = started.broker.services.groups
    await fetch(started)
    waiting = join(started)
    await asyncio.sleep(0)

    groups.partitions.unload(groups.partition_for("g"))

    async with asyncio.timeout(PATIENCE_S):
        assert isinstance((await waiting).error, NotCoordinator)


async def test_waiting_members_are_refused_when_the_broker_stops(started: World) -> None:
    await fetch(started)
    waiting = join(started)
    await asyncio.sleep(0)

    await started.broker.stop()

    async with asyncio.timeout(PATIENCE_S):
        assert isinstance((await waiting).error, NotCoordinator)
    assert isinstance(await commit(started, 1), NotCoordinator)


async def test_a_client_that_disconnects_while_it_waits_leaves_no_state(started: World) -> None:
    groups = started.broker.services.groups
    await fetch(started)
    waiting = join(started)
    await asyncio.sleep(0)
    assert groups.partitions.waiting == 1

    waiting.cancel()
    await asyncio.wait([waiting])

    assert groups.partitions.waiting == 0


async def test_a_commit_that_cannot_be_written_is_refused_and_dropped(started: World) -> None:
    assert await commit(started, 5) is None
    folder = started.broker.services.replicas.get(
        TopicPartition(OFFSETS_TOPIC, started.broker.services.groups.partition_for("g"))
    ).log.folder
    started.fs.broken = folder

    assert isinstance(await commit(started, 6), NotCoordinator)

    assert isinstance(await fetch(started), int | NotCoordinator)
    assert await fetch(started) != 6
    started.fs.broken = ""


async def test_offsets_are_deleted_with_their_topic(started: World) -> None:
    await commit(started, 5)
    request = delete_topics.DeleteTopicsRequest(topics=[delete_topics.TopicToDelete(name="orders")])
    await started.broker.serve(delete_topics.API, request)
    await started.create("orders")

    assert await fetch(started) == -1


async def test_any_number_of_offsets_is_deleted_with_their_topic(started: World) -> None:
    """Their tombstones exceed the size limit of one batch."""
    groups = started.broker.services.groups
    await started.create("wide", partitions=100)
    offsets = [OffsetToCommit(partition=TopicPartition("wide", number), offset=1) for number in range(100)]
    names = [name for name in (f"{number}-{'x' * 200}" for number in range(200)) if groups.partition_for(name) == 0]
    for name in names:
        await groups.commit(OffsetCommit(group_id=name, offsets=offsets))

    await groups.delete_topics({"wide": started.broker.services.metadata.get("wide").topic_id})

    left = await groups.fetch_offsets(OffsetFetch(group_id=names[0], partitions=[offsets[0].partition]))
    assert left.offsets[0].offset == -1


async def test_a_coordinator_that_stops_during_the_creation_of_its_topic_starts_no_group(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.start(offsets_topic_num_partitions="1")
    await world.create("orders")
    groups = world.broker.services.groups
    create = groups.partitions._create_topic

    async def create_and_stop() -> None:
        await create()
        groups.stop()

    monkeypatch.setattr(groups.partitions, "_create_topic", create_and_stop)

    assert isinstance(await fetch(world), NotCoordinator)


async def test_commits_for_missing_partitions_are_refused(started: World) -> None:
    nowhere = TopicPartition("nowhere", 0)
    request = OffsetCommit(group_id="g", offsets=[OffsetToCommit(partition=nowhere, offset=1)])

    response = await started.broker.services.groups.commit(request)

    assert isinstance(response.errors[nowhere], UnknownTopicOrPartition)


async def test_clients_cannot_write_into_the_offsets_topic(started: World, batch: Any) -> None:
    await fetch(started)

    produced = await started.produce(OFFSETS_TOPIC, batch([b"x"]))

    assert isinstance(produced.error, InvalidTopic)


async def test_an_id_that_is_too_long_for_kafka_is_refused(started: World) -> None:
    assert isinstance(await commit(started, 1, "g" * 40_000), InvalidGroupId)


async def test_a_group_is_listed_once_it_is_committed(started: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its first record may be lost, and the group with it."""
    await commit(started, 5)
    is_committed = asyncio.Event()
    monkeypatch.setattr(CoordinatorRuntime, "committed", lambda _: is_committed.wait())
    listing = asyncio.ensure_future(started.broker.services.groups.list(ListGroups()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not listing.done()
    is_committed.set()
    listed = await listing
    assert (listed.error, [group.group_id for group in listed.groups]) == (None, ["g"])


async def test_uncommitted_groups_are_not_listed(started: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await commit(started, 5)

    async def fail(_: CoordinatorRuntime) -> None:
        raise CoordinatorNotAvailable("not committed in time")

    monkeypatch.setattr(CoordinatorRuntime, "committed", fail)
    listed = await started.broker.services.groups.list(ListGroups())
    assert isinstance(listed.error, CoordinatorNotAvailable)
    assert not listed.groups
