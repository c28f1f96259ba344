"""A coordinator that loads a snapshot and the tail has the same state as one that reads the whole log."""

from __future__ import annotations

import logging
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.config import BrokerConfig
from sparklog.base.consumer_protocol import Subscription, write_subscription
from sparklog.base.topic_config import TopicConfig
from sparklog.group.loader import LoadSummary, load
from sparklog.group.requests import ConsumerGroupDescribe, DescribeGroups, ListGroups
from sparklog.group.shard import GroupShard
from sparklog.log.log import Log
from sparklog.offsets_topic import records as kinds
from sparklog.offsets_topic.records import CoordinatorRecord, OffsetKey, OffsetValue, encode
from sparklog.records.arrow import encode_all
from sparklog.records.records import Record, write_records
from sparklog.testing import SimClock
from sparklog.testing.memory_fs import MemoryFs
from support.groups.consumer_group import FakeTopics

FOLDER = "/data/__consumer_offsets-0"
TOPIC = "orders"
TOPICS = FakeTopics(orders=4)
TOPIC_ID = TOPICS.find(TOPIC).topic_id


class History:
    """The records that a coordinator writes: one batch for each event."""

    def __init__(self) -> None:
        self.batches: list[list[CoordinatorRecord]] = []
        self._committed: dict[str, set[int]] = {}
        self._members: dict[str, dict[str, int]] = {}
        self._classic: dict[str, int] = {}
        self._epochs: dict[str, int] = {}

    def commit(self, group: str, partition: int, offset: int) -> None:
        self._committed.setdefault(group, set()).add(partition)
        value = OffsetValue(offset=offset, metadata="m", commit_timestamp_ms=offset, topic_id=TOPIC_ID)
        self.batches.append([CoordinatorRecord(_offset_key(group, partition), value)])

    def forget(self, group: str, partition: int, _: int) -> None:
        if partition in self._committed.get(group, ()):
            self._committed[group].remove(partition)
            self.batches.append([CoordinatorRecord(_offset_key(group, partition))])

    def rebalance(self, group: str, members: int, _: int) -> None:
        """Write the metadata of a classic group; without members it is empty."""
        if group in self._epochs:
            return
        generation = self._classic[group] = self._classic.get(group, 0) + 1
        value = kinds.GroupValue(
            protocol_type="consumer", generation=generation, protocol="range" if members else None,
            leader="m0" if members else None, current_state_timestamp_ms=generation,
            members=tuple(_classic_member(number) for number in range(members)),
        )  # fmt: skip
        self.batches.append([CoordinatorRecord(kinds.GroupKey(group_id=group), value)])

    def join_or_change(self, group: str, member: int, _: int) -> None:
        """Write the records of a group of the new protocol."""
        records = [CoordinatorRecord(kinds.GroupKey(group_id=group))] if self._classic.pop(group, None) else []
        epoch = self._epochs[group] = self._epochs.get(group, 0) + 1
        name = f"m{member}"
        self._members.setdefault(group, {})[name] = epoch
        described = kinds.ConsumerMemberValue(
            client_id=f"c{epoch}", client_host="/h", subscribed_topic_names=(TOPIC,), rebalance_timeout_ms=1_000
        )
        target = kinds.TargetAssignmentValue(
            topic_partitions=(kinds.TopicPartitions(topic_id=TOPIC_ID, partitions=(member,)),)
        )
        assigned = kinds.AssignedPartitions(topic_id=TOPIC_ID, partitions=(member,))
        current = kinds.CurrentAssignmentValue(
            member_epoch=epoch, previous_member_epoch=epoch - 1, state=0, assigned_partitions=(assigned,),
            partitions_pending_revocation=(),
        )  # fmt: skip
        who = {"group_id": group, "member_id": name}
        self.batches.append(
            [
                *records,
                CoordinatorRecord(kinds.ConsumerMemberKey(**who), described),
                CoordinatorRecord(kinds.ConsumerGroupKey(group_id=group), kinds.ConsumerGroupValue(epoch=epoch)),
                CoordinatorRecord(kinds.TargetAssignmentKey(**who), target),
                CoordinatorRecord(kinds.TargetEpochKey(group_id=group), kinds.TargetEpochValue(assignment_epoch=epoch)),
                CoordinatorRecord(kinds.CurrentAssignmentKey(**who), current),
            ]
        )

    def leave(self, group: str, member: int, _: int) -> None:
        if self._members.get(group, {}).pop(f"m{member}", None) is None:
            return
        epoch = self._epochs[group] = self._epochs[group] + 1
        records = [*_gone(group, f"m{member}")]
        records.append(CoordinatorRecord(kinds.ConsumerGroupKey(group_id=group), kinds.ConsumerGroupValue(epoch=epoch)))
        self.batches.append(records)

    def delete(self, group: str, *_: int) -> None:
        if self._members.get(group):
            return
        records = [CoordinatorRecord(_offset_key(group, each)) for each in sorted(self._committed.pop(group, ()))]
        if self._epochs.pop(group, None):
            records.append(CoordinatorRecord(kinds.TargetEpochKey(group_id=group)))
            records.append(CoordinatorRecord(kinds.ConsumerGroupKey(group_id=group)))
        else:
            records.append(CoordinatorRecord(kinds.GroupKey(group_id=group)))
            self._classic.pop(group, None)
        self.batches.append(records)


