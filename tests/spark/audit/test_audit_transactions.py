"""Findings in transaction indexes: none in indexes of Kafka and of this log, and one for each wrong entry."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.fs import Fs, LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.client import Consumer, Producer
from sparklog.log.segment.transaction_index import AbortedTransaction, read_entries, write_entries
from sparklog.spark.audit.findings import NEXT_STEPS
from sparklog.spark.audit.segment_scan import SegmentScan, SegmentWork, scan_segment
from sparklog.spark.audit.tasks import FolderFiles
from sparklog.testing import start_broker
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support import GOLDEN
from support.logs.builders import START_MS, batch, file_content, open_log, rewrite, topic_config
from support.logs.faulty_replicas import flip, log_of, places
from support.logs.transactions import end, write
from support.transactions.markers import await_markers

pytestmark = pytest.mark.slow

Entries = list[AbortedTransaction]
PRODUCERS = (1, 2, 3)
FOLDER = "/logs/orders-0"
KIND = "wrong_transaction_index"


def scan(fs: Fs, folder: str, base_offset: int, next_offset: int = -1, **known: int) -> SegmentScan:
    work = SegmentWork(base_offset=base_offset, next_offset=next_offset, **known)
    with ExitStack() as opened:
        return scan_segment(FolderFiles(fs, folder, base_offset, opened), work)


def problems(facts: SegmentScan) -> list[tuple[str, int]]:
    return [(problem.kind, problem.offset) for problem in facts.problems]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A segment that Kafka wrote, from 20 to 100: producer 6 has aborted 21 to 40 at 41, producer 7 78 to 82 at 88."""
    shutil.copytree(GOLDEN / "transactional-0", tmp_path / "transactional-0")
    return tmp_path / "transactional-0"


def found(folder: Path, **known: int) -> list[tuple[str, int]]:
    return problems(scan(LocalFs(), str(folder), 20, 101, **known))


def change(folder: Path, how: Callable[[Entries], Sequence[AbortedTransaction]]) -> None:
    index = log_of(folder, 20, ".txnindex")
    index.write_bytes(write_entries(how(read_entries(index.read_bytes()))))


def other(number: int, **fields: int) -> Callable[[Entries], Entries]:
    return lambda entries: [each._replace(**fields) if at == number else each for at, each in enumerate(entries)]


