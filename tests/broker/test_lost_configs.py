"""A cluster store that was lost, or has lost changes: topics keep their configurations, and no records are deleted."""

from __future__ import annotations

import json
from uuid import UUID

import pytest
from msgspec import structs

from sparklog.base.errors import InvalidConfig
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker import restoration
from sparklog.broker.internal_topics import overrides_of
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.cluster.model import PartitionInfo, ReplicaAssignment
from sparklog.cluster.store import Delete, Store, subtree
from sparklog.cluster.topics import ALL_BROKERS, TopicStore, state_path
from sparklog.log.directory.topic_configs import TOPIC_CONFIGS, UNLIMITED
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.logs.builders import file_content, rewrite
from support.patience import PATIENCE_MS

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
OFFSETS = "__consumer_offsets"
CONFIGS = {"cleanup.policy": "compact,delete", "retention.ms": "12345"}


@pytest.fixture
async def one():
    made = BrokersOnOneLoop(default_replication_factor="1", offsets_topic_replication_factor="1")
    yield made
    await made.stop_all()


def overrides(one: BrokersOnOneLoop, topic: str) -> dict[str, str]:
    return dict(one.brokers[1].services.metadata.get(topic).overrides)


def stored(one: BrokersOnOneLoop) -> TopicStore:
    return TopicStore(MemoryStore(one.tree), TopicConfig())


def files(one: BrokersOnOneLoop) -> list[str]:
    [root] = one.brokers[1].config.log_dirs
    return [f"{root}/{TOPIC_CONFIGS}"]


async def test_topics_are_restored_with_their_configurations(
    one: BrokersOnOneLoop, batch, caplog: pytest.LogCaptureFixture
) -> None:
    await one.start(1)
    await one.create("t", [[1]], **CONFIGS)
    await one.create("plain", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    for number in (*range(50), -1):  # so many changes as the next store will not have seen for a while
        changed = {**CONFIGS, "retention.ms": str(number)}
        await one.brokers[1].services.topics.alter("t", lambda _, changed=changed: changed)
    await one.stop(1)
    one.lose_store()
    await one.start(1)
    assert overrides(one, "t") == {**CONFIGS, "retention.ms": "-1"}
    assert overrides(one, "plain") == {}
    assert b"a" in await one.read(1, T0)
    assert caplog.text.count("the cluster store was lost") == 1
    await one.stop(1)
    await one.start(1)
    assert caplog.text.count("the cluster store was lost") == 1


@pytest.mark.parametrize("loses_all", [True, False])
async def test_defaults_that_were_set_at_run_time_are_restored(
    one: BrokersOnOneLoop, batch, *, loses_all: bool
) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    before = contents(MemoryStore(one.tree))
    for broker_id, keys in ((ALL_BROKERS, {"log.retention.ms": "-1"}), (1, {"log.segment.bytes": "2097152"})):
        await one.brokers[1].services.topics.alter_broker(broker_id, lambda _, keys=keys: keys)
    await one.stop(1)
    if loses_all:
        one.lose_store()
    else:
        give_back(one, before)
    await one.start(1)
    log = one.brokers[1].services.logs.get(T0)
    assert (log.config.retention_ms, log.config.segment_bytes) == (-1, 2 << 20)
    given = stored(one).load_broker_overrides()
    assert given == {ALL_BROKERS: {"log.retention.ms": "-1"}, 1: {"log.segment.bytes": "2097152"}}
    await one.brokers[1].services.topics.alter_broker(ALL_BROKERS, lambda _: {})
    assert log.config.retention_ms > 0


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"version":0,"seen_change":1,"topics":{"t":7}}'])
async def test_without_a_copy_all_records_stay_and_internal_topics_have_their_own_configuration(
    one: BrokersOnOneLoop, content: bytes | None, caplog: pytest.LogCaptureFixture
) -> None:
    await one.start(1)
    await one.create("t", [[1]], **{"retention.ms": "1"})
    await one.create("other", [[1]], **{"retention.ms": "1"})
    await one.create(OFFSETS, [[1]], **{"cleanup.policy": "compact"})
    [path] = files(one)
    config = one.brokers[1].config
    await one.stop(1)
    one.disk(1).remove(path)
    if content is not None:
        rewrite(one.disk(1), path, content)
    one.lose_store()
    await one.start(1)
    assert overrides(one, "t") == overrides(one, "other") == UNLIMITED
    assert overrides(one, OFFSETS) == overrides_of(OFFSETS, config)
    log = one.brokers[1].services.logs.get(T0)
    assert (log.config.retention_ms, log.config.retention_bytes) == (-1, -1)
    warned = [record.message for record in caplog.records if "adopting topic" in record.message]
    assert sorted(text.split()[2].rstrip(":") for text in warned) == [OFFSETS, "other", "t"]


