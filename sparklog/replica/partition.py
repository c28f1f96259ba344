"""One partition as its leader sees it: who is in sync, how far the log goes, how much of it is committed.

Pure: events come in as method calls with what happened, and the answer says what follows from it. No file, no clock, no
waiting.

    log end offset (LEO)      the offset that the next record will get
    high watermark (HW)       records below it are committed: the whole in-sync set has them, and only they are read.
                              HW = the lowest LEO in the in-sync set; it never moves back while the leader stays.

While the leader is the only replica, the in-sync set is the leader alone and HW = LEO.
"""

from __future__ import annotations

from sparklog.base.errors import FencedLeaderEpoch, NotEnoughReplicas, UnknownLeaderEpoch
from sparklog.base.ids import TopicPartition

ALL_IN_SYNC = -1  # acks: answered when the whole in-sync set has the records


class Partition:
    """The leader's knowledge of one partition."""

    __slots__ = ("high_watermark", "in_sync_replicas", "leader_epoch", "log_end_offset", "name")

    def __init__(
        self, name: TopicPartition, *, leader_epoch: int, in_sync_replicas: tuple[int, ...], log_end_offset: int
    ) -> None:
        self.name = name
        self.leader_epoch = leader_epoch
        self.in_sync_replicas = in_sync_replicas
        self.log_end_offset = log_end_offset
        self.high_watermark = log_end_offset

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended: the high watermark, as there are no transactions."""
        return self.high_watermark

    def check_leader_epoch(self, known: int | None) -> None:
        """Refuse a client that takes another epoch for the leader's; None: it makes no claim (KIP-320).

        Raises FencedLeaderEpoch where the client is behind, UnknownLeaderEpoch where this broker is.
        """
        if known is None or known == self.leader_epoch:
            return
        text = f"{self.name}: the request is for leader epoch {known}, the leader's is {self.leader_epoch}"
        raise FencedLeaderEpoch(text) if known < self.leader_epoch else UnknownLeaderEpoch(text)

    def check_in_sync(self, acks: int, min_insync_replicas: int) -> None:
        """Raises NotEnoughReplicas where acks=all cannot mean what the topic wants it to mean."""
        if acks == ALL_IN_SYNC and len(self.in_sync_replicas) < min_insync_replicas:
            raise NotEnoughReplicas(
                f"{self.name}: {len(self.in_sync_replicas)} replicas are in sync, "
                f"min.insync.replicas is {min_insync_replicas}"
            )

    def log_appended(self, log_end_offset: int) -> bool:
        """The leader's own log has grown. True: the high watermark has moved, so look at who waits for it."""
        self.log_end_offset = log_end_offset
        if log_end_offset <= self.high_watermark:
            return False
        self.high_watermark = log_end_offset
        return True

    def is_committed(self, last_offset: int) -> bool:
        return last_offset < self.high_watermark
