"""What a broker that has been in use holds: everything that a request may make it look at again and again."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import grpc

from sparklog.v1 import admin_pb2, admin_pb2_grpc, groups_pb2, groups_pb2_grpc, log_pb2, log_pb2_grpc
from support.fuzzing.shapes import LARGE
from support.kafka.connection import Wire
from support.kafka.transactions import init
from support.logs.builders import batch

FETCH, OFFSET_COMMIT, JOIN_GROUP, SYNC_GROUP, ADD_PARTITIONS = 1, 8, 11, 14, 24
PARTITIONS = 1_000
GROUPS = 3_000
LARGE_MEMBERS = 20
METADATA_BYTES = 200_000
PRODUCERS = 3_000
TRANSACTIONS = 3_000
TRANSACTION_MS = 900_000
"""The longest that is allowed: none ends while requests are measured."""
WAITING = 20
AT_ONCE = 100
WAITS_MS = 3_600_000
NOTHING_MORE = 2_000_000_000


def fill_up(address: tuple[str, int], channel: grpc.Channel, stack: ExitStack) -> None:
    """Make the state; what waits ends with the stack. The topic, the group and the transaction `LARGE` have most."""
    topic = {"name": LARGE, "partitions": PARTITIONS}
    created = admin_pb2_grpc.AdminStub(channel).CreateTopics(admin_pb2.CreateTopicsRequest(topics=[topic]))
    assert not created.topics[0].error.code, created
    log = log_pb2_grpc.LogStub(channel)
    for first in range(0, PRODUCERS, AT_ONCE):
        data = b"".join(bytes(batch(1, producer_id=number)) for number in range(first, first + AT_ONCE))
        done = log.Produce(log_pb2.ProduceRequest(partitions=[{"topic": LARGE, "partition": 0, "batches": data}]))
        assert not done.partitions[0].error.code, done
    offsets = [{"topic": LARGE, "partition": number, "offset": 0} for number in range(PARTITIONS)]
    groups_pb2_grpc.GroupsStub(channel).OffsetCommit(
        groups_pb2.OffsetCommitRequest(group_id=LARGE, member_id="", offsets=offsets)
    )
    open_transactions(address, (f"transaction-{number}" for number in range(TRANSACTIONS)), LARGE, 1)
    open_transactions(address, [LARGE], LARGE, PARTITIONS)
    with Wire(address) as wire:
        _commit(wire)
        _join(wire, LARGE)
        for number in range(LARGE_MEMBERS):
            _join(wire, f"{LARGE}-{number}")
    for _ in range(WAITING):
        stack.enter_context(Wire(address)).write(FETCH, 11, **_fetch())


def open_transactions(address: tuple[str, int], ids: Iterable[str], topic: str, partitions: int) -> None:
    """Open a transaction of each id in the first partitions of a topic."""
    topics = [{"name": topic, "partitions": list(range(partitions))}]
    with Wire(address) as wire:
        for each in ids:
            made = init(wire, 5, each, transaction_timeout=TRANSACTION_MS)
            wire.send(
                ADD_PARTITIONS, 3, v3_and_below_transactional_id=each, v3_and_below_producer_id=made.producer_id,
                v3_and_below_producer_epoch=made.producer_epoch, v3_and_below_topics=topics,
            )  # fmt: skip


def _commit(wire: Wire) -> None:
    """Each group has an offset; requests are pipelined."""
    offset = {"partition_index": 0, "committed_offset": 0, "committed_leader_epoch": -1, "committed_metadata": ""}
    for first in range(0, GROUPS, AT_ONCE):
        for number in range(first, first + AT_ONCE):
            wire.write(
                OFFSET_COMMIT, 6, group_id=f"group-{number}", generation_id_or_member_epoch=-1, member_id="",
                topics=[{"name": LARGE, "partitions": [offset]}],
            )  # fmt: skip
        for _ in range(AT_ONCE):
            wire.read_frame()


def _join(wire: Wire, group_id: str) -> None:
    joined = wire.send(
        JOIN_GROUP, 3, group_id=group_id, session_timeout=1_800_000, rebalance_timeout=60_000, member_id="",
        protocol_type="consumer", protocols=[{"name": "range", "metadata": bytes(METADATA_BYTES)}],
    )  # fmt: skip
    wire.send(
        SYNC_GROUP, 1, group_id=group_id, generation_id=joined.generation_id, member_id=joined.member_id,
        assignments=[{"member_id": joined.member_id, "assignment": bytes(METADATA_BYTES)}],
    )  # fmt: skip


def _fetch() -> dict[str, Any]:
    part = {"current_leader_epoch": -1, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1}
    parts = [{"partition": number, "partition_max_bytes": 1 << 20} | part for number in range(PARTITIONS // 2)]
    return {
        "replica_id": -1, "max_wait": WAITS_MS, "min_bytes": NOTHING_MORE, "max_bytes": NOTHING_MORE,
        "isolation_level": 0, "session_id": 0, "session_epoch": -1, "topics": [{"topic": LARGE, "partitions": parts}],
        "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
