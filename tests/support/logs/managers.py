"""A manager of the logs in /a and /b, and logs to fill."""

from __future__ import annotations

from sparklog.base.config import BrokerConfig
from sparklog.base.fs import Fs
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TopicConfig
from sparklog.log.directory.manager import LogManager
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support.logs.builders import batch, topic_config

ORDERS = [TopicPartition("orders", number) for number in range(4)]


def start(
    fs: Fs,
    clock: SimClock,
    *dirs: str,
    config: TopicConfig | None = None,
    num_recovery_threads_per_data_dir: int = 1,
    **how: object,
) -> LogManager:
    broker = BrokerConfig(
        topic_defaults=config or topic_config(), num_recovery_threads_per_data_dir=num_recovery_threads_per_data_dir
    )
    manager = LogManager(fs, dirs or ("/a", "/b"), broker, clock, **how)  # type: ignore[arg-type]
    manager.load()
    return manager


def fill(manager: LogManager, *names: TopicPartition, batches: int = 5) -> None:
    for name in names:
        log = manager.get(name) or manager.create(name, topic_config())
        for _ in range(batches):
            log.append(batch(3, value=b"x" * 60), leader_epoch=0)


def crash(fs: MemoryFs, clock: SimClock, *dirs: str) -> LogManager:
    """The broker's process is gone, its files are not."""
    fs._locks.clear()
    return start(fs, clock, *dirs)
