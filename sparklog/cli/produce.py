"""`sparklog produce`: write lines, or JSON lines, to a topic."""

from __future__ import annotations

import gzip
import logging
import os
import sys
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, BinaryIO, Self

import click

from sparklog import client
from sparklog.base.errors import BufferExhausted, InvalidRecord, InvalidTimestamp, MessageTooLarge, SparklogError
from sparklog.cli.common import admin_client, bootstrap_option, client_options, json_option, print_json
from sparklog.cli.json_lines import ParsedLine, parse_line

if TYPE_CHECKING:
    from sparklog.client import Producer

Parse = Callable[[bytes], ParsedLine]
PROGRESS_EVERY = 2_000
TOLD_EVERY_MS = 5_000
LOOK_EVERY_MS = 250
NEVER_MS = float("-inf")


class WaitingReporter:
    """Reports every TOLD_EVERY_MS why records wait, if some have waited that long, and an error at once.

    Runs in a thread, because the command itself may wait for its input, for room in the producer's buffer, or for the
    end of the producer.
    """

    def __init__(self, failures: DeliveryFailures) -> None:
        self._failures = failures
        self._ended = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def watch(self, producer: Producer) -> None:
        """Begin to report on this producer's records."""
        threading.Thread(target=self._run, args=(producer,), name="sparklog waiting", daemon=True).start()

    def _run(self, producer: Producer) -> None:
        told_ms = NEVER_MS
        while not self._ended.wait(LOOK_EVERY_MS / 1000):
            now_ms = time.monotonic() * 1000
            if now_ms - told_ms >= TOLD_EVERY_MS and (what := self._reason(producer)):
                click.echo(f"waiting: {what}", err=True)
                told_ms = now_ms

    def _reason(self, producer: Producer) -> str:
        found = producer.unacknowledged()
        if found.error or found.waiting_ms >= TOLD_EVERY_MS:
            return f"{found.records:,} records are not acknowledged yet: {found.why}"
        if self._failures.is_old and not found.records:
            return f"for the next line of the input, to end: {self._failures.first}"
        return ""


class DeliveryFailures:
    """Number of failed deliveries, and the first error."""

    def __init__(self) -> None:
        self.count = 0
        self.first: SparklogError | None = None
        self._since_ms = 0.0

    @property
    def is_old(self) -> bool:
        """Whether the first error came at least TOLD_EVERY_MS ago."""
        return self.first is not None and time.monotonic() * 1000 - self._since_ms >= TOLD_EVERY_MS

    def note(self, _metadata: object, error: SparklogError | None) -> None:
        """Count a failed delivery; `error` is None for a successful one. A callback of producers."""
        if error is not None:
            self.count += 1
            if self.first is None:
                self._since_ms, self.first = time.monotonic() * 1000, error


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
    parse = parse_line if json_lines else _plain_parser(key_separator)
    started = time.monotonic()
    with admin_client(bootstrap) as admin:
        admin.describe_cluster()  # fails at once if no broker answers
    failures = DeliveryFailures()
    with (
        _open_lines(json_lines or plain_file or "-") as (name, lines),
        _without_log_of_failures(),
        WaitingReporter(failures) as waiting,
        client.Producer(**client_options(bootstrap, acks=acks, compression_type=compression)) as producer,
    ):
        waiting.watch(producer)
        records = _send_all(producer, topic, partition, parse, name, lines, failures)
    seconds = time.monotonic() - started
    if as_json:
        print_json({"topic": topic, "records": records, "seconds": round(seconds, 3)})
    else:
        click.echo(f"wrote {records:,} records to {topic} in {seconds:.1f} s")


def _send_all(
    producer: Producer,
    topic: str,
    partition: int | None,
    parse: Parse,
    name: str,
    lines: Iterator[bytes],
    failures: DeliveryFailures,
) -> int:
    """Return the number of records written. Raises the first delivery error, or InvalidRecord for an invalid line."""
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
    except BufferExhausted as full:
        _finish(producer, failures, sent)
        raise BufferExhausted(f"{full} ({sent:,} records were written)") from None
    except (EOFError, OSError, zlib.error) as unreadable:
        _finish(producer, failures, sent)
        raise OSError(f"{name}: cannot be read on: {unreadable}; {sent:,} records were written") from None
    _finish(producer, failures, sent)
    return sent


def _finish(producer: Producer, failures: DeliveryFailures, sent: int) -> None:
    """Wait for all acknowledgements: each record has its own time-out. Raises the first delivery error."""
    producer.flush()
    if failures.first:
        raise type(failures.first)(f"{failures.first} ({sent - failures.count:,} records were written)")


@contextmanager
def _without_log_of_failures() -> Iterator[None]:
    """Suppress the client's log line for each failed batch: the command's error has the number of records."""
    log = logging.getLogger("sparklog.client.producer.sender")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _plain_parser(separator: str | None) -> Parse:
    if separator is None:
        return lambda text: ParsedLine(None, text.rstrip(b"\r\n"), [], None)
    mark = separator.encode()

    def parse(text: bytes) -> ParsedLine:
        key, found, value = text.rstrip(b"\r\n").partition(mark)
        if not found:
            raise ValueError(f"no key separator {separator!r} in it")
        return ParsedLine(key, value, [], None)

    return parse


@contextmanager
def _open_lines(path: str) -> Iterator[tuple[str, Iterator[bytes]]]:
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
