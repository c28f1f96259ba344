"""Metrics of clients in OpenTelemetry's format: MetricsData of `opentelemetry/proto/metrics/v1`.

    MetricsData      1: ResourceMetrics …
    ResourceMetrics  2: ScopeMetrics …
    ScopeMetrics     2: Metric …

The outer messages are read field by field, and each metric is decoded on its own. A few compressed bytes can hold
millions of empty messages: decoded at once, they would take a hundred times their bytes and block all threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from sparklog.base.client_metrics import MAX_LENGTH
from sparklog.base.errors import InvalidRecord, InvalidRequest
from sparklog.base.protobuf import fields_of

MAX_FIELDS = 10_000
"""Maximum number of fields in the outer messages: a Kafka client has some hundreds of metrics."""
MAX_METRIC_BYTES = 256 << 10
"""Larger metrics are left out: to decode one of this size takes up to 15 ms, in which no other thread runs."""
_RESOURCE_METRICS, _SCOPE_METRICS, _METRICS = 1, 2, 2
_DELTA = 1  # AggregationTemporality


class Point(NamedTuple):
    """The newest value of one series of a client."""

    name: str
    attributes: str
    """As ``key=value,…``, sorted by key."""
    value: float
    is_total: bool
    """Whether the value only grows, like a counter's."""
    is_delta: bool
    """Whether the value is the change since the push before."""


def read_points(data: memoryview) -> Iterator[Point]:
    """Yield the points of MetricsData: for a histogram or a summary, its count and its sum.

    Raises InvalidRecord if the bytes are no MetricsData, or have more than MAX_FIELDS fields around the metrics.
    """
    walk = _MessageReader(MAX_FIELDS)
    try:
        for resource in walk.contents(data, _RESOURCE_METRICS):
            for scope in walk.contents(resource, _SCOPE_METRICS):
                for metric in walk.contents(scope, _METRICS):
                    if len(metric) <= MAX_METRIC_BYTES:
                        yield from _points_of(metric)
    except InvalidRequest as wrong:
        raise InvalidRecord(f"the metrics are no MetricsData of OpenTelemetry: {wrong}") from None


class _MessageReader:
    """Reads the fields of nested messages, up to one limit for all of them."""

    def __init__(self, most: int) -> None:
        self._left = most

    def contents(self, message: memoryview, number: int) -> Iterator[memoryview]:
        for field in fields_of(message):
            self._left -= 1
            if self._left < 0:
                raise InvalidRecord(f"the metrics have more than {MAX_FIELDS} fields")
            if field.number == number:
                yield field.content


def _points_of(data: memoryview) -> Iterator[Point]:
    # Imported here: the import takes 50 ms and 5 MB, and only brokers with pushing clients need it.
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric

    try:
        metric = Metric.FromString(bytes(data))
    except DecodeError as wrong:
        raise InvalidRecord(f"a metric is none of OpenTelemetry: {wrong}") from None
    name = metric.name[:MAX_LENGTH]
    match metric.WhichOneof("data"):
        case "gauge":
            yield from (_point(name, each, _number(each), is_total=False) for each in metric.gauge.data_points)
        case "sum":
            kind = {"is_total": metric.sum.is_monotonic, "is_delta": metric.sum.aggregation_temporality == _DELTA}
            yield from (_point(name, each, _number(each), **kind) for each in metric.sum.data_points)
        case "histogram" | "exponential_histogram" | "summary" as which:
            found = getattr(metric, which)
            is_delta = which != "summary" and found.aggregation_temporality == _DELTA
            for each in found.data_points:
                yield _point(f"{name}.count", each, each.count, is_total=True, is_delta=is_delta)
                yield _point(f"{name}.sum", each, each.sum, is_total=True, is_delta=is_delta)


def _point(name: str, point: Any, value: float, *, is_total: bool, is_delta: bool = False) -> Point:
    return Point(name, _text(point.attributes), float(value), is_total, is_delta)


def _number(point: Any) -> float:
    return float(point.as_int if point.WhichOneof("value") == "as_int" else point.as_double)


def _text(attributes: Iterable[Any]) -> str:
    found = {each.key: str(getattr(each.value, kind)) for each in attributes if (kind := _kind(each.value))}
    return ",".join(f"{name}={found[name]}" for name in sorted(found))[:MAX_LENGTH]


def _kind(value: Any) -> str:
    """Return the field of a value that is a text or a number; empty for others."""
    kind = value.WhichOneof("value") or ""
    return kind if kind in ("string_value", "bool_value", "int_value", "double_value") else ""
