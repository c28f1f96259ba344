"""Records lost in an unclean election between a commit and the next consumer are detected (KIP-320)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from test_truncation import PARTITION, Replica, read, reader

from sparklog.base.errors import LogTruncation
from sparklog.client.aio import AsyncConsumer
from sparklog.v1 import groups_pb2, groups_pb2_grpc
from support.brokers.scripted import running


class Coordinator(Replica, groups_pb2_grpc.GroupsServicer):
    """A coordinator that keeps the last commit."""

    def __init__(self) -> None:
        super().__init__(0, leader=0, log=[4, 4, 5, 5])
        self.all = [self]
        self.committed = groups_pb2.OffsetToCommit(topic="t", partition=0, offset=-1, leader_epoch=-1)

    async def FindCoordinator(self, request: Any, context: Any) -> Any:  # noqa: N802
        found = groups_pb2.Coordinator(group_id="g", broker_id=0, grpc_address=self.address)
        return groups_pb2.FindCoordinatorResponse(coordinators=[found])

    async def OffsetCommit(self, request: Any, context: Any) -> Any:  # noqa: N802
        [self.committed] = request.offsets
        return groups_pb2.OffsetCommitResponse(partitions=[groups_pb2.PartitionResult(topic="t", partition=0)])

    async def OffsetFetch(self, request: Any, context: Any) -> Any:  # noqa: N802
        at = self.committed
        found = groups_pb2.CommittedOffset(topic="t", partition=0, offset=at.offset, leader_epoch=at.leader_epoch)
        return groups_pb2.OffsetFetchResponse(partitions=[found])

    def lead_anew(self, epoch: int, *, log: list[int]) -> None:
        self.epoch, self.log = epoch, log


@pytest.fixture
async def broker() -> AsyncIterator[Coordinator]:
    async with running(made := Coordinator()):
        yield made


def member(broker: Coordinator, **options: Any) -> AsyncConsumer:
    consumer = reader([broker], group_id="g", enable_auto_commit=False, **options)
    consumer.assign([PARTITION])
    return consumer


async def read_and_commit(broker: Coordinator, count: int) -> None:
    async with member(broker) as first:
        await read(first, count)
        await first.commit()


async def test_who_goes_on_where_the_log_was_cut_goes_back_to_what_is_there(broker: Coordinator) -> None:
    await read_and_commit(broker, 4)
    assert (broker.committed.offset, broker.committed.leader_epoch) == (4, 5)
    broker.lead_anew(6, log=[4, 4, 5, 6, 6, 6])
    async with member(broker) as second:
        assert await read(second, 3) == [b"3:6", b"4:6", b"5:6"]


async def test_without_a_reset_it_is_told(broker: Coordinator) -> None:
    await read_and_commit(broker, 4)
    broker.lead_anew(6, log=[4, 4, 5, 6, 6, 6])
    async with member(broker, auto_offset_reset="none") as second:
        with pytest.raises(LogTruncation, match="from offset 3 to 4 were read"):
            await read(second, 1)


async def test_what_was_fetched_and_not_read_may_be_lost(broker: Coordinator) -> None:
    async with member(broker) as first:
        while not await first.poll(1_000, max_records=1):
            pass
        await first.commit()
    assert (broker.committed.offset, broker.committed.leader_epoch) == (1, 5)  # the newest that came with it
    broker.lead_anew(6, log=[4, 4, 6])
    async with member(broker, auto_offset_reset="none") as second:
        assert await read(second, 2) == [b"1:4", b"2:6"]


async def test_a_commit_of_a_topic_that_had_the_same_name_holds_up_nobody(broker: Coordinator) -> None:
    await read_and_commit(broker, 2)
    broker.lead_anew(0, log=[0, 0, 0, 0, 0])
    async with member(broker) as second:
        assert await read(second, 1) == [b"4:0"]
