"""`sparklog up`: run a broker (cli/up_one.py), or several (cli/up_several.py), until SIGTERM or SIGINT.

One line on standard output reports the ready broker; its log goes to standard error. Exit status: 0 after a clean stop,
1 if the broker could not start (an address or a log directory is in use, a disk fails), 2 for a wrong option or
configuration, 3 if the cluster store has lost everything while the broker ran: it can be started again.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import os
import socket
import sys
from contextlib import suppress
from functools import partial
from typing import Any

import click

from sparklog.base.cluster_config import cluster_defaults, cores_defaults
from sparklog.base.config import BrokerConfig
from sparklog.base.config_file import given_keys, load_broker_config
from sparklog.base.errors import ConfigError, SparklogError
from sparklog.cli import reason
from sparklog.cli.logs import log_to_stderr, report_failed_start
from sparklog.server.open_listeners import open_listeners

CANNOT_START, WRONG_CONFIGURATION = 1, 2
AUTO = -1
"""--brokers auto: one for each core."""
logger = logging.getLogger("sparklog.cli.up")


class BrokerCountParam(click.ParamType[int]):
    """A number of brokers, or `auto`, as `AUTO`."""

    name = "brokers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        return AUTO if value in ("auto", AUTO) else click.IntRange(1).convert(value, param, ctx)


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
    type=BrokerCountParam(),
    metavar="N|auto",
    help="Run a cluster of N brokers on this machine, in DIR/broker-1, DIR/broker-2 …, with ports 10 apart; auto: one "
    "for each core.",
)
@click.option("--set", "settings", metavar="KEY=VALUE", multiple=True, help="Set a configuration key; may be repeated.")
@click.option("--allow-anonymous", is_flag=True, help="Let everybody on the network do everything: see below.")
@click.option("--child", "siblings", type=int, hidden=True, help="Started by --brokers, as one of so many.")
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
    siblings: int | None,
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

    --brokers auto uses the whole machine: a broker computes on one core, so there is one for each, and clients see one
    cluster. Topics have one replica, or with ZooKeeper, where several machines can be the cluster, three. The rack of
    the brokers is the host's name, so that replicas are on different machines. Give each machine a broker.id of its
    own: the brokers count from there.
    """
    chosen = [f"log.dirs={data_dir}"] if data_dir else []
    chosen += [f"grpc.listener={grpc}"] if grpc else []
    chosen += [f"listeners={'' if kafka == 'none' else f'PLAINTEXT://{kafka}'}"] if kafka else []
    try:
        if brokers:
            given = given_keys(config_file, os.environ, settings)
            host, zookeeper = socket.gethostname(), "zookeeper.connect" in given
            of_cores = brokers == AUTO
            defaults = cores_defaults(host, has_zookeeper=zookeeper) if of_cores else cluster_defaults(brokers)
            chosen += [f"{key}={value}" for key, value in defaults.items() if key not in given]
        config = load_broker_config(config_file, os.environ, [*settings, *chosen])
        if not allow_anonymous:
            _check_not_open(config)
    except ConfigError as error:
        click.echo(f"sparklog up: {reason(error)}", err=True)
        sys.exit(WRONG_CONFIGURATION)
    number = config.broker_id
    prefix = f"broker {number} " if siblings else ""
    log_to_stderr(log_level, config.logging_format, broker=None if brokers else number, prefix=prefix)
    try:
        # Imported where it is needed: the parent of several brokers needs no broker.
        if brokers:
            several = _import_without_gc("sparklog.cli.up_several")
            shared = [f"--config={config_file}"] if config_file else []
            shared += ["--allow-anonymous"] if allow_anonymous else []
            shared += [f"--log-level={log_level}", *(f"--set={setting}" for setting in [*settings, *chosen])]
            if brokers == AUTO:
                brokers = several.brokers_for_cores(config)
            sys.exit(asyncio.run(several.run_several(config, brokers, shared)))
        read = partial(load_broker_config, config_file, dict(os.environ), [*settings, *chosen])
        sys.exit(_import_without_gc("sparklog.cli.up_one").run_one(config, config_file, read, brokers=siblings))
    except (SparklogError, OSError) as error:
        report_failed_start(logger, config.logging_format, f"sparklog up: {reason(error)}")
        sys.exit(CANNOT_START)


def _check_not_open(config: BrokerConfig) -> None:
    """Raise ConfigError for listeners without authentication and authorization."""
    found: list[str] = []
    with suppress(ConfigError):  # the start reports an invalid listener
        found = open_listeners(config)
    if found:
        raise ConfigError(
            f"{', '.join(found)}: everybody on the network could do everything. Let it ask for passwords (SASL_SSL) or "
            "certificates (ssl.client.auth=required), set authorizer.class.name, listen on 127.0.0.1, or start with "
            "--allow-anonymous; see docs/guides/security.md"
        )


def _import_without_gc(name: str) -> Any:
    """Import a module and return it, without garbage collections, which would take a tenth of the time."""
    gc.disable()
    try:
        return importlib.import_module(name)
    finally:
        gc.enable()


if __name__ == "__main__":
    command()
