"""Every version of the data APIs, by requests without a client."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode

from sparklog.testing import RunningBroker
from support.kafka.connection import Wire
from support.kafka.topic import CLUSTER, EPOCH_ENDS, TOPIC_PARTITIONS, Topic, ask_metadata, make_batch, values_in


@pytest.fixture
def topic(wire: Wire, new_name) -> Topic:
    return Topic(wire, new_name())


@pytest.fixture(scope="module")
def filled(kafka_address: tuple[str, int], new_name) -> Iterator[Topic]:
    """A topic with two batches that no test changes."""
    with Wire(kafka_address) as wire:
        topic = Topic(wire, new_name())
        topic.produce(13, make_batch(b"a", b"b", timestamp_ms=5000))
        topic.produce(13, make_batch(b"c"))
        yield topic


@pytest.mark.parametrize("version", range(3, 14))
def test_produce(topic: Topic, version: int) -> None:
    topic.produce(3, make_batch(b"before"))
    result = topic.produce(version, make_batch(b"a", b"b"))
    assert (result.error_code, result.index, result.base_offset) == (ErrorCode.none, 0, 1)
    assert result.log_append_time is None
    if version >= 5:
        assert result.log_start_offset == 0
    if version >= 8:
        assert (result.record_errors, result.error_message) == ((), None)
    assert values_in(topic.fetch(12, 1).responses[0].partitions[0].records) == [b"a", b"b"]


@pytest.mark.parametrize("version", range(3, 14))
def test_produce_refused(topic: Topic, version: int) -> None:
    damaged = bytearray(make_batch(b"a"))
    damaged[-1] ^= 1
    result = topic.produce(version, bytes(damaged))
    assert (result.error_code, result.base_offset) == (ErrorCode.corrupt_message, -1)
    if version >= 8:
        assert "CRC" in result.error_message


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch(filled: Topic, version: int) -> None:
    response = filled.fetch(version, 0)
    part = response.responses[0].partitions[0]
    assert values_in(part.records) == [b"a", b"b", b"c"]
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (ErrorCode.none, 3, 3)
    assert part.aborted_transactions is None
    if version >= 5:
        assert part.log_start_offset == 0
    if version >= 7:
        assert (response.error_code, response.session_id) == (ErrorCode.none, 0)
    if version >= 11:
        assert part.preferred_read_replica == -1
    if version >= 13:
        assert response.responses[0].topic_id == filled.topic_id
    else:
        assert response.responses[0].topic == filled.name


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_beyond_the_end(filled: Topic, version: int) -> None:
    part = filled.fetch(version, 4, isolation_level=1).responses[0].partitions[0]
    assert (part.error_code, part.high_watermark) == (ErrorCode.offset_out_of_range, -1)
    assert not part.records


@pytest.mark.parametrize("version", range(4, 19))
def test_fetch_committed_records_only(filled: Topic, version: int) -> None:
    part = filled.fetch(version, 0, isolation_level=1).responses[0].partitions[0]
    assert values_in(part.records) == [b"a", b"b", b"c"]
    assert part.aborted_transactions == ()


@pytest.mark.parametrize("version", range(1, 12))
def test_list_offsets(filled: Topic, version: int) -> None:
    assert filled.list_offset(version, -2).offset == 0
    latest = filled.list_offset(version, -1)
    assert (latest.error_code, latest.offset, latest.timestamp) == (ErrorCode.none, 3, -1)
    found = filled.list_offset(version, 5001)
    assert (found.offset, found.timestamp) == (1, 5001)
    assert filled.list_offset(version, 5002).offset == -1
    if version >= 4:
        assert latest.leader_epoch == 0


@pytest.mark.parametrize("version", range(1, 12))
@pytest.mark.parametrize(("position", "since", "offset"), [(-3, 7, 1), (-4, 8, 0), (-5, 9, -1), (-6, 11, -1)])
def test_list_offsets_by_position(filled: Topic, version: int, position: int, since: int, offset: int) -> None:
    found = filled.list_offset(version, position)
    if version < since:
        assert (found.error_code, found.offset) == (ErrorCode.unsupported_version, -1)
    else:
        assert (found.error_code, found.offset) == (ErrorCode.none, offset)


@pytest.mark.parametrize("version", range(14))
def test_metadata(filled: Topic, kafka_address: tuple[str, int], kafka_broker: RunningBroker, version: int) -> None:
    response = ask_metadata(filled.wire, version, [{"name": filled.name, "topic_id": None}])
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port) == (0, *kafka_address)
    (found,) = response.topics
    assert (found.error_code, found.name) == (ErrorCode.none, filled.name)
    (part,) = found.partitions
    assert (part.partition_index, part.leader_id, part.replica_nodes, part.isr_nodes) == (0, 0, (0,), (0,))
    if version >= 1:
        assert (response.controller_id, found.is_internal, broker.rack) == (0, False, None)
    if version >= 2:
        assert response.cluster_id == kafka_broker.node.broker.services.cluster_id
    if version >= 5:
        assert part.offline_replicas == ()
    if version >= 7:
        assert part.leader_epoch == 0
    if version >= 10:
        assert found.topic_id == filled.topic_id


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_all_topics_and_of_none(filled: Topic, version: int) -> None:
    everything = ask_metadata(filled.wire, version, None if version else ())
    assert filled.name in {found.name for found in everything.topics}
    if version:
        assert ask_metadata(filled.wire, version, ()).topics == ()


@pytest.mark.parametrize("version", range(14))
def test_metadata_of_topics_that_do_not_exist(wire: Wire, new_name, version: int) -> None:
    name = new_name()
    asked = [{"name": name, "topic_id": None}, {"name": "no/topic", "topic_id": None}]
    response = ask_metadata(wire, version, asked, allow_auto_topic_creation=False)
    unknown, invalid = (found.error_code for found in response.topics)
    assert unknown == (ErrorCode.unknown_topic_or_partition if version >= 4 else ErrorCode.none)
    assert invalid == ErrorCode.invalid_topic_exception


@pytest.mark.parametrize("version", range(10, 14))
def test_metadata_by_topic_id(filled: Topic, version: int) -> None:
    by_id = [{"name": None, "topic_id": filled.topic_id}, {"name": None, "topic_id": uuid.UUID(int=7)}]
    if version < 12:
        response = ask_metadata(filled.wire, version, by_id)
        assert [found.error_code for found in response.topics] == [ErrorCode.invalid_request] * 2
    else:
        found, unknown = ask_metadata(filled.wire, version, by_id).topics
        assert (found.error_code, found.name) == (ErrorCode.none, filled.name)
        assert (unknown.error_code, unknown.name) == (ErrorCode.unknown_topic_id, None)
        assert unknown.topic_id == uuid.UUID(int=7)


@pytest.mark.parametrize("version", range(8, 14))
def test_metadata_with_what_the_client_may_do(filled: Topic, version: int) -> None:
    everything = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
    found = filled.metadata(version, include_topic_authorized_operations=True)
    assert found.topic_authorized_operations == everything
    assert filled.metadata(version).topic_authorized_operations == -(2**31)


@pytest.mark.parametrize("version", range(2, 5))
def test_end_of_a_leader_epoch(filled: Topic, version: int) -> None:
    parts = [
        {"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0},
        {"partition": 0, "current_leader_epoch": 0, "leader_epoch": 1},
        {"partition": 0, "current_leader_epoch": 9, "leader_epoch": 0},
        {"partition": 5, "current_leader_epoch": -1, "leader_epoch": 0},
    ]
    response = filled.wire.send(EPOCH_ENDS, version, topics=[{"topic": filled.name, "partitions": parts}])
    assert [(part.error_code, part.leader_epoch, part.end_offset) for part in response.topics[0].partitions] == [
        (ErrorCode.none, 0, 3),
        (ErrorCode.none, -1, -1),
        (ErrorCode.unknown_leader_epoch, -1, -1),
        (ErrorCode.unknown_topic_or_partition, -1, -1),
    ]


@pytest.mark.parametrize("version", range(3))
def test_describe_cluster(wire: Wire, kafka_address: tuple[str, int], version: int) -> None:
    response = wire.send(CLUSTER, version, include_cluster_authorized_operations=False, include_fenced_brokers=False)
    assert (response.error_code, response.controller_id) == (ErrorCode.none, 0)
    assert [(each.broker_id, each.host, each.port) for each in response.brokers] == [(0, *kafka_address)]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("kind", "error"), [(2, ErrorCode.mismatched_endpoint_type), (3, ErrorCode.unsupported_endpoint_type)]
)
def test_describe_cluster_of_other_endpoints(wire: Wire, version: int, kind: int, error: ErrorCode) -> None:
    fields = {"include_cluster_authorized_operations": False, "include_fenced_brokers": False}
    assert wire.send(CLUSTER, version, endpoint_type=kind, **fields).error_code == error


def test_partitions_of_topics_a_page_at_a_time(kafka_broker: RunningBroker, wire: Wire, new_name) -> None:
    names = sorted(new_name() for _ in range(3))
    topics = kafka_broker.node.broker.services.topics
    for name in names[:2]:
        kafka_broker.run(topics.create(name, partitions=3))
    pages, cursor = [], None
    while True:
        response = wire.send(
            TOPIC_PARTITIONS, 0, topics=[{"name": name} for name in reversed(names)],
            response_partition_limit=2, cursor=cursor,
        )  # fmt: skip
        pages.append([(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in response.topics])
        if response.next_cursor is None:
            break
        after = response.next_cursor
        cursor = {"topic_name": after.topic_name, "partition_index": after.partition_index}
    first, second, missing = names
    assert pages == [
        [(first, ErrorCode.none, [0, 1])],
        [(first, ErrorCode.none, [2]), (second, ErrorCode.none, [0])],
        [(second, ErrorCode.none, [1, 2])],
        [(missing, ErrorCode.unknown_topic_or_partition, [])],
    ]
