"""A task's rows of a slice of the offsets topic: the records that count, and the members that committed them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from sparklog.arrow.filesystems import LogDirOwner
from sparklog.base.consumer_protocol import Assignment, Subscription, write_assignment, write_subscription
from sparklog.base.errors import ConfigError
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition, encode_id
from sparklog.base.schemas import write_key, write_value
from sparklog.base.topic_config import TopicConfig
from sparklog.log.log import Log
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.arrow import decode_batches
from sparklog.records.records import Record, write_records
from sparklog.spark.offsets.groups import PartitionGroups, RecordPosition
from sparklog.spark.offsets.read import PartitionSlice, SliceCompacted, survey, whole_batches
from sparklog.spark.offsets.snapshots import batches_of
from sparklog.spark.offsets.topic import ReplayTask, _offsets_of, read_changes, read_commits
from sparklog.testing import SimClock

PARTITION = TopicPartition("__consumer_offsets", 0)
TOPIC_ID = UUID(int=7)
Pair = tuple[bytes, bytes | None]


def commit(group: str, partition: int, offset: int | None, *, topic_id: UUID = TOPIC_ID) -> Pair:
    """None: a tombstone."""
    key = write_key(1, {"group": group, "topic": "orders", "partition": partition}, OFFSETS_TOPIC)
    fields = {"offset": offset, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1, "topicId": topic_id}
    return key, None if offset is None else write_value(4, fields, OFFSETS_TOPIC[1][1])


def generation(group: str, **clients: list[int]) -> Pair:
    """A classic group whose members are called as their clients."""
    members = [
        {
            "memberId": f"{client}-1", "groupInstanceId": None, "clientId": client, "clientHost": "/h",
            "rebalanceTimeout": 1, "sessionTimeout": 1,
            "subscription": write_subscription(Subscription(topics=["orders"])),
            "assignment": write_assignment(
                Assignment(partitions=[TopicPartition("orders", number) for number in numbers])
            ),
        }
        for client, numbers in clients.items()
    ]  # fmt: skip
    fields = {"protocolType": "consumer", "generation": 4, "protocol": "range", "leader": "a-1",
              "currentStateTimestamp": 1, "members": members}  # fmt: skip
    return write_key(2, {"group": group}, OFFSETS_TOPIC), write_value(3, fields, OFFSETS_TOPIC[2][1])


def member(group: str, client: str) -> Pair:
    fields = {
        "instanceId": None, "rackId": None, "clientId": client, "clientHost": "/h", "subscribedTopicNames": ["orders"],
        "subscribedTopicRegex": "", "rebalanceTimeoutMs": 1, "serverAssignor": None,
    }  # fmt: skip
    return _of_member(5, group, client), write_value(0, fields, OFFSETS_TOPIC[5][1])


def current(group: str, client: str, *numbers: int) -> Pair:
    has = [{"topicId": TOPIC_ID, "partitions": list(numbers)}]
    fields = {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 0, "assignedPartitions": has,
              "partitionsPendingRevocation": []}  # fmt: skip
    return _of_member(8, group, client), write_value(0, fields, OFFSETS_TOPIC[8][1])


def _of_member(kind: int, group: str, client: str) -> bytes:
    return write_key(kind, {"groupId": group, "memberId": f"{client}-1"}, OFFSETS_TOPIC)


class Topic:
    """One partition, written batch by batch."""

    def __init__(self, folder: Path) -> None:
        self.log = Log.open(LocalFs(), str(folder / str(PARTITION)), TopicConfig(), SimClock(), clean=True)

    def write(self, *pairs: Pair, producer: int = -1) -> None:
        records = [Record(offset=at, timestamp_ms=1, key=key, value=value) for at, (key, value) in enumerate(pairs)]
        in_transaction = producer >= 0
        self._append(write_records(records, producer_id=producer, transactional=in_transaction))

    def end(self, producer: int, *, commit: bool) -> None:
        marker = Record(offset=0, key=b"\0\0\0" + bytes([commit]), value=b"\0" * 6)
        self._append(write_records([marker], producer_id=producer, transactional=True, control=True))

    def _append(self, batch: bytearray) -> None:
        batch[:8] = self.log.log_end_offset.to_bytes(8, "big")
        self.log.as_follower.append(batch)

    def slice(self, offset_from: int = 0, offset_to: int | None = None) -> PartitionSlice:
        """Return a slice with the end and the markers of its survey."""
        end = self.log.log_end_offset if offset_to is None else offset_to
        whole = PartitionSlice(partition=PARTITION, offset_from=offset_from, offset_to=end, folder=self.log.folder)
        found = survey(whole)
        return PartitionSlice(
            partition=PARTITION,
            offset_from=offset_from,
            offset_to=found.offset_to,
            folder=self.log.folder,
            markers=found.markers,
        )

    def commits(self, offset_from: int = 0, offset_to: int | None = None, **work: Any) -> list[tuple[Any, ...]]:
        """Return the log offset, group, committed offset and client of each commit."""
        work = {"history_from": offset_from, **work}
        return [
            tuple(row[name] for name in ("log_offset", "group_id", "offset", "client_id"))
            for batch in read_commits(ReplayTask(slice=self.slice(offset_from, offset_to), **work))
            for row in batch.to_pylist()
        ]


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    return Topic(tmp_path)


def test_a_commit_is_of_the_member_that_had_the_partition_then(topic: Topic) -> None:
    topic.write(commit("g", 0, 1))
    topic.write(generation("g", a=[0], b=[1]))
    topic.write(commit("g", 0, 2), commit("g", 1, 3), commit("h", 1, 4), generation("g", b=[0, 1]), commit("g", 0, 5))
    topic.write(commit("g", 0, None))

    assert topic.commits() == [
        (0, "g", 1, None), (2, "g", 2, "a"), (3, "g", 3, "b"), (4, "h", 4, None), (6, "g", 5, "b"), (7, "g", None, "b"),
    ]  # fmt: skip


def test_a_slice_whose_folder_an_executor_does_not_see_is_no_empty_slice(topic: Topic) -> None:
    topic.write(commit("g", 0, 1))
    elsewhere = replace(topic.slice(), owner=LogDirOwner("cluster", 77))
    with pytest.raises(ConfigError, match=r"the executor on .* does not"):
        survey(elsewhere)


def test_members_of_the_new_protocol_have_topics_by_id(topic: Topic) -> None:
    topic.write(member("g", "a"), member("g", "b"), current("g", "a", 0), current("g", "b", 1))
    topic.write(commit("g", 0, 2), commit("g", 1, 3))
    topic.write((_of_member(8, "g", "b"), None), (_of_member(5, "g", "b"), None))
    topic.write(commit("g", 1, 4))

    assert topic.commits() == [(4, "g", 2, "a"), (5, "g", 3, "b"), (8, "g", 4, None)]


def test_who_was_who_before_a_slice_is_taken_from_what_the_topic_had_come_to(topic: Topic) -> None:
    topic.write(generation("g", a=[0]))
    topic.write(commit("g", 0, 1), commit("g", 0, 2))
    (key, value), place = generation("g", a=[0]), RecordPosition(0, 1)
    assert value is not None

    assert topic.commits(2, groups=[(key, value, place)]) == [(2, "g", 2, "a")]
    assert topic.commits(0, history_from=2) == [(2, "g", 2, "a")]


def test_offsets_count_when_their_transaction_was_committed_and_a_slice_ends_before_one_that_is_open(
    topic: Topic,
) -> None:
    topic.write(commit("g", 0, 1), producer=1)
    topic.write(commit("g", 1, 2), producer=2)
    topic.end(1, commit=True)
    topic.end(2, commit=False)
    topic.write(commit("g", 2, 3))
    topic.write(commit("g", 0, 4), producer=1)
    topic.write(commit("g", 2, 5))

    assert topic.slice().offset_to == 5
    assert [row[:3] for row in topic.commits()] == [(0, "g", 1), (4, "g", 3)]
    topic.end(1, commit=True)
    assert [row[:3] for row in topic.commits(5)] == [(5, "g", 4), (6, "g", 5)]


def test_a_survey_sees_that_compaction_has_been_there(topic: Topic) -> None:
    for number in range(4):
        topic.write(commit("g", 0, number), commit("g", 1, number))
    assert survey(topic.slice(2, 7)).is_complete
    gap = write_records([Record(offset=9, timestamp_ms=1, key=commit("g", 0, 9)[0], value=None)], last_offset=10)
    topic.log.as_follower.append(gap)

    assert survey(topic.slice(3, 8)).is_complete
    assert not survey(topic.slice(3, 10)).is_complete
    assert not survey(topic.slice(9, 10)).is_complete


def test_what_is_added_to_what_was_known_has_a_record_at_each_offset_when_it_is_read(topic: Topic) -> None:
    topic.write(commit("g", 0, 1), commit("g", 1, 1))
    gap = write_records([Record(offset=3, timestamp_ms=1, key=commit("g", 0, 9)[0], value=None)])
    topic.log.as_follower.append(gap)

    def read(offset_to: int) -> int:
        slice_ = replace(topic.slice(0, offset_to), must_be_complete=True)
        return sum(batch.num_rows for batch in read_changes(ReplayTask(slice=slice_, history_from=0)))

    assert read(2) == 2
    with pytest.raises(SliceCompacted, match="records below 4 were compacted away"):
        read(4)


def test_of_each_key_in_a_chunk_the_last_is_kept(topic: Topic) -> None:
    for number in range(5):
        topic.write(commit("g", number % 2, number), (b"", b"of no kind"))
    topic.write(commit("g", 0, None))

    (found,) = read_changes(ReplayTask(slice=topic.slice(), history_from=0))

    rows = {(row["key"], row["log_offset"], row["value"]) for row in found.to_pylist()}
    assert rows == {(commit("g", 1, 3)[0], 6, commit("g", 1, 3)[1]), (commit("g", 0, 0)[0], 10, None),
                    (b"", 9, b"of no kind")}  # fmt: skip


def test_offsets_of_several_partitions_in_one_chunk_stay_apart() -> None:
    odd = commit("g", 1, 8)[1]
    assert odd is not None
    values = [commit("g", 0, 7)[1], odd[:-1] + b"\x01\x05\x01?", commit("g", 2, 9)[1]]  # the second has an unknown tag
    rows = pa.record_batch(
        {
            "log_partition": pa.array([4, 2, 2], pa.int32()),
            "log_offset": pa.array([30, 30, 10]),
            "log_time": pa.array([1] * 3, pa.timestamp("us", "UTC")),
            "key": [commit("g", number, 0)[0] for number in range(3)],
            "value": values,
        }
    )

    (found,) = _offsets_of([rows])

    told = [(row["log_partition"], row["partition"], row["offset"]) for row in found.to_pylist()]
    assert told == [(4, 0, 7), (2, 1, 8), (2, 2, 9)]


def test_members_are_told_with_all_that_is_known_of_them() -> None:
    groups = PartitionGroups()
    for at, (key, value) in enumerate([generation("c", a=[0, 1]), member("n", "b"), current("n", "b", 2)]):
        assert groups.take(key, value, RecordPosition(at, 10 * at))
    assert not groups.take(b"\0\2", b"damaged", RecordPosition(9, 9))

    classic, new = groups.rows()

    assert (classic["protocol"], classic["epoch"], classic["is_leader"]) == ("classic", 4, True)
    assert classic["subscribed_topics"] == new["subscribed_topics"] == ["orders"]
    assert classic["assignment"] == [{"topic": "orders", "topic_id": None, "partitions": [0, 1]}]
    assert (new["protocol"], new["epoch"], new["member_id"], new["log_offset"]) == ("consumer", 2, "b-1", 2)
    assert new["assignment"] == [{"topic": None, "topic_id": encode_id(TOPIC_ID), "partitions": [2]}]


@pytest.mark.parametrize("size", [1, 50, 61, 1000])
def test_pieces_of_a_file_become_whole_batches(size: int) -> None:
    batches = [bytes(write_records([Record(offset=at, key=b"k", value=b"v")])) for at in range(6)]
    data = b"".join(batches) + b"cut off"

    found = b"".join(whole_batches((data[at : at + size] for at in range(0, len(data), size)), 2, 5))

    assert found == b"".join(batches[2:5])


def test_a_snapshot_s_batches_have_the_offsets_and_times_of_the_records() -> None:
    rows = pa.record_batch(
        {
            "log_offset": pa.array([3, 8, 900]),
            "log_time": pa.array([1_000, 2_000, 5_000], pa.timestamp("us", "UTC")),
            "key": pa.array([b"a", b"b", b"c"]),
            "value": pa.array([b"x", b"y", b"z"]),
        }
    )

    (found,) = decode_batches(b"".join(batches_of([rows])), columns=("offset", "timestamp", "key", "value"))

    assert found.column("offset").to_pylist() == [3, 8, 900]
    assert found.column("timestamp").cast(pa.int64()).to_pylist() == [1, 2, 5]
    assert found.column("value").to_pylist() == [b"x", b"y", b"z"]
