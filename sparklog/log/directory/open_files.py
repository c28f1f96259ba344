"""Limits on the open files of logs: each log keeps one file open, and the cache those of recently read closed segments.

The remaining open files of the process are reserved, mainly for clients' connections. The broker itself needs some for
its listeners, the cluster store, checkpoints and other brokers.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

from sparklog.log.segment.cache import MAX_SEGMENTS

KEPT_BACK = 1 / 4
FOR_CLOSED_SEGMENTS = 1 / 8
FOR_THE_BROKER = 40
LEAST = 64
"""With fewer open files a broker cannot serve anybody."""


class OpenFileLimits(NamedTuple):
    """The limits of logs and closed segments with open files, and of connections of Kafka's protocol."""

    logs: int
    closed_segments: int = MAX_SEGMENTS
    connections: int = 1 << 31

    @classmethod
    def of(cls, limit: int) -> OpenFileLimits:
        """Return the limits in a process that may have `limit` files open."""
        closed_segments = min(MAX_SEGMENTS, int(limit * FOR_CLOSED_SEGMENTS))
        kept_back = int(limit * KEPT_BACK)
        return cls(
            logs=limit - kept_back - closed_segments,
            closed_segments=closed_segments,
            connections=max(kept_back - FOR_THE_BROKER, kept_back // 4),
        )

    @classmethod
    def of_process(cls) -> OpenFileLimits:
        """Return the limits in this process (RLIMIT_NOFILE, `ulimit -n`); NO_LIMIT if it has none."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return NO_LIMIT if limit == resource.RLIM_INFINITY else cls.of(limit)

    @property
    def why(self) -> str:
        """The error text when the limit does not allow another log."""
        return (
            f"a broker that may have so few files open has room for {self.logs} partitions: "
            "raise the limit (ulimit -n), or add a broker"
        )


NO_LIMIT = OpenFileLimits(logs=1 << 31)
