"""Subscriptions to client metrics, and pushes of clients, over Kafka's protocol (KIP-714)."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from kio.schema.errors import ErrorCode
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from sparklog.records.batch import Codec
from sparklog.records.compression import compress
from sparklog.testing import RunningBroker
from support.kafka.connection import Wire
from support.patience import wait_until

GET_SUBSCRIPTIONS, PUSH, ALTER_CONFIGS, DESCRIBE_CONFIGS, LIST_RESOURCES = 71, 72, 44, 32, 74
CLIENT_METRICS = 16
SET, DELETE = 0, 1


def alter(wire: Wire, name: str, *, validate_only: bool = False, **values: str | None) -> Any:
    """The result of a change of a subscription's keys; None: the key is removed. interval_ms is interval.ms."""
    configs = [
        {"name": key.replace("_", "."), "config_operation": DELETE if value is None else SET, "value": value}
        for key, value in values.items()
    ]
    resources = [{"resource_type": CLIENT_METRICS, "resource_name": name, "configs": configs}]
    return wire.send(ALTER_CONFIGS, 1, resources=resources, validate_only=validate_only).responses[0]


def subscribe(broker: RunningBroker, name: str, **values: str | None) -> None:
    """Change a subscription, and wait until the broker knows."""
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        telemetry = broker.node.broker.services.client_telemetry
        before = telemetry.subscriptions
        altered = alter(wire, name, **values)
        assert altered.error_code is ErrorCode.none, altered.error_message
        wait_until(lambda: telemetry.subscriptions is not before, "the broker knows the subscription")


def metrics(*, gauge: float = 1.5, total: int = 3, delta: int = 0, **attributes: str) -> bytes:
    """MetricsData with a gauge, a total, a delta if there is one, and a histogram."""
    data = MetricsData()
    scope = data.resource_metrics.add().scope_metrics.add()
    first = scope.metrics.add(name="some.gauge").gauge.data_points.add(as_double=gauge)
    for key, value in attributes.items():
        first.attributes.add(key=key).value.string_value = value
    second = scope.metrics.add(name="some.total").sum
    second.is_monotonic = True
    second.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    second.data_points.add(as_int=total)
    if delta:
        third = scope.metrics.add(name="some.delta").sum
        third.is_monotonic = True
        third.aggregation_temporality = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        third.data_points.add(as_int=delta)
    scope.metrics.add(name="some.histogram").histogram.data_points.add(count=4, sum=10)
    return data.SerializeToString()


def push(wire: Wire, told: Any, data: bytes, codec: Codec = Codec.ZSTD, **fields: Any) -> ErrorCode:
    """The error of a push of metrics. told: the answer of GetTelemetrySubscriptions"""
    given = {
        "client_instance_id": told.client_instance_id,
        "subscription_id": told.subscription_id,
        "terminating": False,
        "compression_type": codec,
        "metrics": compress(codec, data),
    }
    answer: ErrorCode = wire.send(PUSH, 0, **(given | fields)).error_code
    return answer


def subscriptions(wire: Wire, instance_id: UUID | None = None) -> Any:
    return wire.send(GET_SUBSCRIPTIONS, 0, client_instance_id=instance_id)
