"""The types of the table of metrics (`metric_table.py`)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class MetricType(Enum):
    """A type of Prometheus' metrics."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


class Severity(Enum):
    """How soon an operator must act on an alert."""

    CRITICAL = "critical"
    """Clients are refused, or records are at risk."""
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """An alerting rule of Prometheus."""

    name: str
    expr: str
    """PromQL: the alert fires for each series that it returns."""
    for_minutes: int
    """How long the expression must hold before the alert fires."""
    severity: Severity
    summary: str
    """What is wrong, and what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """One metric, for the collector, the reference, the dashboard and the alerts."""

    name: str
    """The name in a scrape: a counter's name ends in `_total`, a histogram's has no suffix."""
    type: MetricType
    text: str
    labels: tuple[str, ...] = ()
    kafka_name: str = ""
    """The name of the same figure, with the same labels, in the exporters for Apache Kafka; empty: none."""
    alert: Alert | None = None

    @property
    def series(self) -> tuple[str, ...]:
        """The names of the metric's series."""
        if self.type is MetricType.HISTOGRAM:
            return f"{self.name}_bucket", f"{self.name}_count", f"{self.name}_sum"
        return (self.name,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """Metrics of one subject: a part of the reference, and a row of the dashboard."""

    title: str
    metrics: tuple[MetricInfo, ...]


def counter(name: str, text: str, *labels: str, kafka_name: str = "", alert: Alert | None = None) -> MetricInfo:
    """Return a metric that only grows; its name ends in `_total`. text: for the reference; labels: their names"""
    return MetricInfo(name=name, type=MetricType.COUNTER, text=text, labels=labels, kafka_name=kafka_name, alert=alert)


def gauge(name: str, text: str, *labels: str, kafka_name: str = "", alert: Alert | None = None) -> MetricInfo:
    """Return a metric that rises and falls. text: for the reference; labels: their names"""
    return MetricInfo(name=name, type=MetricType.GAUGE, text=text, labels=labels, kafka_name=kafka_name, alert=alert)


def histogram(name: str, text: str, *labels: str) -> MetricInfo:
    """Return a metric of values in buckets; its name has no suffix. text: for the reference; labels: their names"""
    return MetricInfo(name=name, type=MetricType.HISTOGRAM, text=text, labels=labels)
