"""Records that Apache Kafka wrote for a consumer group, and those that we write for the same events."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from sparklog.base.ids import decode_id
from sparklog.group.consumer_group import ConsumerGroup
from sparklog.group.consumer_groups import ConsumerKey
from sparklog.offsets_topic.records import ConsumerGroupValue, CoordinatorRecord, TargetEpochValue, decode, encode
from sparklog.records.records import iterate_records
from support.groups.consumer_group import Client, FakeTopic, FakeTopics, World

MEMBER = "7wSGDar7TEK3capRAbBjJQ"
TOPICS = {"codec-none": "2Cg-9hYhRRS9iMTaYmRJpA", "codec-lz4": "Xyg-rCByQe2gszROUqVrgg"}


@pytest.fixture
def written_by_kafka(golden: Path) -> list[CoordinatorRecord]:
    """A member joined, and left: librdkafka with Kafka 4.3.1."""
    data = (golden / "__consumer_offsets-0" / "00000000000000000000.log").read_bytes()
    found, position = [], 0
    while position < len(data):
        for record in iterate_records(data, position):
            decoded = decode(record.key, record.value) if record.key and len(record.key) > 4 else None
            if decoded is not None and isinstance(decoded.key, ConsumerKey):
                assert encode(decoded) == (record.key, record.value)
                found.append(decoded)
        position += int.from_bytes(data[position + 8 : position + 12], "big") + 12
    return found


class KafkasTopics(FakeTopics):
    def put(self, name, count, generation=0):
        topic_id: UUID = decode_id(TOPICS[name])
        self._topics[name] = FakeTopic(name, topic_id, range(count))


def test_a_group_that_kafka_wrote_is_taken_over(written_by_kafka: list[CoordinatorRecord]) -> None:
    group = ConsumerGroup("g-consumer", KafkasTopics(**dict.fromkeys(TOPICS, 1)))
    for record in written_by_kafka[:5]:
        group.replay(record)
    assert (group.state_name, group.epoch, group.target_epoch) == ("Stable", 2, 2)
    assert {topic_id for topic_id, _ in group.members[MEMBER].assigned} == {decode_id(text) for text in TOPICS.values()}
    for record in written_by_kafka[5:]:
        group.replay(record)
    assert (group.state_name, group.epoch, group.owners) == ("Empty", 3, {})


def test_the_same_events_write_the_same_records(written_by_kafka: list[CoordinatorRecord]) -> None:
    world = World(KafkasTopics(**dict.fromkeys(TOPICS, 1)), group_id="g-consumer")
    described = {"client_id": "rdkafka", "rebalance_timeout_ms": 300_000, "subscribed_topic_regex": ""}
    client = Client(world, MEMBER, *sorted(TOPICS), **described)
    client.join()
    client.leave()
    ours = [decode(*record) for record in world.log]
    assert list(map(comparable, ours)) == list(map(comparable, written_by_kafka))


def comparable(record: CoordinatorRecord) -> CoordinatorRecord:
    """Return the records without the hash, the time, and the order of topics, which is a hash map's in Kafka."""
    value = record.value
    if isinstance(value, ConsumerGroupValue):
        value = replace(value, metadata_hash=bool(value.metadata_hash))
    elif isinstance(value, TargetEpochValue):
        value = replace(value, assignment_timestamp_ms=0)
    for name in ("topic_partitions", "assigned_partitions"):
        if hasattr(value, name):
            value = replace(value, **{name: sorted(getattr(value, name), key=lambda each: each.topic_id)})
    return CoordinatorRecord(record.key, value)
