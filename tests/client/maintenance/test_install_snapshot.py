"""Snapshots for coordinators over gRPC: accepted and refused uploads, and the load at a broker's start."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from sparklog.base.errors import (
    CorruptRecord,
    FencedLeaderEpoch,
    InvalidRequest,
    KafkaError,
    OffsetOutOfRange,
    UnknownLeaderEpoch,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Maintenance
from sparklog.log.description import LogDescription
from sparklog.records.arrow import decode_batches, encode_all
from sparklog.spark.offsets.read import PartitionSlice, batches
from sparklog.spark.offsets.snapshots import batches_of
from sparklog.spark.offsets.topic import ReplayTask, read_changes
from sparklog.testing import RunningBroker, start_broker

OFFSETS = TopicPartition("__consumer_offsets", 0)
SETTINGS = {"offsets_topic_num_partitions": 1, "group_initial_rebalance_delay_ms": 0}
COMMITS = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    with start_broker(tmp_path_factory.mktemp("snapshots"), **SETTINGS) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=3)
            for number in range(COMMITS):
                admin.alter_group_offsets("g", {TopicPartition("orders", number % 3): number})
        yield broker


@pytest.fixture
def maintenance(broker: RunningBroker) -> Iterator[Maintenance]:
    with Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        yield maintenance


@pytest.fixture
def log(maintenance: Maintenance) -> LogDescription:
    found = maintenance.describe_logs([OFFSETS])[OFFSETS]
    assert isinstance(found, LogDescription)
    return found


def whole(
    log: LogDescription, broker: RunningBroker, *, offset_from: int = 0, through_broker: bool = False
) -> PartitionSlice:
    folder = None if through_broker else log.folder
    return PartitionSlice(
        partition=OFFSETS, offset_from=offset_from, offset_to=log.high_watermark, folder=folder,
        client={"bootstrap_servers": broker.bootstrap},
    )  # fmt: skip


def newest(log: LogDescription, broker: RunningBroker) -> list[bytes]:
    (changes,) = read_changes(ReplayTask(slice=whole(log, broker), history_from=0))
    return list(batches_of([changes]))


def files(log: LogDescription) -> list[str]:
    return [path.name for path in Path(log.folder).iterdir() if ".checkpoint" in path.name]


@pytest.mark.slow
def test_a_slice_reads_the_same_through_the_broker_as_from_files(log: LogDescription, broker: RunningBroker) -> None:
    for offset in (0, 17, log.high_watermark - 1):
        ways = [
            [
                row
                for data in batches(whole(log, broker, offset_from=offset, through_broker=way))
                for batch in decode_batches(data, offset_from=offset)
                for row in batch.to_pylist()
            ]
            for way in (False, True)
        ]
        assert ways[0] == ways[1]
        assert len(ways[0]) == log.high_watermark - offset


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"leader_epoch": -1}, FencedLeaderEpoch),
        ({"leader_epoch": 9}, UnknownLeaderEpoch),
        ({"end_offset": 1_000}, OffsetOutOfRange),
        ({"end_offset": 0}, OffsetOutOfRange),
        ({"partition": TopicPartition("orders", 0)}, InvalidRequest),
        ({"chunks": [b"x" * 100]}, CorruptRecord),
    ],
)
def test_what_is_no_snapshot_of_this_log_is_refused_and_leaves_nothing(
    log: LogDescription, maintenance: Maintenance, change: dict[str, object], error: type[KafkaError]
) -> None:
    asked = {"partition": OFFSETS, "leader_epoch": log.leader_epoch, "end_offset": log.high_watermark, "chunks": []}

    with pytest.raises(error):
        maintenance.install_snapshot(**asked | change)

    assert files(log) == []


def test_a_call_that_breaks_off_leaves_nothing(log: LogDescription, maintenance: Maintenance) -> None:
    def chunks() -> Iterator[bytes]:
        yield bytes(encode_all(pa.table({"key": [b"k"]}), max_batch_bytes=1_000, default_timestamp_ms=0)[0])
        raise RuntimeError("the task has died")

    with pytest.raises(RuntimeError, match="the task has died"):
        maintenance.install_snapshot(OFFSETS, log.leader_epoch, log.high_watermark, chunks())

    maintenance.install_snapshot(OFFSETS, log.leader_epoch, log.high_watermark - 1, [])
    assert files(log) == [f"{log.high_watermark - 1:020d}-{0:010d}.checkpoint"]


@pytest.mark.slow
def test_a_coordinator_that_starts_loads_the_snapshot_and_what_came_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "sparklog.coordinator.partitions")
    place = TopicPartition("orders", 0)
    with start_broker(tmp_path, **SETTINGS) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=1)
        for number in range(20):
            admin.alter_group_offsets("g", {place: number})
        with Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
            log = maintenance.describe_logs([OFFSETS])[OFFSETS]
            assert isinstance(log, LogDescription)
            maintenance.install_snapshot(OFFSETS, log.leader_epoch, log.high_watermark, newest(log, broker))
        admin.alter_group_offsets("h", {place: 7})

    with start_broker(tmp_path, **SETTINGS) as broker, Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert admin.list_group_offsets("g")[place].offset == 19
        assert admin.list_group_offsets("h")[place].offset == 7

    assert "read a snapshot of 1 records up to 20, 1 records of __consumer_offsets-0" in caplog.text
