"""A broker in this process, on a thread and an event loop of its own: what `sparklog up` runs, but for the port.

It listens on a port that the system chooses and keeps its files in a folder of its own, which is removed when it stops
unless it was given. Several can run at once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sparklog.base.config import BrokerConfig, Setting, parse_broker_config
from sparklog.base.config_keys import render
from sparklog.server.node import BrokerNode
from sparklog.testing.loop import BrokerLoop

Result = TypeVar("Result")


class RunningBroker:
    """A broker that runs until `stop`, or to the end of a `with` block."""

    def __init__(self, config: BrokerConfig, data_dir: Path, *, keep_data: bool) -> None:
        self.data_dir = data_dir
        """The folder with the partitions."""
        self.node: BrokerNode
        self._keep_data = keep_data
        self._is_stopped = False
        self._loop = BrokerLoop("sparklog broker")
        try:
            self.node = self.run(start_node(config))
        except BaseException:
            self._loop.close()
            raise

    @property
    def bootstrap(self) -> str:
        """The address for clients, as HOST:PORT."""
        return self.node.grpc_address

    @property
    def kafka(self) -> str:
        """The address for Kafka's clients, as HOST:PORT: the first listener's; empty where there is none."""
        return kafka_address(self.node)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The outcome of a coroutine run on the broker's event loop; not to be called from there."""
        return self._loop.run(coroutine)

    def stop(self) -> None:
        """Stop cleanly; more than once does no harm."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self.run(self.node.stop())
        self._loop.close()
        if not self._keep_data:
            shutil.rmtree(self.data_dir)

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def start_broker(data_dir: str | Path | None = None, *, kafka: bool = False, **config: Any) -> RunningBroker:
    """Start a broker and return once it is ready.

    `config` takes configuration keys with underscores for dots: ``start_broker(num_partitions=3,
    log_retention_ms=1000)``. Without `data_dir` the broker has a temporary folder. With `kafka`, or with `listeners`,
    Kafka's clients can connect too.
    """
    folder = Path(data_dir or tempfile.mkdtemp(prefix="sparklog-"))
    keys = {"log.dirs": str(folder), "grpc.listener": "127.0.0.1:0"}
    keys["listeners"] = "PLAINTEXT://127.0.0.1:0" if kafka else ""
    try:
        return RunningBroker(parsed("start_broker", keys, config), folder, keep_data=data_dir is not None)
    except BaseException:
        if data_dir is None:
            shutil.rmtree(folder)
        raise


def parsed(who: str, keys: dict[str, str], config: dict[str, Any]) -> BrokerConfig:
    """The configuration with `keys`, and over them `config`, which has underscores for dots; raises ConfigError."""
    given = keys | {name.replace("_", "."): render(value) for name, value in config.items()}
    return parse_broker_config([Setting(name, raw, f"{who}: ") for name, raw in given.items()])


def kafka_address(node: BrokerNode) -> str:
    """Of the first listener, as HOST:PORT; empty where there is none."""
    return next((str(address) for address in node.kafka_addresses.values()), "")


async def start_node(config: BrokerConfig) -> BrokerNode:
    """A broker with its listeners, ready."""
    node = BrokerNode(config)
    await node.start()
    return node
