"""`sparklog up`: run a broker in the foreground until SIGTERM or SIGINT.

One line on standard output says that it is ready; its log goes to standard error. Exit status: 0 after a clean stop,
1 where it could not start (an address or a log directory is taken, a disk fails), 2 for an option or a configuration
that is wrong.
"""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import signal
import sys

import click

from sparklog import __version__
from sparklog.base.config import BrokerConfig
from sparklog.base.config_file import load_broker_config
from sparklog.base.errors import ConfigError, SparklogError
from sparklog.server.node import BrokerNode

CANNOT_START, WRONG_CONFIGURATION = 1, 2


@click.command("up")
@click.option("--data-dir", metavar="DIR", help="Where partitions are stored.  [default: ./sparklog-data]")
@click.option("--grpc", metavar="HOST:PORT", help="Where clients connect; port 0: any.  [default: 127.0.0.1:9094]")
@click.option(
    "--kafka",
    metavar="HOST:PORT|none",
    help="Where Kafka's clients connect, without TLS; port 0: any; none: nowhere.  [default: 127.0.0.1:9092]",
)
@click.option("--config", "config_file", metavar="FILE", help="A TOML file with configuration keys (conf/broker.toml).")
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="One configuration key; may be repeated.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    data_dir: str | None,
    grpc: str | None,
    kafka: str | None,
    config_file: str | None,
    settings: tuple[str, ...],
    log_level: str,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    It needs no configuration: `sparklog up` stores topics in ./sparklog-data and listens on 127.0.0.1:9094 for its own
    clients and on 127.0.0.1:9092 for Kafka's. Keys come from --config, then the environment
    (SPARKLOG_CONFIG_LOG_SEGMENT_BYTES=…), then --set, each over the one before.
    """
    logging.basicConfig(
        level=log_level.upper(), stream=sys.stderr, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s"
    )
    chosen = [f"log.dirs={data_dir}"] if data_dir else []
    chosen += [f"grpc.listener={grpc}"] if grpc else []
    chosen += [f"listeners={'' if kafka == 'none' else f'PLAINTEXT://{kafka}'}"] if kafka else []
    try:
        config = load_broker_config(config_file, os.environ, [*settings, *chosen])
    except ConfigError as error:
        _fail(error, WRONG_CONFIGURATION)
    _raise_file_limit()
    try:
        asyncio.run(_run(config))
    except (SparklogError, OSError) as error:
        _fail(error, CANNOT_START)


def _fail(error: Exception, status: int) -> None:
    click.echo(f"sparklog up: {error}", err=True)
    sys.exit(status)


def _raise_file_limit() -> None:
    """Allow as many open files as this user may have: a partition keeps three open for each segment it writes to."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


async def _run(config: BrokerConfig) -> None:
    stop = asyncio.Event()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(signal_number, stop.set)
    node = BrokerNode(config)
    await node.start()
    kafka = "".join(f"kafka {name}://{address}, " for name, address in node.kafka_addresses.items())
    click.echo(f"sparklog {__version__} ready: grpc {node.grpc_address}, {kafka}data {','.join(config.log_dirs)}")
    await stop.wait()
    logging.getLogger(__name__).info("stopping")
    await node.stop()


if __name__ == "__main__":
    command()
