"""Options, output functions and lookups of partitions that the tools share."""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

import click

from sparklog import client
from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS
from sparklog.base.errors import ConfigError, NetworkException, SparklogError
from sparklog.base.ids import TopicPartition

if TYPE_CHECKING:
    from sparklog.client import Admin
    from sparklog.client.admin.descriptions import PartitionDescription

NOTHING = "-"
"""The text of a table cell without a value."""
NamedPartition = tuple[TopicPartition, "PartitionDescription"]
PATIENCE_MS = 2_000
"""Time-out of a command's connection to a broker: enough for a broker's start, less than that of a service."""

Command = TypeVar("Command", bound=Callable[..., Any])


class TimeParam(click.ParamType[int]):
    """Milliseconds since 1970, or a date and time in ISO 8601 (in UTC without a zone)."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int) or value.isdecimal():
            return int(value)
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} is neither milliseconds since 1970 nor a time such as 2013-07-01T06:00", param, ctx)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


CLIENT_CONFIG = "sparklog.client_config"


def bootstrap_option(function: Command) -> Command:
    """Return the command with --bootstrap HOST:PORT and --client-config FILE, or their environment variables.

    See `client_options`.
    """
    function = click.option(
        "--client-config",
        envvar="SPARKLOG_CLIENT_CONFIG",
        metavar="FILE",
        show_envvar=True,
        expose_value=False,
        callback=_keep_client_config,
        help="A file of KEY=VALUE lines for the client, such as security.protocol=SSL.",
    )(function)
    return click.option(
        "--bootstrap",
        envvar="SPARKLOG_BOOTSTRAP",
        default=DEFAULT_GRPC_ADDRESS,
        metavar="HOST:PORT,…",
        show_default=True,
        show_envvar=True,
        help="Brokers of the cluster; one that answers is enough.",
    )(function)


def json_option(function: Command) -> Command:
    """Return the command with --json, for scripts."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(function)


def client_options(bootstrap: str, **options: Any) -> dict[str, Any]:
    """Return a client's options: `bootstrap` and `options` override those of the file of --client-config."""
    return {**click.get_current_context().meta.get(CLIENT_CONFIG, {}), "bootstrap_servers": bootstrap, **options}


def admin_client(bootstrap: str) -> Admin:
    """Return an admin client that gives up after PATIENCE_MS if no broker answers."""
    return client.Admin(**client_options(bootstrap, default_api_timeout_ms=PATIENCE_MS))


def diagnosed(silent: NetworkException, context: click.Context) -> SparklogError:
    """Return an error with the reason why no broker answers, or `silent` if a probe finds none."""
    if not silent.address:
        return silent
    # Imported here: only this function needs it.
    diagnosis = importlib.import_module("sparklog.client.diagnosis")
    why = diagnosis.diagnose(silent.address, context.meta.get(CLIENT_CONFIG, {}))
    return SparklogError(f"no broker answers at {silent.address}: {why}") if why else silent


def print_json(value: Any) -> None:
    """Print `value` as one line of JSON."""
    click.echo(json.dumps(value, ensure_ascii=False, separators=(", ", ": ")))


def print_table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print rows under titles: numbers right-aligned, other cells left-aligned, two blanks between columns."""
    texts = [[_text(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
    to_the_right = [bool(rows) and all(isinstance(row[i], int | float) for row in rows) for i in range(len(titles))]
    for line in [list(titles), *texts]:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        ]
        click.echo("  ".join(cells).rstrip())


def print_rows(
    rows: Sequence[Mapping[str, Any]], *, as_json: bool, titles: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Print rows as JSON lines, or as a table. Its titles are those of `titles`, or the keys in upper case."""
    if as_json:
        for row in rows:
            print_json(row)
    elif rows:
        print_table(
            [titles.get(key, key.upper().replace("_", " ")) for key in rows[0]],
            [[_cell(value) for value in row.values()] for row in rows],
        )


def seconds(time_ms: int | None) -> str:
    """Return a time as a cell of a table."""
    return NOTHING if time_ms is None else f"{time_ms / 1000:,.1f} s"


def wall_clock_ms() -> int:
    """Return the time since 1970."""
    return time.time_ns() // 1_000_000


def confirmed(question: str) -> bool:
    """Ask on standard error, and return whether the answer is yes. End of input means no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        return False


def parse_configs(settings: Sequence[str]) -> dict[str, str]:
    """Return KEY=VALUE texts as a dictionary. Raises click.UsageError for any other text."""
    configs = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not (key and equals):
            raise click.UsageError(f"{setting!r} is not KEY=VALUE")
        configs[key.strip()] = value.strip()
    return configs


def _keep_client_config(context: click.Context, parameter: click.Parameter, path: str | None) -> None:
    if path:
        context.meta[CLIENT_CONFIG] = read_client_config(path)


def read_client_config(path: str) -> dict[str, str]:
    """Return the client's options in a file of Kafka's client keys, as Kafka's tools take with --command-config.

    Dots in the keys become underscores. Raises OSError or ConfigError.
    """
    options = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            key, equals, value = line.strip().partition("=")
            if not line.strip() or line.lstrip().startswith(("#", "!")):
                continue
            if not equals:
                raise ConfigError(f"{path}:{number}: {line.strip()!r} is not KEY=VALUE")
            options[key.strip().replace(".", "_")] = value.strip()
    return options


def _cell(value: object) -> object:
    if isinstance(value, list):
        return ",".join(map(str, value)) or NOTHING
    if isinstance(value, bool):
        return "yes" if value else NOTHING
    return NOTHING if value is None else value


def _text(cell: object) -> str:
    if isinstance(cell, float):
        return f"{cell:,.1f}"
    return str(cell)


def all_partitions(admin: Admin, topics: Iterable[str] | None = None) -> list[NamedPartition]:
    """Return the partitions of these topics, or of all topics, including internal ones."""
    if topics is None:
        topics = [topic.name for topic in admin.list_topics(include_internal=True)]
    return [
        (TopicPartition(topic.name, part.partition), part)
        for topic in admin.describe_topics(topics)
        for part in topic.partitions
    ]


def parse_partitions(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions named by --topic TOPIC or TOPIC:0,1. Raises click.UsageError or UnknownTopicOrPartition."""
    numbers: dict[str, list[int] | None] = {}
    for text in texts:
        topic, colon, listed = text.partition(":")
        try:
            numbers[topic] = [int(number) for number in listed.split(",")] if colon else None
        except ValueError:
            raise click.UsageError(f"--topic {text}: write TOPIC, or TOPIC:0,1 for some partitions") from None
    whole = [topic for topic, chosen in numbers.items() if chosen is None]
    named = [TopicPartition(topic, number) for topic, chosen in numbers.items() for number in chosen or ()]
    return named + [name for name, _ in all_partitions(admin, whole)]
