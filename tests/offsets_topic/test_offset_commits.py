"""Commits read a column at a time equal those that the general reader reads one by one."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.base.ids import encode_id
from sparklog.base.schemas import ZERO_ID, read_key, read_value, write_key, write_value
from sparklog.offsets_topic.commits import COMMITS, OffsetRecords, read_offset_records
from sparklog.offsets_topic.schemas import OFFSETS_TOPIC
from sparklog.records.arrow import decode
from support.runs.seeds import examples

pytestmark = pytest.mark.slow

LOG = "__consumer_offsets-0/00000000000000000000.log"
LZ4_ID, NONE_ID = "Xyg-rCByQe2gszROUqVrgg", "2Cg-9hYhRRS9iMTaYmRJpA"
texts = st.text(max_size=12)
longs = st.integers(-(2**40), 2**40)
keys = st.fixed_dictionaries({"group": texts, "topic": texts, "partition": st.integers(-1, 2**31 - 1)})
values = st.fixed_dictionaries(
    {
        "offset": longs, "leaderEpoch": st.integers(-1, 9), "metadata": st.none() | st.text(max_size=300),
        "commitTimestamp": longs, "expireTimestamp": st.just(-1) | longs, "topicId": st.just(ZERO_ID) | st.uuids(),
    }
)  # fmt: skip


@st.composite
def pairs(draw: st.DrawFn) -> tuple[bytes | None, bytes | None]:
    """A commit in any version, possibly damaged; a tombstone; or another record."""
    kind, version = draw(st.integers(0, 1)), draw(st.integers(0, 4))
    key = write_key(kind, draw(keys), OFFSETS_TOPIC)
    value = write_value(version, draw(values), OFFSETS_TOPIC[1][1])
    match draw(st.sampled_from(["whole", "whole", "tombstone", "cut", "changed", "group", "no key"])):
        case "tombstone":
            return key, None
        case "cut":
            return key[: draw(st.integers(0, len(key)))], value[: draw(st.integers(0, len(value)))]
        case "changed":
            at = draw(st.integers(0, len(value) - 1))
            return key, value[:at] + draw(st.binary(min_size=1, max_size=1)) + value[at + 1 :]
        case "group":
            return write_key(2, {"group": "g"}, OFFSETS_TOPIC), b"whatever"
        case "no key":
            return None, value
    return key, value


def read(records: list[tuple[bytes | None, bytes | None]]) -> OffsetRecords:
    columns = {
        "offset": pa.array(range(100, 100 + len(records)), pa.int64()),
        "timestamp": pa.array([1] * len(records), pa.timestamp("ms", "UTC")),
        "key": pa.array([key for key, _ in records], pa.binary()),
        "value": pa.array([value for _, value in records], pa.binary()),
    }
    return read_offset_records(pa.record_batch(columns))


def expected(offset: int, key: bytes | None, value: bytes | None) -> Any:
    """A row, "other" or "damaged"."""
    try:
        kind, names = read_key(key or b"", OFFSETS_TOPIC)
        if kind > 1:
            return "other"
        assert names is not None
        if names["group"] is None or names["topic"] is None:
            return "damaged"
        fields = {} if value is None else read_value(value, OFFSETS_TOPIC[kind][1])[1]
    except (ValueError, struct.error):
        return "damaged"
    topic_id: UUID = fields.get("topicId", ZERO_ID)
    return {
        "log_offset": offset, "group_id": names["group"], "topic": names["topic"], "partition": names["partition"],
        "deleted": value is None, "offset": fields.get("offset"), "metadata": fields.get("metadata"),
        "leader_epoch": None if fields.get("leaderEpoch") == -1 else fields.get("leaderEpoch"),
        "commit_time": fields.get("commitTimestamp"),
        "expire_time": None if fields.get("expireTimestamp") == -1 else fields.get("expireTimestamp"),
        "topic_id": None if topic_id == ZERO_ID else encode_id(topic_id),
    }  # fmt: skip


@pytest.mark.soak
@settings(max_examples=examples(20))
@given(st.lists(pairs(), max_size=5))
def test_columns_say_what_the_general_reader_says(records: list[tuple[bytes | None, bytes | None]]) -> None:
    found = read(records)

    wanted = [expected(100 + at, key, value) for at, (key, value) in enumerate(records)]
    commits = found.commits.drop(["log_time"])
    for name in ("commit_time", "expire_time"):
        at = commits.schema.get_field_index(name)
        commits = commits.set_column(at, name, commits.column(name).cast(pa.int64()))
    assert commits.to_pylist() == [each for each in wanted if isinstance(each, dict)]
    assert [at for at, each in enumerate(wanted) if isinstance(each, dict)] == found.rows.tolist()
    assert [at for at, each in enumerate(wanted) if each == "other"] == found.others.tolist()
    assert tuple(100 + at for at, each in enumerate(wanted) if each == "damaged") == found.damaged


def test_commits_that_kafka_wrote(golden: Path) -> None:
    records = decode((golden / LOG).read_bytes(), columns=("offset", "timestamp", "key", "value"))

    found = read_offset_records(records)

    assert found.commits.schema == COMMITS
    assert (len(found.others), found.damaged) == (12, ())
    rows = found.commits.select(["log_offset", "group_id", "topic", "offset", "metadata", "topic_id"]).to_pylist()
    assert [tuple(row.values()) for row in rows] == [
        (0, "g-txn", "codec-none", 77, "", None),
        (4, "g-classic", "codec-lz4", 51, "", LZ4_ID),
        (5, "g-classic", "codec-none", 50, "g-classic at 50\0", NONE_ID),
        (6, "g-classic", "codec-lz4", 121, "", LZ4_ID),
        (7, "g-classic", "codec-none", 120, "g-classic at 120\0", NONE_ID),
        (14, "g-consumer", "codec-lz4", 51, "", LZ4_ID),
        (15, "g-consumer", "codec-none", 50, "g-consumer at 50\0", NONE_ID),
        (16, "g-consumer", "codec-lz4", 121, "", LZ4_ID),
        (17, "g-consumer", "codec-none", 120, "g-consumer at 120\0", NONE_ID),
    ]


def test_nothing_is_nothing() -> None:
    assert read([]).commits.num_rows == 0
