"""`sparklog explain`."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from sparklog.client import Producer
from sparklog.spark.compaction.work import REPORT_ARROW
from sparklog.testing import RunningBroker
from support.clients.command_result import CommandResult
from support.patience import PATIENCE_S

Sparklog = Callable[..., CommandResult]


@pytest.fixture
def written(sparklog: Sparklog, sparklog_broker: RunningBroker) -> str:
    """A compacted topic of three partitions, the first with closed segments."""
    configs = ("cleanup.policy=compact", "internal.segment.bytes=1000", "max.compaction.lag.ms=3600000")
    settings = [argument for config in configs for argument in ("--config", config)]
    sparklog("topics", "create", "orders", "--partitions", "3", *settings)
    with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
        for number in range(4):
            producer.send("orders", b"x" * 600, key=b"%d" % number, partition=0).result(PATIENCE_S)
    return "orders"


def test_each_partition_says_why_it_is_due_or_not_and_what_to_do(sparklog: Sparklog, written: str) -> None:
    due, empty, _ = sparklog("explain", "compaction", written, "--json").rows

    assert (due["partition"], due["due"], due["cause"], due["dirty_ratio"]) == (0, True, "dirty ratio", 1.0)
    assert due["reason"].startswith("100.0% of 2,")
    assert due["next_step"] == "sparklog jobs run compaction --topics orders"
    assert (due["first_dirty_offset"], due["end_offset"], due["log_end_offset"], due["segments"]) == (0, 3, 4, 3)
    assert due["configs"]["max.compaction.lag.ms"] == 3_600_000
    assert due["last_run"] is None
    assert (empty["partition"], empty["due"], empty["cause"]) == (1, False, "nothing closed")
    assert "segment.bytes=1000" in empty["next_step"]

    lines = sparklog("explain", "compaction", written).out.splitlines()
    assert lines[0].startswith("topic orders: cleanup.policy=compact, compaction.strategy=offset")
    assert [line.split()[:3] for line in lines[1:4]] == [["PARTITION", "DUE", "DIRTY"], ["0", "yes", "100.0%"],
                                                         ["1", "no", "0.0%"]]  # fmt: skip
    assert lines[6].startswith("partition 0: due: 100.0% of")
    assert lines[9].startswith("partitions 1, 2: not due: there is no closed segment")


@pytest.mark.slow
def test_reports_tell_what_the_last_run_did(sparklog: Sparklog, written: str, tmp_path: Path) -> None:
    nothing = dict.fromkeys(REPORT_ARROW.names, 0) | {"topic": written, "how": "task", "reason": ""}
    # A run that was broken off is the last one; the horizon is from the one before, which came to its end.
    outcomes = [
        {"outcome": "compacted", "cleaned_offset": 3, "next_delete_horizon_ms": 1_000, "records_before": 9},
        {"outcome": "quarantined", "cleaned_offset": None, "reason": "a batch is damaged"},
    ]
    for day, outcome in enumerate(outcomes, 1):
        rows = pa.Table.from_pylist([nothing | outcome], REPORT_ARROW)
        times = pa.array([datetime(2026, 1, day, tzinfo=UTC)], pa.timestamp("us", "UTC"))
        write_deltalake(str(tmp_path / "compaction"), rows.append_column("at", times), mode="append")

    told, other, _ = sparklog("explain", "compaction", written, "--reports", str(tmp_path), "--json").rows
    assert told["last_run"]["outcome"] == "quarantined"
    assert told["last_run"]["at"] == "2026-01-02T00:00:00+00:00"
    assert told["next_delete_horizon"] == "1970-01-01T00:00:01+00:00"
    assert other["last_run"] is None
    text = sparklog("explain", "compaction", written, "--reports", str(tmp_path)).out
    assert "last run: 2026-01-02T00:00:00+00:00 quarantined: a batch is damaged" in text


def test_a_topic_that_is_not_compacted_or_not_there(sparklog: Sparklog) -> None:
    sparklog("topics", "create", "plain")
    [row] = sparklog("explain", "compaction", "plain", "--json").rows
    assert (row["due"], row["cause"], row["reason"]) == (False, "cleanup policy", "cleanup.policy is delete")
    assert "topics alter plain --config cleanup.policy=compact" in row["next_step"]
    missing = sparklog("explain", "compaction", "missing")
    assert (missing.status, missing.out) == (1, "")
    assert "sparklog topics list" in missing.err
