"""Reads of segments in chunks of whole batches, from their folder or through the broker."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from sparklog.base.errors import CorruptRecord, InvalidUpdateVersion
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Maintenance, Producer
from sparklog.log.description import LogDescription
from sparklog.records.batch import iterate_headers
from sparklog.records.records import Record, write_records
from sparklog.spark.segment_files import is_visible, read_segment, whole_batches
from sparklog.testing import RunningBroker, start_broker

BATCHES = b"".join(
    bytes(write_records([Record(offset=offset, timestamp_ms=1, value=bytes(100 * offset))])) for offset in range(20)
)


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker() as running:
        yield running


@pytest.fixture(scope="module")
def log(broker: RunningBroker) -> LogDescription:
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("t", partitions=1, configs={"internal.segment.bytes": "20000"})
    with Producer(bootstrap_servers=broker.bootstrap, batch_size=0, linger_ms=0) as producer:
        for number in range(50):
            producer.send("t", bytes(100 * number), partition=0)
    name = TopicPartition("t", 0)
    with Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        found = maintenance.describe_logs([name])[name]
    assert isinstance(found, LogDescription)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("chunk_bytes", [100, 3000])
def test_both_ways_give_the_same_batches(broker: RunningBroker, log: LogDescription, chunk_bytes: int) -> None:
    elsewhere = replace(log, folder=f"/elsewhere/{log.partition}")
    assert is_visible(log)
    assert not is_visible(elsewhere)
    options = {"bootstrap_servers": broker.bootstrap}
    for segment in log.segments:
        data = Path(log.folder, f"{segment.base_offset:020}.log").read_bytes()
        for described in (log, elsewhere):
            chunks = list(read_segment(described, segment, options, chunk_bytes))
            assert b"".join(chunks) == data
            assert all(sum(header.size for _, header in iterate_headers(chunk)) == len(chunk) for chunk in chunks)


def test_a_folder_of_another_broker_is_not_taken_for_this_ones(log: LogDescription) -> None:
    assert not is_visible(replace(log, broker_id=1))
    assert not is_visible(replace(log, cluster_id="another"))


def test_a_file_that_is_another_one_by_now_is_told(tmp_path: Path, log: LogDescription) -> None:
    described = replace(log, folder=str(tmp_path / "t-0"))
    meta = Path(log.folder).parent / "meta.properties"
    (tmp_path / "meta.properties").write_bytes(meta.read_bytes())
    os.mkdir(described.folder)
    first = log.segments[0]
    with pytest.raises(InvalidUpdateVersion):
        list(read_segment(described, first, {}))
    path = Path(described.folder, f"{first.base_offset:020}.log")
    path.write_bytes(Path(log.folder, path.name).read_bytes()[:-1])
    with pytest.raises(InvalidUpdateVersion):
        list(read_segment(described, first, {}))
    merged = (Path(log.folder, f"{segment.base_offset:020}.log").read_bytes() for segment in log.segments[2:0:-1])
    path.write_bytes(b"".join(merged))  # larger, and no batch ends where the described ones did
    with pytest.raises(InvalidUpdateVersion):
        list(read_segment(described, first, {}))
    path.write_bytes(bytes(first.size_bytes))
    with pytest.raises(CorruptRecord):
        list(read_segment(described, first, {}))


@settings(max_examples=30)
@given(cuts=st.lists(st.integers(0, len(BATCHES))), chunk_bytes=st.integers(1, len(BATCHES)))
def test_pieces_cut_anywhere_become_whole_batches(cuts: list[int], chunk_bytes: int) -> None:
    edges = [0, *sorted(cuts), len(BATCHES)]
    pieces = [BATCHES[start:end] for start, end in itertools.pairwise(edges)]
    chunks = list(whole_batches(pieces, len(BATCHES), chunk_bytes))
    assert b"".join(chunks) == BATCHES
    assert all(sum(header.size for _, header in iterate_headers(chunk)) == len(chunk) for chunk in chunks)


@settings(max_examples=30)
@given(size=st.integers(1, len(BATCHES) - 1))
def test_a_torn_end_is_told(size: int) -> None:
    ends = {position + header.size for position, header in iterate_headers(BATCHES)}
    if size in ends:
        assert b"".join(whole_batches([BATCHES[:size]], size, 1000)) == BATCHES[:size]
    else:
        with pytest.raises(CorruptRecord):
            list(whole_batches([BATCHES[:size]], size, 1000))


def test_a_length_that_goes_behind_the_end_is_told_before_the_rest_is_read() -> None:
    hostile = bytearray(BATCHES)
    hostile[8:12] = (1 << 30).to_bytes(4, "big")
    read = []

    def pieces() -> Iterator[bytes]:
        for start in range(0, len(hostile), 100):
            read.append(start)
            yield bytes(hostile[start : start + 100])

    with pytest.raises(CorruptRecord):
        list(whole_batches(pieces(), len(hostile), 100))
    assert len(read) == 1
