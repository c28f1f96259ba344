"""The age of unconsumed records, by the headers of batches."""

from __future__ import annotations

from uuid import UUID

import pytest

from sparklog.base.errors import OffsetNotAvailable
from sparklog.base.ids import TopicPartition
from sparklog.log.log import Log
from sparklog.records.batch import DELETE_HORIZON_BIT, read_header, seal
from sparklog.replica import positions
from sparklog.replica.manager import Replica
from sparklog.replica.messages import DescribedPosition, LeaderAndIsrPartitionState
from sparklog.replica.partition import Partition
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import START_MS, batch, open_log, topic_config

COUNT = 5


def replica_of(log: Log, high_watermark: int | None = None) -> Replica:
    """A follower's replica of the log."""
    end = log.log_end_offset if high_watermark is None else high_watermark
    partition = Partition(
        TopicPartition("orders", 0), broker_id=1, log_end_offset=log.log_end_offset, high_watermark=end
    )
    return Replica(partition=partition, log=log, config=log.config)


@pytest.fixture
def log() -> Log:
    """Three batches of five records, a second apart, over two segments."""
    made = open_log(MemoryFs(), config=topic_config(internal_segment_bytes=200))
    for number in range(3):
        made.append(batch(COUNT, timestamp_ms=START_MS + 1_000 * number), leader_epoch=0)
    return made


@pytest.mark.parametrize(("offset", "seconds"), [(0, 0), (4, 0), (5, 1), (9, 1), (10, 2), (14, 2)])
def test_a_record_is_as_old_as_the_first_one_of_its_batch(log: Log, offset: int, seconds: int) -> None:
    described = positions.describe(replica_of(log), offset)
    assert described == DescribedPosition(high_watermark=15, timestamp_ms=START_MS + 1_000 * seconds)


@pytest.mark.parametrize("offset", [15, 16, 1_000])
def test_nothing_is_old_where_everything_is_read(log: Log, offset: int) -> None:
    assert positions.describe(replica_of(log), offset) == DescribedPosition(high_watermark=15)


def test_a_record_that_is_not_committed_is_not_counted(log: Log) -> None:
    assert positions.describe(replica_of(log, 10), 10) == DescribedPosition(high_watermark=10)
    assert positions.describe(replica_of(log, 10), 9).timestamp_ms == START_MS + 1_000


def test_below_the_log_start_the_oldest_record_that_is_left_counts(log: Log) -> None:
    log.advance_log_start(5)
    assert positions.describe(replica_of(log), 0).timestamp_ms == START_MS + 1_000


def test_records_with_the_time_of_the_append_are_as_old_as_that() -> None:
    log = open_log(MemoryFs(), config=topic_config(message_timestamp_type="LogAppendTime"))
    log.append(batch(COUNT, timestamp_ms=1), leader_epoch=0)
    assert positions.describe(replica_of(log), 0).timestamp_ms == START_MS


def test_the_delete_horizon_of_a_compacted_batch_is_no_timestamp(log: Log) -> None:
    header = read_header(compacted := batch(COUNT, timestamp_ms=START_MS + 9_000))
    compacted[21:23] = (header.attributes | DELETE_HORIZON_BIT).to_bytes(2, "big")
    compacted[27:35] = (START_MS * 2).to_bytes(8, "big")
    compacted[0:8] = (15).to_bytes(8, "big")
    seal(compacted)
    log.as_follower.append(compacted)
    assert positions.describe(replica_of(log), 15).timestamp_ms == START_MS + 9_000 + COUNT - 1


def test_a_leader_that_does_not_know_the_high_watermark_says_nothing(log: Log) -> None:
    replica = replica_of(log, 5)
    state = LeaderAndIsrPartitionState(
        name=replica.partition.name,
        topic_id=UUID(int=1),
        leader=1,
        leader_epoch=1,
        isr=(1, 2),
        replicas=(1, 2),
        partition_epoch=1,
    )
    replica.partition.become_leader(state, controller_epoch=1, log_end_offset=15, now_ms=0)
    with pytest.raises(OffsetNotAvailable):
        positions.describe(replica, 0)
