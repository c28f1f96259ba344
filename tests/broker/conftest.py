"""A whole broker without listeners, on a disk that can be made slow or broken and a clock that stands still."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sparklog.base.config import Setting, parse_broker_config
from sparklog.base.fs import Buffer, LocalFile, LocalFs
from sparklog.broker.apis import create_topics, fetch, produce
from sparklog.broker.node import Broker
from sparklog.cluster.memory import MemoryStore, MemoryTree
from sparklog.records.records import Record, write_records
from sparklog.testing import SimClock
from support.brokers.segment_replacement import Upkeep


class FaultyFile(LocalFile):
    """A file of `FaultyFs`."""

    __slots__ = ("_fs", "_path")

    def __init__(self, fd: int, fs: FaultyFs, path: str) -> None:
        super().__init__(fd)
        self._fs = fs
        self._path = path

    def append(self, data: Buffer) -> None:
        self._fs.check(self._path)
        super().append(data)

    def flush(self) -> None:
        self._fs.may_flush.wait()
        self._fs.check(self._path)


class FaultyFs(LocalFs):
    """A disk on which everything under `broken` fails, and nothing is flushed while `may_flush` is clear."""

    def __init__(self) -> None:
        self.broken = ""
        self.may_flush = threading.Event()
        self.may_flush.set()

    def check(self, path: str) -> None:
        if self.broken and path.startswith(self.broken):
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        self.check(path)
        opened = super().open(path, create=create)
        return FaultyFile(os.dup(opened.fileno()), self, path)


class World:
    """What outlives a broker: its disk, its time and its cluster store; and the requests that tests make."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.fs = FaultyFs()
        self.clock = SimClock()
        self.tree = MemoryTree()
        self.broker: Broker

    async def start(self, **config: str) -> Broker:
        """A started broker; `config` has configuration keys with underscores for dots."""
        keys = {"log_dirs": self.folder} | config
        settings = [Setting(name.replace("_", "."), raw, "") for name, raw in keys.items()]
        self.broker = Broker(parse_broker_config(settings), fs=self.fs, clock=self.clock, store=MemoryStore(self.tree))
        await self.broker.start("here:1")
        return self.broker

    async def create(self, name: str, partitions: int = 1, **configs: str) -> None:
        overrides = {key.replace("_", "."): value for key, value in configs.items()}
        topic = create_topics.NewTopic(name=name, partitions=partitions, configs=overrides)
        response = await self.broker.serve(create_topics.API, create_topics.CreateTopicsRequest(topics=[topic]))
        if response.topics[0].error:
            raise response.topics[0].error

    async def produce(
        self, topic: str, data: bytearray, partition: int = 0, **fields: Any
    ) -> produce.PartitionProduceResult:
        part = produce.PartitionProduce(topic=topic, partition=partition, data=data)
        response = await self.broker.serve(produce.API, produce.ProduceRequest(partitions=[part], **fields))
        return response.partitions[0]

    async def fetch(self, topic: str, offset: int, partition: int = 0, **fields: Any) -> fetch.PartitionFetchResult:
        part = fetch.PartitionFetch(topic=topic, partition=partition, fetch_offset=offset, max_bytes=1 << 20)
        request = fetch.FetchRequest(max_bytes=1 << 20, partitions=[part], **fields)
        return (await self.broker.serve(fetch.API, request)).partitions[0]


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    if hasattr(made, "broker") and not made.broker.is_stopping:
        await made.broker.stop()


@pytest.fixture(scope="session")
def batch() -> Callable[..., bytearray]:
    """Makes a batch with a record for each value."""

    def batch(values: list[bytes], timestamp_ms: int = 1_700_000_000_000) -> bytearray:
        rows = [Record(offset=number, timestamp_ms=timestamp_ms, value=value) for number, value in enumerate(values)]
        return bytearray(write_records(rows))

    return batch


@pytest.fixture
async def upkeep(world, batch) -> Upkeep:
    await world.start(auto_create_topics_enable="false")
    return Upkeep(world, batch)
