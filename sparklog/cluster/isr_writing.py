"""Queue of a leader's ISR changes for the cluster store. Changes that come during a write are written together.

When a broker comes or goes, each other broker changes the ISR of every partition that it leads. With one thread for
each write, the broker's other work in threads would wait for them: for seconds, with some hundred partitions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from sparklog.cluster.partition_states import alter_isrs
from sparklog.cluster.store import Store
from sparklog.replica.messages import AlterIsr, IsrAltered


class IsrWriter:
    """The ISR writer of one broker. Used on the event loop; takes one thread at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[AlterIsr, asyncio.Future[IsrAltered]]] = []
        self._task: asyncio.Task[None] | None = None

    async def write(self, change: AlterIsr) -> IsrAltered:
        """Do the same as `alter_isr`. The change may be written even if the caller is cancelled."""
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
            except Exception as error:  # noqa: BLE001 - the callers get it; later changes are still written
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
