"""Random work on a log directory until the power goes, and what must then be found.

`Life` does one seed's work: appends, rolls, flushes, checkpoints, truncations, retention, replacements of segments, new
epochs, moves between several directories, clean stops, until `MemoryFs` cuts the power in the middle of some change,
which may also be one that opening the directory makes.
`Model` is what must then be true:

    flushed         every record below is there, with the bytes that were appended
    started         no record below is served again
    replaced        what a cleaner has put in the place of batches is there, or all of what was there before
    cleaned         no offset passes for compacted that was not, or that was written anew since
    batches         nothing else is found, and it is found without gaps
    producers       what is remembered of producers is what the batches say that are found, and no more

What an interrupted operation was about to do may have happened, in part or whole, or not at all.
"""

from __future__ import annotations

import contextlib
import random
from dataclasses import dataclass, field
from itertools import pairwise
from uuid import UUID

from crc32c import crc32c

from sparklog.base.config import BrokerConfig
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.manager import LogManager
from sparklog.log.log import Log
from sparklog.log.reader import LogReader
from sparklog.records.batch import BatchHeader, iterate_headers, read_header
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, check_indexes, read_all, topic_config
from support.logs.replacements import content_of, emptied, stage

NAME = TopicPartition("orders", 0)
TOPIC_ID = UUID(int=7)


@dataclass(slots=True)
class Model:
    """What is known about the log from outside; after a crash, what may be found."""

    batches: dict[int, bytes] = field(default_factory=dict)
    """As they were stored, by their base offsets."""
    end: int = 0
    flushed: int = 0
    started: int = 0
    start_limit: int = 0
    """No record at or above it has been given up."""
    replacing: dict[int, bytes] = field(default_factory=dict)
    """What batches may have become, by their base offsets: all of them or none."""
    cleaned: int = 0
    cleaned_limit: int = 0
    """More than `cleaned` while it is being set."""

    def cut(self, offset: int) -> None:
        """Records from there on are about to go."""
        self.flushed = min(self.flushed, offset)
        self.cleaned = min(self.cleaned, offset)


