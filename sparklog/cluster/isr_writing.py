"""The leader's changes of ISRs on their way to the cluster store: those that come while others are written go together.

When a broker comes or goes, each of the others changes the ISR of every partition that it leads. Were each written by a
thread of its own, whatever else the broker does in threads would wait behind them: for seconds, with some hundred
partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparklog.cluster.partition_states import alter_isrs
from sparklog.cluster.store import Store
from sparklog.replica.messages import AlterIsr, IsrAltered


class IsrWriter:
    """One broker's. Used on the event loop; takes one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[AlterIsr, asyncio.Future[IsrAltered]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, change: AlterIsr) -> IsrAltered:
        """As `alter_isr`. Where the caller is cancelled it may be written all the same."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[IsrAltered] = loop.create_future()
        self._waiting.append((change, done))
        if self._task is None or self._task.done():
            self._task = loop.create_task(self._run())
        return await done

    async def _run(self) -> None:
        while self._waiting:
            taken = [each for each in self._waiting if not each[1].done()]
            self._waiting = []
            results: Sequence[IsrAltered | Exception]
            try:
                results = await asyncio.to_thread(alter_isrs, self._store, [change for change, _ in taken])
            except Exception as error:  # noqa: BLE001 - it is of those who wait; the next ones are written
                results = [error] * len(taken)
            for (_, done), result in zip(taken, results, strict=True):
                _tell(done, result)


def _tell(done: asyncio.Future[IsrAltered], result: IsrAltered | Exception) -> None:
    if done.done():
        return
    if isinstance(result, Exception):
        done.set_exception(result)
    else:
        done.set_result(result)
