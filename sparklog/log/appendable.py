"""The segment of a log that is written: what a leader appends, where a new one begins, what is known of producers.

    append     check and stamp the batches (produced.py), see whether they are the next of their producers or have been
               written before (producer_state.py), roll if need be, one write, index entries; nothing is flushed
    roll       the segment is finished, the next one begins at the log end offset, and the producers' state there is
               written down: a recovery begins with it

All of it takes the log's lock, and none of it waits for a disk. A full disk leaves the log as it was (room.py).
"""

from __future__ import annotations

from collections.abc import Callable

from sparklog.base.clock import Clock
from sparklog.base.fs import Buffer
from sparklog.base.topic_config import TopicConfig
from sparklog.log.active import ActiveSegment
from sparklog.log.disk import DiskGuard, undoing
from sparklog.log.produced import Prepared, prepare
from sparklog.log.producer_state import Duplicate, ProducerState
from sparklog.log.recovery import Loading
from sparklog.log.room import Room
from sparklog.log.segment import Segment
from sparklog.log.slice import Appended
from sparklog.log.snapshotted import SnapshottedLog


class AppendableLog(SnapshottedLog):
    """The part of a `Log` that a leader writes. Where the disk fails, methods raise KafkaStorageError."""

    def __init__(
        self,
        loaded: Loading,
        disk: DiskGuard,
        clock: Clock,
        remember: Callable[[], None],
        room: Room,
        jitter: Callable[[int], int] | None,
    ) -> None:
        super().__init__(loaded, disk, clock, remember, room)
        self._jitter = jitter or (lambda _: 0)
        self._producers = loaded.producers
        if loaded.dropped:
            self._discard(loaded.dropped)
            self._flushed.flush_names()  # what comes next may take the same offsets
        if loaded.segments:
            self._active = self._write_to(self._segments.last)
        else:
            self._active = self._begin_segment(self.log_end_offset)
            self._segments.add(self._active.segment)

    @property
    def producers(self) -> dict[int, ProducerState]:
        """What is remembered of each producer, by its id."""
        with self._lock:
            return self._producers.copy()

    def expire_producers(self, now_ms: int, after_ms: int) -> int:
        """Forget the producers that were silent for `after_ms`, and say how many. now_ms: of the wall clock."""
        with self._lock:
            return self._producers.expire(now_ms, after_ms)

    def configure(self, config: TopicConfig) -> None:
        """From now on, go by `config`."""
        with self._lock:
            self.config = config
            self._active.configure(config)

    def append(self, data: bytearray | memoryview, *, leader_epoch: int) -> Appended:
        """Append produced batches as their leader; their offsets, epoch and timestamps are written into `data`.

        Raises as `prepare` and `ProducerStates.check` do, with nothing written, or KafkaStorageError.
        """
        with self._lock, self._disk:
            first_offset, now_ms = self.log_end_offset, self._clock.time_ms()
            prepared = prepare(
                data, next_offset=first_offset, leader_epoch=leader_epoch, config=self.config, now_ms=now_ms
            )
            if not prepared.numbered:
                return self._write(data, prepared, first_offset, leader_epoch, now_ms)
            checked = self._producers.check(prepared.numbered, now_ms)
            if isinstance(checked, Duplicate):
                append_time_ms = checked.timestamp_ms if prepared.log_append_time_ms >= 0 else -1
                return checked.answer(append_time_ms, leader_epoch)
            appended = self._write(data, prepared, first_offset, leader_epoch, now_ms)
            self._producers.apply(checked)
            return appended

    def roll(self) -> None:
        """Begin a new segment at the log end offset, unless the one that is written is empty."""
        with self._lock, self._disk:
            self._roll(self.log_end_offset)

    def _write(
        self,
        data: Buffer,
        prepared: Prepared,
        first_offset: int,
        leader_epoch: int,
        now_ms: int,
        *,
        rolls: bool = True,
    ) -> Appended:
        batches, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, _ = prepared
        last_offset = batches[-1].last_offset
        size = len(data)
        self._room.take(size)
        if rolls and self._active.should_roll(size, last_offset, max_timestamp_ms, now_ms):
            self._roll(first_offset)
        with self._room.needed("records"):
            self._active.append(data, batches)
        self._assign_epoch(leader_epoch, first_offset)
        self.log_end_offset = last_offset + 1
        return Appended(
            first_offset, last_offset, max_timestamp_ms, offset_of_max_timestamp, append_time_ms, leader_epoch, size
        )

    def _assign_epoch(self, epoch: int, start_offset: int) -> None:
        if epoch > self._epochs.latest:
            self._epochs = self._epochs.assign(epoch, start_offset)

    def _roll(self, base_offset: int) -> None:
        if base_offset == self._active.segment.base_offset:
            return
        with self._room.needed("another segment"):
            self._active.finish()
            active = self._begin_segment(base_offset)
            self._active.let_go()
            self._active = active
            self._segments.add(active.segment)
            self._snapshots.take(base_offset, self._producers.entries())

    def _begin_segment(self, base_offset: int) -> ActiveSegment:
        segment = Segment(self._fs, self.folder, base_offset, 0, self._cache)
        segment.remove()
        self._flushed.have_names_changed = True
        try:
            return self._write_to(segment)
        except OSError:
            with undoing(f"half of {segment}"):
                segment.remove()  # the log may go on without: an empty one in its middle would then be left
            raise

    def _write_to(self, segment: Segment) -> ActiveSegment:
        limit_ms = min(self.config.segment_jitter_ms, self.config.segment_ms)
        jitter_ms = self._jitter(limit_ms) if limit_ms else 0
        return ActiveSegment(self._fs, segment, self.config, self._clock.time_ms(), jitter_ms=jitter_ms)
