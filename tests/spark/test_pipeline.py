"""A pipeline, tested as its authors would test it: a broker for the test, a few records, the resulting table."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from chispa import assert_df_equality

from sparklog.client import Admin, Producer
from support.names import unique

EXAMPLES = Path(__file__).parents[2] / "examples"
MIDNIGHT = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.fixture
def pipeline(monkeypatch):
    """The module of the examples that is under test."""
    monkeypatch.syspath_prepend(EXAMPLES)
    return pytest.importorskip("pipeline")


@pytest.fixture
def departures(sparklog_broker):
    """A topic of three partitions."""
    name = unique("departures")
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=3, configs={"retention.ms": "-1"})
    return name


@pytest.fixture
def produce(sparklog_broker, departures):
    """Send departures of planes, one an hour from midnight on: (plane, carrier, value)."""

    def send(*rows: tuple[str | None, str, str | None]) -> None:
        planes, carriers, values = zip(*rows, strict=True)
        headers = [[{"key": "carrier", "value": carrier.encode()}] for carrier in carriers]
        hours = [MIDNIGHT + timedelta(hours=hour) for hour in range(len(rows))]
        table = pa.table(
            {
                "key": pa.array(planes, pa.string()),
                "value": pa.array(values, pa.string()),
                "headers": pa.array(headers, pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
                "timestamp": pa.array(hours, pa.timestamp("ms", "UTC")),
            }
        )
        with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
            producer.send_table(departures, table).result(30)

    return send


def test_departures_end_up_in_the_table_once_and_the_newest_counts(
    spark, sparklog_broker, pipeline, departures, produce, tmp_path
):
    topic = pipeline.Topic(spark, sparklog_broker.bootstrap, departures)
    table, checkpoint = tmp_path / "delta", tmp_path / "checkpoint"
    produce(("N1", "UA", "a"), ("N2", "B6", "b"), (None, "UA", "c"), ("N1", "UA", "d"))
    assert topic.copy_to_delta(table, checkpoint) == 4
    produce(("N2", "B6", None), ("N3", "B6", "e"))
    assert topic.copy_to_delta(table, checkpoint) == 2
    copied = spark.read.format("delta").load(str(table))
    assert_df_equality(copied, topic.batch(), ignore_row_order=True)
    assert pipeline.newest_values(copied) == {"N1": "d", "N2": None, "N3": "e"}


def test_departures_are_counted_by_carrier_and_by_time(spark, sparklog_broker, pipeline, departures, produce):
    topic = pipeline.Topic(spark, sparklog_broker.bootstrap, departures)
    produce(("N1", "UA", "a"), ("N2", "B6", None), (None, "UA", "c"))
    assert pipeline.departures_by_carrier(topic.batch()) == {"UA": 2, "B6": 1}
    assert topic.since(MIDNIGHT + timedelta(hours=1)).count() == 2
    spark.conf.unset("spark.sql.python.filterPushdown.enabled")
