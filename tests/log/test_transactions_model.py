"""Producers with interleaved transactions, compared with a list of the written batches.

The log must know the open and aborted transactions after rolls, truncations, retention and starts after any kind of
stop, and with damaged or missing indexes. A reader of committed records sees exactly those, and a follower has the same
files.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sparklog.base.fs import Fs
from sparklog.log.log import Log
from sparklog.log.segment.transaction_index import AbortedTransaction
from sparklog.testing.memory_fs import MemoryFs, PowerCut
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import START_MS, batch, file_content, open_log, rewrite, topic_config
from support.logs.transactions import end, read_committed, write
from support.runs.seeds import examples

PRODUCERS = (1, 2, 3)
LEADER, FOLLOWER = "/logs/orders-0", "/follower/orders-0"
TXN = ".txnindex"


class Transaction(NamedTuple):
    """One in the model; `marker` and `is_commit` None while it is open."""

    producer_id: int
    offsets: tuple[int, ...]
    marker: int | None = None
    is_commit: bool | None = None

    def is_open_below(self, high_watermark: int) -> bool:
        return self.marker is None or self.marker >= high_watermark


class TransactionsOfALog(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.fs, self.follower_fs = MemoryFs(), MemoryFs()
        self.fs.make_dir("/logs")
        self.fs.flush_dir("/")
        self.clock = SimClock(START_MS)
        self.config = topic_config(internal_segment_bytes=600, retention_bytes=4000, file_delete_delay_ms=0)
        self.log = open_log(self.fs, LEADER, config=self.config, clock=self.clock)
        self.follower = open_log(self.follower_fs, FOLLOWER, config=self.config, clock=self.clock)
        self.plain: list[int] = []
        self.transactions: list[Transaction] = []
        self.forgotten_below = 0
        """The log need not know that markers below it are uncommitted: it was opened or truncated since."""
        self.deleted_below = 0
        """The log start at the last unclean stop: records below it need not count as the begin of a transaction."""
        self.ends: list[int] = []
        """Of the batches."""
        self.high_watermark = 0
        """It falls only with the log end, as in a broker: a log forgets committed markers."""

    def latest_first(self, transaction: Transaction) -> int | None:
        """The highest offset at which the log may think that the transaction began; None: it need not know of it."""
        return next((offset for offset in transaction.offsets if offset >= self.deleted_below), None)

    def open_of(self, producer_id: int) -> Transaction | None:
        found = [each for each in self.transactions if each.producer_id == producer_id and each.marker is None]
        return found[0] if found else None

    def next_of(self, producer_id: int) -> tuple[int, int]:
        """Epoch and sequence of the next batch."""
        state = self.log.producers.get(producer_id)
        return (state.epoch, state.last_sequence + 1) if state else (0, 0)

    # The model changes before the log, so that it knows what a power cut may leave.

    @rule(producer_id=st.sampled_from(PRODUCERS), count=st.integers(1, 3), is_replicated=st.booleans())
    def write(self, producer_id: int, count: int, is_replicated: bool = False) -> None:
        epoch, sequence = self.next_of(producer_id)
        first = self.log.log_end_offset
        offsets = tuple(range(first, first + count))
        if begun := self.open_of(producer_id):
            self.transactions[self.transactions.index(begun)] = begun._replace(offsets=begun.offsets + offsets)
        else:
            self.transactions.append(Transaction(producer_id, offsets))
        self.ends.append(first + count)
        assert write(self.log, producer_id, epoch, sequence=sequence, count=count).first_offset == first
        if is_replicated:
            self.replicate()

    @rule(producer_id=st.sampled_from(PRODUCERS), is_commit=st.booleans(), is_strict=st.booleans())
    def end(self, producer_id: int, is_commit: bool, is_strict: bool) -> None:
        epoch, marker = self.next_of(producer_id)[0] + is_strict, self.log.log_end_offset
        if begun := self.open_of(producer_id):
            self.transactions[self.transactions.index(begun)] = begun._replace(marker=marker, is_commit=is_commit)
        self.ends.append(marker + 1)
        appended = end(self.log, producer_id, epoch, is_commit, is_strict=is_strict)
        if appended.is_duplicate:
            self.ends.pop()
        assert not begun or (appended.first_offset, appended.is_duplicate) == (marker, False)

    @rule()
    def write_outside(self) -> None:
        self.plain.append(self.log.log_end_offset)
        self.ends.append(self.log.log_end_offset + 1)
        self.log.append(batch(1), leader_epoch=0)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flush()

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        first = self.log.segments[0].base_offset
        self.log.truncate_to(data.draw(st.integers(first, self.log.log_end_offset)))
        self.cut()

    @rule(data=st.data())
    def delete_records(self, data: st.DataObject) -> None:
        first = self.log.log_start_offset
        self.log.advance_log_start(data.draw(st.integers(first, max(first, self.high_watermark))))
        self.log.delete_old_segments(self.clock.time_ms())
        self.log.delete_expired(self.clock.monotonic_ms())

    @rule()
    def close_and_open(self) -> None:
        self.log.close()
        self.open(clean=True)

    @rule()
    def be_killed_and_open(self) -> None:
        self.open(clean=False)

    @rule(seed=st.integers(0, 1000))
    def lose_power_and_open(self, seed: int) -> None:
        self.fs = self.fs.crash(random.Random(seed))
        self.open(clean=False)

    @rule(
        producer_id=st.sampled_from(PRODUCERS),
        work=st.sampled_from(["write", "end", "roll", "flush", "truncate", "delete", "close"]),
        changes=st.integers(0, 9),
        chance=st.integers(0, 1000).map(random.Random),
    )
    def cut_power_during(self, producer_id: int, work: str, changes: int, chance: random.Random) -> None:
        offset = chance.randint(self.log.segments[0].base_offset, self.log.log_end_offset)
        self.fs.cut_power_after(changes, chance)
        try:
            if work == "write":
                self.write(producer_id, 2)
            elif work == "end":
                self.end(producer_id, False, False)
            elif work == "truncate":
                self.log.truncate_to(offset)
            elif work == "delete":
                self.log.advance_log_start(min(offset, self.high_watermark))
                self.log.delete_old_segments(self.clock.time_ms())
            else:
                getattr(self.log, work)()
        except PowerCut:
            pass
        self.fs = self.fs.crash(chance)
        self.open(clean=False)

    @precondition(lambda self: self.indexes())
    @rule(data=st.data(), garbage=st.sampled_from([b"?", b"\0" * 34, b"\0\1" * 17, b"\xff" * 68]))
    def damage_an_index_and_open(self, data: st.DataObject, garbage: bytes) -> None:
        self.log.close()
        rewrite(self.fs, data.draw(st.sampled_from(self.indexes())), garbage)
        self.open(clean=True)

    @rule()
    def lose_unflushed_indexes_and_open(self) -> None:
        bases = [each.base_offset for each in self.log.segments]
        unflushed = bases[-1] if self.log.recovery_point > bases[-1] else self.log.recovery_point
        for path in self.indexes():
            if int(path.rsplit("/", 1)[1][:20]) >= unflushed:
                self.fs.remove(path)
        self.open(clean=False)

    def indexes(self) -> list[str]:
        return [f"{LEADER}/{name}" for name in self.fs.list(LEADER) if name.endswith(TXN)]

    def open(self, *, clean: bool) -> None:
        self.log = open_log(
            self.fs, LEADER, config=self.config, clock=self.clock, clean=clean,
            recovery_point=self.log.recovery_point, log_start_offset=self.log.log_start_offset, compacted_to=0,
        )  # fmt: skip
        self.cut()
        if not clean:
            self.deleted_below = max(self.deleted_below, self.log.log_start_offset)

    def cut(self) -> None:
        """Remove from the model the batches that are no longer in the log."""
        log_end = self.log.log_end_offset
        self.forgotten_below = log_end
        self.deleted_below = min(self.deleted_below, log_end)
        self.ends = [end for end in self.ends if end <= log_end]
        self.high_watermark = min(self.high_watermark, log_end)
        self.plain = [offset for offset in self.plain if offset < log_end]
        kept = []
        for each in self.transactions:
            offsets = tuple(offset for offset in each.offsets if offset < log_end)
            is_ended = each.marker is not None and each.marker < log_end
            if offsets:
                kept.append(each._replace(offsets=offsets) if is_ended else Transaction(each.producer_id, offsets))
        self.transactions = kept
        self.follower.truncate_to(log_end)

    @rule()
    def follow(self) -> None:
        """The follower copies, and has the same files."""
        if self.follower.log_end_offset < self.log.segments[0].base_offset:
            self.follower.truncate_fully_and_start_at(self.log.segments[0].base_offset)
        while (offset := self.follower.log_end_offset) < self.log.log_end_offset:
            piece = self.log.read(offset, 300, for_replica=True)
            self.follower.as_follower.follow_segment(piece.segment_base_offset)
            self.follower.as_follower.append(piece.read(), rolls=False)
        if self.follower.segments[0].base_offset:
            return  # it does not know of transactions that began below
        own = {each.base_offset for each in self.follower.segments}
        for each in self.log.segments:
            if each.size_bytes and each.base_offset in own:
                name = f"{each.base_offset:020d}"
                # A log that starts late need not know the begin of a transaction; the other may still know it.
                for suffix in (".log",) if self.deleted_below else (".log", TXN):
                    assert content(self.follower_fs, f"{FOLLOWER}/{name}{suffix}") == content(
                        self.fs, f"{LEADER}/{name}{suffix}"
                    )
        self.check_last_stable_offset(self.follower)

    @rule(batches=st.integers(1, 4))
    def replicate(self, batches: int | None = None) -> None:
        for end_offset in [each for each in self.ends if each > self.high_watermark][:batches]:
            self.high_watermark = end_offset
            self.the_last_stable_offset_is_right()

    @invariant()
    def the_last_stable_offset_is_right(self) -> None:
        self.check_last_stable_offset(self.log)

    def check_last_stable_offset(self, log: Log) -> None:
        below = [each for each in self.transactions if each.is_open_below(self.high_watermark)]
        known = [each for each in below if each.marker is None or each.marker >= self.forgotten_below]
        firsts = [first for each in known if (first := self.latest_first(each)) is not None]
        found = max(log.last_stable_offset(self.high_watermark), self.log.log_start_offset)
        assert self.stable([each.offsets[0] for each in below]) <= found <= self.stable(firsts)

    def stable(self, firsts: list[int]) -> int:
        return max(min([self.high_watermark, *firsts]), self.log.log_start_offset)

    @invariant()
    def the_aborted_transactions_are_known(self) -> None:
        log = self.log
        aborted = {each.marker: each for each in self.transactions if each.marker is not None and not each.is_commit}
        for offset in range(log.log_start_offset, log.log_end_offset, 3):
            for upper in (offset + 1, log.log_end_offset):
                found: list[AbortedTransaction] = log.aborted_transactions(offset, upper)
                markers = [each.last_offset for each in found]
                assert markers == sorted(set(markers))
                for producer_id, first_offset, marker, _ in found:
                    true, latest = aborted[marker], self.latest_first(aborted[marker])
                    assert producer_id == true.producer_id
                    assert true.offsets[0] <= first_offset <= (true.offsets[-1] if latest is None else latest)
                    assert first_offset < upper
                    assert offset <= marker
                latest_firsts = {
                    marker: self.latest_first(each) for marker, each in aborted.items() if marker >= offset
                }
                needed = {marker for marker, latest in latest_firsts.items() if latest is not None and latest < upper}
                assert needed <= set(markers)

    @invariant()
    def a_reader_sees_what_was_committed(self) -> None:
        log, limit = self.log, self.log.last_stable_offset(self.high_watermark)
        committed = [offset for each in self.transactions if each.is_commit for offset in each.offsets]
        expected = sorted(offset for offset in (*self.plain, *committed) if log.log_start_offset <= offset < limit)
        for max_bytes in (1, 500, 1 << 20):
            assert read_committed(log, log.log_start_offset, self.high_watermark, max_bytes) == expected


def content(fs: Fs, path: str) -> bytes:
    """The content of a file; empty if there is none."""
    return file_content(fs, path) if fs.exists(path) else b""


TestTransactionsOfALog = pytest.mark.slow(pytest.mark.soak(TransactionsOfALog.TestCase))
TestTransactionsOfALog.settings = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
