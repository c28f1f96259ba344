"""`sparklog users`: SCRAM users of a broker on this machine, straight in its cluster store.

It works whether the broker runs or not, so the first user of a new broker can be made before its first start. A broker
that runs reads a credential each time somebody logs in: a change holds at once, and leaves open connections alone. On
a broker that runs elsewhere, Kafka's own tools do the same over the wire (kafka-configs.sh --entity-type users).
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from sparklog.base.errors import ResourceNotFound
from sparklog.cli.common import print_table
from sparklog.cluster.engines import CLUSTER_STORE
from sparklog.cluster.sqlite import SqliteStore
from sparklog.cluster.users import MAX_ITERATIONS, MIN_ITERATIONS, ScramCredential, ScramMechanism, UserStore

MECHANISMS = {mechanism.sasl_name: mechanism for mechanism in ScramMechanism}
SALT_BYTES = 16

data_dir_option = click.option(
    "--data-dir",
    default="./sparklog-data",
    show_default=True,
    metavar="DIR",
    help="The broker's (first) log directory.",
)
mechanism_option = click.option(
    "--mechanism", "mechanisms", type=click.Choice(list(MECHANISMS)), multiple=True, help="[default: both]"
)


@click.group("users")
def command() -> None:
    """Add, list and delete the SCRAM users of a broker on this machine, whether it runs or not.

    \b
      sparklog users add alice                          asks for the password
      printf %s "$SECRET" | sparklog users add alice    takes the first line of standard input
      sparklog users list
      sparklog users delete alice
    """


@command.command()
@click.argument("name")
@mechanism_option
@click.option(
    "--iterations", type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS), default=MIN_ITERATIONS, show_default=True
)
@data_dir_option
def add(name: str, mechanisms: tuple[str, ...], iterations: int, data_dir: str) -> None:
    """Give the user NAME a password, or another one."""
    if not name:
        raise click.UsageError("a user has a name")
    password = _read_password()
    with _opened(data_dir, create=True) as users:
        for mechanism in _chosen(mechanisms):
            salt = secrets.token_bytes(SALT_BYTES)
            users.put(name, mechanism, ScramCredential.of_password(mechanism, password, salt, iterations))
    click.echo(f"added user {name}")


@command.command("list")
@data_dir_option
def list_users(data_dir: str) -> None:
    """List users, with how their passwords may be checked."""
    with _opened(data_dir) as users:
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
@data_dir_option
def delete(name: str, mechanisms: tuple[str, ...], data_dir: str) -> None:
    """Let the user NAME in no more."""
    with _opened(data_dir) as users:
        gone = [mechanism for mechanism in _chosen(mechanisms) if users.delete(name, mechanism)]
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


def _chosen(mechanisms: tuple[str, ...]) -> list[ScramMechanism]:
    return [MECHANISMS[name] for name in mechanisms] or list(ScramMechanism)


@contextmanager
def _opened(data_dir: str, *, create: bool = False) -> Iterator[UserStore]:
    """The users of the broker that keeps its partitions in `data_dir`."""
    path = Path(data_dir, CLUSTER_STORE)
    if create:
        path.parent.mkdir(parents=True, exist_ok=True)
    elif not path.exists():
        raise click.UsageError(f"{data_dir} is no broker's log directory: it has no {CLUSTER_STORE}")
    store = SqliteStore(str(path))
    try:
        yield UserStore(store)
    finally:
        store.close()