def _offset_key(group: str, partition: int) -> OffsetKey:
    return OffsetKey(group_id=group, topic=TOPIC, partition=partition)


def _classic_member(number: int) -> kinds.MemberMetadata:
    return kinds.MemberMetadata(
        member_id=f"m{number}", client_id=f"c{number}", client_host="/h", rebalance_timeout_ms=1_000,
        session_timeout_ms=1_000, subscription=write_subscription(Subscription(topics=[TOPIC])), assignment=b"",
    )  # fmt: skip


def _gone(group: str, member: str) -> list[CoordinatorRecord]:
    who = {"group_id": group, "member_id": member}
    return [
        CoordinatorRecord(kind(**who))
        for kind in (kinds.CurrentAssignmentKey, kinds.TargetAssignmentKey, kinds.ConsumerMemberKey)
    ]


events = st.lists(
    st.tuples(
        st.sampled_from(["commit", "commit", "forget", "rebalance", "join_or_change", "leave", "delete"]),
        st.sampled_from("abc"), st.integers(0, 3), st.integers(0, 99),
    ),
    max_size=40,
)  # fmt: skip


def write(history: list[list[CoordinatorRecord]]) -> tuple[Log, list[Record]]:
    fs = MemoryFs()
    fs.make_dir("/data")
    log = Log.open(fs, FOLDER, TopicConfig(segment_bytes=500), SimClock(), clean=True)
    written: list[Record] = []
    for batch in history:
        records = []
        for number, record in enumerate(batch):
            key, value = encode(record)
            records.append(Record(offset=len(written) + number, timestamp_ms=1, key=key, value=value))
        log.append(write_records(records), leader_epoch=len(written) // 30)
        written += records
    return log, written


def snapshot(log: Log, records: list[Record], end_offset: int) -> None:
    newest = {record.key: record for record in records if record.offset < end_offset}
    kept = sorted((each for each in newest.values() if each.value is not None), key=lambda each: each.offset)
    columns = {name: [getattr(each, name) for each in kept] for name in ("offset", "key", "value")}
    table = pa.table(columns, pa.schema([("offset", pa.int64()), ("key", pa.binary()), ("value", pa.binary())]))
    writer = log.offset_snapshots.begin(end_offset)
    for batch in encode_all(table, max_batch_bytes=300, default_timestamp_ms=1, keep_offsets=True):
        writer.append(batch)
    log.offset_snapshots.install(writer)


def loaded(log: Log, end_offset: int) -> tuple[GroupShard, LoadSummary]:
    return load(log, end_offset, lambda: GroupShard(BrokerConfig(), TOPICS, lambda: UUID(int=1)), lambda: True)


def known(shard: GroupShard) -> dict[str, object]:
    """All that anybody can learn of the groups, but for those of which nothing is left: they are about to go.

    In which order members are told is nobody's promise: that of the log, which a snapshot shortens.
    """
    described = {each.group_id: each for each in shard.describe(DescribeGroups(group_ids=[*shard.groups])).groups}
    consumers = shard.consumers.describe(
        ConsumerGroupDescribe(group_ids=[name for name in shard.groups if shard.consumers.find(name)])
    )
    of_new_protocol = {
        each.group_id: replace(each, members=sorted(each.members, key=lambda member: member.member_id))
        for each in consumers.groups
    }
    return {
        each.group_id: (each, shard.offsets.of(each.group_id), repr(described[each.group_id]),
                        repr(of_new_protocol.get(each.group_id)))
        for each in shard.list(ListGroups()).groups
        if shard.offsets.of(each.group_id) or each.protocol_type
    }  # fmt: skip


@pytest.mark.slow
@given(events, st.floats(0, 1), st.floats(0, 1))
def test_snapshot_and_tail_are_the_whole_log(
    chosen: list[tuple[str, str, int, int]], share: float, share_of_rest: float
) -> None:
    history = History()
    history.commit("a", 0, 1)
    for name, group, number, offset in chosen:
        getattr(history, name)(group, number, offset)
    log, records = write(history.batches)
    end = max(1, round(share * len(records)))
    high_watermark = round(end + share_of_rest * (len(records) - end))
    edges = [0]
    for batch in history.batches:
        edges.append(edges[-1] + len(batch))
    end = next(edge for edge in edges if edge >= end)
    high_watermark = next(edge for edge in edges if edge >= high_watermark)
    whole, everything = loaded(log, high_watermark)

    snapshot(log, records, end)
    quick, tail = loaded(log, high_watermark)

    assert known(quick) == known(whole)
    assert everything.records == high_watermark
    assert tail.records == high_watermark - end


@pytest.fixture
def many_commits() -> tuple[Log, list[Record]]:
    """300 commits for 3 keys."""
    history = History()
    for number in range(300):
        history.commit("abc"[number % 3], 0, number)
    return write(history.batches)


def test_a_load_reads_the_snapshot_and_the_tail(many_commits: tuple[Log, list[Record]]) -> None:
    log, records = many_commits
    snapshot(log, records, 290)

    shard, read = loaded(log, 300)

    assert (read.snapshot_records, read.records) == (3, 10)
    assert [next(iter(shard.offsets.of(group).values())).offset for group in "abc"] == [297, 298, 299]


def test_a_snapshot_of_more_than_is_committed_is_not_used(
    many_commits: tuple[Log, list[Record]], caplog: pytest.LogCaptureFixture
) -> None:
    log, records = many_commits
    snapshot(log, records, 290)

    assert loaded(log, 280)[1].records == 280
    assert "is not used: it ends above the high watermark 280" in caplog.text


def test_a_snapshot_that_is_damaged_is_not_used(caplog: pytest.LogCaptureFixture) -> None:
    history = History()
    for number in range(20):
        history.commit("a", 0, number)
    log, records = write(history.batches)
    snapshot(log, records, 10)
    file = log._fs.open(f"{FOLDER}/00000000000000000010-0000000000.checkpoint")
    whole = file.read_at(0, file.size)
    file.truncate(0)
    file.append(whole[:70] + b"?" + whole[71:])

    assert loaded(log, 20)[1] == LoadSummary(20)
    assert "is not used: its CRC is wrong" in caplog.text


def test_a_tombstone_that_compaction_has_removed_above_the_snapshot_stays_obeyed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Deleted values must stay deleted: with a compacted tail, the snapshot is not used."""
    caplog.set_level(logging.INFO)

    shard, read = loaded(log_without_a_tombstone(), 4)

    assert [*shard.groups] == ["b"]
    assert read.snapshot is None
    assert "is not used: the log has been compacted above its end" in caplog.text


def test_a_tombstone_that_compaction_removes_after_the_snapshot_was_chosen_stays_obeyed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("sparklog.group.loader.is_complete", lambda *_: True)  # it was, when that was looked at

    shard, read = loaded(log_without_a_tombstone(), 4)

    assert [*shard.groups] == ["b"]
    assert read == LoadSummary(2)
    assert "is not used: the log was compacted meanwhile" in caplog.text


def log_without_a_tombstone() -> Log:
    """A snapshot with a commit of a, and a log that has neither that nor what deleted it."""
    fs = MemoryFs()
    fs.make_dir("/data")
    log = Log.open(fs, FOLDER, TopicConfig(), SimClock(), clean=True)
    offset = OffsetValue(offset=1, commit_timestamp_ms=1)
    key, value = encode(CoordinatorRecord(_offset_key("a", 0), offset))
    other, _ = encode(CoordinatorRecord(_offset_key("b", 0), offset))
    # the commit of a, at offset 0, and its tombstone at offset 2 are gone: the cleaner has been there
    log.as_follower.append(write_records([Record(offset=1, key=other, value=value)], leader_epoch=0))
    snapshot(log, [Record(offset=0, key=key, value=value), Record(offset=1, key=other, value=value)], 2)
    log.as_follower.append(write_records([Record(offset=3, key=other, value=value)], leader_epoch=0))
    return log


def test_records_below_the_log_start_are_not_loaded_from_the_snapshot(
    many_commits: tuple[Log, list[Record]],
) -> None:
    log, records = many_commits
    snapshot(log, records, 290)
    log.advance_log_start(289)

    shard, read = loaded(log, 290)

    assert read.snapshot_records == 1
    assert [group for group in "abc" if shard.offsets.of(group)] == ["b"]
