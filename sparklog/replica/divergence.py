"""Where a follower's log departs from its leader's, found by leader epochs (KIP-101, KIP-279, KIP-595).

A leader epoch has one leader, and that one writes each offset once: logs that agree on the epoch of a record agree on
everything up to it. A fetch says where the follower's log ends and of which epoch its last record is.

    the leader     knows where that epoch ends in its own log. Does it end before the follower's log, or not exist at
                   all, then the logs differ, and the answer names the greatest epoch at or below it, and its end
    the follower   cuts its log to where they can agree: to the end of that epoch in either log. Where it has not that
                   epoch it goes back to the greatest below it, and asks again; each round leaves fewer epochs, and ends

Nothing is ever cut because it lies above the high watermark: that a follower has heard of comes later than what is
committed, so records that it cut away could be the only copies of what was acknowledged (KIP-101 has the example).
"""

from __future__ import annotations

from sparklog.base.errors import OffsetOutOfRange
from sparklog.log.epochs import NO_EPOCH, EpochEnd, LeaderEpochs


def find_divergence(
    epochs: LeaderEpochs, *, first_offset: int, end_offset: int, fetch_offset: int, last_epoch: int | None
) -> EpochEnd | None:
    """At the leader: where the log of a follower that ends at `fetch_offset` departs from this one; None: nowhere.

    epochs: the leader's, its own with it. first_offset: where its oldest segment begins. last_epoch: of the follower's
    last record; None where it has none.

    Raises OffsetOutOfRange where the follower must begin anew at `first_offset`: what it needs next is gone here, or
    it is empty and would begin behind the end.
    """
    if fetch_offset < first_offset or (last_epoch is None and fetch_offset > end_offset):
        raise OffsetOutOfRange(f"a follower at offset {fetch_offset}: the log has {first_offset} to {end_offset}")
    if last_epoch is None:
        return None
    end = epochs.end_offset_for(last_epoch, end_offset)
    if end.end_offset < 0:  # of an epoch that nobody here has led: all that is known is where this log ends
        return EpochEnd(epochs.latest, end_offset)
    if end.epoch < last_epoch or end.end_offset < fetch_offset:
        return end
    return None


def where_to_cut(epochs: LeaderEpochs, end_offset: int, leader: EpochEnd) -> int:
    """At the follower: the offset to which its log, with these epochs and this end, is to be cut."""
    if leader.epoch == NO_EPOCH:
        return min(leader.end_offset, end_offset)
    own = epochs.end_offset_for(leader.epoch, end_offset)
    if own.end_offset < 0:
        return min(leader.end_offset, end_offset)
    if own.epoch != leader.epoch:
        return min(own.end_offset, end_offset)
    return min(own.end_offset, leader.end_offset, end_offset)
