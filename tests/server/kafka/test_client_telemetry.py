"""Metrics that clients push are metrics of the broker for Prometheus (KIP-714)."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from uuid import UUID, uuid4

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.ids import encode_id
from sparklog.records.batch import Codec
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.telemetry import (
    CLIENT_METRICS,
    DESCRIBE_CONFIGS,
    LIST_RESOURCES,
    alter,
    metrics,
    push,
    subscribe,
    subscriptions,
)
from support.metrics import Scrape
from support.names import unique
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

MAX_BYTES = 10_000
API_VERSIONS = 18
HOUR, SHORT = "3600000", "100"


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True, metrics_listener="127.0.0.1:0", telemetry_max_bytes=MAX_BYTES) as broker:
        subscribe(broker, "patient", interval_ms=HOUR, metrics="some.", match="client_id=patient.*")
        subscribe(broker, "hasty", interval_ms=SHORT, metrics="*", match="client_id=hasty.*")
        yield broker


def client(broker: RunningBroker, kind: str = "patient") -> Wire:
    """A connection of a client with a unique id. A patient client pushes once an hour, a hasty one all the time."""
    wire = Wire(broker.node.kafka_addresses["PLAINTEXT"])
    wire.client_id = unique(kind)
    return wire


def samples(broker: RunningBroker, client_id: str) -> list[tuple[dict[str, str], float]]:
    """Samples of a client in a scrape: labels and value of each."""
    scrape = Scrape.of(broker.node.metrics_address)
    found = [scrape.samples.get(name, {}) for name in ("sparklog_client_metric", "sparklog_client_metric_total")]
    every = [(dict(labels), value) for each in found for labels, value in each.items()]
    return [(labels, value) for labels, value in every if labels["client_id"] == client_id]


def shown(broker: RunningBroker, client_id: str) -> dict[tuple[str, str], float]:
    """The values of a client in a scrape, by metric and attributes."""
    return {(labels["metric"], labels["attributes"]): value for labels, value in samples(broker, client_id)}


@pytest.mark.parametrize("codec", list(Codec))
def test_a_client_pushes_what_it_is_told_to_and_prometheus_finds_it(broker: RunningBroker, codec: Codec) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        assert told.error_code is ErrorCode.none
        assert told.requested_metrics == ("some.",)
        assert told.push_interval.total_seconds() == 3600
        assert told.telemetry_max_bytes == MAX_BYTES
        assert told.accepted_compression_types == (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
        assert told.client_instance_id is not None

        assert push(wire, told, metrics(gauge=1.5, total=7, topic="t", **{"node.id": "1"}), codec) is ErrorCode.none

        assert shown(broker, wire.client_id) == {
            ("some.gauge", "node.id=1,topic=t"): 1.5,
            ("some.total", ""): 7,
            ("some.histogram.count", ""): 4,
            ("some.histogram.sum", ""): 10,
        }
        ids = {labels["client_instance_id"] for labels, _ in samples(broker, wire.client_id)}
        assert ids == {encode_id(told.client_instance_id)}


def test_a_client_that_no_subscription_selects_pushes_nothing(broker: RunningBroker) -> None:
    with client(broker, "other") as wire:
        told = subscriptions(wire)
        assert told.requested_metrics == ()
        assert told.push_interval.total_seconds() == 300


def test_a_known_client_keeps_its_id_and_its_subscription_on_every_broker(broker: RunningBroker) -> None:
    with client(broker) as wire:
        own = uuid4()
        told = subscriptions(wire, own)
        assert told.client_instance_id == own
        # Another broker, or this one after a restart, has never seen the client: it is known by what it is to push.
        elsewhere = uuid4()
        assert push(wire, told, metrics(), client_instance_id=elsewhere) is ErrorCode.unknown_subscription_id
        assert push(wire, told, metrics()) is ErrorCode.none


def test_requests_before_the_interval_is_over_are_refused(broker: RunningBroker) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        assert subscriptions(wire, told.client_instance_id).error_code is ErrorCode.throttling_quota_exceeded
        assert push(wire, told, metrics()) is ErrorCode.none
        assert push(wire, told, metrics()) is ErrorCode.throttling_quota_exceeded
        assert push(wire, told, metrics(total=9), terminating=True) is ErrorCode.none  # its last words
        assert push(wire, told, metrics(), terminating=True) is ErrorCode.invalid_request
        assert shown(broker, wire.client_id)["some.total", ""] == 9


def test_a_hasty_client_s_newest_values_replace_the_others_and_deltas_add_up(broker: RunningBroker) -> None:
    with client(broker, "hasty") as wire:
        told = subscriptions(wire)
        assert told.requested_metrics == ("*",)
        assert push(wire, told, metrics(gauge=1, total=5, delta=2)) is ErrorCode.none
        wait_until(
            lambda: push(wire, told, metrics(gauge=4, total=6, delta=3)) is ErrorCode.none, "an interval is over"
        )
        found = shown(broker, wire.client_id)
        assert (found["some.gauge", ""], found["some.total", ""], found["some.delta", ""]) == (4, 6, 5)


def test_a_client_asks_again_when_its_subscriptions_have_changed(broker: RunningBroker) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        name = unique("more")
        subscribe(broker, name, interval_ms="60000", metrics="more.", match=f"client_id={wire.client_id}")
        assert push(wire, told, metrics()) is ErrorCode.unknown_subscription_id
        again = subscriptions(wire, told.client_instance_id)
        assert again.subscription_id != told.subscription_id
        assert again.requested_metrics == ("more.", "some.")
        assert again.push_interval.total_seconds() == 60
        assert push(wire, again, metrics()) is ErrorCode.none
        subscribe(broker, name, interval_ms=None, metrics=None, match=None)
        assert subscriptions(wire, told.client_instance_id).requested_metrics == ("some.",)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"client_instance_id": None}, ErrorCode.invalid_request),
        ({"client_instance_id": UUID(int=1)}, ErrorCode.invalid_request),
        ({"subscription_id": 1}, ErrorCode.unknown_subscription_id),
        ({"compression_type": 5}, ErrorCode.unsupported_compression_type),
        ({"compression_type": -1}, ErrorCode.unsupported_compression_type),
        ({"metrics": bytes(MAX_BYTES + 1)}, ErrorCode.telemetry_too_large),
        ({"metrics": b"garbage"}, ErrorCode.invalid_record),  # no zstd
        ({"compression_type": 0, "metrics": b"\xff" * 50}, ErrorCode.invalid_record),  # no protobuf
        ({"compression_type": 0, "metrics": b"\x0a\x04\x12\x02\x12\x7f"}, ErrorCode.invalid_record),  # cut off
        ({"compression_type": 0, "metrics": b"\x0a\x06\x12\x04\x12\x02\x0a\x7f"}, ErrorCode.invalid_record),
    ],
)
def test_what_cannot_be_is_refused(broker: RunningBroker, fields: dict[str, object], error: ErrorCode) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        assert push(wire, told, metrics(), **fields) is error
        assert shown(broker, wire.client_id) == {}


def test_a_client_may_ask_at_once_after_an_unknown_compression(broker: RunningBroker) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        assert push(wire, told, metrics(), compression_type=9) is ErrorCode.unsupported_compression_type
        assert subscriptions(wire, told.client_instance_id).error_code is ErrorCode.none


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(bytes(1 << 20), id="more than four times telemetry.max.bytes"),
        pytest.param(b"\x0a\x00" * 20_000, id="20,000 empty messages"),
        pytest.param(b"\x08\x01" * 20_000, id="as many fields that nobody knows"),
    ],
)
def test_a_bomb_is_refused(broker: RunningBroker, content: bytes) -> None:
    with client(broker) as wire:
        told = subscriptions(wire)
        bomb = gzip.compress(content)
        assert len(bomb) < MAX_BYTES
        assert push(wire, told, b"", compression_type=Codec.GZIP, metrics=bomb) is ErrorCode.invalid_record


def test_subscriptions_are_described_listed_and_removed_with_their_last_key(broker: RunningBroker) -> None:
    with client(broker) as wire:
        name = "a name/with ünusual characters"

        def listed() -> list[str]:
            found = wire.send(LIST_RESOURCES, 1, resource_types=[CLIENT_METRICS]).config_resources
            assert wire.send(LIST_RESOURCES, 0).config_resources  # the version that lists nothing else
            return [each.resource_name for each in found]

        def described() -> dict[str, tuple[str, int]]:
            resource = {"resource_type": CLIENT_METRICS, "resource_name": name, "configuration_keys": None}
            (found,) = wire.send(DESCRIBE_CONFIGS, 4, resources=[resource]).results
            return {each.name: (each.value, each.config_source) for each in found.configs}

        match = "client_source_address=127.*,client_source_port=[0-9]+"
        assert alter(wire, name, metrics="a.,b.", match=match).error_code is ErrorCode.none
        assert name in listed()
        assert described() == {"interval.ms": ("300000", 5), "metrics": ("a.,b.", 7), "match": (match, 7)}
        assert alter(wire, name, metrics=None, match=None).error_code is ErrorCode.none
        assert name not in listed()
        assert described()["metrics"] == ("", 5)


@pytest.mark.parametrize(
    ("name", "values", "error"),
    [
        ("", {"metrics": "*"}, ErrorCode.invalid_request),
        ("x", {"retention_ms": "1"}, ErrorCode.invalid_request),
        ("x", {"interval_ms": "99"}, ErrorCode.invalid_request),
        ("x", {"interval_ms": "3600001"}, ErrorCode.invalid_request),
        ("x", {"match": "client_name=a"}, ErrorCode.invalid_config),
        ("x", {"match": "client_id"}, ErrorCode.invalid_config),
        ("x", {"match": "client_id=("}, ErrorCode.invalid_config),
        ("x", {"metrics": ",".join(map(str, range(1001)))}, ErrorCode.invalid_config),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(
    broker: RunningBroker, name: str, values: dict[str, str], error: ErrorCode
) -> None:
    with client(broker) as wire:
        refused = alter(wire, name, **values)
        assert refused.error_code is error
        assert refused.error_message
        assert alter(wire, "x", validate_only=True, metrics="*").error_code is ErrorCode.none
        resources = wire.send(LIST_RESOURCES, 0).config_resources
        assert "x" not in [each.resource_name for each in resources]


def test_librdkafka_pushes_by_itself(broker: RunningBroker) -> None:
    client_id = unique("hasty")
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "client.id": client_id})
    producer.produce(unique("topic"), b"v")
    assert producer.flush(PATIENCE_S) == 0
    created = "org.apache.kafka.producer.connection.creation.total", ""
    found = wait_until(lambda: shown(broker, client_id).get(created), "librdkafka pushes", every_s=0.1)
    assert found >= 1
    assert {labels["client_software_name"] for labels, _ in samples(broker, client_id)} == {"confluent-kafka-python"}


def test_a_broker_can_do_without() -> None:
    with start_broker(kafka=True, telemetry_max_bytes=0) as broker, client(broker) as wire:
        keys = {each.api_key for each in wire.send(API_VERSIONS, 2).api_keys}
        assert not keys & {71, 72}
        assert subscriptions(wire).error_code is ErrorCode.unsupported_version
