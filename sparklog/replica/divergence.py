"""Finds where a follower's log diverges from its leader's, by leader epochs (KIP-101, KIP-279, KIP-595).

A leader epoch has one leader, which writes each offset once: logs that agree on the epoch of a record agree on all
records up to it. A fetch names the follower's log end and the leader epoch of its last record.

    the leader     looks up the end of that epoch in its own log. If the epoch ends before the follower's log, or does
                   not exist, the logs diverge; the response names the greatest epoch at or below it, and its end
    the follower   truncates its log to the smaller end of that epoch in the two logs. Without that epoch, it truncates
                   to the end of the greatest epoch below, and fetches again. Each round leaves fewer epochs

Truncation does not go by the high watermark. A follower learns it late, so records above it may be the only copies of
acknowledged ones (KIP-101 has the example).
"""

from __future__ import annotations

from sparklog.base.errors import OffsetOutOfRange
from sparklog.log.epochs import NO_EPOCH, EpochEnd, LeaderEpochs


def find_divergence(
    epochs: LeaderEpochs, *, first_offset: int, end_offset: int, fetch_offset: int, last_epoch: int | None
) -> EpochEnd | None:
    """Return where a follower's log, ending at `fetch_offset`, diverges from the leader's; None: nowhere. Leader side.

    epochs: the leader's, including its current one. first_offset: base offset of its oldest segment. end_offset: its
    log end. last_epoch: leader epoch of the follower's last record; None if its log is empty.

    Raises OffsetOutOfRange if the follower must start again at `first_offset`: its next record is gone at the leader,
    or its log is empty and ends beyond the leader's.
    """
    if fetch_offset < first_offset or (last_epoch is None and fetch_offset > end_offset):
        raise OffsetOutOfRange(f"a follower at offset {fetch_offset}: the log has {first_offset} to {end_offset}")
    if last_epoch is None:
        return None
    end = epochs.end_offset_for(last_epoch, end_offset)
    if end.end_offset < 0:  # the leader does not know such an epoch, and can only name its own end
        return EpochEnd(epochs.latest, end_offset)
    if end.epoch < last_epoch or end.end_offset < fetch_offset:
        return end
    return None


def where_to_cut(epochs: LeaderEpochs, end_offset: int, leader: EpochEnd) -> int:
    """Return the offset to truncate the follower's log to; `epochs` and `end_offset` are its own. Follower side."""
    if leader.epoch == NO_EPOCH:
        return min(leader.end_offset, end_offset)
    own = epochs.end_offset_for(leader.epoch, end_offset)
    if own.end_offset < 0:
        return min(leader.end_offset, end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, end_offset)
    return min(own.end_offset, leader.end_offset, end_offset)
