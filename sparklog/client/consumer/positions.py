"""Changes of a consumer's positions: seek, pause, resume.

The methods do not wait, and any thread may call them. Changes take effect with the next `poll`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from sparklog.base.ids import TopicPartition
from sparklog.client.consumer.subscription_state import COMMITTED, SubscriptionState, TopicPartitionState
from sparklog.client.offsets import EARLIEST, LATEST


class Positions:
    """Operations on the partitions that are assigned to a consumer."""

    def __init__(self, assignment: SubscriptionState, wake: Callable[[], None]) -> None:
        """`wake` wakes the fetcher from any thread."""
        self._assignment = assignment
        self._wake = wake

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Continue at `offset`; raises InvalidRequest for a partition that is not assigned, ValueError below 0."""
        if offset < 0:
            raise ValueError(f"offset {offset}: the first is 0")
        with self._assignment.lock:
            state = self._assignment.state(partition)
            self._assignment.drop_unread([state])
            state.begin_at(offset)
        self._wake()

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Continue at the log start offset of these partitions, or of all assigned ones."""
        self._look_up(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Continue after the last record of these partitions, or of all assigned ones."""
        self._look_up(partitions, LATEST)

    def seek_to_timestamp(self, timestamp_ms: int, *partitions: TopicPartition) -> None:
        """Continue at the first record with that timestamp or a later one, or at the end if there is none."""
        self._look_up(partitions, timestamp_ms)

    def seek_to_committed(self, *partitions: TopicPartition) -> None:
        """Continue at the group's committed offset of these partitions, or of all assigned ones."""
        self._look_up(partitions, COMMITTED)

    def pause(self, *partitions: TopicPartition) -> None:
        """Return no records of these partitions (or of all assigned ones) until `resume`; keep fetched records."""
        self._set_paused(partitions, paused=True)

    def resume(self, *partitions: TopicPartition) -> None:
        """Undo `pause` for these partitions, or for all assigned ones."""
        self._set_paused(partitions, paused=False)

    def paused(self) -> list[TopicPartition]:
        """Return the paused partitions, sorted."""
        with self._assignment.lock:
            return sorted(state.partition for state in self._assignment if state.paused)

    @property
    def queued_bytes(self) -> int:
        """Bytes fetched ahead of `poll`, before decompression."""
        with self._assignment.lock:
            return self._assignment.queued_bytes

    def known_position(self, partition: TopicPartition) -> int | None:
        """Return the position, None if it is not known yet."""
        with self._assignment.lock:
            state = self._assignment.state(partition)
            if state.position is None:
                self.raise_error(state)
            return state.position

    def give_back(self, rows: Iterable[tuple[TopicPartition, Any]]) -> None:
        """Set positions back before rows that were taken and not returned; the next poll begins with these rows."""
        first = {partition: some.column("offset")[0].as_py() for partition, some in rows}
        with self._assignment.lock:
            for partition, offset in first.items():
                self._assignment.state(partition).go_back_to(offset)
            self._assignment.to_the_front(first)
        self._wake()

    def raise_error(self, state: TopicPartitionState) -> None:
        """Raise the error of a blocked partition, and unblock the partition."""
        if error := state.take_error():
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
                state.set_paused(paused=paused)
        self._wake()
