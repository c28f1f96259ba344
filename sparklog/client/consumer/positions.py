"""The positions of a consumer in the partitions that it reads, and how to change them.

None of this waits, and all of it is for any thread; it takes effect with the next `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.client.consumer.subscription_state import Assignment, PartitionState
from sparklog.client.offsets import EARLIEST, LATEST


class Positions:
    """What a consumer can do with the partitions that are assigned to it."""

    def __init__(self, assignment: Assignment, wake: Callable[[], None]) -> None:
        """wake: the fetcher, which looks again; called in any thread."""
        self._assignment = assignment
        self._wake = wake

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at `offset`; raises InvalidRequest for a partition that is not assigned, ValueError below 0."""
        if offset < 0:
            raise ValueError(f"offset {offset}: the first is 0")
        with self._assignment.lock:
            state = self._assignment.state(partition)
            self._assignment.drop_unread([state])
            state.begin_at(offset)
        self._wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the log start of these partitions, or of all that are assigned."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on after the last record of these partitions, or of all that are assigned."""
        self._look_up(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Go on at the first record of that time or later, or at the end where there is none."""
        self._look_up(partitions, timestamp_ms)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return nothing of these partitions (or of any) until `resume`; what has been fetched is kept."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause`."""
        self._set_paused(partitions, paused=False)

    def paused(self) -> list[TopicPartition]:
        """The partitions that are paused."""
        with self._assignment.lock:
            return sorted(state.partition for state in self._assignment if state.paused)

    @property
    def queued_bytes(self) -> int:
        """Bytes that have been fetched ahead of `poll`, as they came over the wire."""
        with self._assignment.lock:
            return self._assignment.queued_bytes

    def known_position(self, partition: TopicPartition) -> int | None:
        """As `position`, but None instead of waiting."""
        with self._assignment.lock:
            state = self._assignment.state(partition)
            if state.position is None:
                self.raise_error(state)
            return state.position

    def give_back(self, rows: Iterable[tuple[TopicPartition, Any]]) -> None:
        """Stand before rows that were taken and not returned; the next poll begins with them."""
        first = {partition: some.column("offset")[0].as_py() for partition, some in rows}
        with self._assignment.lock:
            for partition, offset in first.items():
                self._assignment.state(partition).go_back_to(offset)
            self._assignment.to_the_front(first)
        self._wake()

    def raise_error(self, state: PartitionState) -> None:
        """Raise what keeps the partition from being read, once; it is then tried again."""
        if state.error is not None:
            error, state.error = state.error, None
            self._wake()
            raise error

    def _look_up(self, partitions: Iterable[TopicPartition], where: Any) -> None:
        with self._assignment.lock:
            states = self._assignment.chosen(partitions)
            self._assignment.drop_unread(states)
            for state in states:
                state.look_up(where)
        self._wake()

    def _set_paused(self, partitions: Iterable[TopicPartition], *, paused: bool) -> None:
        with self._assignment.lock:
            for state in self._assignment.chosen(partitions):
                state.paused = paused
        self._wake()
