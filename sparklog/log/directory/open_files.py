"""How many files of logs a process may have open: a log keeps one, and closed segments those that were read last.

The rest of what the process may open is kept back, for connections above all: a broker that nobody can reach is of no
use to the partitions that it has.
"""

from __future__ import annotations

import resource
from typing import NamedTuple

from sparklog.log.segment.cache import MAX_SEGMENTS

KEPT_BACK = 1 / 4
FOR_CLOSED_SEGMENTS = 1 / 8


class OpenFiles(NamedTuple):
    """The shares of logs and of closed segments."""

    logs: int
    closed_segments: int = MAX_SEGMENTS

    @classmethod
    def of(cls, limit: int) -> OpenFiles:
        """Of a process that may have `limit` files open."""
        closed_segments = min(MAX_SEGMENTS, int(limit * FOR_CLOSED_SEGMENTS))
        return cls(logs=limit - int(limit * KEPT_BACK) - closed_segments, closed_segments=closed_segments)

    @classmethod
    def of_process(cls) -> OpenFiles:
        """Of this process, by its limit (RLIMIT_NOFILE, `ulimit -n`)."""
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return NO_LIMIT if limit == resource.RLIM_INFINITY else cls.of(limit)

    @property
    def why(self) -> str:
        """What to say where there is no room for another log."""
        return (
            f"a broker that may have so few files open has room for {self.logs} partitions: "
            "raise the limit (ulimit -n), or add a broker"
        )


NO_LIMIT = OpenFiles(logs=1 << 31)
