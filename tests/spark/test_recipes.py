"""The recipes of the guide, unchanged."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from support import ROOT
from support.docs.markdown import blocks
from support.patience import PATIENCE_S, wait_until

GUIDE = ROOT / "docs" / "guides" / "recipes.md"
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
Send = Callable[..., None]


@pytest.fixture(scope="module")
def recipes() -> SimpleNamespace:
    """The functions of the guide."""
    names: dict[str, Any] = {"__name__": "recipes"}
    for block in blocks(GUIDE):
        if block.language == "python" and not block.mark:
            exec(compile("\n" * block.line + block.text, str(GUIDE), "exec"), names)
    return SimpleNamespace(**names)


@pytest.fixture
def send(sparklog_broker) -> Send:
    """Add orders: (customer, value, seconds after noon)."""
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=3, configs={"retention.ms": "-1"})

    def fill(*rows: tuple[str | None, str | None, int]) -> None:
        keys, values, seconds = zip(*rows, strict=True)
        times = [NOON + timedelta(seconds=each) for each in seconds]
        table = {"key": pa.array(keys, pa.string()), "value": pa.array(values, pa.string())}
        with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
            table["timestamp"] = pa.array(times, pa.timestamp("ms", "UTC"))
            producer.send_table("orders", pa.table(table)).result(PATIENCE_S)

    return fill


def amount(number: int) -> str:
    return f'{{"amount": {number}}}'


def finish(query) -> None:
    assert query.awaitTermination(PATIENCE_S)


def end_before_the_last_commit(checkpoint: Path) -> None:
    """Change the checkpoint as if the driver had died after the last micro-batch was written, before its commit."""
    last = max(
        (file for file in (checkpoint / "commits").iterdir() if file.name.isdigit()), key=lambda it: int(it.name)
    )
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)


def test_minutes_are_written_once_and_late_orders_left_out(spark, sparklog_broker, recipes, send, tmp_path):
    table, checkpoint = str(tmp_path / "minutes"), str(tmp_path / "checkpoint")

    def run() -> set[tuple[Any, ...]]:
        finish(recipes.write_minutes(recipes.orders(spark, sparklog_broker.bootstrap), table, checkpoint))
        rows = spark.read.format("delta").load(table).collect()
        assert len({(row.start, row.customer) for row in rows}) == len(rows)
        return {(row.start.replace(tzinfo=UTC), row.customer, row.amount, row.orders) for row in rows}

    send(("alice", amount(12), 10), ("alice", amount(3), 50), ("bob", amount(7), 30), ("alice", amount(1), 60))
    assert run() == set()
    send(("carol", amount(5), 661))
    first = {(NOON, "alice", 15, 2), (NOON, "bob", 7, 1)}
    assert run() == first
    send(("alice", amount(100), 20), ("carol", amount(6), 1_800))
    later = {(NOON + timedelta(minutes=1), "alice", 1, 1), (NOON + timedelta(minutes=11), "carol", 5, 1)}
    assert run() == first | later


def test_a_change_stream_becomes_a_table_of_the_newest_values(spark, sparklog_broker, recipes, send, tmp_path):
    table, checkpoint = tmp_path / "newest", tmp_path / "checkpoint"

    def run() -> dict[str, str]:
        records = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", sparklog_broker.bootstrap)
        records = records.option("subscribe", "orders").option("startingOffsets", "earliest").load()
        finish(recipes.write_newest(records, str(table), str(checkpoint)))
        rows = spark.read.format("delta").load(str(table)).collect()
        found = {row.key.decode(): row.value.decode() for row in rows}
        assert len(found) == len(rows)
        return found

    send(("a", "1", 0), ("b", "2", 0), ("a", "3", 0), (None, "4", 0), ("gone", "5", 0), ("gone", None, 0))
    assert run() == {"a": "3", "b": "2"}
    send(("b", None, 0), ("c", "6", 0), ("a", "7", 0))
    newest = {"a": "7", "c": "6"}
    assert run() == newest
    end_before_the_last_commit(checkpoint)
    assert run() == newest
    send(("b", "8", 0))
    assert run() == {**newest, "b": "8"}


def test_sessions_are_written_when_they_have_ended(spark, sparklog_broker, recipes, send, tmp_path):
    table, checkpoint = str(tmp_path / "sessions"), str(tmp_path / "checkpoint")
    provider = "spark.sql.streaming.stateStore.providerClass"
    before = spark.conf.get(provider)

    def run() -> set[tuple[Any, ...]]:
        finish(recipes.write_sessions(recipes.orders(spark, sparklog_broker.bootstrap), table, checkpoint))
        rows = spark.read.format("delta").load(table).collect()
        return {(row.customer, row.amount, int((row.ended.replace(tzinfo=UTC) - NOON).total_seconds())) for row in rows}

    try:
        send(("alice", amount(12), 0), ("bob", amount(7), 30))
        assert run() == set()
        send(("alice", amount(3), 300), ("carol", amount(1), 800))
        assert run() == {("bob", 7, 630)}
        send(("alice", amount(5), 2_000))
        assert run() == {("bob", 7, 630), ("alice", 15, 900), ("carol", 1, 1_400)}
    finally:
        spark.conf.set(provider, before)


def test_large_orders_are_passed_on_while_the_batch_runs(spark, sparklog_broker, recipes, tmp_path):
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        for topic in ("orders", "large"):  # one partition, as each occupies a core
            admin.create_topic(topic)
    query = recipes.pass_on_large_orders(spark, sparklog_broker.kafka, str(tmp_path / "checkpoint"))
    try:
        with (
            Producer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=0) as producer,
            Consumer(bootstrap_servers=sparklog_broker.bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([TopicPartition("large", 0)])
            for number in (12, 7, 30):
                producer.send("orders", amount(number), key="alice").result(PATIENCE_S)
            found: list[bytes] = []
            wait_until(lambda: found.extend(each.value for each in consumer.poll(100)) or len(found) >= 2, "two orders")
            assert found == [amount(12).encode(), amount(30).encode()]
            assert query.lastProgress is None, "the first batch is still running"
    finally:
        query.stop()
