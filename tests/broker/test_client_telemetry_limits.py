"""The clients' metrics that a broker keeps: newest values, within limits, of live clients."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from sparklog.base.client_metrics import ClientInstance, InstanceSubscription
from sparklog.base.errors import ThrottlingQuotaExceeded
from sparklog.broker.client_telemetry import (
    MAX_INSTANCES,
    MAX_SERIES,
    MAX_SERIES_OF_CLIENT,
    ClientTelemetry,
    TelemetrySubscription,
)
from sparklog.broker.otlp_metrics import Point

MINUTE_MS = 60_000
EVERYTHING = {"all": {"metrics": "*", "interval.ms": str(MINUTE_MS)}}


@pytest.fixture
def telemetry() -> ClientTelemetry:
    numbers = random.Random(1)
    made = ClientTelemetry(lambda: UUID(int=numbers.getrandbits(128)))
    made.set_subscriptions(EVERYTHING)
    return made


def client(name: str = "c") -> ClientInstance:
    return ClientInstance.of(name, "software", "1", "127.0.0.1", 1)


def points(count: int, value: float = 1) -> list[Point]:
    return [Point(f"m{number}", "", value, False, False) for number in range(count)]


def push(
    telemetry: ClientTelemetry, count: int, now_ms: int, told: TelemetrySubscription | None = None
) -> TelemetrySubscription:
    told = told or telemetry.subscribe(None, client(), now_ms)
    telemetry.begin_push(told.instance_id, client(), told.subscription_id, now_ms, check=lambda: None, is_last=False)
    telemetry.keep(told.instance_id, client(), points(count), now_ms)
    return told


def test_values_of_one_client_are_limited(telemetry: ClientTelemetry) -> None:
    push(telemetry, MAX_SERIES_OF_CLIENT + 1, 0)
    (pushed,) = telemetry.pushed(0)
    assert len(pushed.points) == MAX_SERIES_OF_CLIENT
    assert telemetry.dropped == 1


def test_values_of_clients_that_pushed_least_recently_are_dropped(telemetry: ClientTelemetry) -> None:
    clients = [push(telemetry, MAX_SERIES_OF_CLIENT, 0) for _ in range(MAX_SERIES // MAX_SERIES_OF_CLIENT)]
    push(telemetry, MAX_SERIES_OF_CLIENT, MINUTE_MS, clients[0])
    newest = push(telemetry, 1, MINUTE_MS)
    kept = {each.instance_id for each in telemetry.pushed(MINUTE_MS)}
    assert kept == {newest.instance_id, *(each.instance_id for each in clients)} - {clients[1].instance_id}
    assert telemetry.dropped == MAX_SERIES_OF_CLIENT


def test_a_silent_client_is_forgotten(telemetry: ClientTelemetry) -> None:
    push(telemetry, 1, 0)
    assert telemetry.pushed(5 * MINUTE_MS - 1)  # three intervals, but at least five minutes
    assert not telemetry.pushed(5 * MINUTE_MS)


@pytest.mark.slow
def test_clients_that_only_ask_are_limited_too(telemetry: ClientTelemetry) -> None:
    first = telemetry.subscribe(None, client(), 0)
    for _ in range(MAX_INSTANCES - 1):
        telemetry.subscribe(None, client(), 0)
    with pytest.raises(ThrottlingQuotaExceeded):
        telemetry.subscribe(first.instance_id, client(), 1)
    second = telemetry.subscribe(None, client(), 1)
    for _ in range(MAX_INSTANCES):
        telemetry.subscribe(None, client(), 1)
    assert telemetry.subscribe(second.instance_id, client(), 1).instance_id == second.instance_id  # as if it were new


def test_long_names_of_clients_are_cut() -> None:
    texts = ClientInstance.of("c" * 30_000, "s" * 30_000, "v" * 30_000, "a" * 30_000, 1)
    assert max(map(len, texts[:4])) == 256


def test_a_subscription_that_cannot_be_read_is_left_out(
    telemetry: ClientTelemetry, caplog: pytest.LogCaptureFixture
) -> None:
    telemetry.set_subscriptions({"bad": {"match": "client_id=("}, **EVERYTHING})
    assert telemetry.subscribe(None, client(), 0).subscribed.metrics == ("*",)
    assert "subscription 'bad' to client metrics is left out" in caplog.text


def test_the_id_of_a_subscription_is_as_kafka_s() -> None:
    """CRC32C of the metrics' list and the interval as text, and the hash of the client's id (ClientMetricsManager)."""
    assert InstanceSubscription(MINUTE_MS, ("*",)).subscription_id(UUID(int=0)) != 0
    one = InstanceSubscription(MINUTE_MS, ("*",)).subscription_id(UUID(int=5))
    assert one == InstanceSubscription(MINUTE_MS, ("*",)).subscription_id(UUID(int=0)) ^ 5
    assert -(1 << 31) <= one < 1 << 31
