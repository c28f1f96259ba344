"""Power cuts while segments are replaced: at every change of the disk, also during recovery.

Afterwards the folder opens, with the old segments or the new one, never a mixture. A reader of the unopened folder
neither misses nor repeats a record.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from crc32c import crc32c

from sparklog.base.config import BrokerConfig
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.reader import LogReader
from sparklog.log.replacement.replace import StagedSegment
from sparklog.records.batch import iterate_headers
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, check_indexes, read_all, topic_config
from support.logs.replacements import FOLDER, cleaned, content_of, even, records_in, stage
from support.runs.seeds import seeds

pytestmark = pytest.mark.slow

NAME = TopicPartition("orders", 0)
CONFIG = topic_config(file_delete_delay_ms=0)
OLD = list(range(48))
NEW = [offset for offset in OLD if offset >= 36 or offset < 9 or even(offset // 3 * 3)]
"""Segments 9, 18 and 27 of 0, 9, … 45 are replaced."""


def start(fs: MemoryFs) -> LogManager:
    manager = LogManager(fs, ("/logs",), BrokerConfig(topic_defaults=CONFIG), SimClock(START_MS))
    manager.load()
    return manager


def prepare(*, is_flushed: bool) -> tuple[MemoryFs, Log, bytes]:
    """A log on a file system of its own, and the staged bytes."""
    fs = MemoryFs()
    manager = start(fs)
    log = manager.create(NAME, CONFIG)
    manager.tasks.checkpoint_recovery_points()
    for number in range(16):
        sent = batch(
            3, timestamp_ms=START_MS + number, value=b"x" * 60, producer_id=number % 3, sequence=number // 3 * 3
        )
        log.append(sent, leader_epoch=number // 5)
    log.flush(None if is_flushed else 9)
    manager.tasks.checkpoint_recovery_points()
    sources = log.replacer.describe()[1:4]
    data = cleaned(content_of(fs, sources))
    stage(fs, log, 9, data)
    return fs, log, data


def replace(log: Log, data: bytes) -> None:
    log.replacer.replace(log.replacer.describe()[1:4], size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
    log.delete_expired(10**9)


def crash(fs: MemoryFs, work: Callable[[], object], changes: int, chance: random.Random) -> tuple[MemoryFs, bool]:
    """Cut the power at a change; return the remaining file system, and whether the work was done before."""
    fs.cut_power_after(changes, chance)
    try:
        work()
    except PowerCut:
        return fs.crash(chance), False
    return fs.crash(chance), True


def check_unopened(fs: MemoryFs, least_end: int) -> None:
    """A reader of the unopened folder finds the surviving records in order; others may still be there."""
    reader = LogReader(fs, FOLDER)
    end = reader.end_offset()
    assert end >= least_end
    found: list[int] = []
    for part in reader.cut(0, end, 4):
        for chunk in reader.read(part, 500):
            found += [offset for offset in records_in(chunk) if part.offset_from <= offset < part.offset_to]
    assert found == sorted(set(found))
    assert {offset for offset in NEW if offset < end} <= set(found) <= set(OLD)


def check(fs: MemoryFs, least_end: int) -> bool:
    """Open the folder, check it, and append; return whether the segments had been replaced."""
    manager = start(fs)
    log = manager.get(NAME)
    assert log
    assert not [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap"))]
    found = records_in(read_all(log))
    end = log.log_end_offset
    assert end >= least_end
    is_new = found == [offset for offset in NEW if offset < end]
    assert is_new or found == [offset for offset in OLD if offset < end]
    bases = [segment.base_offset for segment in log.segments]
    assert bases == [base for base in range(0, 46, 9) if base <= end and not (is_new and base in (18, 27))]
    assert all(log.epochs.epoch_at(offset) == offset // 15 for offset in range(end))
    last = {offset // 3 % 3: offset for offset in range(2, end, 3)}
    assert {each: state.batches[-1].last_offset for each, state in log.producers.items()} == last
    check_indexes(log)
    appended = log.append(batch(3), leader_epoch=9)
    assert appended.first_offset == end
    manager.close()
    again = start(fs).get(NAME)
    assert again
    assert records_in(read_all(again)) == [*found, end, end + 1, end + 2]
    return is_new


def enumerate_crashes(chances: range, *, is_flushed: bool) -> list[set[bool]]:
    """Return for each change the outcomes of power cuts there, with several random states of unflushed data."""
    outcomes: list[set[bool]] = []
    for changes in range(500):
        found: set[bool] = set()
        was_done = False
        for seed in chances:
            chance = random.Random(seed * 1000 + changes)
            fs, log, data = prepare(is_flushed=is_flushed)
            end = 48 if is_flushed else 9
            left, was_done = crash(fs, lambda log=log, data=data: replace(log, data), changes, chance)  # type: ignore[misc]
            if is_flushed:
                check_unopened(left, end)
            found.add(check(left, max(end, 36 if was_done else 0)))
        outcomes.append(found)
        if was_done:
            return outcomes
    raise AssertionError("a replacement takes this many changes?")


def check_outcomes(outcomes: list[set[bool]]) -> None:
    assert len(outcomes) > 20
    assert outcomes[0] == {False}
    assert outcomes[-1] == {True}
    first_new = next(number for number, found in enumerate(outcomes) if True in found)
    in_force = next(number for number, found in enumerate(outcomes) if False not in found)
    assert all(found == {True} for found in outcomes[in_force:])  # once in force, always in force
    assert first_new <= in_force <= first_new + 3


def test_at_every_change_the_old_segments_or_the_new_one_are_left() -> None:
    check_outcomes(enumerate_crashes(range(1), is_flushed=True))


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize("is_flushed", [pytest.param(True, marks=pytest.mark.soak_only), False])
def test_at_every_change_under_many_fortunes(*, is_flushed: bool) -> None:
    outcomes = enumerate_crashes(seeds(2, soak=10), is_flushed=is_flushed)
    if is_flushed:
        check_outcomes(outcomes)


@pytest.mark.parametrize("changes", [17, 29])
def test_a_power_cut_while_the_folder_is_opened_leaves_it_openable(changes: int) -> None:
    crash_twice_at_every_change(changes, seed=changes)


@pytest.mark.soak_only
def test_a_power_cut_anywhere_and_another_while_the_folder_is_opened_leave_it_openable() -> None:
    for changes, seed in enumerate(seeds(60, soak=60)):
        if crash_twice_at_every_change(changes, seed):
            return


def crash_twice_at_every_change(changes: int, seed: int) -> bool:
    """Cut the power in the replacement, and at each change of the opening; return whether the replacement was done."""
    for again in range(200):
        fs, log, data = prepare(is_flushed=True)
        left, was_done = crash(fs, lambda log=log, data=data: replace(log, data), changes, random.Random(seed))  # type: ignore[misc]
        left, was_opened = crash(left, lambda left=left: start(left), again, random.Random(again))  # type: ignore[misc]
        check_unopened(left, 48)
        check(left, 48)
        if was_opened:
            return was_done
    raise AssertionError("opening takes this many changes?")


# Several for several

SPLITS = (9, 14, 32)
"""Where the new segments begin that take the place of 9, 18 and 27: but for the first, none where an old one does."""


def prepare_several(bases: tuple[int, ...], *, merged_before: bool) -> tuple[MemoryFs, Log, list[StagedSegment]]:
    """A log with batches of one record, nine to a segment, and staged segments with all of them."""
    fs = MemoryFs()
    manager = start(fs)
    log = manager.create(NAME, topic_config(file_delete_delay_ms=0, internal_segment_bytes=4000))
    manager.tasks.checkpoint_recovery_points()
    for number in range(48):
        if number % 9 == 0:
            log.roll()
        log.append(batch(1, timestamp_ms=START_MS + number, value=b"x" * 60), leader_epoch=number // 15)
    content = content_of(fs, log.replacer.describe()[1:4])
    if merged_before:
        data = cleaned(content, lambda base: base % 3 == 0)
        stage(fs, log, 9, data)
        log.replacer.replace(log.replacer.describe()[1:4], size_bytes=len(data), crc32c=crc32c(data), high_watermark=48)
        log.delete_expired(10**9)
    log.flush()
    manager.tasks.checkpoint_recovery_points()
    staged = []
    for base, end in pairwise((*bases, 36)):
        batches = [(at, header) for at, header in iterate_headers(content) if base <= header.base_offset < end]
        (first, _), (last, header) = batches[0], batches[-1]
        data = content[first : last + header.size]
        stage(fs, log, base, data)
        staged.append(StagedSegment(base_offset=base, size_bytes=len(data), crc32c=crc32c(data)))
    return fs, log, staged


def swap_several(log: Log, staged: list[StagedSegment]) -> None:
    sources = [each for each in log.replacer.describe() if 9 <= each.base_offset < 36]
    log.replacer.replace_all(sources, staged, high_watermark=48)
    log.delete_expired(10**9)


def look_at_several(fs: MemoryFs, *, merged_before: bool) -> None:
    """Read the folder before it is opened."""
    reader = LogReader(fs, FOLDER)
    assert reader.end_offset() == 48
    for plan in (reader.cut(0, 48, 1), reader.cut(0, 48, 9)):
        found = [
            offset
            for part in plan
            for chunk in reader.read(part, 300)
            for offset in records_in(chunk)
            if part.offset_from <= offset < part.offset_to
        ]
        assert found == sorted(set(found))
        lost = {offset for offset in range(9, 36) if offset % 3} if merged_before else set()
        assert set(range(48)) - lost <= set(found)


def check_several(fs: MemoryFs, bases: tuple[int, ...], *, merged_before: bool) -> bool:
    """Return whether the new segments are there."""
    manager = start(fs)
    log = manager.get(NAME)
    assert log
    assert not [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap"))]
    begin = [segment.base_offset for segment in log.segments]
    old = [0, 9, 36, 45] if merged_before else list(range(0, 46, 9))
    found = records_in(read_all(log))
    is_new = found == list(range(48)) and begin == [0, *bases, 36, 45]
    if not is_new:
        assert begin == old
        assert len(found) == (48 - 18 if merged_before else 48)
    assert log.log_end_offset == 48
    assert all(log.epochs.epoch_at(offset) == offset // 15 for offset in range(48))
    check_indexes(log)
    log.append(batch(3), leader_epoch=9)
    manager.close()
    again = start(fs).get(NAME)
    assert again
    assert records_in(read_all(again)) == [*found, 48, 49, 50]
    return is_new


@pytest.mark.slow
@pytest.mark.soak
@pytest.mark.parametrize(
    ("bases", "merged_before"),
    [
        pytest.param(SPLITS, False, marks=pytest.mark.soak_only),
        (SPLITS, True),
        pytest.param((9, 18, 27), True, marks=pytest.mark.soak_only),
        pytest.param((9, 27), False, marks=pytest.mark.soak_only),
    ],
)
def test_swaps_of_several_segments_leave_all_or_none(bases: tuple[int, ...], *, merged_before: bool) -> None:
    """With several random states of unflushed data, and a second power cut while the folder is opened."""
    for changes in range(500):
        outcomes, was_done = set(), False
        for seed in seeds(2, soak=4):
            chance = random.Random(seed * 1000 + changes)
            fs, log, staged = prepare_several(bases, merged_before=merged_before)
            left, was_done = crash(fs, lambda log=log, staged=staged: swap_several(log, staged), changes, chance)  # type: ignore[misc]
            look_at_several(left, merged_before=merged_before)
            if seed % 2:
                left, _ = crash(left, lambda left=left: start(left), chance.randrange(40), chance)  # type: ignore[misc]
                look_at_several(left, merged_before=merged_before)
            outcomes.add(check_several(left, bases, merged_before=merged_before))
        assert changes or outcomes == {False}
        if was_done:
            assert outcomes == {True}
            return
    raise AssertionError("a replacement takes this many changes?")


@pytest.mark.parametrize("merged_before", [False, True])
def test_several_for_several_are_read_without_a_hole_at_every_moment(*, merged_before: bool) -> None:
    fs, log, staged = prepare_several(SPLITS, merged_before=merged_before)
    rename, moments = fs.rename, 0

    def look_and_rename(source: str, target: str) -> None:
        nonlocal moments
        look_at_several(fs, merged_before=merged_before)
        rename(source, target)
        look_at_several(fs, merged_before=merged_before)
        moments += 1

    fs.rename = look_and_rename  # type: ignore[method-assign]
    swap_several(log, staged)
    assert moments > 15
    assert records_in(read_all(log)) == list(range(48))
    check_indexes(log)