async def test_a_copy_of_an_earlier_topic_of_the_same_name_is_not_used(one: BrokersOnOneLoop) -> None:
    await one.start(1)
    await one.create("t", [[1]], **CONFIGS)
    [path] = files(one)
    await one.stop(1)
    earlier = file_content(one.disk(1), path)
    one.lose_store()
    one.new_disk(1)
    await one.start(1)
    await one.create("t", [[1]])
    await one.stop(1)
    rewrite(one.disk(1), path, earlier)
    one.lose_store()
    await one.start(1)
    assert overrides(one, "t") == UNLIMITED


async def test_configurations_are_restored_in_a_store_that_has_lost_changes(
    one: BrokersOnOneLoop, batch, caplog: pytest.LogCaptureFixture
) -> None:
    await one.start(1)
    await one.create("t", [[1]], **{"retention.ms": "1"})
    before = contents(MemoryStore(one.tree))
    await one.brokers[1].services.topics.alter("t", lambda _: CONFIGS)
    await one.produce(1, T0, batch([b"a"]))
    await one.stop(1)
    for _ in range(3):  # each is another leader epoch
        await one.start(1)
        await one.produce(1, T0, batch([b"b"]))
        await one.stop(1)
    give_back(one, before)
    await one.start(1)
    assert overrides(one, "t") == stored(one).load_overrides("t") == CONFIGS
    assert "has lost changes" in caplog.text
    replica = one.brokers[1].services.replicas.get(T0)
    assert replica.partition.leader_epoch > replica.log.latest_epoch
    assert (await one.produce(1, T0, batch([b"c"]))).error is None
    assert b"c" in await one.read(1, T0)


async def test_restored_leader_epochs_are_above_those_that_clients_have_seen(one: BrokersOnOneLoop, batch) -> None:
    """Clients ignore older epochs, so a new epoch is higher even than one without records, which is in no log."""
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    before = contents(MemoryStore(one.tree))
    heard_of = []
    for _ in range(3):
        await one.stop(1)
        await one.start(1)
        heard_of.append(one.brokers[1].services.replicas.get(T0).partition.leader_epoch)
    await one.stop(1)
    give_back(one, before)
    await one.start(1)
    assert one.brokers[1].services.replicas.get(T0).partition.leader_epoch > max(heard_of)


async def test_an_older_store_that_another_had_replaced_is_detected(
    one: BrokersOnOneLoop, batch, caplog: pytest.LogCaptureFixture
) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.stop(1)
    before = contents(MemoryStore(one.tree))
    one.lose_store()
    await one.start(1)
    await one.brokers[1].services.topics.alter("t", lambda _: CONFIGS)
    await one.produce(1, T0, batch([b"a"]))
    newer = one.brokers[1].services.replicas.get(T0).partition.leader_epoch
    await one.stop(1)
    give_back(one, before)
    store = MemoryStore(one.tree)
    for number in range(300):  # it has seen more changes than the one in between
        store.create(f"/change-{number}", b"")
    await one.start(1)
    assert "the cluster store is an older one" in caplog.text
    assert overrides(one, "t") == CONFIGS
    assert one.brokers[1].services.replicas.get(T0).partition.leader_epoch > newer


@pytest.mark.parametrize("comes_back", [False, True])
async def test_a_store_may_be_lost_again_before_a_record_has_the_new_leader_epoch(
    one: BrokersOnOneLoop, batch, *, comes_back: bool
) -> None:
    """Otherwise an older store with more changes could take its place."""
    await one.start(1)
    await one.create("t", [[1]])
    await one.produce(1, T0, batch([b"a"]))
    before = contents(MemoryStore(one.tree))
    await one.stop(1)
    one.lose_store()
    await one.start(1)
    heard_of = one.brokers[1].services.replicas.get(T0).partition.leader_epoch
    await one.stop(1)
    one.lose_store()
    if comes_back:
        give_back(one, before)
        store = MemoryStore(one.tree)
        for number in range(300):
            store.create(f"/change-{number}", b"")
    await one.start(1)
    assert one.brokers[1].services.replicas.get(T0).partition.leader_epoch > heard_of


