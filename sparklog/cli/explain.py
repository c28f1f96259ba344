"""`sparklog explain`: explain the decisions of maintenance jobs from brokers and reports, without Spark.

`explain compaction TOPIC` prints for each partition whether compaction is due, the reason, and the next step. The
planner is that of the job itself (log/compaction.py), so the answers differ only by the time between them. With
reports, the answer also has the result of the last run, and the next delete horizon.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from sparklog import client
from sparklog.base.clock import SystemClock
from sparklog.base.errors import KafkaError
from sparklog.base.ids import TopicPartition
from sparklog.base.topic_config import TOPIC_KEYS, TopicConfig
from sparklog.cli.common import (
    NOTHING,
    PATIENCE_MS,
    admin_client,
    bootstrap_option,
    client_options,
    json_option,
    print_json,
    print_table,
)
from sparklog.cli.job_runs import REPORTS, whole_path
from sparklog.jobs.runs import PastCompaction, PastCompactions, past_compactions
from sparklog.log.compaction import CompactionCause, CompactionNotDue, CompactionPlan, plan_compaction

if TYPE_CHECKING:
    from sparklog.log.description import LogDescription

KEYS = (
    "cleanup.policy", "compaction.strategy", "min.cleanable.dirty.ratio", "min.compaction.lag.ms",
    "max.compaction.lag.ms", "delete.retention.ms", "segment.bytes", "segment.ms",
)  # fmt: skip
"""Configuration keys that compaction depends on."""
_FARTHEST_MS = 253_402_300_799_999  # the end of the year 9999; later times mean never


@click.group("explain")
def command() -> None:
    """Explain the decisions of maintenance jobs.

    \b
      sparklog explain compaction orders
    """


@command.command()
@click.argument("topic")
@click.option(
    "--reports", envvar="SPARKLOG_REPORTS", default=REPORTS, metavar="FOLDER", show_default=True, show_envvar=True,
    help="Folder of the jobs' reports.",
)  # fmt: skip
@bootstrap_option
@json_option
def compaction(topic: str, reports: str, bootstrap: str, as_json: bool) -> None:
    """Explain why each partition of TOPIC is due for compaction or not."""
    logs = _describe(topic, bootstrap)
    past = _past_compactions(reports, topic)
    now_ms = SystemClock().time_ms()
    rows = [_explain_log(log, past.get(partition.partition), now_ms) for partition, log in sorted(logs.items())
            if not isinstance(log, KafkaError)]  # fmt: skip
    rows += [{"partition": partition.partition, "due": None, "reason": f"{log.name}: {log}"}
             for partition, log in logs.items() if isinstance(log, KafkaError)]  # fmt: skip
    rows = [{"topic": topic, **row} for row in sorted(rows, key=lambda row: row["partition"])]
    if as_json:
        for row in rows:
            print_json(row)
    else:
        _print(topic, rows)


def _describe(topic: str, bootstrap: str) -> Mapping[TopicPartition, LogDescription | KafkaError]:
    with admin_client(bootstrap) as admin:
        [described] = admin.describe_topics([topic])
    partitions = [TopicPartition(topic, part.partition) for part in described.partitions]
    with client.Maintenance(**client_options(bootstrap, default_api_timeout_ms=PATIENCE_MS)) as maintenance:
        return maintenance.describe_logs(partitions)


def _past_compactions(reports: str, topic: str) -> Mapping[int, PastCompactions]:
    folder = whole_path(reports)
    if "://" not in folder and not os.path.isdir(folder):
        return {}
    return past_compactions(f"{folder.rstrip('/')}/compaction", topic)


def _explain_log(log: LogDescription, past: PastCompactions | None, now_ms: int) -> dict[str, Any]:
    done = past.last_done if past else None
    plan = plan_compaction(log, now_ms=now_ms, next_delete_horizon_ms=done.next_delete_horizon_ms if done else None)
    figures = plan.figures
    return {
        "partition": log.partition.partition,
        "due": isinstance(plan, CompactionPlan),
        "cause": str(plan.cause),
        "reason": plan.reason,
        "next_step": _next_step(plan, log.config),
        "dirty_ratio": round(figures.dirty_ratio, 4),
        "clean_bytes": figures.clean_bytes,
        "dirty_bytes": figures.dirty_bytes,
        "waiting_bytes": figures.waiting_bytes,
        "segments": len(plan.segments) if isinstance(plan, CompactionPlan) else 0,
        "groups": len(plan.groups) if isinstance(plan, CompactionPlan) else 0,
        "log_start_offset": figures.log_start_offset,
        "first_dirty_offset": figures.first_dirty_offset,
        "end_offset": figures.end_offset,
        "log_end_offset": log.log_end_offset,
        "max_lag_due": _iso_time(figures.max_lag_due_ms),
        "next_delete_horizon": _iso_time(figures.next_delete_horizon_ms),
        "last_run": _last_run(past.last) if past else None,
        "configs": _configs(log.config),
    }


def _configs(config: TopicConfig) -> dict[str, object]:
    values = {key: getattr(config, TOPIC_KEYS[key].field) for key in KEYS}
    return {key: ",".join(value) if isinstance(value, tuple) else value for key, value in values.items()}


def _next_step(plan: CompactionPlan | CompactionNotDue, config: TopicConfig) -> str:
    topic = plan.partition.topic
    run = f"sparklog jobs run compaction --topics {topic}"
    latest = _iso_time(plan.figures.max_lag_due_ms)
    waiting = {
        CompactionCause.POLICY: f"to have it compacted: sparklog topics alter {topic} --config cleanup.policy=compact",
        CompactionCause.NOTHING_CLOSED: "wait until the active segment is closed: when more is written and it is "
        f"beyond segment.bytes={config.roll_bytes} or segment.ms={config.segment_ms}",
        CompactionCause.NOT_STABLE: f"see which replicas are in sync: sparklog topics describe {topic}",
        CompactionCause.NOTHING_DIRTY: "nothing: once another segment is closed there is more to do",
        CompactionCause.MIN_LAG: "wait until it is older, or lower "
        f"min.compaction.lag.ms={config.min_compaction_lag_ms}",
        CompactionCause.CLEAN_ENOUGH: f"wait for more{f', until {latest} at most' if latest else ''}; "
        f"now: {run} --force",
    }
    return waiting.get(plan.cause, run)


def _last_run(past: PastCompaction) -> dict[str, Any]:
    return past._asdict() | {
        "at": past.at.isoformat(timespec="seconds"),
        "next_delete_horizon_ms": _iso_time(past.next_delete_horizon_ms),
    }


def _iso_time(time_ms: int | None) -> str | None:
    if time_ms is None or time_ms > _FARTHEST_MS:
        return None
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _print(topic: str, rows: list[dict[str, Any]]) -> None:
    known = [row for row in rows if "configs" in row]
    if known:
        configs = ", ".join(f"{key}={value}" for key, value in known[0]["configs"].items())
        click.echo(f"topic {topic}: {configs}")
        titles = ("PARTITION", "DUE", "DIRTY", "DIRTY BYTES", "CLEAN BYTES", "WAITING", "COMPACTED TO", "END",
                  "NEXT HORIZON", "LAST RUN")  # fmt: skip
        print_table(titles, [_cells(row) for row in known])
    alike: dict[str, list[str]] = {}
    for row in rows:
        alike.setdefault(_explanation(row), []).append(str(row["partition"]))
    for told, partitions in alike.items():
        click.echo(f"\npartition{'s' if len(partitions) > 1 else ''} {', '.join(partitions)}: {told}")


def _explanation(row: Mapping[str, Any]) -> str:
    """Return the explanation of a partition; partitions with the same text are printed together."""
    lines = [f"{_is_due(row)}: {row['reason']}"]
    if row.get("next_step"):
        lines.append(f"  next: {row['next_step']}")
    if row.get("last_run"):
        lines.append(f"  last run: {_run_summary(row['last_run'])}")
    return "\n".join(lines)


def _is_due(row: Mapping[str, Any]) -> str:
    return {True: "due", False: "not due", None: "not known"}[row["due"]]


def _cells(row: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        row["partition"], "yes" if row["due"] else "no", f"{100 * row['dirty_ratio']:.1f}%", row["dirty_bytes"],
        row["clean_bytes"], row["waiting_bytes"], row["first_dirty_offset"], row["log_end_offset"],
        row["next_delete_horizon"] or NOTHING, row["last_run"]["at"] if row["last_run"] else NOTHING,
    )  # fmt: skip


def _run_summary(run: Mapping[str, Any]) -> str:
    if run["cleaned_offset"] is None:
        return f"{run['at']} {run['outcome']}: {run['reason']}"
    return (
        f"{run['at']} {run['outcome']} up to offset {run['cleaned_offset']}: "
        f"{run['records_before']:,} records became {run['records_after']:,}, {run['bytes_before']:,} bytes "
        f"{run['bytes_after']:,}, {run['segments_before']} segments {run['segments_after']}"
    )
