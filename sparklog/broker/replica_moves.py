"""The periodic task that moves replicas between this broker's log directories (log/directory/moves.py).

A thread copies one piece after the other, of each move in turn. A cancelled move or the broker's stop waits for one
piece only. replica.alter.log.dirs.io.max.bytes.per.second limits all moves together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sparklog.base.ids import TopicPartition
from sparklog.log.directory.moves import ReplicaMoves
from sparklog.replica.throttle import ReplicationThrottle

MOVES_INTERVAL_MS = 500
STEP_BYTES = 8 << 20
LEAST_STEP_BYTES = 64 << 10
LONGEST_PAUSE_S = 1.0


class ReplicaMover:
    """Carries out the moves of one broker."""

    def __init__(
        self,
        moves: ReplicaMoves,
        rate: Callable[[], int],
        write_high_watermark: Callable[[TopicPartition, str], None],
    ) -> None:
        """rate: returns the current limit in bytes per second. write_high_watermark: writes a partition's high
        watermark to the checkpoint in a directory; blocks."""
        self._moves = moves
        self._rate = rate
        self._throttle = ReplicationThrottle(rate)
        self._write_high_watermark = write_high_watermark

    async def run(self) -> None:
        """Copy piece after piece until no replica moves."""
        loop = asyncio.get_running_loop()
        while len(self._moves):
            if pause_s := self._throttle.pause(loop.time()):
                await asyncio.sleep(min(pause_s, LONGEST_PAUSE_S))
                continue
            size = max(LEAST_STEP_BYTES, min(STEP_BYTES, self._rate()))
            copied = await asyncio.to_thread(self._moves.step, size, self._write_high_watermark)
            if copied is None:
                return
            self._throttle.sent(copied, loop.time())
