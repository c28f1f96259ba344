"""A broker in this process, on a thread and an event loop of its own: what `sparklog up` runs, but for the port.

It listens on a port that the system chooses and keeps its files in a folder of its own, which is removed when it stops
unless it was given. Several can run at once.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
import threading
from collections.abc import Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sparklog.base.config import BrokerConfig, Setting, parse_broker_config
from sparklog.base.config_keys import render
from sparklog.server.node import BrokerNode

Result = TypeVar("Result")


class RunningBroker:
    """A broker that runs until `stop`, or to the end of a `with` block."""

    def __init__(self, config: BrokerConfig, data_dir: Path, *, keep_data: bool) -> None:
        self.data_dir = data_dir
        """The folder with the partitions."""
        self.node: BrokerNode
        self._keep_data = keep_data
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(_ignore_shared_poller)
        self._thread = threading.Thread(target=self._loop.run_forever, name="sparklog broker", daemon=True)
        self._thread.start()
        try:
            self.node = self.run(_start(config))
        except BaseException:
            self._end_thread()
            raise

    @property
    def bootstrap(self) -> str:
        """The address for clients, as HOST:PORT."""
        return self.node.grpc_address

    @property
    def kafka(self) -> str:
        """The address for Kafka's clients, as HOST:PORT: the first listener's; empty where there is none."""
        return next((str(address) for address in self.node.kafka_addresses.values()), "")

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """The outcome of a coroutine run on the broker's event loop; not to be called from there."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def stop(self) -> None:
        """Stop cleanly; more than once does no harm."""
        if self._loop.is_closed():
            return
        self.run(self.node.stop())
        self._end_thread()
        if not self._keep_data:
            shutil.rmtree(self.data_dir)

    def __enter__(self) -> RunningBroker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _end_thread(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


def start_broker(data_dir: str | Path | None = None, *, kafka: bool = False, **config: Any) -> RunningBroker:
    """Start a broker and return once it is ready.

    `config` takes configuration keys with underscores for dots: ``start_broker(num_partitions=3,
    log_retention_ms=1000)``. Without `data_dir` the broker has a temporary folder. With `kafka`, or with `listeners`,
    Kafka's clients can connect too.
    """
    folder = Path(data_dir or tempfile.mkdtemp(prefix="sparklog-"))
    keys = {"log.dirs": str(folder), "grpc.listener": "127.0.0.1:0"}
    keys["listeners"] = "PLAINTEXT://127.0.0.1:0" if kafka else ""
    keys |= {name.replace("_", "."): render(value) for name, value in config.items()}
    settings = [Setting(name, raw, "start_broker: ") for name, raw in keys.items()]
    try:
        return RunningBroker(parse_broker_config(settings), folder, keep_data=data_dir is not None)
    except BaseException:
        if data_dir is None:
            shutil.rmtree(folder)
        raise


async def _start(config: BrokerConfig) -> BrokerNode:
    node = BrokerNode(config)
    await node.start()
    return node


def _ignore_shared_poller(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Drop the error that gRPC logs when several event loops of a process wake for the same event and one is first."""
    if not isinstance(context.get("exception"), BlockingIOError):
        loop.default_exception_handler(context)