def give_back(one: BrokersOnOneLoop, nodes: dict[str, bytes]) -> None:
    """Replace the store by one that has only these nodes."""
    one.lose_store()
    store = MemoryStore(one.tree)
    for path, data in nodes.items():
        store.create(path, data)


def contents(store: Store, path: str = "/") -> dict[str, bytes]:
    """Return all nodes that belong to no session, parents first."""
    node = store.get(path)
    found = {} if path == "/" or node.owner else {path: node.data}
    for name in store.children(path):
        found |= contents(store, f"{path.rstrip('/')}/{name}")
    return found


async def test_a_topic_that_was_deleted_while_its_broker_was_away_is_not_restored(
    one: BrokersOnOneLoop, caplog: pytest.LogCaptureFixture
) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.stop(1)
    store = MemoryStore(one.tree)
    store.multi(Delete(path) for path in subtree(store, "/brokers/topics/t"))
    await one.start(1)
    assert "t" not in one.brokers[1].services.metadata
    assert [name.split(".")[0] for name in one.folders(1) if name.endswith("-stray")] == ["t-0"]
    assert "topics were deleted while this broker was away" in caplog.text
    await one.stop(1)
    await one.start(1)
    assert [name.split(".")[0] for name in one.folders(1) if name.startswith("t-")] == ["t-0"]


@pytest.mark.parametrize("comes_again", [False, True])
async def test_the_name_of_a_topic_that_was_deleted_meanwhile_is_free(
    one: BrokersOnOneLoop, batch, *, comes_again: bool
) -> None:
    await one.start(1)
    await one.start(2)
    await one.create("t", [[1, 2]])
    await one.produce(1, T0, batch([b"a"]))
    for broker_id in (2, 1):
        await one.stop(broker_id)
    store = MemoryStore(one.tree)
    store.multi(Delete(path) for path in [*subtree(store, "/brokers/topics/t"), *subtree(store, "/config/topics/t")])
    await one.start(1)
    if comes_again:
        await one.create("t", [[1]])
    await one.start(2)
    assert [name.split(".")[0] for name in one.folders(2) if name.endswith("-stray")] == ["t-0"]
    if not comes_again:
        await one.create("t", [[2, 1]])
        await one.until_led(T0, 2, isr={1, 2})
        assert (await one.produce(2, T0, batch([b"b"]))).error is None
        assert b"a" not in await one.read(2, T0)


DELETING = {"log_retention_ms": "1000", "log_retention_bytes": "1000"}
LATER = "a.key.of.a.later.version"


@pytest.mark.parametrize(
    ("written", "applies"),
    [
        ({"retention.ms": "-1", LATER: "1"}, {"retention_ms": -1, "retention_bytes": 1000}),
        ({LATER: "1", "retention.ms": "7"}, {"retention_ms": 7, "retention_bytes": 1000}),
        ({"retention.ms": "xx"}, {"retention_ms": -1, "retention_bytes": 1000}),
        ({"retention.bytes": ""}, {"retention_ms": 1000, "retention_bytes": -1}),
        ({"cleanup.policy": "compacted", "retention.ms": "7"}, {"retention_ms": -1, "retention_bytes": -1}),
        (
            {"compaction.strategy": "xx", "cleanup.policy": "compact"},
            {"retention_ms": -1, "retention_bytes": -1, "cleanup_policy": ("delete",)},
        ),
    ],
)
async def test_a_key_that_cannot_be_read_leaves_the_others_and_no_default_deletes_in_its_place(
    one: BrokersOnOneLoop, caplog: pytest.LogCaptureFixture, written: dict[str, str], applies: dict[str, object]
) -> None:
    await one.start(1, **DELETING)
    await one.create("t", [[1]])
    await one.stop(1)
    stored(one).change_overrides("t", lambda _: written)
    await one.start(1, **DELETING)
    log, topic = one.brokers[1].services.logs.get(T0), one.brokers[1].services.metadata.get("t")
    for config in (log.config, topic.config, one.brokers[1].services.replicas.get(T0).config):
        assert {key: getattr(config, key) for key in applies} == applies
    ignored = [record.message for record in caplog.records if "is ignored" in record.message]
    assert ignored
    assert all(text.startswith("topic t: key ") for text in ignored)


