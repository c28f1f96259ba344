"""The maintenance client and a real broker: logs are described, read and replaced, also beside consumers and a kill."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
from crc32c import crc32c
from msgspec.structs import replace

from sparklog.base.errors import (
    DuplicateResource,
    InvalidRequest,
    InvalidUpdateVersion,
    KafkaError,
    KafkaStorageError,
    LeaderNotAvailable,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    RecordListTooLarge,
    ResourceNotFound,
    UnknownTopicOrPartition,
)
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.broker.replacements import Replacements
from sparklog.client import Admin, Consumer, ConsumerRecord, Maintenance, Producer
from sparklog.client.aio import AsyncMaintenance
from sparklog.client.maintenance.maintenance import leaders
from sparklog.log.description import LogDescription, SegmentDescription
from sparklog.log.epochs import EpochStart
from sparklog.log.replacement.replace import SegmentReplacer
from sparklog.records.batch import iterate_headers
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import maintenance_pb2, maintenance_pb2_grpc
from support.patience import PATIENCE_MS, PATIENCE_S
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow

RECORDS = 20
VALUE = b"x" * 300
NewTopic = Callable[..., str]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(offsets_topic_num_partitions=2, log_segment_delete_delay_ms=0) as running:
        yield running


@pytest.fixture(scope="module")
def maintenance(broker: RunningBroker) -> Iterator[Maintenance]:
    with Maintenance(bootstrap_servers=broker.bootstrap) as client:
        yield client


def fill(bootstrap: str, topic: str, count: int = RECORDS, value: bytes = VALUE) -> None:
    """Create a topic with one partition, one record per batch, and two batches per segment."""
    with Admin(bootstrap_servers=bootstrap) as admin:
        limit = str(2 * (len(value) + 100))
        admin.create_topic(topic, partitions=1, configs={"internal.segment.bytes": limit, "retention.ms": "-1"})
    with Producer(bootstrap_servers=bootstrap, linger_ms=0, batch_size=0) as producer:
        for number in range(count):
            producer.send(topic, value, key=b"%d" % number, partition=0)
        producer.flush()


@pytest.fixture
def new_topic(broker: RunningBroker, numbers: Iterator[int]) -> NewTopic:
    def make(**options) -> str:
        topic = f"upkeep-{next(numbers)}"
        fill(broker.bootstrap, topic, **options)
        return topic

    return make


@pytest.fixture(scope="module")
def numbers() -> Iterator[int]:
    return itertools.count()


def describe(maintenance: Maintenance, topic: str) -> LogDescription:
    name = TopicPartition(topic, 0)
    found = maintenance.describe_logs([name])[name]
    assert isinstance(found, LogDescription), found
    return found


def path_of(log: LogDescription, segment: SegmentDescription, suffix: str = "log") -> Path:
    return Path(log.folder, f"{segment.base_offset:020}.{suffix}")


def thinned(data: bytes, every: int = 2) -> bytes:
    """Every second batch of some segments, and the last one."""
    batches = [data[position : position + header.size] for position, header in iterate_headers(data)]
    return b"".join([*batches[:-1:every], batches[-1]])


def read_all(bootstrap: str, topic: str) -> list[ConsumerRecord]:
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        [partition] = consumer.assign_topic(topic)
        end = consumer.end_offsets([partition])[partition]
        found: list[ConsumerRecord] = []
        for _ in range(1000):
            if consumer.position(partition) >= end:
                return found
            found += consumer.poll(PATIENCE_MS)
    raise AssertionError(f"{topic} was not read to its end")


def test_a_description_is_what_is_on_the_disk(broker: RunningBroker, maintenance: Maintenance, new_topic) -> None:
    topic = new_topic()
    log = describe(maintenance, topic)
    files = sorted(Path(log.folder).glob("*.log"))
    assert log.folder == str(broker.data_dir / f"{topic}-0")
    assert [path_of(log, segment) for segment in log.segments] == files
    assert [segment.size_bytes for segment in log.segments] == [file.stat().st_size for file in files]
    assert [segment.base_offset for segment in log.segments[1:]] == [each.next_offset for each in log.closed_segments]
    assert len({segment.identity for segment in log.segments}) == len(log.segments) == RECORDS // 2
    for segment in log.segments:
        headers = [header for _, header in iterate_headers(path_of(log, segment).read_bytes())]
        assert segment.first_timestamp_ms == headers[0].max_timestamp
        assert segment.largest_timestamp_ms == max(header.max_timestamp for header in headers)
    assert (log.log_start_offset, log.high_watermark, log.last_stable_offset, log.log_end_offset) == (
        0, RECORDS, RECORDS, RECORDS,
    )  # fmt: skip
    assert log.segments[-1].next_offset == RECORDS
    assert (log.is_leader, log.broker_id, log.cleaned_offset) == (True, 0, 0)
    assert log.epochs == (EpochStart(log.leader_epoch, 0),)
    assert log.config == TopicConfig.parse(
        {"internal.segment.bytes": str(log.config.internal_segment_bytes), "retention.ms": "-1"},
        broker.node.broker.config.topic_defaults,
    )
    assert describe(maintenance, topic) == log


def test_every_log_is_described_internal_ones_too(broker: RunningBroker, maintenance: Maintenance, new_topic) -> None:
    topic = new_topic(count=1)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.alter_group_offsets("g", {TopicPartition(topic, 0): 1})
    logs = maintenance.describe_logs()
    assert {TopicPartition("__consumer_offsets", 0), TopicPartition("__consumer_offsets", 1)} <= logs.keys()
    assert logs[TopicPartition(topic, 0)] in maintenance.describe_replicas()
    assert {log.partition for log in maintenance.describe_replicas()} == logs.keys()
    assert {log.cluster_id for log in maintenance.describe_replicas()} == {broker.node.broker.services.cluster_id}


def test_a_partition_that_is_not_there_has_an_error_and_harms_no_other(maintenance: Maintenance, new_topic) -> None:
    name = TopicPartition(new_topic(count=1), 0)
    nowhere = [TopicPartition("nowhere", 0), TopicPartition(name.topic, 1), TopicPartition(name.topic, -1)]
    found = maintenance.describe_logs([name, *nowhere, name])
    assert isinstance(found[name], LogDescription)
    assert all(isinstance(found[each], UnknownTopicOrPartition) for each in nowhere)
    assert len(found) == 4
    assert maintenance.describe_logs([]) == {}


def test_of_several_brokers_the_leader_speaks_for_a_partition() -> None:
    names = [TopicPartition("t", number) for number in range(5)]
    led, followed, offline, nowhere, unasked = names
    told = [
        *((name, UnknownTopicOrPartition("not on 1")) for name in names[:4]),
        (led, LogDescription(partition=led, broker_id=2, is_leader=False)),
        (led, LogDescription(partition=led, broker_id=3)),
        (led, KafkaStorageError("on 4")),
        (followed, LogDescription(partition=followed, is_leader=False)),
        (followed, UnknownTopicOrPartition("not on 4")),
        (offline, LogDescription(partition=offline, is_leader=False)),
        (offline, KafkaStorageError("on 4")),
        (unasked, LogDescription(partition=unasked, broker_id=2)),
    ]
    found = leaders(names[:4], told)
    assert found[led] == LogDescription(partition=led, broker_id=3)
    assert [type(found[name]) for name in (followed, offline, nowhere)] == [
        LeaderNotAvailable, KafkaStorageError, UnknownTopicOrPartition,
    ]  # fmt: skip
    assert found[unasked] == LogDescription(partition=unasked, broker_id=2)


def test_of_two_that_take_themselves_for_leaders_the_later_one_is_believed_and_no_replica_is_no_error() -> None:
    led, electing = TopicPartition("t", 0), TopicPartition("t", 1)
    deposed, elected = (LogDescription(partition=led, broker_id=broker, leader_epoch=broker) for broker in (1, 2))
    follower = LogDescription(partition=electing, broker_id=1, is_leader=False)
    told = [(electing, follower), (electing, NotLeaderOrFollower("no replica here"))]
    for order in ([(led, deposed), (led, elected)], [(led, elected), (led, deposed)]):
        found = leaders([led, electing], [*order, *told])
        assert found[led] == elected
        assert isinstance(found[electing], LeaderNotAvailable)


def test_ranges_of_every_file(broker: RunningBroker, maintenance: Maintenance, new_topic) -> None:
    log = describe(maintenance, new_topic(count=8, value=bytes(300_000)))
    broker.node.broker.services.replicas.get(log.partition).log.flush()
    for segment in log.segments:
        data = path_of(log, segment).read_bytes()
        pieces = list(maintenance.read_segment(log, segment))
        assert b"".join(pieces) == data
        assert max(map(len, pieces)) <= 1 << 20
        for position, size in ((0, 0), (1, 1), (7, 400_000), (len(data) - 1, 10), (len(data) + 5, 10)):
            part = b"".join(maintenance.read_segment(log, segment, position, size))
            assert part == data[position : position + size]
    first = log.segments[0]
    for suffix in ("index", "timeindex"):
        assert b"".join(maintenance.read_segment(log, first, file=suffix)) == path_of(log, first, suffix).read_bytes()
    epochs = b"".join(maintenance.read_segment(log, first, file="leader-epoch-checkpoint"))
    assert epochs == (Path(log.folder) / "leader-epoch-checkpoint").read_bytes()


def test_what_cannot_be_read_is_refused(maintenance: Maintenance, new_topic) -> None:
    log = describe(maintenance, new_topic(count=4))
    first = log.segments[0]
    for error, asked in (
        (InvalidUpdateVersion, lambda: maintenance.read_segment(log, replace(first, identity="another"))),
        (OffsetOutOfRange, lambda: maintenance.read_segment(log, replace(first, base_offset=1))),
        (OffsetOutOfRange, lambda: maintenance.read_segment(log, replace(first, base_offset=-1))),
        (InvalidRequest, lambda: maintenance.read_segment(log, first, -1)),
        (InvalidRequest, lambda: maintenance.read_segment(log, first, 0, -1)),
        (InvalidRequest, lambda: maintenance.read_segment(log, first, file="../../meta.properties")),
        (
            UnknownTopicOrPartition,
            lambda: maintenance.read_segment(replace(log, partition=TopicPartition("no", 0)), first),
        ),
    ):
        with pytest.raises(error):
            list(asked())


def test_segments_are_replaced_under_a_consumer(broker: RunningBroker, maintenance: Maintenance, new_topic) -> None:
    topic = new_topic(count=60)
    name = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=1) as consumer:
        consumer.assign([name])
        offsets = [record.offset for record in consumer.poll(PATIENCE_MS)]
        log = describe(maintenance, topic)
        kept = set()
        for group, is_uploaded in ((log.segments[:10], True), (log.segments[10:20], False)):
            data = thinned(b"".join(piece for each in group for piece in maintenance.read_segment(log, each)))
            kept |= {header.base_offset for _, header in iterate_headers(data)}
            lease = maintenance.begin_replace(log, group, "run")
            if is_uploaded:
                assert maintenance.upload(lease, [data[:777], data[777:]]) == len(data)
            else:
                with open(lease.path, "xb") as file:
                    file.write(data)
            new = maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
            assert (new.base_offset, new.next_offset) == (group[0].base_offset, group[-1].next_offset)
            assert new == maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
            offsets += [record.offset for record in consumer.poll(PATIENCE_MS)]
        maintenance.set_cleaned_offset(log, new.next_offset, describe(maintenance, topic).segments[:2])
        while offsets[-1] < 59:
            offsets += [record.offset for record in consumer.poll(PATIENCE_MS)]
    assert offsets == sorted(set(offsets))
    assert set(offsets) >= kept | set(range(40, 60))  # what it had fetched before may be in there too
    assert [record.offset for record in read_all(broker.bootstrap, topic)] == [*sorted(kept), *range(40, 60)]
    after = describe(maintenance, topic)
    assert (len(after.segments), after.cleaned_offset, after.log_end_offset) == (len(log.segments) - 18, 40, 60)


def test_a_segment_is_read_to_its_end_while_it_is_replaced_and_the_topic_deleted(
    broker: RunningBroker, maintenance: Maintenance, new_topic
) -> None:
    log = describe(maintenance, new_topic(count=4, value=bytes(900_000) + os.urandom(100_000)))
    first = log.segments[0]
    before = path_of(log, first).read_bytes()
    pieces = maintenance.read_segment(log, first)
    got = next(pieces)
    data = thinned(before, every=4)
    lease = maintenance.begin_replace(log, [first], "run")
    maintenance.upload(lease, [data])
    maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.delete_topics([log.partition.topic])
    assert got + b"".join(pieces) == before
    with pytest.raises((UnknownTopicOrPartition, InvalidUpdateVersion)):
        list(maintenance.read_segment(log, first))


def test_a_plan_that_is_out_of_date_leaves_nothing_behind(maintenance: Maintenance, new_topic) -> None:
    log = describe(maintenance, new_topic())
    first = log.segments[0]
    data = path_of(log, first).read_bytes()
    lease = maintenance.begin_replace(log, [first], "run")
    with pytest.raises(DuplicateResource):
        maintenance.begin_replace(log, [first], "another run")
    maintenance.upload(lease, [data])
    maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
    for sources in ([first], log.segments[:2]):
        with pytest.raises(InvalidUpdateVersion):
            maintenance.begin_replace(log, sources, "run")
    lease = maintenance.begin_replace(log, log.segments[1:3], "run")
    maintenance.upload(lease, [data])
    maintenance.abort_replace(lease)
    maintenance.abort_replace(lease)
    with pytest.raises(ResourceNotFound):
        maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
    assert not [name for name in os.listdir(log.folder) if name.endswith((".cleaned", ".swap"))]


def test_a_commit_that_outlasts_its_request_is_asked_for_again(
    broker: RunningBroker, maintenance: Maintenance, new_topic, monkeypatch
) -> None:
    log = describe(maintenance, new_topic(count=4))
    data = path_of(log, log.segments[0]).read_bytes()
    lease = maintenance.begin_replace(log, log.segments[:1], "run")
    maintenance.upload(lease, [data])
    asked = threading.Semaphore(0)
    commit, put_in_place = Replacements.commit, SegmentReplacer.replace

    def counted(replacements: Replacements, *args):
        asked.release()
        return commit(replacements, *args)

    def slow(replacer: SegmentReplacer, *args, **fields) -> SegmentDescription:
        assert asked.acquire(timeout=PATIENCE_S)
        assert asked.acquire(timeout=PATIENCE_S)
        return put_in_place(replacer, *args, **fields)

    monkeypatch.setattr(Replacements, "commit", counted)
    monkeypatch.setattr(SegmentReplacer, "replace", slow)
    with Maintenance(bootstrap_servers=broker.bootstrap, request_timeout_ms=300) as impatient:
        new = impatient.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
    assert new == describe(maintenance, log.partition.topic).segments[0]


def test_an_upload_says_why_it_was_broken_off(maintenance: Maintenance, new_topic) -> None:
    log = describe(maintenance, new_topic(count=4))
    lease = maintenance.begin_replace(log, log.segments[:1], "run")
    with pytest.raises(RecordListTooLarge):
        maintenance.upload(lease, (bytes(1 << 19) for _ in range(1000)))
    with pytest.raises(ResourceNotFound):
        maintenance.upload(lease, [b"x"])
    lease = maintenance.begin_replace(log, log.segments[:1], "run")

    def taken_over() -> Iterator[bytes]:
        yield b"x"
        maintenance.begin_replace(log, log.segments[:1], "run")
        yield b"y"

    with pytest.raises(ResourceNotFound):
        maintenance.upload(lease, taken_over())
    assert not os.path.exists(lease.path)


def test_an_upload_that_its_own_side_breaks_off_can_be_made_again(maintenance: Maintenance, new_topic) -> None:
    log = describe(maintenance, new_topic(count=4))
    data = path_of(log, log.segments[0]).read_bytes()
    lease = maintenance.begin_replace(log, log.segments[:1], "run")

    def failing() -> Iterator[bytes]:
        yield data[:10]
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        maintenance.upload(lease, failing())
    assert maintenance.upload(lease, [data]) == len(data)
    maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))


def test_calls_that_no_client_of_ours_makes(broker: RunningBroker) -> None:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        stub = maintenance_pb2_grpc.MaintenanceStub(channel)
        for messages, status in (
            ([], grpc.StatusCode.INVALID_ARGUMENT),
            ([maintenance_pb2.UploadSegmentRequest(lease_id="?")], grpc.StatusCode.NOT_FOUND),
            ([maintenance_pb2.UploadSegmentRequest(data=bytes(9 << 20))], grpc.StatusCode.RESOURCE_EXHAUSTED),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                list(stub.UploadSegment(iter(messages), timeout=PATIENCE_S))
            assert refused.value.code() == status
        for request in (
            maintenance_pb2.BeginReplaceRequest(topic="nowhere", holder="x"),
            maintenance_pb2.BeginReplaceRequest(topic="\0", partition=-1, lease_ms=-1, holder="x"),
            maintenance_pb2.BeginReplaceRequest(topic="t", sources=[maintenance_pb2.SegmentOfLog()]),
        ):
            with pytest.raises(grpc.RpcError) as refused:
                stub.BeginReplace(request, timeout=PATIENCE_S)
            assert refused.value.code() == grpc.StatusCode.INVALID_ARGUMENT


def test_a_broker_that_stops_does_not_wait_for_uploads(tmp_path: Path) -> None:
    # The lease lasts longer than the test, and so does the time that requests in flight have.
    broker = start_broker(tmp_path / "data", controlled_shutdown_timeout_ms=3_600_000)
    try:
        fill(broker.bootstrap, "t", 4)
        stopping = threading.Thread(target=broker.stop)
        with Maintenance(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=0) as maintenance:
            log = describe(maintenance, "t")
            lease = maintenance.begin_replace(log, log.segments[:1], "run", lease_ms=3_600_000)

            def stalling() -> Iterator[bytes]:
                yield b"x"
                stopping.start()
                stopping.join(PATIENCE_S)
                assert not stopping.is_alive(), "the broker does not stop"
                yield b"y"

            with pytest.raises(KafkaError):
                maintenance.upload(lease, stalling())
        assert not [name for name in os.listdir(log.folder) if name.endswith(".cleaned")]
    finally:
        broker.stop()


async def test_the_asynchronous_client_reads_and_replaces_too(broker: RunningBroker, new_topic) -> None:
    topic = new_topic(count=4)
    name = TopicPartition(topic, 0)
    async with AsyncMaintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        log = (await maintenance.describe_logs([name]))[name]
        assert isinstance(log, LogDescription)
        data = b"".join([piece async for piece in maintenance.read_segment(log, log.segments[0])])
        lease = await maintenance.begin_replace(log, log.segments[:1], "run")
        pieces = maintenance.read_segment(log, log.segments[0])
        assert await maintenance.upload(lease, pieces) == len(data)
        new = await maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
        assert [each.identity for each in log.segments].count(new.identity) == 0


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["begun", "uploaded", "committed"])
def test_a_killed_broker_has_the_old_segments_or_the_new_one(tmp_path: Path, moment: str) -> None:
    process = BrokerProcess(tmp_path)
    process.start()
    try:
        fill(process.grpc, "t")
        with Maintenance(bootstrap_servers=process.grpc) as maintenance:
            log = describe(maintenance, "t")
            group = log.segments[:4]
            data = thinned(b"".join(piece for each in group for piece in maintenance.read_segment(log, each)))
            lease = maintenance.begin_replace(log, group, "run")
            if moment != "begun":
                maintenance.upload(lease, [data])
            if moment == "committed":
                maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
            process.kill()
            process.start()
            with pytest.raises(ResourceNotFound):
                maintenance.commit_replace(lease, log.leader_epoch, len(data), crc32c(data))
            after = describe(maintenance, "t")
            with pytest.raises(KafkaError):
                maintenance.begin_replace(log, group, "run")
        kept = {header.base_offset for _, header in iterate_headers(data)} | set(range(8, RECORDS))
        expected = sorted(kept) if moment == "committed" else list(range(RECORDS))
        assert len(after.segments) == len(log.segments) - (3 if moment == "committed" else 0)
        assert [record.offset for record in read_all(process.grpc, "t")] == expected
        assert not [name for name in os.listdir(log.folder) if name.endswith((".cleaned", ".swap"))]
        process.stop()
    finally:
        process.kill()
