"""Fetches of stable offsets (KIP-447): the flag, and the error of each partition, on both listeners."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from kio.schema.errors import ErrorCode

from sparklog.broker.apis import group_apis
from sparklog.group.requests import OffsetFetch, OffsetFetchResponse
from sparklog.testing import RunningBroker
from sparklog.v1 import groups_pb2
from sparklog.v1.groups_pb2_grpc import GroupsStub
from support.groups.transactions import TransactionalWorld
from support.kafka.connection import Wire

OFFSET_FETCH = 9
FIRST_WITH_STABLE, FIRST_WITH_SEVERAL, LAST_WITH_NAMES = 7, 8, 9


@pytest.fixture(autouse=True)
def world(kafka_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> TransactionalWorld:
    """A shard with a committed offset of group g, and a pending one of a transaction."""
    made = TransactionalWorld()
    made.commit("g", 0, 5)
    made.commit("g", 1, 5)
    made.commit_in_transaction(7, "g", 1, 6)

    async def handle(request: OffsetFetch) -> OffsetFetchResponse:
        return made.shard.fetch_offsets(request)

    monkeypatch.setitem(kafka_broker.node.broker.services.handlers, group_apis.OFFSET_FETCH, handle)
    return made


@pytest.fixture
def groups(kafka_broker: RunningBroker) -> Iterator[GroupsStub]:
    with grpc.insecure_channel(kafka_broker.bootstrap) as channel:
        yield GroupsStub(channel)


@pytest.mark.parametrize("version", [1, *range(FIRST_WITH_STABLE, LAST_WITH_NAMES + 1)])
@pytest.mark.parametrize("is_stable", [True, False])
def test_kafka_s_protocol(wire: Wire, version: int, *, is_stable: bool) -> None:
    asked = [{"name": "orders", "partition_indexes": [0, 1, 2]}]
    flag = {"require_stable": is_stable} if version >= FIRST_WITH_STABLE else {}
    if version >= FIRST_WITH_SEVERAL:
        (found,) = wire.send(OFFSET_FETCH, version, groups=[{"group_id": "g", "topics": asked}], **flag).groups
    else:
        found = wire.send(OFFSET_FETCH, version, group_id="g", topics=asked, **flag)

    parts = [(part.committed_offset, part.error_code) for part in found.topics[0].partitions]

    is_told = is_stable and version >= FIRST_WITH_STABLE
    pending = (-1, ErrorCode.unstable_offset_commit) if is_told else (5, ErrorCode.none)
    assert parts == [(5, ErrorCode.none), pending, (-1, ErrorCode.none)]


@pytest.mark.parametrize("is_stable", [True, False])
def test_grpc(groups: GroupsStub, *, is_stable: bool) -> None:
    wanted = [groups_pb2.GroupPartition(topic="orders", partition=number) for number in (0, 1, 2)]

    answer = groups.OffsetFetch(
        groups_pb2.OffsetFetchRequest(group_id="g", partitions=wanted, require_stable=is_stable)
    )

    pending = (-1, "UNSTABLE_OFFSET_COMMIT") if is_stable else (5, "")
    assert [(part.offset, part.error.name) for part in answer.partitions] == [(5, ""), pending, (-1, "")]