async def test_a_topic_with_a_key_that_cannot_be_read_can_be_configured(one: BrokersOnOneLoop) -> None:
    await one.start(1)
    await one.create("t", [[1]])
    await one.stop(1)
    stored(one).change_overrides("t", lambda _: {LATER: "1", "retention.ms": "xx"})
    await one.start(1)
    topics = one.brokers[1].services.topics
    await topics.alter("t", lambda topic: {**topic.overrides, "retention.ms": "7"})
    assert overrides(one, "t") == {LATER: "1", "retention.ms": "7"}
    with pytest.raises(InvalidConfig):
        await topics.alter("t", lambda topic: {**topic.overrides, LATER: "2"})
    await topics.alter("t", lambda _: {})
    assert overrides(one, "t") == {}


@pytest.mark.parametrize("unreadable", [[2], [0, 1, 2]])
async def test_a_partition_that_cannot_be_opened_at_the_adoption_is_served_once_it_can(
    one: BrokersOnOneLoop, batch, unreadable: list[int]
) -> None:
    await one.start(1)
    await one.create("t", [[1]] * 3, **CONFIGS)
    topic_id = one.brokers[1].services.metadata.get("t").topic_id
    for number in range(3):
        await one.produce(1, TopicPartition("t", number), batch([b"a"]))
    await one.stop(1)
    one.disk(1).make_dir("/more")
    for number in unreadable:
        one.disk(1).make_dir(f"/more/t-{number}")  # a second log of the partition
    one.lose_store()
    await one.start(1, log_dirs="/data,/more")
    topic = one.brokers[1].services.metadata.get("t")
    assert (topic.topic_id, len(topic.partitions), topic.overrides) == (topic_id, 3, CONFIGS)
    assert set(one.brokers[1].services.replicas.offline) == {TopicPartition("t", number) for number in unreadable}
    await one.stop(1)
    await one.start(1, log_dirs="/data")
    for number in range(3):
        name = TopicPartition("t", number)
        assert b"a" in await one.read(1, name)
        assert (await one.produce(1, name, batch([b"b"]))).error is None


@pytest.mark.parametrize("has_copy", [True, False])
async def test_a_configuration_that_is_missing_in_the_store_is_not_one_without_keys(
    one: BrokersOnOneLoop, caplog: pytest.LogCaptureFixture, *, has_copy: bool
) -> None:
    await one.start(1, **DELETING)
    await one.create("t", [[1]], **CONFIGS)
    await one.create("plain", [[1]])
    await one.create(OFFSETS, [[1]], **{"cleanup.policy": "compact"})
    [path] = files(one)
    config = one.brokers[1].config
    await one.stop(1)
    store = MemoryStore(one.tree)
    store.multi([Delete(f"/config/topics/{name}") for name in ("t", OFFSETS)])
    assert stored(one).load_overrides("t") == UNLIMITED
    if not has_copy:
        one.disk(1).remove(path)
    await one.start(1, **DELETING)
    assert overrides(one, "t") == stored(one).load_overrides("t") == (CONFIGS if has_copy else UNLIMITED)
    assert overrides(one, OFFSETS) == ({"cleanup.policy": "compact"} if has_copy else overrides_of(OFFSETS, config))
    assert overrides(one, "plain") == {}
    log = one.brokers[1].services.logs.get(T0)
    assert log.config.retention_ms == (12345 if has_copy else -1)
    missing = [record.message for record in caplog.records if "is missing in the cluster store" in record.message]
    assert sorted(text.split()[1] for text in missing) == [f"{OFFSETS}:", "t:"]
    await one.brokers[1].services.topics.alter("t", lambda _: {"retention.ms": "7"})
    assert overrides(one, "t") == {"retention.ms": "7"}


async def test_the_broker_with_the_copy_restores_a_missing_configuration_though_another_comes_first(
    one: BrokersOnOneLoop,
) -> None:
    await one.start(1, 2, **DELETING)
    await one.create("t", [[2]], **CONFIGS)
    await one.stop(2)
    await one.stop(1)
    MemoryStore(one.tree).delete("/config/topics/t")
    await one.start(1, **DELETING)
    assert overrides(one, "t") == UNLIMITED
    await one.start(2, **DELETING)
    metadata = one.brokers[2].services.metadata
    assert await metadata.wait_until(lambda: metadata.get("t").overrides == CONFIGS, PATIENCE_MS)
    assert one.brokers[2].services.logs.get(T0).config.retention_ms == 12345


@pytest.fixture
async def three():
    made = BrokersOnOneLoop(default_replication_factor="1", offsets_topic_replication_factor="1")
    await made.start(1, 2, 3)
    yield made
    await made.stop_all()


