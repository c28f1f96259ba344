"""The log of slow requests (`request.log.slow.ms`), on both listeners.

Only the request's local time counts. Its time in the queue, its waits for others (long polls, replicas, members of its
group) and the time to send its response are in the line too, to tell a slow broker from a slow client. The number of
lines is limited; a line says how many slow requests before it were not logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

LINES_PER_S = 10
CLIENT_ID_LENGTH = 100
NEVER_S = float("inf")
logger = logging.getLogger(__name__)


class SlowRequests:
    """Logs slow requests of one broker."""

    def __init__(self, slow_ms: int, now_s: Callable[[], float] = monotonic) -> None:
        """slow_ms: as in `set_slow_ms`"""
        self.slow_s = NEVER_S
        self.set_slow_ms(slow_ms)
        self._now_s = now_s
        self._second = NEVER_S
        """The second of the last line."""
        self._lines = 0
        """Lines in that second."""
        self._without_line = 0

    def set_slow_ms(self, slow_ms: int) -> None:
        """Log requests whose local time exceeds this many milliseconds; negative: none."""
        self.slow_s = slow_ms / 1000 if slow_ms >= 0 else NEVER_S

    def log(
        self, api: str, form: str, *, client_id: str | None, principal: str, address: str, stages_s: dict[str, float]
    ) -> None:
        """Log a request. form: its protocol and version. stages_s: seconds by the stage's name."""
        second = self._now_s() // 1
        if second != self._second:
            self._second, self._lines = second, 0
        if self._lines == LINES_PER_S:
            self._without_line += 1
            return
        self._lines += 1
        without, self._without_line = self._without_line, 0
        logger.info(
            "slow request: %s %s of client %r, %s at %s: %s%s",
            api,
            form,
            (client_id or "")[:CLIENT_ID_LENGTH],
            principal,
            address,
            ", ".join(f"{stage} {seconds * 1000:.1f} ms" for stage, seconds in stages_s.items()),
            f"; {without} more slow requests before it were not logged" if without else "",
        )
