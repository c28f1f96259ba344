"""The offsets topic as tables: of what Apache Kafka wrote, and of a broker that dies in the middle."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from sparklog.jobs.job import JobContext, run_job
from sparklog.jobs.offset_replay import JOB
from sparklog.jobs.options import parse_options

NONE, LZ4 = "codec-none", "codec-lz4"


def replay(context: JobContext, **options: Any) -> list[Any]:
    return run_job(JOB, context, parse_options(JOB, options)).rows.orderBy("partition").collect()


def table(context: JobContext, name: str) -> DataFrame:
    return context.spark.read.format("delta").load(context.table(name))


@pytest.fixture
def kafka_s(golden: Path, tmp_path: Path) -> Path:
    """A log directory with the offsets topic that Apache Kafka wrote."""
    folder = tmp_path / "kafka" / "__consumer_offsets-0"
    shutil.copytree(golden / "__consumer_offsets-0", folder)
    return folder


def test_what_kafka_wrote(make_context: Any, kafka_s: Path) -> None:
    context = make_context()

    (row,) = replay(context, path=str(kafka_s.parent))

    assert (row.outcome, row.offset_from, row.offset_to, row.records) == ("read", 0, 22, 22)
    history = table(context, "consumer_offsets_history").orderBy("log_offset").collect()
    assert [(each.log_offset, each.group_id, each.topic, each.offset, each.client_id) for each in history] == [
        (0, "g-txn", NONE, 77, None),
        (4, "g-classic", LZ4, 51, "rdkafka"),
        (5, "g-classic", NONE, 50, "rdkafka"),
        (6, "g-classic", LZ4, 121, "rdkafka"),
        (7, "g-classic", NONE, 120, "rdkafka"),
        (14, "g-consumer", LZ4, 51, "rdkafka"),
        (15, "g-consumer", NONE, 50, "rdkafka"),
        (16, "g-consumer", LZ4, 121, "rdkafka"),
        (17, "g-consumer", NONE, 120, "rdkafka"),
    ]
    assert history[1].commit_time == datetime(2026, 11, 21, 2, 17, 12, 222000)
    now = table(context, "consumer_offsets").orderBy("log_offset").collect()
    assert [(each.group_id, each.topic, each.offset, each.metadata) for each in now] == [
        ("g-txn", NONE, 77, ""),
        ("g-classic", LZ4, 121, ""),
        ("g-classic", NONE, 120, "g-classic at 120\0"),
        ("g-consumer", LZ4, 121, ""),
        ("g-consumer", NONE, 120, "g-consumer at 120\0"),
    ]
    assert table(context, "group_members").count() == 0  # all had left
