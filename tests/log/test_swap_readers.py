"""Reading beside replacements: every surviving record is read once, at any moment and with any open file."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import pytest

from sparklog.base.errors import InvalidUpdateVersion, OffsetOutOfRange
from sparklog.base.fs import Fs, LocalFs
from sparklog.log.log import Log
from sparklog.log.reader import LogReader
from sparklog.log.segment.cache import SegmentCache
from sparklog.log.segment.ranges import ReadRange
from sparklog.testing.memory_fs import MemoryFs
from support.logs.builders import START_MS, batch, check_indexes, file_content, open_log, topic_config
from support.logs.replacements import FOLDER, clean, cleaned, content_of, even, records_in, replace, written
from support.patience import PATIENCE_S
from support.runs.seeds import SEED, seeds

pytestmark = pytest.mark.slow

OLD = list(range(48))
Found = TypeVar("Found")


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


@pytest.fixture
def log(fs: MemoryFs) -> Log:
    """Segments 0, 9, … 45."""
    return written(fs)


def read(reader: LogReader, ranges: list[ReadRange], chunk_bytes: int = 300) -> list[int]:
    return [
        offset
        for part in ranges
        for chunk in reader.read(part, chunk_bytes)
        for offset in records_in(chunk)
        if part.offset_from <= offset < part.offset_to
    ]


def surviving(low: int, high: int, first: int, end: int) -> list[int]:
    """The offsets left from `low` to `high` after `clean` of the offsets from `first` to `end`."""
    return [offset for offset in range(low, high) if not first <= offset < end or even(offset // 3 * 3)]


class TestAReadThatHoldsAnOldFile:
    """The read is planned as one range over three segments, 9 to 36, so that it continues from file to file."""

    RANGE = ReadRange(offset_from=9, offset_to=36, segment_base=9, position=0, size=1)

    def held(self, fs: MemoryFs) -> tuple[list[int], Callable[[], list[int]]]:
        """The first chunk, of segment 9, and a function that reads the rest."""
        chunks = LogReader(fs, FOLDER).read(self.RANGE, 200)
        first = records_in(next(chunks))
        assert first == [9, 10, 11]
        return first, lambda: [offset for chunk in chunks for offset in records_in(chunk)]

    @pytest.mark.parametrize("are_gone", [False, True])
    def test_goes_on_in_the_segment_that_has_grown(self, fs: MemoryFs, log: Log, *, are_gone: bool) -> None:
        first, rest = self.held(fs)
        clean(fs, log, 1, 3)
        if are_gone:
            log.delete_expired(10**9)
        assert first + rest() == [*range(9, 18), *surviving(18, 36, 9, 36)]

    def test_goes_on_in_a_segment_that_begins_before_it(self, fs: MemoryFs, log: Log) -> None:
        first, rest = self.held(fs)
        clean(fs, log, 0, 4)
        log.delete_expired(10**9)
        assert first + rest() == [*range(9, 18), *surviving(18, 36, 0, 36)]

    def test_finds_no_hole_where_a_log_was_compacted_by_kafka(self, fs: MemoryFs, log: Log) -> None:
        """Kafka removes the last batches of a segment, so that the next one begins behind a gap."""
        path = f"{FOLDER}/{9:020d}.log"
        content = file_content(fs, path)
        file = fs.open(path)
        file.truncate(len(content) // 3 * 2)
        _, rest = self.held(fs)
        assert rest() == [12, 13, 14, *range(18, 36)]

    def test_reports_what_retention_has_taken_from_before_it(self, fs: MemoryFs, log: Log) -> None:
        _, rest = self.held(fs)
        log.advance_log_start(27)
        log.delete_old_segments(START_MS)
        log.delete_expired(10**9)
        with pytest.raises(OffsetOutOfRange):
            rest()


class TestAtEachMoment:
    """The folder is read before every change of a name."""

    def test_a_plan_and_its_read(self, fs: MemoryFs, log: Log) -> None:
        moments = self.watch(fs, lambda: read(LogReader(fs, FOLDER), LogReader(fs, FOLDER).cut(0, 48, 5)))
        clean(fs, log, 1, 3)
        assert len(moments) > 8
        assert moments[0] == OLD
        assert moments[-1] == surviving(0, 48, 9, 36)
        for found in moments:
            assert set(surviving(0, 48, 9, 36)) <= set(found)
            assert all(first < second for first, second in pairwise(found))

    def test_a_read_that_was_planned_before(self, fs: MemoryFs, log: Log) -> None:
        ranges = LogReader(fs, FOLDER).cut(0, 48, 20)
        moments = self.watch(fs, lambda: read(LogReader(fs, FOLDER), ranges))
        clean(fs, log, 1, 3)
        log.delete_expired(10**9)
        moments.append(read(LogReader(fs, FOLDER), ranges))
        for found in moments:
            assert set(surviving(0, 48, 9, 36)) <= set(found)
            assert all(first < second for first, second in pairwise(found))

    def test_segments_and_timestamps(self, fs: MemoryFs, log: Log) -> None:
        def look() -> tuple[int, int | None]:
            reader = LogReader(fs, FOLDER)
            infos = reader.segments()
            assert all(first.next_offset == second.base_offset for first, second in pairwise(infos))
            return infos[-1].next_offset, reader.offset_for_timestamp(START_MS + 6000)

        moments = self.watch(fs, look)
        clean(fs, log, 1, 3)
        assert set(moments) == {(48, 18)}

    def test_a_swap_as_kafka_does_it(self, fs: MemoryFs, log: Log) -> None:
        """The new log is .swap, the old ones are .deleted before it takes its name."""
        new = b"".join(file_content(fs, f"{FOLDER}/{base:020d}.log") for base in (9, 18, 27))
        file = fs.open(f"{FOLDER}/{9:020d}.log.swap", create=True)
        file.append(new)
        reader = LogReader(fs, FOLDER)
        for base in (9, 18, 27):
            fs.rename(f"{FOLDER}/{base:020d}.log", f"{FOLDER}/{base:020d}.log.deleted")
            assert read(reader, reader.cut(0, 48, 5)) == OLD
        fs.rename(f"{FOLDER}/{9:020d}.log.swap", f"{FOLDER}/{9:020d}.log")
        assert read(reader, reader.cut(0, 48, 5)) == OLD

    def watch(self, fs: MemoryFs, look: Callable[[], Found]) -> list[Found]:
        """Return the results of `look` before each change of a name from now on, and after the last one."""
        moments: list[Found] = []
        rename = fs.rename

        def look_and_rename(source: str, target: str) -> None:
            moments.append(look())
            rename(source, target)
            moments.append(look())

        fs.rename = look_and_rename  # type: ignore[method-assign]
        return moments


class Readers:
    """Threads that work until the block ends or one of them fails, whose error is then raised."""

    def __init__(self, *work: Callable[[], None]) -> None:
        self.stopping = threading.Event()
        self.rounds = [0] * len(work)
        self._work = work

    def _run(self, number: int) -> None:
        try:
            while not self.stopping.is_set():
                self._work[number]()
                self.rounds[number] += 1
        finally:
            self.stopping.set()

    def __enter__(self) -> Readers:
        self._pool = ThreadPoolExecutor(len(self._work))
        self._running = [self._pool.submit(self._run, number) for number in range(len(self._work))]
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._pool.shutdown()
        for each in self._running:
            each.result()


@pytest.mark.soak
@pytest.mark.parametrize(("make_fs", "changes"), [(MemoryFs, 12), (LocalFs, 20 if SEED is None else 300)])
def test_readers_in_threads_find_each_surviving_record_once(
    tmp_path: Path, make_fs: Callable[[], Fs], changes: int
) -> None:
    """Log.read and LogReader beside appends, rolls, replacements of random neighbours, and files that go at once."""
    fs = make_fs()
    folder = f"{tmp_path}/orders-0"
    cache = SegmentCache(max_segments=2)  # so that files are closed and opened again all the time
    log = open_log(fs, folder, config=topic_config(file_delete_delay_ms=0), cache=cache)
    for number in range(30):
        log.append(batch(3, timestamp_ms=START_MS + number, value=b"x" * 60), leader_epoch=0)

    def judge(found: list[int], end: int) -> None:
        assert all(first < second for first, second in pairwise(found))
        assert {offset for offset in range(end) if even(offset // 3 * 3)} <= set(found)

    def read_folder() -> None:
        end = log.log_end_offset // 3 * 3
        reader = LogReader(fs, folder)
        judge(read(reader, reader.cut(0, end, 7), 500), end)

    def read_log() -> None:
        end, offset, found = log.log_end_offset, 0, []
        while offset < end:
            piece = log.read(offset, 400, max_offset=end)
            if not piece.size:
                break  # all up to the end was cleaned away
            assert piece.next_offset > offset
            found += records_in(piece.read())
            offset = piece.next_offset
        judge(found, end)

    def describe() -> None:
        described = log.replacer.describe()
        assert all(first.next_offset == second.base_offset for first, second in pairwise(described))
        assert log.offset_for_timestamp(START_MS)

    chance = random.Random(SEED)
    with Readers(read_folder, read_log, describe) as readers:
        for _ in range(changes):
            log.append(batch(3, timestamp_ms=START_MS, value=b"x" * 60), leader_epoch=0)
            count = len(log.segments) - 1
            first = chance.randrange(count)
            clean(fs, log, first, min(chance.choice((1, 2, 3)), count - first))
            log.delete_expired(10**9)
            if len(log.segments) < 5:
                for _ in range(20):
                    log.append(batch(3, timestamp_ms=START_MS, value=b"x" * 60), leader_epoch=0)
            if readers.stopping.is_set():
                break
    assert all(readers.rounds)


def one_round(together: threading.Barrier, work: Callable[[], None]) -> Callable[[], None]:
    """The work, begun together with the others that wait at the barrier; nothing once the barrier is broken."""

    def begin_together() -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            together.wait()
            try:
                work()
            except BaseException:
                together.abort()  # the other threads need not wait for this one
                raise

    return begin_together


@pytest.mark.soak
@pytest.mark.parametrize("seed", seeds(2, soak=10))
def test_retention_truncation_and_replacement_at_once(seed: int) -> None:
    """Whichever operation wins, the log stays consistent: offsets continue, indexes are right, nothing is staged."""
    fs = MemoryFs()
    log = written(fs, 20)
    chance = random.Random(seed)

    def retain() -> None:
        with contextlib.suppress(OffsetOutOfRange):  # cut meanwhile
            log.advance_log_start(min(log.log_start_offset + 5, max(0, log.log_end_offset - 30)))
        log.delete_old_segments(START_MS)
        log.delete_expired(10**9)

    def cut() -> None:
        if log.size_bytes > 5_000:
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - 4))

    def write() -> None:
        if log.size_bytes < 10_000:
            log.append(batch(3, timestamp_ms=START_MS, value=b"x" * 60), leader_epoch=0)
            log.append(batch(3, timestamp_ms=START_MS, value=b"x" * 60), leader_epoch=0)

    def flush() -> None:
        log.flush()

    done = refused = 0
    together = threading.Barrier(5, timeout=PATIENCE_S)  # the fastest thread must not always win
    others = [one_round(together, work) for work in (retain, cut, write, flush)]
    with Readers(*others), contextlib.ExitStack() as ending:
        ending.callback(together.abort)
        while done < 30 and refused < 1000:
            together.wait()
            sources = log.replacer.describe()[chance.randrange(3) : -1][:3]
            try:
                replace(fs, log, sources, cleaned(content_of(fs, sources)))
                done += 1
            except (InvalidUpdateVersion, FileNotFoundError, IndexError):  # gone already when their bytes were read
                refused += 1
    assert done
    again = open_log(fs, clean=False, log_start_offset=log.log_start_offset)
    assert again.log_end_offset <= log.log_end_offset
    check_indexes(again)
    described = again.replacer.describe()
    assert all(one.next_offset == two.base_offset for one, two in pairwise(described))
    assert not [name for name in fs.list(FOLDER) if name.endswith((".cleaned", ".swap", ".deleted"))]
