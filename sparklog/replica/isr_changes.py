"""ISR changes on their way to the cluster store: one at a time for a partition.

written            the partition takes it over
store not reached  the write may have been done, or not: tried again, with pauses. What comes after the last try is
                   left until the store is reached again, to the next look for laggards, or to the controller: until
                   then the change is pending
BadVersion         the node is another leader's, or another leader epoch's: this broker is told so by the controller
                   soon. Nothing is tried until then
InvalidUpdateVersion   a broker that was to join is not in the life any more in which it had caught up: undone
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparklog.base.clock import Clock
from sparklog.base.errors import BadVersion, ConnectionLoss, InvalidUpdateVersion, NoNode, SessionExpired
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import AlterIsr, IsrAltered
from sparklog.replica.partition import Effects, Partition

TRIES = 6
FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 2_000
WriteIsr = Callable[[AlterIsr], Awaitable[IsrAltered]]
OnIsrChange = Callable[[Partition, tuple[int, ...]], None]
"""The partition as it is now, and the ISR that was before."""
logger = logging.getLogger(__name__)


def tell_nobody(partition: Partition, before: tuple[int, ...]) -> None:
    """An OnIsrChange."""


class IsrChanges:
    """The changes under way, and how many there have been. Used on the event loop."""

    def __init__(
        self,
        write: WriteIsr,
        clock: Clock,
        on_high_watermark: Callable[[TopicPartition], None],
        on_change: OnIsrChange,
    ) -> None:
        """on_change: told of each change that is written."""
        self._write = write
        self._clock = clock
        self._on_high_watermark = on_high_watermark
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._on_change = on_change
        self.shrinks = 0
        self.expands = 0
        self.failures = 0
        """Writes that were refused, or of which it is not known whether they were done."""

    def carry_out(self, partition: Partition, effects: Effects) -> None:
        """Do what follows from an event at a partition."""
        if effects.alter:
            self.resume(partition)
        if effects.has_committed:
            self._on_high_watermark(partition.name)

    def resume(self, partition: Partition) -> None:
        """Write what is pending, unless that is under way."""
        if partition.pending and partition.name not in self._running:
            task = asyncio.get_running_loop().create_task(self._run(partition))
            self._running[partition.name] = task

    async def stop(self) -> None:
        """Try no more: what is pending stays so."""
        running = tuple(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    async def _run(self, partition: Partition) -> None:
        try:
            for tried in range(TRIES):
                if tried:
                    await asyncio.sleep(min(FIRST_PAUSE_MS << (tried - 1), LONGEST_PAUSE_MS) / 1000)
                change = partition.pending
                if change is None or not await self._try(partition, change):
                    return
        finally:
            del self._running[partition.name]

    async def _try(self, partition: Partition, change: AlterIsr) -> bool:
        """Whether there is more to try."""
        before = tuple(partition.in_sync_replicas)
        try:
            altered = await self._write(change)
        except (ConnectionLoss, SessionExpired) as error:
            self.failures += 1
            logger.warning("%s: it is not known whether the ISR is %s now: %s", change.name, change.isr, error)
            return True
        except (BadVersion, NoNode) as error:
            self.failures += 1
            logger.info("%s: the ISR cannot become %s, the partition has changed: %s", change.name, change.isr, error)
            return partition.pending is not change
        except InvalidUpdateVersion as error:
            self.failures += 1
            logger.info("%s: the ISR does not become %s: %s", change.name, change.isr, error)
            self._tell(partition, partition.isr_refused(change))
            return True
        if partition.pending is not change:
            return partition.pending is not None  # something newer has come meanwhile
        effects = partition.isr_altered(change, altered, self._clock.monotonic_ms())
        self.shrinks += len(altered.isr) < len(before)
        self.expands += len(altered.isr) > len(before)
        logger.info("%s: the ISR is %s now", partition.name, altered.isr)
        self._on_change(partition, before)
        self._tell(partition, effects)
        return False

    def _tell(self, partition: Partition, effects: Effects) -> None:
        if effects.has_committed:
            self._on_high_watermark(partition.name)
