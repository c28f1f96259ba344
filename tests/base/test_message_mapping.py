"""Conversion between messages and values by the names of their fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from sparklog.base.errors import InvalidRequest, NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.base.message_mapping import to_message, to_value
from sparklog.group import requests as group
from sparklog.log.description import NO_SUM, SegmentSum
from sparklog.v1 import admin_pb2, groups_pb2, replication_pb2

TOPIC_ID = UUID(int=7)


def commit(**fields: Any) -> Any:
    message = groups_pb2.OffsetCommitRequest(
        group_id="g", offsets=[groups_pb2.OffsetToCommit(topic="t", partition=1, offset=9, **fields)]
    )
    return to_value(message, group.OffsetCommit)


def test_topic_and_partition_are_one_value_and_an_id_is_read_from_text() -> None:
    (offset,) = commit(topic_id=str(TOPIC_ID), leader_epoch=0).offsets

    assert offset == group.OffsetToCommit(partition=TopicPartition("t", 1), offset=9, leader_epoch=0, topic_id=TOPIC_ID)


def test_an_absent_field_has_the_default_of_the_value() -> None:
    asked = commit()

    assert asked.generation_or_epoch == group.NO_GENERATION
    assert asked.group_instance_id is None
    assert asked.offsets[0].leader_epoch == -1
    assert asked.offsets[0].topic_id is None


def test_the_default_of_a_value_is_left_out_where_a_message_may_do_without() -> None:
    unsummed = SegmentSum(base_offset=0, next_offset=5, size_bytes=70, crc32c=NO_SUM)

    message = to_message(unsummed, replication_pb2.SegmentSum)

    assert not message.HasField("crc32c")
    assert to_value(message, SegmentSum) == unsummed


def test_no_partitions_are_all_of_them_where_the_value_says_so() -> None:
    assert to_value(groups_pb2.OffsetFetchRequest(group_id="g"), group.OffsetFetch).partitions is None


def test_pairs_and_mappings_are_lists_of_messages() -> None:
    join = groups_pb2.JoinGroupRequest(protocols=[groups_pb2.GroupProtocol(name="range", metadata=b"m")])
    sync = groups_pb2.SyncGroupRequest(assignments=[groups_pb2.MemberAssignment(member_id="a", assignment=b"x")])
    errors = {TopicPartition("t", 0): None, TopicPartition("t", 1): NotLeaderOrFollower("gone")}

    results = to_message(group.OffsetCommitResponse(errors=errors), groups_pb2.OffsetCommitResponse).partitions

    assert to_value(join, group.JoinGroup, client_id="c", client_host="/h").protocols == [("range", b"m")]
    assert to_value(sync, group.SyncGroup).assignments == {"a": b"x"}
    assert [(each.topic, each.partition, each.error.name) for each in results] == [
        ("t", 0, ""),
        ("t", 1, "NOT_LEADER_OR_FOLLOWER"),
    ]


def test_an_invalid_id_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="'seven' is no topic id"):
        commit(topic_id="seven")


@dataclass(frozen=True, slots=True, kw_only=True)
class Misnamed:
    topik: str
    partition: int


def test_a_field_without_a_counterpart_is_an_error_of_the_program_unless_it_is_given() -> None:
    message = admin_pb2.PartitionId(topic="t", partition=1)

    with pytest.raises(TypeError, match="topic"):
        to_value(message, Misnamed)
    with pytest.raises(TypeError, match="topic"):
        to_message(Misnamed(topik="t", partition=1), admin_pb2.PartitionId)
    assert to_value(message, Misnamed, topik="t") == Misnamed(topik="t", partition=1)
    assert to_message(Misnamed(topik="t", partition=1), admin_pb2.PartitionId, topic="t") == message
