"""A broker in this process, on its own thread and event loop. It is the broker that `sparklog up` runs.

The broker listens on a free port that the operating system chooses. It keeps its files in the folder that the caller
gives, or in a temporary folder that `stop` removes. One process can run several brokers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Coroutine, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar, Unpack

from sparklog.base.config import BrokerConfig, Setting, parse_broker_config
from sparklog.base.config_keys import render
from sparklog.server.node import BrokerNode
from sparklog.testing.loop import BrokerLoop
from sparklog.testing.options import BrokerOptions

Result = TypeVar("Result")


class RunningBroker:
    """A running broker. `stop`, or the end of a `with` block, stops it."""

    def __init__(self, node: BrokerNode, loop: BrokerLoop, data_dir: Path, *, keep_data: bool) -> None:
        self.data_dir = data_dir
        """The folder that holds the partitions' logs."""
        self.node = node
        self._loop = loop
        self._keep_data = keep_data
        self._is_stopped = False

    @classmethod
    def start(cls, config: BrokerConfig, data_dir: Path, *, keep_data: bool) -> RunningBroker:
        """Start a broker. Return it when it is ready. `keep_data`: `stop` does not remove `data_dir`."""
        loop = BrokerLoop.start("sparklog broker")
        try:
            return cls(loop.run(start_node(config)), loop, data_dir, keep_data=keep_data)
        except BaseException:
            loop.close()
            raise

    @property
    def bootstrap(self) -> str:
        """The gRPC address for sparklog's own clients, as HOST:PORT."""
        return self.node.grpc_address

    @property
    def kafka(self) -> str:
        """The address of the first Kafka listener, as HOST:PORT; empty if the broker has no Kafka listener."""
        return kafka_address(self.node)

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run the coroutine on the broker's event loop. Return its result or raise its exception.

        Call it from another thread only: on the loop's own thread it would wait forever.
        """
        return self._loop.run(coroutine)

    def stop(self) -> None:
        """Stop the broker cleanly and remove its temporary folder. Further calls do nothing."""
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


def start_broker(
    data_dir: str | Path | None = None, *, kafka: bool = False, **config: Unpack[BrokerOptions]
) -> RunningBroker:
    """Start a broker. Return it when it is ready, or raise ConfigError if `config` is not valid.

    `config` takes configuration keys with underscores instead of dots: ``start_broker(num_partitions=3,
    log_retention_ms=1000)``. Without `data_dir`, the broker uses a temporary folder. Kafka clients can connect too if
    `kafka` is true or `config` has `listeners`.
    """
    folder = Path(data_dir or tempfile.mkdtemp(prefix="sparklog-"))
    keys = {"log.dirs": str(folder), "grpc.listener": "127.0.0.1:0"}
    keys["listeners"] = "PLAINTEXT://127.0.0.1:0" if kafka else ""
    try:
        return RunningBroker.start(parsed("start_broker", keys, config), folder, keep_data=data_dir is not None)
    except BaseException:
        if data_dir is None:
            shutil.rmtree(folder)
        raise


def parsed(who: str, keys: dict[str, str], config: Mapping[str, object]) -> BrokerConfig:
    """Return the configuration of `keys`, overridden by `config` (underscores instead of dots). Raise ConfigError.

    `who` names the caller in error messages.
    """
    given = keys | {name.replace("_", "."): render(value) for name, value in config.items()}
    return parse_broker_config([Setting(name, raw, f"{who}: ") for name, raw in given.items()])


def kafka_address(node: BrokerNode) -> str:
    """Return the address of the first Kafka listener, as HOST:PORT; empty if there is none."""
    return next((str(address) for address in node.kafka_addresses.values()), "")


async def start_node(config: BrokerConfig) -> BrokerNode:
    """Start a broker and its listeners. Return it when it is ready."""
    node = BrokerNode(config)
    await node.start()
    return node