FAULTS: dict[str, tuple[Callable[[Entries], Entries], int]] = {
    "an aborted transaction is missing": (lambda entries: entries[:1], 88),
    "it is of another producer": (other(0, producer_id=7), 41),
    "it begins too late": (other(0, first_offset=30), 41),
    "it begins before the producer's former marker": (other(0, first_offset=2), 41),
    "it ends where a transaction was committed": (
        lambda entries: [*entries[:1], AbortedTransaction(6, 42, 62, 63), *entries[1:]],
        62,
    ),
    "it ends where no marker is": (lambda entries: [*entries[:1], AbortedTransaction(6, 42, 50, 63), *entries[1:]], 50),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_entry_is_found_at_its_marker(folder, fault):
    assert found(folder) == []
    how, offset = FAULTS[fault]
    change(folder, how)
    assert found(folder) == [(KIND, offset)]


def test_an_index_that_is_not_there_or_is_none_is_found(folder):
    index = log_of(folder, 20, ".txnindex")
    whole = index.read_bytes()
    index.write_bytes(whole[:-1])
    assert found(folder) == [(KIND, 20)]
    index.write_bytes(b"\xff" + whole[1:])
    assert found(folder) == [(KIND, 20)]
    index.unlink()
    assert found(folder) == [(KIND, 41), (KIND, 88)]


def test_an_entry_that_is_being_written_is_none(folder):
    index = log_of(folder, 20, ".txnindex")
    index.write_bytes(index.read_bytes() + b"\0\0\0")
    assert scan(LocalFs(), str(folder), 20).problems == []


def test_what_a_cleaner_may_have_removed_or_nobody_has_flushed_is_not_compared(folder):
    change(folder, lambda _: [])
    assert found(folder, gaps_to=MAX_LONG) == []
    assert found(folder, gaps_to=42) == [(KIND, 88)]
    assert found(folder, known_to=88) == [(KIND, 41)]


def test_the_index_of_a_damaged_segment_is_not_judged(folder):
    change(folder, lambda _: [])
    position, _ = places(log_of(folder, 20))[1]
    flip(log_of(folder, 20), position + 100)
    assert found(folder) == [("corrupt_batch", 21)]


def test_what_a_broker_shows_is_right_again_after_the_next_step_of_the_finding(tmp_path: Path) -> None:
    """An index of one byte is none; an empty one is that of a segment without aborted transactions."""
    folder, index = tmp_path / "t-0", tmp_path / "t-0" / f"{0:020}.txnindex"
    with (
        start_broker(tmp_path) as broker,
        Producer(bootstrap_servers=broker.bootstrap, transactional_id="id") as producer,
    ):
        for value, end_transaction in ((b"aborted", producer.abort), (b"committed", producer.commit)):
            producer.begin()
            producer.send("t", value, partition=0).result()
            end_transaction()
        await_markers(broker.bootstrap, TopicPartition("t", 0))
    index.write_bytes(b"")
    assert problems(scan(LocalFs(), str(folder), 0)) == [(KIND, 1)]
    assert shown(tmp_path) == [b"aborted", b"committed"]
    assert "one byte" in NEXT_STEPS[KIND]
    index.write_bytes(b"x")
    assert shown(tmp_path) == [b"committed"]
    assert problems(scan(LocalFs(), str(folder), 0)) == []


def shown(data_dir: Path) -> list[bytes | None]:
    """Return the records that a broker on this folder shows to a reader of committed records."""
    with start_broker(data_dir) as broker, Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign_topic("t")
        consumer.seek_to_beginning()
        ends = consumer.end_offsets([TopicPartition("t", 0)])
        found: list[bytes | None] = []
        while any(consumer.position(name) < end for name, end in ends.items()):
            found += [record.value for record in consumer.poll(100)]
        return found


class LogWithOffsets:
    """A log, and the offsets of the batches of each aborted transaction by that of its marker."""

    def __init__(self, fs: Fs) -> None:
        self.log = open_log(fs, FOLDER, config=topic_config(), clock=SimClock(START_MS))
        self.aborted: dict[int, list[int]] = {}
        self._open: dict[int, list[int]] = {}

    def take(self, step: str, producer_id: int) -> None:
        log, offset = self.log, self.log.log_end_offset
        state = log.producers.get(producer_id)
        epoch, sequence = (state.epoch, state.last_sequence + 1) if state else (0, 0)
        if step == "write":
            write(log, producer_id, epoch, sequence=sequence)
            self._open.setdefault(producer_id, []).append(offset)
        elif step in ("commit", "abort"):
            end(log, producer_id, epoch, step == "commit")
            offsets = self._open.pop(producer_id, [])
            if step == "abort" and offsets:
                self.aborted[offset] = offsets
        elif step == "roll":
            log.roll()
        else:
            log.append(batch(1), leader_epoch=0)


@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["write", "write", "commit", "abort", "roll", "plain"]), st.sampled_from(PRODUCERS))
    ),
    chosen=st.integers(0, 50),
)
def test_a_log_has_no_wrong_entries_and_a_lost_one_is_found(steps: list[tuple[str, int]], chosen: int) -> None:
    """A lost entry is found if a batch of its transaction is in the segment of its marker."""
    fs = MemoryFs()
    fs.make_dir("/logs")
    written = LogWithOffsets(fs)
    for step, producer_id in steps:
        written.take(step, producer_id)
    bases = [segment.base_offset for segment in written.log.segments]
    written.log.close()
    named = []
    for base, following in zip(bases, [*bases[1:], -1], strict=True):
        assert problems(scan(fs, FOLDER, base, following)) == []
        path = f"{FOLDER}/{base:020}.txnindex"
        if fs.exists(path) and (entries := read_entries(file_content(fs, path))):
            named += [entry.last_offset for entry in entries]
            lost = entries.pop(chosen % len(entries)).last_offset
            rewrite(fs, path, write_entries(entries))
            is_seen = written.aborted[lost][-1] >= base
            assert problems(scan(fs, FOLDER, base, following)) == ([(KIND, lost)] if is_seen else [])
    assert named == sorted(written.aborted)
