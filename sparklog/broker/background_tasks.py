"""The periodic tasks of a running broker, and their intervals.

Flushes, checkpoints, retention and file deletions run in threads: the event loop never waits for a disk.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from sparklog.base.ids import TopicPartition
from sparklog.broker.metrics import LoopDelay
from sparklog.broker.replica_moves import MOVES_INTERVAL_MS
from sparklog.broker.services import Services
from sparklog.broker.strays import STRAYS_INTERVAL_MS
from sparklog.replica.high_watermarks import HighWatermarks
from sparklog.replica.manager import Replica
from sparklog.runtime.schedule import PeriodicTasks
from sparklog.runtime.slices import of_many

DELETE_INTERVAL_MS = 10_000
LEASE_INTERVAL_MS = 1_000
ROOM_INTERVAL_MS = 1_000
LOOP_DELAY_INTERVAL_MS = 20
REPLICAS_AT_ONCE = 500
"""Replicas that a task looks at in one turn of the event loop: about a millisecond of work."""


def start(schedule: PeriodicTasks, services: Services, loop_delay: LoopDelay) -> None:
    """Start the tasks on the running event loop. loop_delay: measured if metrics are served"""
    _start_log_tasks(schedule, services)
    config, every = services.config, schedule.every
    every(
        config.replica_high_watermark_checkpoint_interval_ms,
        "writing high watermarks",
        partial(_checkpoint_high_watermarks, services),
    )
    every(
        config.replica_lag_time_max_ms // 2,
        "looking for lagging replicas",
        partial(_in_turns, services, services.replicas.shrink_isr),
    )
    every(MOVES_INTERVAL_MS, "moving replicas between log directories", services.replica_mover.run)
    every(LEASE_INTERVAL_MS, "ending leases", services.replacements.expire)
    every(STRAYS_INTERVAL_MS, "deleting stray replicas", services.strays.delete_pending)
    every(config.offsets_retention_check_interval_ms, "expiring offsets", services.groups.expire)
    every(
        config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        "aborting transactions past their timeout",
        services.transactions.abort_timed_out,
    )
    every(
        config.transaction_remove_expired_transaction_cleanup_interval_ms,
        "expiring transactional ids",
        services.transactions.expire,
    )
    if config.metrics_listener:
        every(LOOP_DELAY_INTERVAL_MS, "measuring the event loop's delay", partial(_note_loop_delay, loop_delay))


def _start_log_tasks(schedule: PeriodicTasks, services: Services) -> None:
    config, tasks, clock, replicas = services.config, services.logs.tasks, services.clock, services.replicas

    def committed(name: TopicPartition) -> int:
        """Return the high watermark; 0 for a partition that the controller has not assigned here yet."""
        return replicas.find_high_watermark(name) or 0

    for interval_ms, name, work in (
        (config.log_flush_scheduler_interval_ms, "flushing logs", lambda: tasks.flush_due(clock.monotonic_ms())),
        (
            config.log_flush_offset_checkpoint_interval_ms,
            "writing recovery points",
            tasks.checkpoint_recovery_points,
        ),
        (config.log_flush_start_offset_checkpoint_interval_ms, "writing log starts", tasks.checkpoint_log_starts),
        (
            config.log_retention_check_interval_ms,
            "retention",
            lambda: tasks.apply_retention(clock.time_ms(), committed, replicas.is_led),
        ),
        (
            config.producer_id_expiration_check_interval_ms,
            "forgetting producers",
            lambda: tasks.expire_producers(clock.time_ms()),
        ),
        (ROOM_INTERVAL_MS, "looking for room on disks", tasks.check_free_space),
        (DELETE_INTERVAL_MS, "deleting removed files", lambda: tasks.delete_expired(clock.monotonic_ms())),
    ):
        schedule.every(interval_ms, name, partial(asyncio.to_thread, work))


async def _in_turns(services: Services, do: Callable[[Sequence[Replica]], None]) -> None:
    """Call `do` for REPLICAS_AT_ONCE replicas at a time: a broker may have ten thousand. Other tasks run in between."""
    some: Iterable[Sequence[Replica]] = of_many(list(services.replicas), REPLICAS_AT_ONCE)
    for number, each in enumerate(some):
        if number:
            await services.slices.give_way()
        do(each)


async def _checkpoint_high_watermarks(services: Services) -> None:
    found: HighWatermarks = {folder: {} for folder in services.logs.dirs}
    await _in_turns(services, partial(services.state_changes.add_high_watermarks, found))
    await asyncio.to_thread(services.state_changes.write_high_watermarks, found)


async def _note_loop_delay(loop_delay: LoopDelay) -> None:
    loop_delay.fired(asyncio.get_running_loop().time())
