"""`sparklog users`: manage SCRAM users directly in the cluster store, an SQLite file on this machine or ZooKeeper.

The commands work without a broker, so the first user of a new cluster can be added before its first start. A running
broker reads the credential at each login: a change applies at once, and open connections stay open. For a broker on
another machine, Kafka's own tools do the same over the wire (kafka-configs.sh --entity-type users).

The store is configured as for brokers: by their configuration file, the environment, or the options for log.dirs and
zookeeper.connect.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from sparklog.base.config_file import load_broker_config
from sparklog.base.errors import ResourceNotFound
from sparklog.cli.common import Command, print_table
from sparklog.cluster.engines import open_store, store_file
from sparklog.cluster.users import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism, UserStore
from sparklog.log.directory.checkpoints import META_PROPERTIES

MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
SALT_BYTES = 16


def store_options(function: Command) -> Command:
    """Return the command with the options that locate the cluster store: the keyword arguments of `_open_users`."""
    for option in (
        click.option("--zookeeper", metavar="HOST:PORT,…", help="The cluster's ZooKeeper (zookeeper.connect)."),
        click.option(
            "--config", "config_file", metavar="FILE", help="The configuration file of a broker, which names the store."
        ),
        click.option(
            "--data-dir",
            metavar="DIR",
            help="The broker's log directory, or that of a local cluster.  [default: ./sparklog-data]",
        ),
    ):
        function = option(function)
    return function


mechanism_option = click.option(
    "--mechanism",
    "mechanisms",
    type=click.Choice(list(MECHANISMS)),
    multiple=True,
    help="SCRAM mechanism; may be repeated.  [default: both]",
)


@click.group("users")
def command() -> None:
    """Add, list and delete SCRAM users, whether brokers run or not.

    \b
      sparklog users add alice                          asks for the password
      printf %s "$SECRET" | sparklog users add alice    reads the first line of standard input
      sparklog users list
      sparklog users delete alice
      sparklog users list --zookeeper zoo1:2181,zoo2:2181,zoo3:2181
      sparklog users list --config conf/broker.toml

    Brokers on this machine keep users in a file next to the records; a cluster with ZooKeeper keeps them in ZooKeeper.
    """


@command.command()
@click.argument("name")
@mechanism_option
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=MIN_ITERATIONS, show_default=True
)
@store_options
def add(name: str, mechanisms: tuple[str, ...], iterations: int, **where: Any) -> None:
    """Add the user NAME, or change its password."""
    if not name:
        raise click.UsageError("a user has a name")
    password = _read_password()
    with _open_users(create=True, **where) as users:
        for mechanism in _mechanisms_of(mechanisms):
            salt = secrets.token_bytes(SALT_BYTES)
            users.put(name, mechanism, ScramCredential.of_password(mechanism, password, salt, iterations))
    click.echo(f"added user {name}")


@command.command("list")
@store_options
def list_users(**where: Any) -> None:
    """List users with their mechanisms and iteration counts."""
    with _open_users(**where) as users:
        rows = [
            (name, mechanism.sasl_name, credential.iterations)
            for name in users.names()
            for mechanism, credential in users.credentials(name).items()
        ]
    if rows:
        print_table(("USER", "MECHANISM", "ITERATIONS"), rows)
    else:
        click.echo("no users; add one with: sparklog users add NAME", err=True)


@command.command()
@click.argument("name")
@mechanism_option
@store_options
def delete(name: str, mechanisms: tuple[str, ...], **where: Any) -> None:
    """Delete the credentials of the user NAME."""
    with _open_users(**where) as users:
        gone = [mechanism for mechanism in _mechanisms_of(mechanisms) if users.delete(name, mechanism)]
    if not gone:
        raise ResourceNotFound(f"there is no user {name!r} with such a credential")
    click.echo(f"deleted {', '.join(mechanism.sasl_name for mechanism in gone)} of user {name}")


def _read_password() -> str:
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise click.UsageError("the password is empty")
    return str(password)


def _mechanisms_of(mechanisms: tuple[str, ...]) -> list[ScramMechanism]:
    return [MECHANISMS[name] for name in mechanisms] or list(ScramMechanism)


@contextmanager
def _open_users(
    *, data_dir: str | None, config_file: str | None, zookeeper: str | None, create: bool = False
) -> Iterator[UserStore]:
    """Open the cluster store and yield its users."""
    chosen = [f"log.dirs={data_dir}"] if data_dir else []
    chosen += [f"zookeeper.connect={zookeeper}"] if zookeeper else []
    config = load_broker_config(config_file, os.environ, chosen)
    if not config.zookeeper_connect:
        _check_file(Path(store_file(config)), Path(config.log_dirs[0]), create=create)
    store = open_store(config)
    try:
        yield UserStore(store)
    finally:
        store.close()


def _check_file(path: Path, folder: Path, *, create: bool) -> None:
    """Raise click.UsageError if `path` is not the store of `folder`'s broker. If `create`, make its directory."""
    if path.exists():
        return
    if (folder / META_PROPERTIES).exists():
        raise click.UsageError(
            f"{folder} has no {path.name}: its broker has another store; name it with --config FILE or --zookeeper"
        )
    if not create:
        raise click.UsageError(f"{folder} is no broker's log directory: it has no {path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
