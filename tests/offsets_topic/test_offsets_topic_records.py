"""Records of the offsets topic: Apache Kafka's are read, and written again byte for byte."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import CorruptRecord, InvalidRequest
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.base.schemas import write_key, write_value
from sparklog.base.topic_config import TopicConfig
from sparklog.group.classic_group import ClassicGroup
from sparklog.group.loader import load
from sparklog.group.shard import GroupShard
from sparklog.log.log import Log
from sparklog.offsets_topic import records as kinds
from sparklog.offsets_topic.records import (
    CoordinatorRecord,
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode,
    encode,
)
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.batch import read_header
from sparklog.records.records import Record, iterate_records, write_records
from sparklog.testing import SimClock
from support.groups.coordinator import SimTopics

pytestmark = pytest.mark.slow

LOG = "__consumer_offsets-0/00000000000000000000.log"
texts = st.text(max_size=20)
small = st.integers(-1, 2**31 - 1)


def _fields(cls: Any) -> st.SearchStrategy[Any]:
    by_type: dict[Any, st.SearchStrategy[Any]] = {
        str: texts, "str": texts, "str | None": st.none() | texts, "int": small, "bytes": st.binary(max_size=20),
        "UUID": st.uuids(), "Sequence[int]": st.lists(small, max_size=3).map(tuple),
        "Sequence[str]": st.lists(texts, max_size=3).map(tuple),
    }  # fmt: skip
    for name in ("MemberMetadata", "TopicPartitions", "AssignedPartitions", "SupportedProtocol"):
        items = st.deferred(lambda name=name: _fields(getattr(kinds, name)))
        by_type[f"Sequence[{name}]"] = st.lists(items, max_size=2).map(tuple)
    by_type["ClassicMemberMetadata | None"] = st.none() | st.deferred(lambda: _fields(kinds.ClassicMemberMetadata))
    hints = {name: cls.__annotations__[name] for name in cls.__struct_fields__}
    strategies = {name: by_type[hint] for name, hint in hints.items()}
    if "state" in strategies:
        strategies["state"] = st.integers(-128, 127)
    if cls is OffsetValue:  # with a time to expire it has version 1, which has no room for the rest
        strategies["expire_timestamp_ms"] = st.just(kinds.NO_TIMESTAMP)
    if cls is kinds.ClassicMemberMetadata:  # without anything in it, it is as good as none
        strategies["session_timeout_ms"] = st.integers(1, 2**31 - 1)
    return st.builds(cls, **strategies)


records = st.sampled_from(sorted(set(kinds._KINDS.values()), key=str)).flatmap(
    lambda pair: st.builds(CoordinatorRecord, _fields(pair[0]), st.none() | _fields(pair[1]))
)


@given(records)
def test_every_record_is_read_as_it_was_written(record: CoordinatorRecord) -> None:
    assert decode(*encode(record)) == record


@given(_fields(OffsetKey), _fields(OffsetValue), st.integers(0, 100))
def test_offsets_have_the_bytes_of_their_schema_however_they_are_cut(
    key: OffsetKey, value: OffsetValue, cut: int
) -> None:
    number, message = 1, OFFSETS_TOPIC[1][1]

    key_bytes, value_bytes = encode(CoordinatorRecord(key, value))

    assert value_bytes is not None
    assert key_bytes == write_key(number, kinds._to_fields(key), OFFSETS_TOPIC)
    assert value_bytes == write_value(4, kinds._to_fields(value), message)
    if cut:
        with pytest.raises(CorruptRecord):
            decode(key_bytes, value_bytes[:-cut])
        with pytest.raises(CorruptRecord):
            decode(key_bytes[:-cut], value_bytes)


def of_kafka(data: bytes) -> Iterator[Record]:
    position = 0
    while position < len(data):
        header = read_header(data, position)
        if not header.is_control:
            yield from iterate_records(data, position)
        position += header.size


def test_files_are_those_of_kafka_byte_for_byte(golden: Path) -> None:
    checked = 0
    for record in of_kafka((golden / LOG).read_bytes()):
        found = decode(record.key, record.value)

        assert found is not None
        assert encode(found) == (record.key, record.value)
        checked += 1
    assert checked == 21


def test_batches_have_the_header_that_kafka_s_coordinator_writes(golden: Path) -> None:
    theirs = read_header((golden / LOG).read_bytes(), 195)

    ours = read_header(write_records([Record(offset=0, timestamp_ms=1, key=b"k", sequence=0)]))

    assert (ours.producer_id, ours.producer_epoch, ours.base_sequence) == (-1, -1, 0)
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (-1, -1, 0)


def new_shard() -> GroupShard:
    return GroupShard(BrokerConfig(), SimTopics(), UUID)


@pytest.fixture
def read_kafka_s(golden: Path, tmp_path: Path) -> Callable[[], GroupShard]:
    def read() -> GroupShard:
        folder = tmp_path / "__consumer_offsets-0"
        folder.mkdir()
        (folder / Path(LOG).name).write_bytes((golden / LOG).read_bytes())
        log = Log.open(LocalFs(), str(folder), TopicConfig(), SimClock(), clean=False)
        shard, loaded = load(log, log.log_end_offset, new_shard, lambda: True)
        assert loaded.records == 22
        return shard

    return read


def test_the_groups_of_a_log_that_kafka_wrote_are_those_that_kafka_had(read_kafka_s: Callable[[], GroupShard]) -> None:
    shard = read_kafka_s()

    classic = shard.groups["g-classic"]
    assert isinstance(classic, ClassicGroup)
    assert (classic.state_name, classic.generation, classic.protocol_type) == ("Empty", 2, "consumer")
    assert classic.is_empty
    assert {name: group.group_type for name, group in shard.groups.items()} == {
        "g-classic": "classic",
        "g-consumer": "consumer",
        "g-txn": "classic",
    }


def test_the_offsets_of_a_log_that_kafka_wrote_are_read_with_those_of_ended_transactions(
    read_kafka_s: Callable[[], GroupShard],
) -> None:
    shard = read_kafka_s()

    found = {
        group: {str(partition): (value.offset, value.metadata) for partition, value in shard.offsets.of(group).items()}
        for group in shard.groups
    }

    assert found == {
        "g-txn": {"codec-none-0": (77, "")},
        "g-classic": {"codec-lz4-0": (121, ""), "codec-none-0": (120, "g-classic at 120\0")},
        "g-consumer": {"codec-lz4-0": (121, ""), "codec-none-0": (120, "g-consumer at 120\0")},
    }


def test_offsets_of_a_transaction_that_was_aborted_are_passed_over(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    log = Log.open(LocalFs(), str(folder), TopicConfig(), SimClock(), clean=False)
    commit = CoordinatorRecord(
        OffsetKey(group_id="g", topic="t", partition=0), OffsetValue(offset=9, commit_timestamp_ms=1)
    )
    key, value = encode(commit)
    batch = write_records(
        [Record(offset=0, key=key, value=value, sequence=0)], producer_id=1, producer_epoch=0, transactional=True
    )
    marker = Record(offset=1, key=b"\0\0\0\0", value=b"\0\0\0\0\0\0")
    log.as_follower.append(batch)
    log.as_follower.append(write_records([marker], producer_id=1, producer_epoch=0, transactional=True, control=True))

    shard, _ = load(log, log.log_end_offset, new_shard, lambda: True)

    assert not shard.offsets.of("g")


def test_an_offset_committed_in_a_transaction_does_not_take_the_place_of_a_newer_one(tmp_path: Path) -> None:
    log = Log.open(LocalFs(), str(tmp_path / "__consumer_offsets-0"), TopicConfig(), SimClock(), clean=False)

    def batch(offset: int, partition: int, committed: int, **how: Any) -> bytearray:
        key = OffsetKey(group_id="g", topic="t", partition=partition)
        pair = encode(CoordinatorRecord(key, OffsetValue(offset=committed, commit_timestamp_ms=1)))
        return write_records([Record(offset=offset, key=pair[0], value=pair[1])], **how)

    log.as_follower.append(batch(0, 0, 5, producer_id=1, transactional=True))
    log.as_follower.append(batch(1, 1, 6, producer_id=1, transactional=True))
    log.as_follower.append(batch(2, 0, 7))
    marker = Record(offset=3, key=b"\0\0\0\1", value=b"\0\0\0\0\0\0")
    log.as_follower.append(write_records([marker], producer_id=1, transactional=True, control=True))

    shard, _ = load(log, log.log_end_offset, new_shard, lambda: True)

    assert {name.partition: value.offset for name, value in shard.offsets.of("g").items()} == {0: 7, 1: 6}


def test_a_record_that_is_damaged_is_passed_over_and_the_rest_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "__consumer_offsets-0"
    log = Log.open(LocalFs(), str(folder), TopicConfig(), SimClock(), clean=False)
    good = encode(
        CoordinatorRecord(OffsetKey(group_id="g", topic="t", partition=0), OffsetValue(offset=9, commit_timestamp_ms=1))
    )
    pairs = [(b"\0\1\0", b"x"), (b"\0\x63", b"of a kind of later"), (good[0], good[1])]
    batch = write_records([Record(offset=at, key=key, value=value) for at, (key, value) in enumerate(pairs)])
    log.append(batch, leader_epoch=0)

    shard, _ = load(log, log.log_end_offset, new_shard, lambda: True)

    assert shard.offsets.of("g")[TopicPartition("t", 0)].offset == 9


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\1\0\5ab"])
def test_a_key_that_is_not_one_is_refused(key: bytes | None) -> None:
    with pytest.raises(CorruptRecord):
        decode(key, None)


def test_an_old_version_of_a_value_is_read() -> None:
    key, _ = encode(CoordinatorRecord(GroupKey(group_id="g")))
    version_0 = b"\0\0" + b"\0\10consumer" + b"\0\0\0\3" + b"\xff\xff" + b"\xff\xff" + b"\0\0\0\0"

    found = decode(key, version_0)

    assert found == CoordinatorRecord(
        GroupKey(group_id="g"),
        GroupValue(protocol_type="consumer", generation=3, protocol=None, leader=None, members=()),
    )


def test_a_text_that_a_key_cannot_hold_is_the_clients_fault() -> None:
    assert encode(CoordinatorRecord(GroupKey(group_id="g" * 32_767)))
    with pytest.raises(InvalidRequest, match="a text of 32768 bytes: at most 32767 can be stored"):
        encode(CoordinatorRecord(GroupKey(group_id="g" * 32_768)))
