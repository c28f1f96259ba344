"""One broker in the foreground, until SIGTERM or SIGINT.

A broker of `sparklog up --brokers` also stops at the end of its standard input, as its parent has then ended. After the
line of its start, it prints ACQUAINTED once it knows all brokers of its parent.
"""

from __future__ import annotations

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable

import click

from sparklog import __version__
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import SparklogError
from sparklog.log.directory.open_files import LEAST
from sparklog.server.garbage import freeze_long_lived
from sparklog.server.node import BrokerNode
from sparklog.server.security import ConfigFile

LOST_STORE = 3
"""Exit status of a broker that must be restarted, because the cluster store has lost everything."""
ACQUAINTED = "knows the others"
ACQUAINTED_WITHIN_S = 30
logger = logging.getLogger("sparklog.cli.up")


def run_one(config: BrokerConfig, file: str | None, read: Callable[[], BrokerConfig], *, brokers: int | None) -> int:
    """Run a broker until a signal, or until its cluster store has lost everything. Return the exit status.

    file: the configuration file, if there is one; `read` reads the configuration again
    brokers: number of brokers that the parent process starts; None for a broker without parent

    Raises SparklogError or OSError if it cannot start.
    """
    _raise_file_limit()
    return asyncio.run(_run(config, ConfigFile(file, read) if file else None, brokers))


def _raise_file_limit() -> None:
    """Raise the limit of open files, which limits the number of partitions, to the user's maximum.

    Raises SparklogError if the maximum is too low.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and most < LEAST:
        raise SparklogError(f"a process may have {most} open files here, and a broker needs {LEAST}: raise ulimit -n")


async def _run(config: BrokerConfig, file: ConfigFile | None, brokers: int | None) -> int:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    if brokers:
        loop.add_reader(sys.stdin, stop.set)  # readable only at its end
    node = BrokerNode(config, file=file)
    await node.start()
    freeze_long_lived()
    kafka = "".join(f"kafka {name}://{address}, " for name, address in node.kafka_addresses.items())
    click.echo(f"sparklog {__version__} ready: grpc {node.grpc_address}, {kafka}data {','.join(config.log_dirs)}")
    reporting = asyncio.create_task(_report_all_known(node, brokers)) if brokers else None
    ends = [asyncio.create_task(event.wait()) for event in (stop, node.has_lost_store)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for task in (*ends, *([reporting] if reporting else [])):
        task.cancel()
    logger.info("stopping")
    await node.stop()
    return LOST_STORE if node.has_lost_store.is_set() else 0


async def _report_all_known(node: BrokerNode, brokers: int) -> None:
    metadata = node.broker.metadata
    if not await metadata.wait_until(lambda: len(metadata.brokers) >= brokers, ACQUAINTED_WITHIN_S * 1000):
        logger.warning("after %d s this broker does not know all others yet", ACQUAINTED_WITHIN_S)
    click.echo(ACQUAINTED)
