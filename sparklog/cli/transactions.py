"""`sparklog transactions`: list and describe transactional ids, find transactions that hang, abort them.

The commands and their options are those of kafka-transactions.sh. `find-hanging` searches the whole cluster without a
topic or broker; `abort` asks first, and shows the coordinators' view of the producer.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from sparklog.base.errors import ClientError
from sparklog.base.ids import TopicPartition
from sparklog.cli.common import (
    NOTHING,
    admin_client,
    bootstrap_option,
    confirmed,
    json_option,
    print_json,
    print_table,
    seconds,
    wall_clock_ms,
)

if TYPE_CHECKING:
    from sparklog.client import Admin
    from sparklog.client.admin.hanging_transactions import OpenTransaction
    from sparklog.client.admin.transaction_descriptions import ProducerDescription, TransactionDescription

FOUND = REFUSED = 1
MINUTE_MS = 60_000


def partition_options(function: Any) -> Any:
    """Return the command with --topic and --partition, for one partition."""
    function = click.option("--partition", type=click.IntRange(0), required=True, metavar="N", help="Its number.")(
        function
    )
    return click.option("--topic", required=True, metavar="TOPIC", help="The partition's topic.")(function)


@click.group("transactions")
def command() -> None:
    """List and describe transactional ids; find transactions that hang, and abort them.

    \b
      sparklog transactions list --state Ongoing
      sparklog transactions list --duration-filter 60000
      sparklog transactions describe billing-1
      sparklog transactions describe-producers --topic orders --partition 0
      sparklog transactions find-hanging
      sparklog transactions abort --topic orders --partition 0 --start-offset 1042

    Readers of committed records wait before an open transaction. Its coordinator aborts it after its timeout. A
    transaction that no coordinator knows hangs for ever: find-hanging shows it, abort ends it.
    """


@command.command("list")
@click.option("--state", "states", multiple=True, metavar="STATE", help="Only ids in this state; may be repeated.")
@click.option(
    "--producer-id", "producer_ids", multiple=True, type=int, metavar="N",
    help="Only the id that has this producer id; may be repeated.",
)  # fmt: skip
@click.option(
    "--duration-filter", "duration_ms", type=click.IntRange(0), metavar="MS",
    help="Only ids whose transaction began longer ago than this, in milliseconds.",
)  # fmt: skip
@click.option(
    "--transactional-id-pattern", "id_pattern", default="", metavar="REGEX",
    help="Only ids that match this regular expression as a whole.",
)  # fmt: skip
@bootstrap_option
@json_option
def list_transactions(
    states: tuple[str, ...], producer_ids: tuple[int, ...], duration_ms: int | None, id_pattern: str, bootstrap: str,
    as_json: bool,
) -> None:  # fmt: skip
    """List the transactional ids of all brokers.

    The states are Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit and CompleteAbort.
    """
    with admin_client(bootstrap) as admin:
        listed = admin.list_transactions(
            states=states, producer_ids=producer_ids, duration_ms=duration_ms, id_pattern=id_pattern
        )
    if as_json:
        for each in listed:
            print_json(
                {
                    "transactional_id": each.transactional_id,
                    "coordinator": each.coordinator,
                    "producer_id": each.producer_id,
                    "state": each.state,
                }
            )
    elif listed:
        rows = [(each.transactional_id, each.coordinator, each.producer_id, each.state) for each in listed]
        print_table(("TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "STATE"), rows)
    else:
        click.echo("no transactional ids; a producer with a transactional.id makes one", err=True)


@command.command()
@click.argument("ids", nargs=-1, required=True)
@bootstrap_option
@json_option
def describe(ids: tuple[str, ...], bootstrap: str, as_json: bool) -> None:
    """Describe transactional ids: producer, state, and the partitions of the open transaction.

    While a transaction ends, PARTITIONS are those that do not have its marker yet.
    """
    with admin_client(bootstrap) as admin:
        described = [_described(each) for each in admin.describe_transactions(ids)]
    if as_json:
        for each in described:
            print_json(each)
        return
    titles = (
        "TRANSACTIONAL ID", "COORDINATOR", "PRODUCER ID", "EPOCH", "STATE", "TIMEOUT", "OPEN FOR", "PARTITIONS",
    )  # fmt: skip
    rows = []
    for each in described:
        times = {name: seconds(each[name]) for name in ("timeout_ms", "duration_ms")}
        cells = {**each, **times, "partitions": ", ".join(each["partitions"]) or NOTHING}
        del cells["start_ms"]
        rows.append(list(cells.values()))
    print_table(titles, rows)


@command.command("describe-producers")
@partition_options
@bootstrap_option
@json_option
def describe_producers(topic: str, partition: int, bootstrap: str, as_json: bool) -> None:
    """Show the producers that a partition remembers, and the first offset of their open transactions.

    Readers of committed records stop at the lowest first offset. LAST WROTE is how long ago the producer wrote there.
    """
    name = TopicPartition(topic, partition)
    with admin_client(bootstrap) as admin:
        producers = admin.describe_producers([name])[name]
    if as_json:
        for each in producers:
            print_json(_producer(name, each))
    elif producers:
        titles = ("PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "LAST SEQUENCE", "LAST WROTE", "START OFFSET")
        now_ms = wall_clock_ms()
        print_table(
            titles,
            [
                [
                    each.producer_id, each.producer_epoch, *map(_number, (each.coordinator_epoch, each.last_sequence)),
                    seconds(now_ms - each.last_timestamp_ms), _number(each.transaction_first_offset),
                ]
                for each in producers
            ],
        )  # fmt: skip
    else:
        click.echo(f"{name} remembers no producers", err=True)


@command.command("find-hanging")
@click.option("--broker-id", "broker", type=int, metavar="N", help="Only partitions that this broker leads.")
@click.option("--topic", metavar="TOPIC", help="Only this topic.")
@click.option("--partition", type=click.IntRange(0), metavar="N", help="Only this partition of --topic.")
@click.option(
    "--max-transaction-timeout", "max_timeout_min", type=click.IntRange(0), default=15, show_default=True,
    metavar="MINUTES",
    help="Pass over transactions with younger records; not less than the brokers' transaction.max.timeout.ms.",
)  # fmt: skip
@bootstrap_option
@json_option
def find_hanging(
    broker: int | None, topic: str | None, partition: int | None, max_timeout_min: int, bootstrap: str, as_json: bool
) -> int:
    """Find transactions that are open in a partition, and that no coordinator will end.

    Without --topic or --broker-id, all partitions of the cluster are searched. Exit status: 0 none was found; 1 some
    were, or partitions have no leader and could not be searched.
    """
    if partition is not None and topic is None:
        raise click.UsageError("--partition needs --topic")
    partitions = [TopicPartition(topic, partition)] if topic is not None and partition is not None else None
    with admin_client(bootstrap) as admin, _progress("partitions searched") as progress:
        hanging = admin.find_hanging_transactions(
            topics=None if topic is None else [topic],
            partitions=partitions,
            broker=broker,
            max_timeout_ms=max_timeout_min * MINUTE_MS,
            progress=progress,
        )
    if as_json:
        for each in hanging.found:
            print_json(_producer(each.partition, each.producer))
    elif hanging.found:
        _print_hanging(hanging.found)
    if hanging.without_leader:
        names = ", ".join(map(str, hanging.without_leader[:10]))
        click.echo(f"{len(hanging.without_leader)} partitions have no leader and were not searched: {names}", err=True)
    if hanging.found:
        first = hanging.found[0]
        which = f"--topic {first.partition.topic} --partition {first.partition.partition}"
        step = f"sparklog transactions abort {which} --start-offset {first.producer.transaction_first_offset}"
        click.echo(f"end one with: {step}", err=True)
    else:
        click.echo(f"no hanging transactions in {len(hanging.searched)} partitions", err=True)
    return FOUND if hanging.found or hanging.without_leader else 0


@command.command()
@partition_options
@click.option("--start-offset", type=click.IntRange(0), metavar="N", help="The transaction's first offset there.")
@click.option("--producer-id", type=click.IntRange(0), metavar="N", help="Instead: its producer, with the two epochs.")
@click.option("--producer-epoch", type=click.IntRange(0, 2**15 - 1), metavar="N", help="The producer's epoch.")
@click.option("--coordinator-epoch", type=click.IntRange(-1), metavar="N", help="The coordinator's epoch.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def abort(
    topic: str, partition: int, start_offset: int | None, producer_id: int | None, producer_epoch: int | None,
    coordinator_epoch: int | None, yes: bool, bootstrap: str,
) -> int:  # fmt: skip
    """Abort a hanging transaction in one partition.

    Readers of committed records go on behind it, and never see its records. Abort only what find-hanging shows: if the
    producer still runs, its transaction is torn, as it may be committed in other partitions.
    """
    name = TopicPartition(topic, partition)
    with admin_client(bootstrap) as admin:
        if start_offset is not None and (producer_id, producer_epoch, coordinator_epoch) == (None, None, None):
            producer_id, producer_epoch, coordinator_epoch = _producer_at(admin, name, start_offset)
        elif start_offset is not None or producer_id is None or producer_epoch is None or coordinator_epoch is None:
            raise click.UsageError("give --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch")
        if not yes:
            click.echo(_coordinator_view(admin, name, producer_id), err=True)
            if not confirmed(f"abort the transaction of producer {producer_id} in {name}?"):
                click.echo("nothing was aborted: answer y, or give --yes", err=True)
                return REFUSED
        admin.abort_transaction(name, producer_id, producer_epoch, coordinator_epoch)
    click.echo(f"aborted the transaction of producer {producer_id} in {name}")
    return 0


def _described(found: TransactionDescription) -> dict[str, Any]:
    is_open = found.start_ms >= 0
    return {
        "transactional_id": found.transactional_id,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "state": found.state,
        "timeout_ms": found.timeout_ms,
        "start_ms": found.start_ms if is_open else None,
        "duration_ms": max(wall_clock_ms() - found.start_ms, 0) if is_open else None,
        "partitions": [str(item) for item in found.partitions],
    }


def _producer(name: TopicPartition, found: ProducerDescription) -> dict[str, Any]:
    return {
        "topic": name.topic,
        "partition": name.partition,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "coordinator_epoch": found.coordinator_epoch,
        "last_sequence": found.last_sequence,
        "last_timestamp_ms": found.last_timestamp_ms,
        "start_offset": found.transaction_first_offset if found.has_transaction else None,
    }


def _print_hanging(found: Iterable[OpenTransaction]) -> None:
    now_ms = wall_clock_ms()
    titles = (
        "TOPIC", "PARTITION", "PRODUCER ID", "EPOCH", "COORDINATOR EPOCH", "START OFFSET", "LAST WROTE",
    )  # fmt: skip
    rows = [
        [
            each.partition.topic, each.partition.partition, each.producer.producer_id, each.producer.producer_epoch,
            _number(each.producer.coordinator_epoch), each.producer.transaction_first_offset,
            seconds(each.silent_ms(now_ms)),
        ]
        for each in found
    ]  # fmt: skip
    print_table(titles, rows)


def _producer_at(admin: Admin, name: TopicPartition, start_offset: int) -> tuple[int, int, int]:
    """Return the id, the epoch and the coordinator's epoch of the producer whose transaction begins at an offset.

    Raises ClientError if there is none.
    """
    for found in admin.describe_producers([name])[name]:
        if found.transaction_first_offset == start_offset:
            return found.producer_id, found.producer_epoch, found.coordinator_epoch
    raise ClientError(
        f"no transaction is open in {name} from offset {start_offset} on: see which are with: "
        f"sparklog transactions describe-producers --topic {name.topic} --partition {name.partition}"
    )


def _coordinator_view(admin: Admin, name: TopicPartition, producer_id: int) -> str:
    """Return a sentence about the coordinators' view of a producer's transaction in a partition."""
    ids = [each.transactional_id for each in admin.list_transactions(producer_ids=[producer_id])]
    for found in admin.describe_transactions(ids):
        if name in found.partitions:
            return (
                f"not hanging: transactional id {found.transactional_id!r} is {found.state}, and its coordinator "
                f"{found.coordinator} will end the transaction, at the latest after its timeout of "
                f"{seconds(found.timeout_ms)}. To abort it here tears it"
            )
    known = f"transactional id {ids[0]!r} has no transaction there" if ids else "no transactional id has this producer"
    return f"hanging: {known}"


@contextmanager
def _progress(what: str) -> Iterator[Any]:
    """Yield a function that shows a count on the terminal; None if standard error is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    total = 0

    def count(more: int) -> None:
        nonlocal total
        total += more
        click.echo(f"\r{total:,} {what}", nl=False, err=True)

    yield count
    click.echo("\r\033[K", nl=False, err=True)


def _number(number: int) -> object:
    return NOTHING if number < 0 else number
