"""Writes ISR changes to the cluster store, one at a time per partition. Outcomes:

written            the partition takes over the new ISR
store not reached  the write may or may not have happened: it is retried, with pauses. After the last try the change
                   stays pending until the store is reached again, the next check for lagging replicas, or a new
                   state from the controller
BadVersion         the node has another leader or leader epoch: the controller will send the new state soon. No retry
                   until then
InvalidUpdateVersion   a joining broker has restarted since it caught up: the change is undone
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from sparklog.base.clock import Clock
from sparklog.base.errors import BadVersion, ConnectionLoss, InvalidUpdateVersion, NoNode, SessionExpired
from sparklog.base.ids import TopicPartition
from sparklog.replica.messages import AlterIsr, AlterIsrResult
from sparklog.replica.partition import Effects, Partition

TRIES = 6
FIRST_PAUSE_MS = 100
LONGEST_PAUSE_MS = 2_000
WriteIsr = Callable[[AlterIsr], Awaitable[AlterIsrResult]]
OnIsrChange = Callable[[Partition, tuple[int, ...]], None]
"""Arguments: the partition in its new state, and its previous ISR."""
logger = logging.getLogger(__name__)


def ignore_isr_change(partition: Partition, before: tuple[int, ...]) -> None:
    """Do nothing: the default OnIsrChange."""


class IsrChanges:
    """The changes being written, and counts of past ones. Used on the event loop."""

    def __init__(
        self,
        write: WriteIsr,
        clock: Clock,
        on_high_watermark: Callable[[TopicPartition], None],
        on_change: OnIsrChange,
    ) -> None:
        """on_change: called for each change that was written."""
        self._write = write
        self._clock = clock
        self._on_high_watermark = on_high_watermark
        self._running: dict[TopicPartition, asyncio.Task[None]] = {}
        self._on_change = on_change
        self._is_stopped = False
        self.shrinks = 0
        self.expands = 0
        self.failures = 0
        """Number of writes that were refused or whose outcome is unknown."""

    def carry_out(self, partition: Partition, effects: Effects) -> None:
        """Carry out the effects of an event at a partition."""
        if effects.alter:
            self.resume(partition)
        if effects.has_committed:
            self._on_high_watermark(partition.name)

    def resume(self, partition: Partition) -> None:
        """Write the partition's pending change, unless it is being written. After `stop`, it stays pending."""
        if partition.pending and partition.name not in self._running and not self._is_stopped:
            task = asyncio.get_running_loop().create_task(self._run(partition))
            self._running[partition.name] = task

    async def stop(self) -> None:
        """Stop writing. Pending and later changes stay pending, as requests of followers may still be served."""
        self._is_stopped = True
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
                if change is None or not await self._write_once(partition, change):
                    return
        finally:
            del self._running[partition.name]

    async def _write_once(self, partition: Partition, change: AlterIsr) -> bool:
        """Write `change` once; return whether to try again."""
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
            self._notify(partition, partition.isr_refused(change))
            return True
        if partition.pending is not change:
            return partition.pending is not None  # a newer change or state has come meanwhile
        effects = partition.isr_altered(change, altered, self._clock.monotonic_ms())
        self.shrinks += len(altered.isr) < len(before)
        self.expands += len(altered.isr) > len(before)
        logger.info("%s: the ISR is %s now", partition.name, altered.isr)
        self._on_change(partition, before)
        self._notify(partition, effects)
        return False

    def _notify(self, partition: Partition, effects: Effects) -> None:
        if effects.has_committed:
            self._on_high_watermark(partition.name)