class Life:
    """The life of one log directory, through several crashes."""

    def __init__(self, seed: int, dirs: tuple[str, ...] = ("/logs",)) -> None:
        self.dirs = dirs
        self.chance = random.Random(seed)
        self.clock = SimClock(START_MS)
        self.fs = MemoryFs()
        self.model = Model()
        self.epoch = 0
        self.config = topic_config(
            internal_segment_bytes=self.chance.choice((700, 1000, 4000)),
            index_interval_bytes=self.chance.choice((0, 100, 500)),
            segment_index_bytes=self.chance.choice((60, 10_000)),
            retention_bytes=self.chance.choice((-1, 1000)),
            file_delete_delay_ms=self.chance.choice((0, 1000)),
            flush_messages=self.chance.choice((7, 2**63 - 1)),
        )
        self.manager: LogManager
        self.log: Log

    def live(self, crashes: int) -> None:
        """Work, crash, open, check, again and again."""
        for _ in range(crashes):
            self.fs.cut_power_after(self.chance.choice((5, 30, 150)) + self.chance.randrange(30), self.chance)
            with contextlib.suppress(PowerCut):
                self.open()
                while True:
                    self.work()
            self.fs = self.fs.crash(self.chance)
            self.check_unopened()
        self.open()
        self.manager.close()

    def open(self) -> None:
        self.manager = LogManager(self.fs, self.dirs, BrokerConfig(topic_defaults=self.config), self.clock)
        self.manager.load()
        self.log = self.manager.get(NAME) or self.create()
        assert self.log.topic_id in (None, TOPIC_ID)
        self.check()

    def create(self) -> Log:
        log = self.manager.create(NAME, self.config, topic_id=TOPIC_ID)
        assert log.topic_id == TOPIC_ID
        self.manager.tasks.checkpoint_recovery_points()  # what is not listed there may have gaps that compaction made
        return log

    def work(self) -> None:
        self.clock.advance(self.chance.choice((0, 1, 400)))
        operations = (
            (self.append, 60),
            (self.flush, 12),
            (self.flush_due, 6),
            (self.roll, 5),
            (self.checkpoint, 6),
            (self.truncate, 3),
            (self.start_over, 0.3),
            (self.advance, 3),
            (self.retain, 4),
            (self.replace, 4),
            (self.set_cleaned_offset, 1),
            (self.expire, 3),
            (self.elect, 2),
            (self.stop, 1),
            (self.recreate, 0.5),
            (self.move, 15 * (len(self.dirs) - 1)),
        )
        self.chance.choices([each for each, _ in operations], [weight for _, weight in operations])[0]()

    # Before an operation, the model is told what the operation puts in doubt; after it, what is certain.

    def append(self) -> None:
        data = bytearray()
        producer_id = self.chance.choice((-1, 1, 2))
        sequence = self.next_sequence(producer_id)
        for _ in range(self.chance.choice((1, 1, 3))):
            count = self.chance.choice((1, 3))
            data += batch(
                count,
                producer_id=producer_id,
                sequence=sequence,
                timestamp_ms=self.clock.time_ms() - self.chance.choice((0, 0, 500)),
                value=self.chance.randbytes(self.chance.choice((1, 50, 100))),
            )
            sequence += count
        if len(data) > self.config.roll_bytes:
            return
        try:
            appended = self.log.append(data, leader_epoch=self.epoch)
        except PowerCut:
            self.model.batches |= split(data)
            raise
        assert appended.first_offset == self.model.end
        self.model.batches |= split(data)
        self.model.end = appended.last_offset + 1
        self.model.flushed = max(self.model.flushed, self.log.recovery_point)

    def next_sequence(self, producer_id: int) -> int:
        state = self.log.producers.get(producer_id)
        return state.last_sequence + 1 if state else 0

    def flush(self) -> None:
        up_to = self.chance.choice((None, self.chance.randint(0, self.model.end)))
        self.log.flush(up_to)
        promised = self.model.end if up_to is None else up_to
        assert self.log.recovery_point >= promised
        self.model.flushed = max(self.model.flushed, promised)

    def flush_due(self) -> None:
        self.manager.tasks.flush_due(self.clock.monotonic_ms())
        self.model.flushed = max(self.model.flushed, self.log.recovery_point)

    def roll(self) -> None:
        self.log.roll()

    def checkpoint(self) -> None:
        self.manager.tasks.checkpoint_recovery_points()
        self.manager.tasks.checkpoint_log_starts()
        self.model.started = self.log.log_start_offset

    def truncate(self) -> None:
        bases = [base for base in self.model.batches if base >= self.log.log_start_offset]
        offset = self.chance.choice([*bases, self.model.end])
        self.model.cut(offset)
        self.log.truncate_to(offset)
        self.model.cleaned_limit = self.model.cleaned
        assert self.log.log_end_offset == offset
        self.model.batches = {base: data for base, data in self.model.batches.items() if base < offset}
        self.model.end = self.log.log_end_offset

    def start_over(self) -> None:
        offset = self.chance.randint(0, self.model.end + 10)
        self.model.cut(0)
        self.model.started = 0
        self.model.start_limit = max(offset, self.model.start_limit)
        self.log.truncate_fully_and_start_at(offset)
        self.model = Model(end=offset, flushed=offset, started=offset, start_limit=offset)

    def advance(self) -> None:
        offset = self.chance.randint(self.log.log_start_offset, self.model.end)
        self.log.advance_log_start(offset)
        self.model.start_limit = max(self.model.start_limit, offset)

    def retain(self) -> None:
        self.model.start_limit = self.model.end
        removed = self.manager.tasks.apply_retention(self.clock.time_ms())
        self.model.start_limit = self.log.log_start_offset
        if removed:
            self.model.started = self.log.log_start_offset

    def replace(self) -> None:
        """Let some batches of neighbouring segments lose their records."""
        *closed, _ = self.log.replacer.describe()
        if not closed:
            return
        first = self.chance.randrange(len(closed))
        sources = closed[first : first + self.chance.choice((1, 2, 4))]
        old = split(content_of(self.fs, sources, folder=self.log.folder))
        new = {base: emptied(read_header(data)) if self.chance.random() < 0.5 else data for base, data in old.items()}
        content = b"".join(new.values())
        stage(self.fs, self.log, sources[0].base_offset, content)
        self.model.replacing = new
        self.log.replacer.replace(
            sources, size_bytes=len(content), crc32c=crc32c(content), high_watermark=self.log.log_end_offset
        )
        self.model.replacing = {}
        self.model.batches |= new
        self.model.flushed = max(self.model.flushed, sources[-1].next_offset)

    def set_cleaned_offset(self) -> None:
        offset = self.chance.choice([each.base_offset for each in self.log.replacer.describe()])
        self.model.cleaned, self.model.cleaned_limit = min(offset, self.model.cleaned), max(offset, self.model.cleaned)
        self.log.replacer.set_cleaned_offset(offset, ())
        self.model.cleaned = self.model.cleaned_limit = offset

    def expire(self) -> None:
        self.manager.tasks.delete_expired(self.clock.monotonic_ms())

    def move(self) -> None:
        """Begin to move the log, or do a step of the move; sometimes think better of it."""
        if not len(self.manager.moves) or self.chance.random() < 0.03:
            self.manager.moves.begin(NAME, self.chance.choice(self.dirs))
        else:
            self.manager.moves.step(self.chance.choice((50, 700, 10_000)))

    def elect(self) -> None:
        self.epoch += self.chance.choice((1, 2))

    def stop(self) -> None:
        self.manager.close()
        self.model.flushed = self.model.end
        self.model.started = self.log.log_start_offset
        before = self.log
        self.open()
        assert self.log.log_end_offset == before.log_end_offset
        assert self.log.log_start_offset == before.log_start_offset
        assert self.log.epochs == before.epochs

    def recreate(self) -> None:
        self.model.cut(0)
        self.model.started = 0
        self.manager.delete(NAME)
        self.model = Model()
        self.log = self.create()

    # What must be true

    def check(self) -> None:
        """The open log holds what was promised, and nothing that was not appended. From now on, it is what is known."""
        log, model = self.log, self.model
        assert log.log_end_offset >= model.flushed
        assert model.started <= log.log_start_offset
        assert log.log_start_offset <= model.start_limit or log.log_start_offset >= model.flushed
        found = split(read_all(log))
        replaced = {base: data for base, data in model.replacing.items() if base in found}
        is_replaced = any(found[base] != model.batches[base] for base in replaced)
        stored = model.batches | replaced if is_replaced else model.batches
        for base, data in found.items():
            assert data == stored[base], f"other bytes at offset {base}"
        assert min(model.cleaned, log.log_end_offset) <= log.compacted_to <= model.cleaned_limit
        headers = [next(iterate_headers(data))[1] for data in found.values()]
        for first, second in pairwise(headers):
            assert second.base_offset == first.next_offset
        if headers:
            assert headers[0].base_offset <= log.log_start_offset
            assert headers[-1].next_offset == log.log_end_offset
        else:
            assert log.log_start_offset == log.log_end_offset
        for header in headers:
            assert log.epochs.epoch_at(max(header.base_offset, log.log_start_offset)) == header.leader_epoch
        check_indexes(log)
        check_producers(log, headers)
        self.model = Model(
            batches=found,
            end=log.log_end_offset,
            flushed=model.flushed,
            started=log.log_start_offset if log.log_start_offset == model.started else model.started,
            start_limit=log.log_start_offset,
            cleaned=log.compacted_to,
            cleaned_limit=log.compacted_to,
        )

    def check_unopened(self) -> None:
        """Whoever reads the folder as the crash left it finds every flushed record too."""
        folders = [folder for path in self.dirs if self.fs.exists(folder := f"{path}/{NAME}")]
        assert len(folders) <= 1
        if not folders or not any(name.endswith(".log") for name in self.fs.list(folders[0])):
            return
        reader = LogReader(self.fs, folders[0])
        reader.segments()
        start = reader.log_start_offset
        end = self.model.flushed
        if start >= end:
            return
        assert reader.end_offset() >= end
        read = b"".join(chunk for part in reader.cut(start, end, 3) for chunk in reader.read(part, 500))
        flushed = {base: data for base, data in split(read).items() if base < end}
        for base, data in flushed.items():
            assert data in (self.model.batches[base], self.model.replacing.get(base))
        assert max(next(iterate_headers(data))[1].next_offset for data in flushed.values()) >= end
        assert min(flushed) <= start


def check_producers(log: Log, headers: list[BatchHeader]) -> None:
    """What the log remembers of producers stands in its batches, as far as they have not been deleted."""
    start = headers[0].base_offset if headers else log.log_start_offset
    written = {(each.producer_id, each.base_sequence): each.last_offset for each in headers if each.producer_id >= 0}
    last = {each.producer_id: each.last_offset for each in headers if each.producer_id >= 0}
    for producer_id, state in log.producers.items():
        assert state.batches[-1].last_offset == last.pop(producer_id, state.batches[-1].last_offset)
        for each in state.batches:
            known = written.get((producer_id, each.first_sequence))
            assert each.last_offset == known if known is not None else each.last_offset < start
    assert not last, f"forgotten producers: {last}"


def split(data: bytes | bytearray) -> dict[int, bytes]:
    """The batches in `data`, by their base offsets."""
    return {header.base_offset: bytes(data[at : at + header.size]) for at, header in iterate_headers(data)}
