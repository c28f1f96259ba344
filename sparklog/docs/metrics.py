"""Reference of metrics: the metric families of a running broker and of a job server, with labels and meanings."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

from prometheus_client.core import Metric

from sparklog.docs.markdown import code, line, page, table
from sparklog.jobs.metrics import JobCollector
from sparklog.server.broker_collector import BrokerCollector
from sparklog.testing import start_broker

_INTRODUCTION = """\
A broker serves these metrics where `metrics.listener` says, under `/metrics`. A job server has a
`metrics.listener` of its own. [Monitoring](../operating/monitoring.md) says which of them to watch.

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


def metrics_page() -> str:
    """Return the whole page. Starts a broker for a moment: only a running one has all metrics."""
    with start_broker() as broker:
        of_broker = list(BrokerCollector(broker.node.broker).collect())
    without_schedules: Any = SimpleNamespace(config=SimpleNamespace(schedules=()))
    of_jobs = list(JobCollector(without_schedules).collect())
    sections = [f"## Brokers\n\n{_table(of_broker)}", _PARTS, f"## Job server\n\n{_table(of_jobs)}"]
    return page("Metrics", _INTRODUCTION, sections)


def _table(metrics: Iterable[Metric]) -> str:
    return table(("metric", "type", "labels", "meaning"), map(_row, metrics))


def _row(metric: Metric) -> tuple[str, ...]:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    labels = getattr(metric, "_labelnames", ())
    return code(name), metric.type, ", ".join(map(code, labels)), line(metric.documentation)
