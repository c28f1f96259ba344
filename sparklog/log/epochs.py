"""The leader epochs of a log and the offset at which each begins (KIP-101).

    epoch 0 from offset 0, epoch 3 from offset 120: records 0 to 119 came from the leader with epoch 0

An epoch without records is not listed. The list is a frozen value; changes make a new one. It is stored in the folder's
`leader-epoch-checkpoint`, which is written before the recovery point passes the records that it describes. Above the
recovery point, the epochs are read from the batches again.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from msgspec import Struct

NO_EPOCH = -1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class EpochEnd(NamedTuple):
    """The end of an epoch in this log, by which a follower truncates."""

    epoch: int
    """The greatest known epoch at or below the requested one; -1 if there is none."""
    end_offset: int
    """The first offset after that epoch's records; -1 with epoch -1."""


UNDEFINED = EpochEnd(NO_EPOCH, -1)


class LeaderEpochs(Struct, frozen=True):
    """Leader epochs with their first offsets, both increasing."""

    entries: tuple[EpochStart, ...] = ()

    @property
    def latest(self) -> int:
        """The newest epoch; -1 if there is none."""
        return self.entries[-1].epoch if self.entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int) -> LeaderEpochs:
        """Return the epochs with `epoch` added at `start_offset`; unchanged if it is NO_EPOCH or the latest.

        Entries that contradict it (a later start or a newer epoch) are dropped.
        """
        if epoch in (NO_EPOCH, self.latest):
            return self
        kept = tuple(entry for entry in self.entries if entry.epoch < epoch and entry.start_offset < start_offset)
        return LeaderEpochs((*kept, EpochStart(epoch, start_offset)))

    def truncate_from_end(self, end_offset: int) -> LeaderEpochs:
        """Return the epochs without those that begin at or above `end_offset`, the log's new end."""
        if not self.entries or self.entries[-1].start_offset < end_offset:
            return self
        return LeaderEpochs(tuple(entry for entry in self.entries if entry.start_offset < end_offset))

    def truncate_from_start(self, start_offset: int) -> LeaderEpochs:
        """Return the epochs without those that end at or below `start_offset`.

        The epoch that contains it now begins there.
        """
        at = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if at == 0 or (at == 1 and self.entries[0].start_offset == start_offset):
            return self
        return LeaderEpochs((EpochStart(self.entries[at - 1].epoch, start_offset), *self.entries[at:]))

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at `offset`; -1 if it lies before all epochs."""
        at = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[at - 1].epoch if at else NO_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEnd:
        """Return where `epoch` ends, as OffsetsForLeaderEpoch answers (LeaderEpochFileCache.endOffsetFor)."""
        if epoch == NO_EPOCH or epoch > self.latest:
            return UNDEFINED
        if epoch == self.latest:
            return EpochEnd(epoch, log_end_offset)
        at = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if at == 0:
            return EpochEnd(epoch, self.entries[0].start_offset)
        return EpochEnd(self.entries[at - 1].epoch, self.entries[at].start_offset)