async def test_no_broker_deletes_its_replica_because_another_adopted_the_topic(
    three: BrokersOnOneLoop, batch, caplog: pytest.LogCaptureFixture
) -> None:
    await three.create("t", [[1], [2], [3], [1]])
    for number, leader in enumerate((1, 2, 3, 1)):
        await three.until_led(TopicPartition("t", number), leader)
        assert (await three.produce(leader, TopicPartition("t", number), batch([b"a"]))).error is None
    for broker_id in (3, 2, 1):
        await three.stop(broker_id)
        forget_assignments(three, broker_id)
    three.lose_store()
    for _ in range(2):
        await three.start(1, 2, 3)
        for broker_id in (2, 3):
            assert f"t-{broker_id - 1}" in three.folders(broker_id)
            log = three.brokers[broker_id].services.logs.get(TopicPartition("t", broker_id - 1))
            assert log is not None
            assert log.log_end_offset == 1
        for broker_id in (3, 2, 1):
            await three.stop(broker_id)
    assert "t-1: its replica here stays" in caplog.text
    await three.start(1)
    await three.brokers[1].services.topics.delete("t")
    assert "t" not in three.brokers[1].services.metadata


def forget_assignments(three: BrokersOnOneLoop, broker_id: int) -> None:
    """The copies are those of an earlier version."""
    path = f"/data/{TOPIC_CONFIGS}"
    content = json.loads(file_content(three.disk(broker_id), path))
    del content["store_id"]
    for topic in content["topics"].values():
        del topic["partitions"], topic["seen_change"]
    rewrite(three.disk(broker_id), path, json.dumps(content).encode())


async def test_no_broker_deletes_its_replica_because_the_store_is_an_older_one(three: BrokersOnOneLoop, batch) -> None:
    await three.create("t", [[1]])
    await three.until_led(T0, 1)
    before = contents(MemoryStore(three.tree))
    for broker_id in (3, 2, 1):
        await three.stop(broker_id)
    moved = stored(three)
    assignment = moved.load_assignment("t")
    moved.set_assignment("t", structs.replace(assignment, partitions=(ReplicaAssignment(replicas=(2,)),)))
    info = json.loads(MemoryStore(three.tree).get(state_path("t", 0)).data) | {"leader": 2, "isr": [2]}
    MemoryStore(three.tree).set(state_path("t", 0), json.dumps(info).encode())
    await three.start(2, 1)
    assert (await three.produce(2, T0, batch([b"a"]))).error is None
    for broker_id in (1, 2):
        await three.stop(broker_id)
    give_back(three, before)
    await three.start(1, 2)
    assert str(T0) in three.folders(2)
    assert three.brokers[2].services.logs.get(T0).log_end_offset == 1


async def test_leader_epochs_that_other_brokers_leapt_to_are_kept(one: BrokersOnOneLoop) -> None:
    """Broker 3 has no replica. It restores the topic more often than those that have one, and is missing in the end."""
    for broker_id in (1, 2, 3):
        await one.start(broker_id)
    await one.create("t", [[1, 2]])

    async def lose_and_start(*broker_ids: int) -> None:
        for broker_id in list(one.brokers):
            await one.stop(broker_id)
        one.lose_store()
        for broker_id in broker_ids:
            await one.start(broker_id)

    for _ in range(3):
        await lose_and_start(3)
    await lose_and_start(3, 1, 2)
    await one.until_led(T0, 1, isr={1, 2})
    before = one.brokers[1].services.replicas.get(T0).partition.leader_epoch
    await lose_and_start(1, 2)
    await one.until_led(T0, 1, isr={1, 2})
    assert one.brokers[1].services.replicas.get(T0).partition.leader_epoch > before


async def test_a_leader_epoch_leaps_though_the_state_is_changed_meanwhile() -> None:
    tree = MemoryTree()
    store = MemoryStore(tree)
    topics = TopicStore(store, TopicConfig())
    topics.make_paths()
    info = PartitionInfo(leader=1, leader_epoch=7, replicas=(1,), in_sync_replicas=(1,))
    topics.create("t", UUID(int=5), [info], {})
    path = state_path("t", 0)

    class Racing(MemoryStore):
        def set(self, path: str, data: bytes, version: int = -1) -> int:
            if version == 0:
                store.set(path, store.get(path).data.replace(b'"isr":[1]', b'"isr":[1,2]'))
            return super().set(path, data, version)

    restoration._raise_epoch(Racing(tree), T0, 100)
    found = json.loads(store.get(path).data)
    assert (found["leader_epoch"], found["isr"]) == (100, [1, 2])
