"""`sparklog produce`: write lines, or JSON lines, to a topic."""

from __future__ import annotations

import gzip
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, BinaryIO

import click

from sparklog import client
from sparklog.base.errors import DeliveryTimeout, InvalidRecord, InvalidTimestamp, MessageTooLarge, SparklogError
from sparklog.cli.common import admin_client, bootstrap_option, client_options, json_option, print_json
from sparklog.cli.json_lines import Line, parse_line

if TYPE_CHECKING:
    from sparklog.client import Producer

Parse = Callable[[bytes], Line]
PROGRESS_EVERY = 2_000
TOLD_EVERY_MS = 5_000


class Failures:
    """Number of failed deliveries, and the first error."""

    def __init__(self) -> None:
        self.count = 0
        self.first: SparklogError | None = None

    def note(self, _metadata: object, error: SparklogError | None) -> None:
        if error is not None:
            self.count += 1
            self.first = self.first or error


@click.command("produce")
@click.argument("topic")
@click.option(
    "--json-lines", metavar="FILE", help="Read records from FILE, one JSON object per line; .gz is unpacked; -: stdin."
)
@click.option(
    "--file", "plain_file", metavar="FILE", help="Read plain lines from FILE; .gz is unpacked.  [default: stdin]"
)
@click.option("--key-separator", metavar="TEXT", help="The part of a line before TEXT is the key.")
@click.option("--partition", type=int, help="Write to this partition only.  [default: by key]")
@click.option("--acks", type=click.Choice(["all", "1", "0"]), default="all", show_default=True)
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@bootstrap_option
@json_option
def command(
    topic: str,
    json_lines: str | None,
    plain_file: str | None,
    key_separator: str | None,
    partition: int | None,
    acks: str,
    compression: str,
    bootstrap: str,
    as_json: bool,
) -> None:
    """Write records to TOPIC: plain lines, or JSON lines, from a file or standard input.

    \b
      echo hello | sparklog produce greetings
      printf 'a:1\\nb:2\\n' | sparklog produce numbers --key-separator :
      sparklog produce orders --json-lines orders.jsonl.gz

    A JSON line is {"key": string or null, "value": string, object or null, "timestamp": milliseconds, "headers": {…}};
    every field is optional. An object is stored as compact JSON. An invalid line ends the command: the error gives the
    line's number and the number of records written before it.
    """
    if json_lines and (key_separator or plain_file):
        raise click.UsageError("--key-separator and --file are for plain lines, not for --json-lines")
    parse = parse_line if json_lines else _plain(key_separator)
    started = time.monotonic()
    with admin_client(bootstrap) as admin:
        admin.describe_cluster()  # fails at once if no broker answers
    with (
        _opened(json_lines or plain_file or "-") as (name, lines),
        client.Producer(**client_options(bootstrap, acks=acks, compression_type=compression)) as producer,
    ):
        records = _send_all(producer, topic, partition, parse, name, lines)
    seconds = time.monotonic() - started
    if as_json:
        print_json({"topic": topic, "records": records, "seconds": round(seconds, 3)})
    else:
        click.echo(f"wrote {records:,} records to {topic} in {seconds:.1f} s")


def _send_all(
    producer: Producer, topic: str, partition: int | None, parse: Parse, name: str, lines: Iterator[bytes]
) -> int:
    """Return the number of records written. Raises the first delivery error, or InvalidRecord for an invalid line."""
    failures = Failures()
    sent = 0
    try:
        for text in lines:
            line = parse(text)
            producer.send(
                topic,
                line.value,
                line.key,
                headers=line.headers,
                timestamp_ms=line.timestamp_ms,
                partition=partition,
                on_delivery=failures.note,
            )
            sent += 1
            if failures.first:
                break
    except (ValueError, InvalidRecord, InvalidTimestamp, MessageTooLarge) as wrong:
        _finish(producer, failures, sent)
        raise InvalidRecord(f"{name}:{sent + 1}: {wrong}; the {sent:,} records before it were written") from None
    except (EOFError, OSError, zlib.error) as unreadable:
        _finish(producer, failures, sent)
        raise OSError(f"{name}: cannot be read on: {unreadable}; {sent:,} records were written") from None
    _finish(producer, failures, sent)
    return sent


def _finish(producer: Producer, failures: Failures, sent: int) -> None:
    """Wait for all acknowledgements, and print what is outstanding meanwhile. Raises the first delivery error."""
    while True:
        try:
            producer.flush(TOLD_EVERY_MS)
            break
        except DeliveryTimeout as waiting:  # each record has its own time-out
            click.echo(f"waiting: {waiting}", err=True)
    if failures.first:
        raise type(failures.first)(f"{failures.first} ({sent - failures.count:,} records were written)")


def _plain(separator: str | None) -> Parse:
    if separator is None:
        return lambda text: Line(None, text.rstrip(b"\r\n"), [], None)
    mark = separator.encode()

    def parse(text: bytes) -> Line:
        key, found, value = text.rstrip(b"\r\n").partition(mark)
        if not found:
            raise ValueError(f"no key separator {separator!r} in it")
        return Line(key, value, [], None)

    return parse


@contextmanager
def _opened(path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the file's name for messages, and its lines; show a progress bar if standard error is a terminal."""
    if path == "-":
        yield "standard input", iter(sys.stdin.buffer)
        return
    with open(path, "rb") as file, gzip.open(file) if path.endswith(".gz") else nullcontext(file) as lines:
        yield path, _with_progress(file, lines) if sys.stderr.isatty() else iter(lines)


def _with_progress(file: BinaryIO, lines: Iterable[bytes]) -> Iterator[bytes]:
    size = os.fstat(file.fileno()).st_size
    with click.progressbar(length=size, label="producing", file=sys.stderr) as bar:
        for number, line in enumerate(lines):
            if number % PROGRESS_EVERY == 0:
                bar.update(file.tell() - bar.pos)
            yield line
        bar.update(size - bar.pos)
