"""`sparklog produce` and `sparklog consume`, each with the other's output."""

from __future__ import annotations

import gzip
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from sparklog.base.ids import TopicPartition
from sparklog.cli import consume, produce
from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker
from support.clients.command_result import CommandResult

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]
READ = ("--from-beginning", "--exit-at-end")


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Sets the standard input of the next command."""
    return lambda data: monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., str]:
    """Writes objects to a file of JSON lines."""

    def write(*objects: Any) -> str:
        path = tmp_path / "lines.jsonl"
        path.write_text("".join(json.dumps(item) + "\n" for item in objects))
        return str(path)

    return write


def test_json_lines_are_read_back_as_they_were_written(sparklog: Sparklog, lines: Callable[..., str]) -> None:
    file = lines(
        {"key": "a", "value": "text", "timestamp": 17, "headers": {"h": "1", "n": None}},
        {"key": None, "value": {"b": [1, 2.50, "é"], "c": None}, "timestamp": 18},
        {"key": "a", "value": None, "timestamp": 19},
    )

    written = sparklog("produce", "orders", "--json-lines", file)

    assert written.status == 0
    assert written.out.startswith("wrote 3 records to orders in ")
    assert sparklog("consume", "orders", *READ, "--json").rows == [
        {"topic": "orders", "partition": 0, "offset": 0, "timestamp": 17, "key": "a", "value": "text",
         "headers": {"h": "1", "n": None}},
        {"topic": "orders", "partition": 0, "offset": 1, "timestamp": 18, "key": None,
         "value": '{"b":[1,2.5,"é"],"c":null}', "headers": {}},
        {"topic": "orders", "partition": 0, "offset": 2, "timestamp": 19, "key": "a", "value": None, "headers": {}},
    ]  # fmt: skip


def test_compressed_files_and_standard_input_are_read_too(
    sparklog: Sparklog, stdin: Callable[[bytes], None], tmp_path: Path
) -> None:
    path = tmp_path / "lines.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"value": "from gzip"}\n'))
    sparklog("produce", "t", "--json-lines", str(path))
    stdin(b'{"value": "from stdin"}\n')
    produced = sparklog("produce", "t", "--json-lines", "-", "--compression", "zstd", "--json")

    assert (produced.rows[0]["topic"], produced.rows[0]["records"]) == ("t", 1)
    assert sparklog("consume", "t", *READ).out == "from gzip\nfrom stdin\n"


def test_plain_lines_may_have_keys(sparklog: Sparklog, stdin: Callable[[bytes], None], tmp_path: Path) -> None:
    stdin(b"hello\r\nworld\n\nlast")
    sparklog("produce", "plain")
    stdin(b"a:1:2\n:empty key\n")
    sparklog("produce", "keyed", "--key-separator", ":")

    path = tmp_path / "lines.txt.gz"
    path.write_bytes(gzip.compress(b"from\na file\n"))
    sparklog("produce", "filed", "--file", str(path))

    assert sparklog("consume", "filed", *READ).out == "from\na file\n"
    assert sparklog("consume", "plain", *READ).out == "hello\nworld\n\nlast\n"
    rows = sparklog("consume", "keyed", *READ, "--json").rows
    assert [(row["key"], row["value"]) for row in rows] == [("a", "1:2"), ("", "empty key")]


def test_bytes_that_are_not_text_come_as_base64_and_go_back(
    sparklog: Sparklog, sparklog_broker: RunningBroker, stdin: Callable[[bytes], None]
) -> None:
    with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
        producer.send("t", b"\xff", b"\xfe", headers=[("h", b"\xfd"), ("r", b"1"), ("r", b"2")], timestamp_ms=5)

    first = sparklog("consume", "t", *READ, "--json")
    assert first.rows == [
        {"topic": "t", "partition": 0, "offset": 0, "timestamp": 5, "key_base64": "/g==", "value_base64": "/w==",
         "headers": {"h": {"base64": "/Q=="}, "r": ["1", "2"]}},
    ]  # fmt: skip
    stdin(first.out.encode())
    assert sparklog("produce", "t", "--json-lines", "-").status == 0
    again = sparklog("consume", "t", "--offset", "1", "--exit-at-end", "--json").rows
    assert again == [first.rows[0] | {"offset": 1}]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"{oops\n", "not JSON"),
        (b'{"key": 1}\n', "key must be a string or null, not 1"),
        (b'{"value": "%s"}\n' % (b"x" * 1_100_000), "max_request_size"),
        (b'{"value": "\\ud800"}\n', "surrogates not allowed"),
        (b'{"timestamp": 99999999999999999999}\n', "milliseconds since 1970"),
        (b'{"value": ' + b'{"a":' * 50_000 + b"\n", "not JSON"),
    ],
)
def test_a_bad_line_is_named_with_what_was_written_before(
    sparklog: Sparklog, tmp_path: Path, bad: bytes, reason: str
) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_bytes(b'{"value": "1"}\n{"value": "2"}\n' + bad + b'{"value": "never"}\n')

    failed = sparklog("produce", "t", "--json-lines", str(path))

    assert (failed.status, failed.out) == (1, "")
    assert failed.err.startswith(f"sparklog: {path}:3: ")
    assert reason in failed.err
    assert failed.err.endswith("; the 2 records before it were written\n")
    assert sparklog("consume", "t", *READ).out == "1\n2\n"


@pytest.mark.parametrize("cut", [20, -8])
def test_a_damaged_file_says_how_far_it_could_be_read(sparklog: Sparklog, tmp_path: Path, cut: int) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(b"".join(b'{"value": "%d"}\n' % number for number in range(1_000)))[:cut])

    failed = sparklog("produce", "t", "--json-lines", str(path))

    assert failed.status == 1
    assert failed.err.startswith(f"sparklog: {path}: cannot be read on: ")
    assert failed.err.endswith(" records were written\n")


def test_a_file_that_is_not_there_has_status_1(sparklog: Sparklog) -> None:
    missing = sparklog("produce", "t", "--json-lines", "/no/such.jsonl")

    assert (missing.status, missing.err) == (1, "sparklog: /no/such.jsonl: No such file or directory\n")


def test_it_is_told_what_records_wait_for(
    sparklog: Sparklog, lines: Callable[..., str], monkeypatch: pytest.MonkeyPatch, sparklog_broker: RunningBroker
) -> None:
    """Too few replicas are in sync until the second message about it."""
    told: list[str] = []
    echo = click.echo

    def listen(message: str, **how: Any) -> None:
        echo(message, **how)
        told.append(message)
        if len(told) == 2:
            with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
                admin.alter_configs("strict", set={"min.insync.replicas": "1"})

    monkeypatch.setattr(produce, "TOLD_EVERY_MS", 200)
    assert sparklog("topics", "create", "strict", "--config", "min.insync.replicas=2").status == 0
    monkeypatch.setattr(click, "echo", listen)

    written = sparklog("produce", "strict", "--json-lines", lines({"value": "v"}))

    assert (written.status, "wrote 1 records to strict" in written.out) == (0, True)
    assert "waiting: 1 records are not acknowledged yet: " in written.err
    assert any("in-sync" in each or "in sync" in each for each in told[:2]), told


def test_it_is_told_what_records_wait_for_while_the_input_stays_open(
    sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch, sparklog_broker: RunningBroker
) -> None:
    """The input ends only after the message."""
    reading, writing = os.pipe()
    told: list[str] = []
    echo = click.echo

    def listen(message: str, **how: Any) -> None:
        echo(message, **how)
        told.append(message)
        if len(told) == 1:
            with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
                admin.alter_configs("strict", set={"min.insync.replicas": "1"})
            os.close(writing)

    sparklog("topics", "create", "strict", "--config", "min.insync.replicas=2")
    monkeypatch.setattr(produce, "LOOK_EVERY_MS", 10)
    monkeypatch.setattr(click, "echo", listen)
    os.write(writing, b"v\n")
    with open(reading, encoding="utf-8") as input_:
        monkeypatch.setattr("sys.stdin", input_)
        written = sparklog("produce", "strict")

    assert (written.status, "wrote 1 records to strict" in written.out) == (0, True)
    assert told[0].startswith("waiting: 1 records are not acknowledged yet: ")
    assert "in-sync" in told[0] or "in sync" in told[0]


def test_records_that_were_not_delivered_are_counted_in_one_line(
    sparklog: Sparklog, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = produce.client_options
    short = {"delivery_timeout_ms": 300, "request_timeout_ms": 200, "linger_ms": 0}
    monkeypatch.setattr(produce, "client_options", lambda *given, **more: options(*given, **more) | short)
    sparklog("topics", "create", "strict", "--config", "min.insync.replicas=2", "--partitions", "4")
    path = tmp_path / "lines"
    path.write_bytes(b"".join(b"%d:v\n" % number for number in range(100)))
    caplog.set_level("WARNING", "sparklog.client")

    refused = sparklog("produce", "strict", "--file", str(path), "--key-separator", ":")

    assert refused.status == 1
    assert refused.err.splitlines()[-1].endswith("(0 records were written)")
    assert "were not delivered" not in caplog.text


def test_what_the_broker_refuses_is_told(sparklog: Sparklog, lines: Callable[..., str]) -> None:
    sparklog("topics", "create", "t", "--config", "max.message.bytes=1000")

    refused = sparklog("produce", "t", "--json-lines", lines({"value": "x" * 5_000}))

    assert refused.status == 1
    assert "(0 records were written)" in refused.err
    unplaced = sparklog("produce", "t", "--partition", "7", "--json-lines", lines({"value": "v"}))
    assert unplaced.status == 1
    assert "topic 't' has partitions 0 to 0, not 7" in unplaced.err


@pytest.fixture
def filled(sparklog: Sparklog, lines: Callable[..., str]) -> None:
    """Topic "t": ten records in each of two partitions, at 1000 to 1009 ms."""
    sparklog("topics", "create", "t", "--partitions", "2")
    file = lines(*({"key": "k", "value": f"{number}", "timestamp": 1000 + number} for number in range(10)))
    for partition in "01":
        sparklog("produce", "t", "--partition", partition, "--json-lines", file)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("arguments", "values"),
    [
        (("--offset", "7", "--partition", "1"), "789"),
        (("--timestamp", "1006", "--partition", "0"), "6789"),
        (("--timestamp", "1970-01-01T00:00:01.008", "--partition", "0"), "89"),
        (("--from-beginning", "--max-messages", "3", "--partition", "0"), "012"),
        ((), ""),
    ],
)
def test_reading_begins_and_ends_where_it_is_told(sparklog: Sparklog, arguments: tuple[str, ...], values: str) -> None:
    found = sparklog("consume", "t", "--exit-at-end", *arguments)

    assert (found.status, "".join(found.out.split())) == (0, values)


@pytest.mark.usefixtures("filled")
def test_both_partitions_are_read_to_their_ends(sparklog: Sparklog) -> None:
    rows = sparklog("consume", "t", *READ, "--json").rows

    assert sorted((row["partition"], row["offset"]) for row in rows) == [(p, n) for p in range(2) for n in range(10)]


@pytest.mark.usefixtures("filled")
def test_a_format_says_what_is_printed(sparklog: Sparklog) -> None:
    template = "{topic}[{partition}]@{offset} {timestamp} {key}={value}"

    found = sparklog("consume", "t", "--offset", "9", "--exit-at-end", "--format", template)

    assert sorted(found.out.splitlines()) == ["t[0]@9 1009 k=9", "t[1]@9 1009 k=9"]


@pytest.mark.usefixtures("filled")
def test_what_cannot_be_read_has_status_1(sparklog: Sparklog) -> None:
    missing = sparklog("consume", "nope", *READ)
    assert (missing.status, missing.err) == (
        1,
        "sparklog: there is no topic 'nope': see what there is with: sparklog topics list\n",
    )
    assert "has no partition 5" in sparklog("consume", "t", "--partition", "5").err
    beyond = sparklog("consume", "t", "--offset", "99", "--partition", "0")
    assert beyond.status == 1
    assert beyond.err.endswith("read what there is with --from-beginning\n")


def test_a_quick_measurement_names_its_figures(sparklog: Sparklog) -> None:
    rows = sparklog("bench", "--records", "1000", "--json").rows

    assert [(row["what"], row["records"]) for row in rows] == [
        ("produce, record by record", 1000),
        ("produce, Arrow tables", 1000),
        ("consume, Arrow tables", 2000),
    ]
    assert sparklog("topics", "list", "--json").rows == []


class Skipping:
    """A consumer whose polls move over aborted records, and over one that counts at last."""

    def __init__(self, chunks: int) -> None:
        self._position, self._end = 0, chunks

    def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, self._end)

    def position(self, _: TopicPartition) -> int:
        return self._position

    def poll(self, _: int, *, max_records: int) -> list[Any]:
        self._position += 1
        return [SimpleNamespace(topic="t", partition=0, offset=self._end - 1)] if self._position == self._end else []


def test_a_long_run_of_aborted_records_is_no_silence() -> None:
    polls = consume._polls(Skipping(1_000), [TopicPartition("t", 0)], exit_at_end=True)
    assert [record.offset for records in polls for record in records] == [999]
