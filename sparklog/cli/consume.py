"""`sparklog consume`: read a topic, from any offset or time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from sparklog import client
from sparklog.base.errors import RequestTimedOut, UnknownTopicOrPartition
from sparklog.base.ids import TopicPartition
from sparklog.cli.common import PATIENCE_MS, TimeParam, bootstrap_option, client_options, json_option
from sparklog.cli.json_lines import format_record

if TYPE_CHECKING:
    from sparklog.client import Consumer

POLL_MS = 500
POLL_RECORDS = 10_000
SILENCE_MS = 30_000
"""Time without a record after which --exit-at-end fails."""
FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value")


@click.command("consume")
@click.argument("topic")
@click.option("--from-beginning", is_flag=True, help="Start at the first record.  [default: only new records]")
@click.option("--offset", type=click.IntRange(0), metavar="N", help="Start at this offset in each partition.")
@click.option("--timestamp", type=TimeParam(), metavar="TIME", help="Start at the first record at or after this time.")
@click.option(
    "--partition", "partitions", type=int, multiple=True, metavar="N", help="Read only partition N; may be repeated."
)
@click.option("--max-messages", type=click.IntRange(1), metavar="N", help="Stop after N records.")
@click.option("--exit-at-end", is_flag=True, help="Stop at the end that the topic had when the command started.")
@click.option(
    "--format",
    "template",
    metavar="TEXT",
    help="Format of a line: {topic} {partition} {offset} {timestamp} {key} {value}.  [default: {value}]",
)
@bootstrap_option
@json_option
def command(
    topic: str,
    from_beginning: bool,
    offset: int | None,
    timestamp: int | None,
    partitions: tuple[int, ...],
    max_messages: int | None,
    exit_at_end: bool,
    template: str | None,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Read TOPIC and print its records, one per line.

    \b
      sparklog consume orders                                   new records, until Ctrl-C
      sparklog consume orders --from-beginning --exit-at-end --json
      sparklog consume orders --timestamp 2013-07-01T06:00 --max-messages 10 --format '{offset} {key} {value}'

    --json prints {"topic", "partition", "offset", "timestamp", "key", "value", "headers"}; bytes that are not UTF-8
    are printed as "key_base64" and "value_base64". `sparklog produce --json-lines` reads the same lines.
    """
    if sum((from_beginning, offset is not None, timestamp is not None)) > 1:
        raise click.UsageError("--from-beginning, --offset and --timestamp exclude each other")
    if as_json and template is not None:
        raise click.UsageError("--json and --format exclude each other")
    render = format_record if as_json else _renderer("{value}" if template is None else template)
    with client.Consumer(
        **client_options(
            bootstrap,
            default_api_timeout_ms=PATIENCE_MS,
            # with --offset, an error is better than another offset
            auto_offset_reset="earliest" if offset is None else "none",
        )
    ) as consumer:
        assigned = _assign(consumer, topic, partitions)
        _seek(consumer, assigned, from_beginning, offset, timestamp)
        _print(_polls(consumer, assigned, exit_at_end), render, max_messages)


def _assign(consumer: Consumer, topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
    consumer.assign_topic(topic)
    there = sorted(consumer.assignment())
    if not partitions:
        return there
    chosen = [TopicPartition(topic, number) for number in sorted(set(partitions))]
    if missing := set(chosen) - set(there):
        raise UnknownTopicOrPartition(f"topic {topic} has no partition {min(missing).partition}: it has {len(there)}")
    consumer.assign(chosen)
    return chosen


def _seek(
    consumer: Consumer, assigned: list[TopicPartition], from_beginning: bool, offset: int | None, timestamp: int | None
) -> None:
    if from_beginning:
        consumer.seek_to_beginning(*assigned)
    elif offset is not None:
        for partition in assigned:
            consumer.seek(partition, offset)
    elif timestamp is not None:
        consumer.seek_to_timestamp(timestamp, *assigned)
    else:
        consumer.seek_to_end(*assigned)


def _polls(consumer: Consumer, assigned: list[TopicPartition], exit_at_end: bool) -> Iterator[list[Any]]:
    """Yield the records of each poll; with `exit_at_end`, up to the present end of each partition.

    Raises RequestTimedOut if no position has moved for SILENCE_MS before that.
    """
    if not exit_at_end:
        while True:
            yield consumer.poll(POLL_MS, max_records=POLL_RECORDS)
    ends = consumer.end_offsets(assigned)
    unfinished = {partition for partition in assigned if consumer.position(partition) < ends[partition]}
    silent_polls = 0
    while unfinished:
        before = {partition: consumer.position(partition) for partition in unfinished}
        records = consumer.poll(POLL_MS, max_records=POLL_RECORDS)
        after = {partition: consumer.position(partition) for partition in unfinished}
        silent_polls = silent_polls + 1 if after == before else 0
        if silent_polls * POLL_MS >= SILENCE_MS:
            raise RequestTimedOut(f"nothing came for {SILENCE_MS // 1000} s, before the end of {min(unfinished)}")
        yield [record for record in records if record.offset < ends[TopicPartition(record.topic, record.partition)]]
        unfinished = {partition for partition, position in after.items() if position < ends[partition]}


def _print(polls: Iterator[list[Any]], render: Callable[[Any], str], max_messages: int | None) -> None:
    """Print each poll with one write and a flush, without waiting for the next poll."""
    left = max_messages
    for polled in polls:
        records = polled[:left]
        sys.stdout.write("".join(render(record) + "\n" for record in records))
        sys.stdout.flush()
        if left is not None:
            left -= len(records)
            if left == 0:
                return


def _renderer(template: str) -> Callable[[Any], str]:
    """Return a function from a record to its line. Raises click.UsageError if the template names an unknown field."""
    try:
        template.format_map(dict.fromkeys(FIELDS, ""))
    except (KeyError, ValueError, IndexError, AttributeError):
        names = " ".join(f"{{{name}}}" for name in FIELDS)
        raise click.UsageError(f"--format {template!r}: it may name {names}") from None

    def render(record: Any) -> str:
        return template.format(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            timestamp=record.timestamp_ms,
            key=_printable(record.key),
            value=_printable(record.value),
        )

    return render


def _printable(value: bytes | None) -> str:
    """Return text for the terminal: empty for null, escapes for bytes that are not UTF-8."""
    return "" if value is None else value.decode(errors="backslashreplace")
