"""Three brokers, and upkeep that replaces segments through the leader's APIs: all replicas become the same files."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest
from crc32c import crc32c

from sparklog.base.errors import NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis import describe_log, replace_segments, set_cleaned_offset
from sparklog.log.log import Log
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.logs.builders import file_content
from support.patience import PATIENCE_MS, until

pytestmark = pytest.mark.slow

T0 = TopicPartition("t", 0)
Batch = Callable[..., bytearray]


@pytest.fixture
async def three(batch: Batch) -> AsyncIterator[BrokersOnOneLoop]:
    """Three brokers, and a topic with a batch of at least 100 bytes in each segment."""
    made = BrokersOnOneLoop()
    await made.start(1, 2, 3)
    for broker in made.brokers.values():
        metadata = broker.services.metadata
        assert await metadata.wait_until(lambda metadata=metadata: len(metadata.brokers) == 3, PATIENCE_MS)
    await made.create("t", [[1, 2, 3]], internal_segment_bytes="200", cleanup_policy="compact")
    for number in range(6):
        assert (await made.produce(1, T0, batch([b"%d" % number * 100]))).error is None
    yield made
    await made.stop_all()


def log_of(three: BrokersOnOneLoop, broker_id: int) -> Log:
    return three.brokers[broker_id].services.replicas.get(T0).log


def files(three: BrokersOnOneLoop, broker_id: int) -> dict[int, bytes]:
    log, disk = log_of(three, broker_id), three.disk(broker_id)
    return {each.base_offset: file_content(disk, f"{log.folder}/{each.base_offset:020d}.log") for each in log.segments}


async def until_equal(three: BrokersOnOneLoop) -> None:
    def are_equal() -> bool:
        if any(each.services.replicas.find(T0) is None for each in three.brokers.values()):
            return False
        try:
            return len({tuple(files(three, each).items()) for each in three.brokers}) == 1
        except FileNotFoundError:  # replaced while it was looked at
            return False

    await until(are_equal, "all brokers have the same files", every_s=0.005)


async def replace_first(three: BrokersOnOneLoop, broker_id: int, count: int) -> None:
    """Replace so many segments by one with the last batch only; the log counts as compacted up to its end."""
    broker = three.brokers[broker_id]
    described = (await broker.serve(describe_log.API, describe_log.DescribeLogRequest(partitions=[T0]))).logs[T0]
    sources, epoch = described.closed_segments[:count], described.leader_epoch
    data = files(three, broker_id)[sources[-1].base_offset]
    wanted = replace_segments.BeginReplaceRequest(partition=T0, leader_epoch=epoch, sources=sources, holder="test")
    lease_id = (await broker.serve(replace_segments.BEGIN_REPLACE, wanted)).lease_id

    async def pieces() -> AsyncIterator[bytes]:
        yield data

    await broker.serve(
        replace_segments.UPLOAD_SEGMENT, replace_segments.UploadSegmentRequest(lease_id=lease_id, pieces=pieces())
    )
    commit = replace_segments.CommitReplaceRequest(
        lease_id=lease_id, leader_epoch=epoch, size_bytes=len(data), crc32c=crc32c(data)
    )
    new = (await broker.serve(replace_segments.COMMIT_REPLACE, commit)).segment
    cleaned = set_cleaned_offset.SetCleanedOffsetRequest(
        partition=T0, leader_epoch=epoch, offset=new.next_offset, segments=[new]
    )
    await broker.serve(set_cleaned_offset.API, cleaned)


async def test_followers_copy_segments_that_were_replaced_on_the_leader(three: BrokersOnOneLoop) -> None:
    await replace_first(three, 1, 3)
    await until_equal(three)
    assert sorted(files(three, 3)) == [0, 3, 4, 5]

    def know() -> bool:
        return {log_of(three, each).cleaned_offset for each in three.brokers} == {3}

    await until(know, "all brokers know how far the log is compacted", every_s=0.005)


async def test_only_the_leaders_log_is_replaced(three: BrokersOnOneLoop) -> None:
    with pytest.raises(NotLeaderOrFollower):
        await replace_first(three, 2, 3)


async def test_a_follower_that_was_away_has_the_same_files_when_it_is_back(
    three: BrokersOnOneLoop, batch: Batch
) -> None:
    await three.stop(3)
    await replace_first(three, 1, 3)
    await three.produce(1, T0, batch([b"x" * 100]))
    await three.start(3)
    await until_equal(three)


async def test_a_returning_leader_copies_the_segments_of_the_new_leader(three: BrokersOnOneLoop, batch: Batch) -> None:
    """The new leader may have copied the replacement before, or not."""
    await replace_first(three, 1, 3)
    zombie = three.cut_off(1)
    await three.until_led(T0, 2, isr={2, 3})
    assert (await three.produce(2, T0, batch([b"x" * 100]))).error is None
    await zombie.stop()
    await three.start(1)
    await until_equal(three)
