"""Reference of metrics, generated from their table (`base/metric_table.py`)."""

from __future__ import annotations

from collections.abc import Iterable

from sparklog.base.metric_table import BROKER_SECTIONS, JOB_SECTIONS, KAFKA_ONLY, REQUESTS, metrics_with_alerts
from sparklog.base.metric_types import MetricInfo, Section
from sparklog.docs.markdown import code, line, page, table

_INTRODUCTION = """\
A broker serves these metrics where `metrics.listener` says, under `/metrics`. A job server has a
`metrics.listener` of its own. [Monitoring](../operating/monitoring.md) says how to scrape them, and which of them to
watch.

A counter ends in `_total`. A histogram has `_bucket{le}`, `_count` and `_sum`."""
_PARTS = """\
The label `part` of `sparklog_kafka_request_seconds` is one of Kafka's names for the parts of a request's time:

| part | from, to |
| --- | --- |
| `RequestQueueTime` | from the last byte of the request to the beginning of its work |
| `LocalTime` | the work |
| `RemoteTime` | waiting for records, replicas or members of a group |
| `ResponseSendTime` | until the response has been sent |
| `TotalTime` | all of these |"""
_GROUPS = """\
The coordinator of a group shows its metrics, so each group is shown by one broker. The age of a record comes from the
header of its batch: within a batch of records with timestamps of their own, all count as old as the first one. A
partition whose leader does not answer within two seconds has an offset and no lag."""
_KAFKA = """\
## Names of Kafka's exporters

With `metrics.kafka.names = true` a broker also shows these names, which dashboards and alerts for Apache Kafka ask for:
those of the Prometheus JMX exporter with its usual rules, and those of kafka_exporter. Labels are the same."""
_ALERTS = """\
## Alerts

`conf/prometheus/alerts.yml` has these rules."""


def metrics_page() -> str:
    """Return the whole page."""
    brokers = [_section(section) for section in BROKER_SECTIONS]
    same = (info for section in BROKER_SECTIONS for info in section.metrics if info.kafka_name)
    names = table(("Kafka's name", "metric"), ((code(info.kafka_name), code(info.name)) for info in same))
    further = f"These figures have no other name:\n\n{_table(KAFKA_ONLY.metrics)}"
    jobs = [f"## {section.title}\n\n{_table(section.metrics)}" for section in JOB_SECTIONS]
    sections = ["## Brokers", *brokers, *jobs, f"{_KAFKA}\n\n{names}", further, f"{_ALERTS}\n\n{_alerts()}"]
    return page("Metrics", _INTRODUCTION, sections)


def _section(section: Section) -> str:
    after = {REQUESTS.title: f"\n\n{_PARTS}", "Consumer groups": f"\n\n{_GROUPS}"}.get(section.title, "")
    return f"### {section.title}\n\n{_table(section.metrics)}{after}"


def _table(metrics: Iterable[MetricInfo]) -> str:
    return table(("metric", "type", "labels", "meaning"), map(_row, metrics))


def _row(info: MetricInfo) -> tuple[str, ...]:
    return code(info.name), info.type.value, ", ".join(map(code, info.labels)), line(info.text)


def _alerts() -> str:
    rows = (
        (code(alert.name), code(alert.expr), f"{alert.for_minutes} min", alert.severity.value)
        for info in metrics_with_alerts()
        if (alert := info.alert)
    )
    return table(("alert", "fires if", "for", "severity"), rows)
