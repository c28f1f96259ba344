"""Replaced segments with transactions: aborted records stay aborted, for every reader, also after power cuts.

A cleaner has removed the aborted records. The committed ones are the same before, during and after the replacement.
"""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c

from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.reader import LogReader
from sparklog.log.replacement.replace import StagedSegment
from sparklog.log.segment.segment import Segment
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, file_content, read_all, topic_config
from support.logs.replacements import FOLDER, content_of, emptied, marked, stage
from support.logs.transactions import ABORT, COMMIT, end, read_committed, write
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

NAME = TopicPartition("orders", 0)
CONFIG = topic_config(internal_segment_bytes=600, file_delete_delay_ms=0)


def start(fs: MemoryFs) -> LogManager:
    manager = LogManager(fs, ("/logs",), BrokerConfig(topic_defaults=CONFIG), SimClock(START_MS))
    manager.load()
    return manager


def written(fs: MemoryFs) -> Log:
    """Two producers whose transactions overlap; every third is aborted, and one of them stays open."""
    manager = start(fs)
    log = manager.create(NAME, CONFIG)
    manager.tasks.checkpoint_recovery_points()
    sequences = {1: 0, 2: 0}
    for number in range(14):
        producer_id = 1 + number % 2
        for _ in range(1 + number % 3):
            write(log, producer_id, 0, sequence=sequences[producer_id], value=b"x" * 40)
            sequences[producer_id] += 1
        if number:
            end(log, 3 - producer_id, 0, ABORT if number % 3 == 0 else COMMIT)
        log.append(batch(1), leader_epoch=0)
    log.flush()
    manager.tasks.checkpoint_recovery_points()
    return log


def without_aborted(log: Log, data: bytes) -> bytes:
    """The output of a cleaner: no aborted batch, no marker of a transaction without batches, and the last batch."""
    aborted = log.aborted_transactions(0, log.log_end_offset)
    gone = [header.base_offset for _, header in iterate_headers(data)]
    kept = bytearray()
    for position, header in iterate_headers(data):
        is_aborted = any(
            each.producer_id == header.producer_id and each.first_offset <= header.base_offset <= each.last_offset
            for each in aborted
            if each.first_offset in gone or header.base_offset != each.last_offset
        )
        if not (header.is_transactional and is_aborted):
            kept += data[position : position + header.size]
        elif position + header.size == len(data):
            kept += emptied(header)
    return bytes(kept)


def replace(log: Log, data: bytes) -> None:
    sources = log.replacer.describe()[1:4]
    log.replacer.replace(sources, size_bytes=len(data), crc32c=crc32c(data), high_watermark=sources[-1].next_offset)


def prepare() -> tuple[MemoryFs, Log, bytes]:
    """A log on a file system of its own, and the staged bytes."""
    fs = MemoryFs()
    log = written(fs)
    sources = log.replacer.describe()[1:4]
    assert any(fs.exists(f"{FOLDER}/{each.base_offset:020d}.txnindex") for each in sources)
    data = without_aborted(log, content_of(fs, sources))
    stage(fs, log, sources[0].base_offset, data)
    return fs, log, data


def entries_of(segment: Segment) -> list[AbortedTransaction]:
    found: list[AbortedTransaction] = []
    segment.collect_aborted(0, MAX_LONG, found)
    return found


def committed(log: Log) -> list[int]:
    return read_committed(log, 0, log.log_end_offset, 500)


def committed_unopened(fs: MemoryFs) -> list[int]:
    """The committed offsets, by a reader of the folder that skips batches of aborted transactions."""
    reader = LogReader(fs, FOLDER)
    walked = reader.follow_transactions(reader.end_offset())
    limit = walked.first_unstable_offset
    assert limit
    aborted = reader.aborted_transactions(0, limit, walked)
    found = []
    for part in reader.cut(0, limit, 3):
        for chunk in reader.read(part, 500):
            for _, header in iterate_headers(chunk):
                is_aborted = any(
                    each.producer_id == header.producer_id
                    and each.first_offset <= header.base_offset < each.last_offset
                    for each in aborted
                    if header.is_transactional
                )
                if header.record_count and not header.is_control and not is_aborted:
                    found += [each for each in range(header.base_offset, header.next_offset) if each < limit]
    return sorted(set(found))


def test_the_index_of_the_new_segment_has_what_is_left() -> None:
    fs, log, data = prepare()
    expected, old = committed(log), log.segments[1:4]
    known = [entries_of(each) for each in old]
    assert known.count([]) < 3
    before, size = log.aborted_transactions(0, log.log_end_offset), len(read_all(log))
    replace(log, data)
    assert len(read_all(log)) < size
    after = log.aborted_transactions(0, log.log_end_offset)
    markers = {header.base_offset for _, header in iterate_headers(read_all(log)) if header.is_control}
    assert {each.last_offset for each in after} == {each.last_offset for each in before} & markers
    assert len(after) < len(before)
    assert committed(log) == expected == committed_unopened(fs)
    assert [entries_of(each) for each in old] == known  # a read of the old segments may still go on
    log.close()
    again = start(fs).get(NAME)
    assert again
    assert again.aborted_transactions(0, again.log_end_offset) == after
    assert committed(again) == expected


def test_the_leaders_files_bring_their_aborted_transactions_back() -> None:
    """A follower whose log is cleaned follows a leader whose log is not."""
    fs, log, data = prepare()
    expected, sources = committed(log), log.replacer.describe()[1:4]
    before = log.aborted_transactions(0, log.log_end_offset)
    files = {each.base_offset: file_content(fs, f"{FOLDER}/{each.base_offset:020d}.log") for each in sources}
    replace(log, data)
    staged = []
    for base_offset, content in files.items():
        stage(fs, log, base_offset, content)
        staged.append(StagedSegment(base_offset=base_offset, size_bytes=len(content), crc32c=crc32c(content)))
    log.replacer.replace_all(log.replacer.describe()[1:2], staged, high_watermark=log.log_end_offset)
    assert log.aborted_transactions(0, log.log_end_offset) == before
    assert committed(log) == expected
    assert not marked(fs)


def test_a_damaged_producer_snapshot_does_not_matter() -> None:
    fs, log, data = prepare()
    expected = committed(log)
    for name in fs.list(FOLDER):
        if name.endswith(".snapshot"):
            fs.damage(f"{FOLDER}/{name}", b"?")
    replace(log, data)
    assert committed(log) == expected


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(2, soak=20))
def test_a_power_cut_leaves_the_old_transactions_or_the_new_ones(seed: int) -> None:
    outcomes = set()
    for changes in range(500):
        chance = random.Random(seed * 1000 + changes)
        fs, log, data = prepare()
        expected, old = committed(log), log.replacer.describe()
        fs.cut_power_after(changes, chance)
        was_done = True
        try:
            replace(log, data)
            log.delete_expired(10**9)
        except PowerCut:
            was_done = False
        left = fs.crash(chance)
        assert committed_unopened(left) == expected
        opened = start(left).get(NAME)
        assert opened
        assert committed(opened) == expected == committed_unopened(left)
        assert not marked(left)
        outcomes.add(len(opened.replacer.describe()) == len(old))
        for each in opened.segments:
            each.aborted.check(each.base_offset)
        if was_done:
            break
    assert outcomes == {True, False}
