"""The start and end of reads, and the sentences about lost records."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.arrow.folders import ReadableOffsets
from sparklog.base.errors import ConfigError, DataLost
from sparklog.base.ids import TopicPartition
from sparklog.spark.source.offsets import (
    PartitionRange,
    batch_ranges,
    from_json,
    limit_rows,
    report_losses,
    stream_ranges,
    to_json,
)
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BROKER = {"kafka.bootstrap.servers": "127.0.0.1:9094", "subscribe": "a"}


@dataclass
class KnownTopics:
    """A lookup with fixed answers."""

    known: dict[TopicPartition, ReadableOffsets]
    times: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)

    def bounds(self, selection):
        return self.known

    def offsets_for_times(self, timestamps_ms):
        return {partition: self.times.get((partition, ms)) for partition, ms in timestamps_ms.items()}

    def folder(self, partition):
        return None

    def close(self):
        pass


def ranges(known, times=None, **options):
    return batch_ranges(parse_read_options({**BROKER, **options}, OptionUse.BATCH), KnownTopics(known, times or {}))


def test_a_batch_reads_from_log_start_to_high_watermark():
    found, lost = ranges({A1: ReadableOffsets(0, 0), A0: ReadableOffsets(5, 9)})
    assert found == [PartitionRange(A0, 5, 9)]
    assert not lost


def test_offsets_in_json_may_name_the_ends():
    both = {A0: ReadableOffsets(5, 9), A1: ReadableOffsets(0, 4)}
    start, end = json.dumps({"a": {"0": 6, "1": -2}}), json.dumps({"a": {"0": -1, "1": 3}})
    assert ranges(both, startingOffsets=start, endingOffsets=end)[0] == [
        PartitionRange(A0, 6, 9),
        PartitionRange(A1, 0, 3),
    ]


def test_offsets_in_json_name_exactly_what_is_read():
    with pytest.raises(ConfigError, match="missing: a-1"):
        ranges({A0: ReadableOffsets(0, 1), A1: ReadableOffsets(0, 1)}, startingOffsets='{"a": {"0": 0}}')
    with pytest.raises(ConfigError, match="not read: a-7"):
        ranges({A0: ReadableOffsets(0, 1)}, endingOffsetsByTimestamp='{"a": {"0": 0, "7": 1}}')


def test_timestamps_become_offsets():
    both = {A0: ReadableOffsets(2, 9), A1: ReadableOffsets(0, 4)}
    times = {(A0, 100): 5, (A1, 100): 0, (A0, 200): 8}
    found, lost = ranges(both, times, startingTimestamp="100", endingTimestamp="200")
    assert found == [PartitionRange(A0, 5, 8), PartitionRange(A1, 0, 4)]
    assert not lost


def test_no_record_as_late_as_asked_is_an_error_or_the_end():
    both = {A0: ReadableOffsets(2, 9), A1: ReadableOffsets(0, 4)}
    with pytest.raises(ConfigError, match="no record of a-1 has timestamp 100 or later"):
        ranges(both, {(A0, 100): 5}, startingTimestamp="100")
    found, _ = ranges(both, {(A0, 100): 5}, startingTimestamp="100", startingOffsetsByTimestampStrategy="latest")
    assert found == [PartitionRange(A0, 5, 9)]


@pytest.mark.parametrize(
    ("start", "end", "expected", "sentence"),
    [
        (3, -1, [PartitionRange(A0, 5, 9)], "begins at 5"),
        (12, -1, [], "ends at 9"),
        (-2, 12, [PartitionRange(A0, 5, 9)], "ends at 9"),
    ],
)
def test_what_is_gone_is_said_and_the_rest_is_read(start, end, expected, sentence):
    options = {"startingOffsets": json.dumps({"a": {"0": start}}), "endingOffsets": json.dumps({"a": {"0": end}})}
    found, [lost] = ranges({A0: ReadableOffsets(5, 9)}, **options)
    assert found == expected
    assert sentence in lost


OPEN_FROM_6 = ReadableOffsets(2, 9, 6)


@pytest.mark.parametrize("ends", [{}, {"endingOffsets": "latest"}, {"endingTimestamp": "200"}])
def test_a_batch_ends_where_a_transaction_is_open(ends):
    assert ranges({A0: OPEN_FROM_6}, {(A0, 200): 8}, **ends) == ([PartitionRange(A0, 2, 6)], [])


def test_an_end_that_is_named_and_not_decided_yet_is_refused():
    with pytest.raises(ConfigError, match="a-0 was to be read up to offset 7, but a transaction is open from offset 6"):
        ranges({A0: OPEN_FROM_6}, endingOffsets='{"a": {"0": 7}}')
    assert ranges({A0: OPEN_FROM_6}, endingOffsets='{"a": {"0": 6}}')[0] == [PartitionRange(A0, 2, 6)]
    with pytest.raises(ConfigError, match="read_uncommitted"):
        stream_ranges({A0: 3}, {A0: 7}, {A0: OPEN_FROM_6})


def test_a_read_that_has_come_further_waits_and_nothing_is_lost():
    assert ranges({A0: OPEN_FROM_6}, startingOffsets='{"a": {"0": 8}}') == ([], [])
    assert stream_ranges({A0: 8}, {A0: 8}, {A0: OPEN_FROM_6}) == ([], [])
    assert [OPEN_FROM_6.end_after(offset) for offset in (0, 6, 8, 12)] == [6, 6, 8, 9]


def test_a_transaction_that_began_before_the_log_start_leaves_nothing_to_read():
    assert ranges({A0: ReadableOffsets(5, 9, 3)}) == ([], [])


def test_losses_fail_the_query_or_are_logged(caplog):
    with pytest.raises(DataLost, match=r"a-0 is gone.* failOnDataLoss"):
        report_losses(["a-0 is gone"], fail=True)
    report_losses(["a-0 is gone"], fail=False)
    assert "a-0 is gone" in caplog.text
    report_losses([], fail=True)


def test_a_trigger_reads_between_two_offsets_and_new_partitions_from_their_beginning():
    bounds = {A0: ReadableOffsets(0, 9), A1: ReadableOffsets(0, 4), B0: ReadableOffsets(0, 0)}
    found, lost = stream_ranges({A0: 3, B0: 0}, {A0: 7, A1: 4, B0: 0}, bounds)
    assert found == [PartitionRange(A0, 3, 7), PartitionRange(A1, 0, 4)]
    assert not lost


def test_a_trigger_says_what_is_gone():
    bounds = {A0: ReadableOffsets(5, 9), A1: ReadableOffsets(2, 4)}
    found, lost = stream_ranges({A0: 3, B0: 6}, {A0: 7, A1: 4}, bounds)
    assert found == [PartitionRange(A0, 5, 7), PartitionRange(A1, 2, 4)]
    assert lost == [
        "b-0 is gone",
        "a-0 was to be read from offset 3, but begins at 5",
        "a-1 was to be read from offset 0, but begins at 2",
    ]
    assert stream_ranges({A0: 9}, {A0: 7}, bounds) == ([], ["a-0 was read up to offset 9, but now ends at 7"])
    begins_later = {A0: ReadableOffsets(100, 200)}
    assert stream_ranges({A0: 10}, {A0: 50}, begins_later) == (
        [], ["a-0 was to be read from offset 10, but begins at 100"],
    )  # fmt: skip


def test_of_a_planned_batch_what_is_left_is_read():
    bounds = {A0: ReadableOffsets(0, 9)}
    assert stream_ranges({A0: 3, B0: 2}, {A0: 12, B0: 5}, bounds) == (
        [PartitionRange(A0, 3, 9)], ["a-0 was to be read up to offset 12, but ends at 9", "b-0 is gone"],
    )  # fmt: skip
    assert stream_ranges({A0: 3, B0: 5}, {A0: 3, B0: 5}, bounds) == ([], [])


def test_a_log_whose_records_were_all_read_may_lose_them():
    assert stream_ranges({A0: 5}, {A0: 5}, {A0: ReadableOffsets(5, 5)}) == ([], [])
    assert stream_ranges({A0: 3}, {A0: 3}, {A0: ReadableOffsets(5, 5)}) == ([], [])


def test_a_limit_is_shared_in_proportion():
    assert limit_rows({A0: 0, A1: 0}, {A0: 300, A1: 100}, 40) == {A0: 30, A1: 10}
    assert limit_rows({A0: 0, A1: 0}, {A0: 30, A1: 10}, 40) == {A0: 30, A1: 10}


@pytest.mark.slow
@given(
    behind=st.lists(st.tuples(st.integers(0, 50), st.integers(-3, 500)), min_size=1, max_size=6),
    max_rows=st.integers(1, 400),
)
@settings(max_examples=100, deadline=None)
def test_a_limit_is_kept_and_always_makes_progress(behind, max_rows):
    start = {TopicPartition("a", i): low for i, (low, _) in enumerate(behind)}
    end = {TopicPartition("a", i): low + more for i, (low, more) in enumerate(behind)}
    limited = limit_rows(start, end, max_rows)
    counts = {each: limited[each] - start[each] for each in start}
    assert sum(max(0, count) for count in counts.values()) == min(
        max_rows, sum(max(0, end[each] - start[each]) for each in start)
    )
    assert all(limited[each] <= end[each] for each in start)
    assert all(limited[each] == end[each] for each in start if end[each] <= start[each])


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.sampled_from(["a", "b", "a.b"]), st.integers(0, 12)), st.integers(0, 99)
    )
)
@settings(max_examples=30, deadline=None)
def test_offsets_have_one_text_whatever_order_they_came_in(offsets):
    backwards = dict(reversed(list(offsets.items())))
    assert json.dumps(to_json(offsets)) == json.dumps(to_json(backwards))
    assert from_json(json.loads(json.dumps(to_json(offsets)))) == offsets


def test_partitions_are_in_the_order_of_their_numbers():
    assert list(to_json({TopicPartition("a", 10): 0, TopicPartition("a", 9): 0})["a"]) == ["9", "10"]
