"""`sparklog up`: run a broker, or several (cli/up_several.py), in the foreground until SIGTERM or SIGINT.

One line on standard output says that the broker is ready; its log goes to standard error. Exit status: 0 after a clean
stop, 1 if the broker could not start (an address or a log directory is in use, a disk fails), 2 if an option or a
configuration is wrong, 3 if the cluster store has lost everything while the broker ran: it can be started again.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import resource
import signal
import sys
from contextlib import suppress
from functools import partial

import click

from sparklog import __version__
from sparklog.base.cluster_config import cluster_defaults
from sparklog.base.config import BrokerConfig
from sparklog.base.config_file import given_keys, load_broker_config
from sparklog.base.errors import ConfigError, SparklogError
from sparklog.cli import reason
from sparklog.cli.logs import log_to_stderr, tell_why_not
from sparklog.log.directory.open_files import LEAST
from sparklog.server.garbage import freeze_what_stays
from sparklog.server.node import BrokerNode
from sparklog.server.open_listeners import open_listeners
from sparklog.server.security import ConfigFile

CANNOT_START, WRONG_CONFIGURATION, LOST_STORE = 1, 2, 3
logger = logging.getLogger("sparklog.cli.up")


@click.command("up")
@click.option("--data-dir", metavar="DIR", help="Directory of the partitions.  [default: ./sparklog-data]")
@click.option(
    "--grpc",
    metavar="HOST:PORT",
    help="Address for sparklog's clients; port 0 takes any free port.  [default: 127.0.0.1:9094]",
)
@click.option(
    "--kafka",
    metavar="HOST:PORT|none",
    help="Address for Kafka's clients, without TLS; port 0 takes any free port; none: no listener.  "
    "[default: 127.0.0.1:9092]",
)
@click.option(
    "--config",
    "config_file",
    metavar="FILE",
    help="A TOML file with configuration keys; python -m sparklog.base.config_doc prints all of them.",
)
@click.option(
    "--brokers",
    type=click.IntRange(1),
    metavar="N",
    help="Run a cluster of N brokers on this machine, in DIR/broker-1, DIR/broker-2 …, with ports 10 apart.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Set a configuration key; may be repeated.")
@click.option("--allow-anonymous", is_flag=True, help="Let everybody on the network do everything: see below.")
@click.option("--child", "is_child", is_flag=True, hidden=True, help="Started by --brokers: stop when stdin ends.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def command(
    data_dir: str | None,
    grpc: str | None,
    kafka: str | None,
    config_file: str | None,
    brokers: int | None,
    settings: tuple[str, ...],
    allow_anonymous: bool,
    is_child: bool,
    log_level: str,
) -> None:
    """Run a broker until SIGTERM or Ctrl-C.

    No configuration is needed: `sparklog up` stores topics in ./sparklog-data and listens on 127.0.0.1:9094 for its own
    clients and on 127.0.0.1:9092 for Kafka's. Keys come from --config, the environment
    (SPARKLOG_CONFIG_LOG_SEGMENT_BYTES=…) and --set; a later one overrides an earlier one.

    Listeners on other addresses than this machine's own must ask clients who they are, by passwords (SASL_SSL) or
    certificates (ssl.client.auth=required), or there must be access rules (authorizer.class.name). --allow-anonymous
    starts without.

    Without a restart, a broker applies changes of the files of certificates (ssl.keystore.location,
    ssl.truststore.location) and of keys of tokens, and of plain.sasl.jaas.config in the file of --config, within a few
    seconds. No signal is needed.

    --brokers 3 runs a cluster: topics have three replicas, and no acknowledged record is lost when one broker dies.
    """
    chosen = [f"log.dirs={data_dir}"] if data_dir else []
    chosen += [f"grpc.listener={grpc}"] if grpc else []
    chosen += [f"listeners={'' if kafka == 'none' else f'PLAINTEXT://{kafka}'}"] if kafka else []
    try:
        if brokers:
            given = given_keys(config_file, os.environ, settings)
            chosen += [f"{key}={value}" for key, value in cluster_defaults(brokers).items() if key not in given]
        config = load_broker_config(config_file, os.environ, [*settings, *chosen])
        if not allow_anonymous:
            _check_not_open(config)
    except ConfigError as error:
        click.echo(f"sparklog up: {reason(error)}", err=True)
        sys.exit(WRONG_CONFIGURATION)
    number = config.broker_id
    prefix = f"broker {number} " if is_child else ""
    log_to_stderr(log_level, config.logging_format, broker=None if brokers else number, prefix=prefix)
    try:
        _raise_file_limit()
        if brokers:
            # Imported here because it imports the client, which a single broker does not need.
            several = importlib.import_module("sparklog.cli.up_several")
            shared = [f"--config={config_file}"] if config_file else []
            shared += ["--allow-anonymous"] if allow_anonymous else []
            shared += [f"--log-level={log_level}", *(f"--set={setting}" for setting in [*settings, *chosen])]
            sys.exit(asyncio.run(several.run_several(config, brokers, shared)))
        read = partial(load_broker_config, config_file, dict(os.environ), [*settings, *chosen])
        file = ConfigFile(config_file, read) if config_file else None
        sys.exit(asyncio.run(_run(config, file, stop_with_stdin=is_child)))
    except (SparklogError, OSError) as error:
        tell_why_not(logger, config.logging_format, f"sparklog up: {reason(error)}")
        sys.exit(CANNOT_START)


def _check_not_open(config: BrokerConfig) -> None:
    """Raises ConfigError if strangers could do everything."""
    found: list[str] = []
    with suppress(ConfigError):  # the start says what is wrong with a listener
        found = open_listeners(config)
    if found:
        raise ConfigError(
            f"{', '.join(found)}: everybody on the network could do everything. Let it ask for passwords (SASL_SSL) or "
            "certificates (ssl.client.auth=required), set authorizer.class.name, listen on 127.0.0.1, or start with "
            "--allow-anonymous; see docs/guides/security.md"
        )


def _raise_file_limit() -> None:
    """Raise the limit of open files to the user's maximum: it bounds the number of partitions.

    Raises SparklogError if the maximum is too low.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if most != resource.RLIM_INFINITY and most < LEAST:
        raise SparklogError(f"a process may have {most} open files here, and a broker needs {LEAST}: raise ulimit -n")


async def _run(config: BrokerConfig, file: ConfigFile | None, *, stop_with_stdin: bool) -> int:
    """Run the broker until it is told to stop, or its cluster store has lost everything. Return the exit status."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signal_number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(signal_number, stop.set)
    if stop_with_stdin:
        loop.add_reader(sys.stdin, stop.set)  # nothing is ever written to it
    node = BrokerNode(config, file=file)
    await node.start()
    freeze_what_stays()
    kafka = "".join(f"kafka {name}://{address}, " for name, address in node.kafka_addresses.items())
    click.echo(f"sparklog {__version__} ready: grpc {node.grpc_address}, {kafka}data {','.join(config.log_dirs)}")
    ends = [asyncio.create_task(event.wait()) for event in (stop, node.has_lost_store)]
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    for end in ends:
        end.cancel()
    logger.info("stopping")
    await node.stop()
    return LOST_STORE if node.has_lost_store.is_set() else 0


if __name__ == "__main__":
    command()
