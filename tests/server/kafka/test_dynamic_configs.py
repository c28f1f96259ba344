"""Dynamic configuration of a broker: effects, precedence, and restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ConfigSource
from confluent_kafka.admin import ResourceType as Type
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType
from kio.schema.errors import ErrorCode

from sparklog.client import Admin
from sparklog.records.batch import Codec, iterate_headers
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.topic import Topic, ask_metadata, make_batch
from support.names import unique
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
BROKER, TOPIC = 4, 2
INCREMENTAL_ALTER_CONFIGS, DESCRIBE_CONFIGS = 44, 32
DEFAULT, OF_FILE, OF_ALL, OF_BROKER, OF_TOPIC = 5, 4, 3, 2, 1
"""Kafka's numbers of the sources of values."""


class Configured:
    """A broker with a connection, and short forms of common calls."""

    def __init__(self, broker: RunningBroker) -> None:
        self.broker = broker
        self.address = broker.node.kafka_addresses["PLAINTEXT"]
        self.wire = Wire(self.address)

    def alter(self, *changes: tuple[str, int, str | None], name: str = "", type: int = BROKER) -> tuple[ErrorCode, str]:
        configs = [{"name": key, "config_operation": do, "value": value} for key, do, value in changes]
        resource = {"resource_type": type, "resource_name": name, "configs": configs}
        [answer] = self.wire.send(INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False).responses
        return answer.error_code, answer.error_message or ""

    def set(self, key: str, value: str, name: str = "", type: int = BROKER) -> None:
        assert self.alter((key, SET, value), name=name, type=type) == (ErrorCode.none, "")

    def unset(self, key: str, name: str = "", type: int = BROKER) -> None:
        assert self.alter((key, DELETE, None), name=name, type=type) == (ErrorCode.none, "")

    def synonyms(self, key: str, name: str = "0", type: int = BROKER) -> list[tuple[str, str | None, int]]:
        resource = {"resource_type": type, "resource_name": name, "configuration_keys": [key]}
        sent = self.wire.send(DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True)
        [entry] = sent.results[0].configs
        assert entry.value == entry.synonyms[0].value
        return [(each.name, each.value, each.source) for each in entry.synonyms]

    def create(self, **configs: str) -> Topic:
        name = unique("topic")
        with Admin(bootstrap_servers=self.broker.bootstrap) as admin:
            admin.create_topic(name, partitions=1, configs={key.replace("_", "."): configs[key] for key in configs})
        return Topic(self.wire, name)

    def log_of(self, topic: Topic) -> Any:
        [log] = [log for log in self.broker.node.broker.services.logs if log.partition.topic == topic.name]
        return log


@pytest.fixture(scope="module")
def module_broker() -> Iterator[RunningBroker]:
    with start_broker(
        kafka=True, log_retention_check_interval_ms=50, log_retention_ms=-1, log_segment_delete_delay_ms=0
    ) as broker:
        yield broker


@pytest.fixture
def configured(module_broker: RunningBroker) -> Iterator[Configured]:
    """A broker whose keys are reset after the test."""
    found = Configured(module_broker)
    yield found
    found.wire.close()
    again = Configured(module_broker)
    dynamic = module_broker.node.broker.dynamic
    for name, overrides in (("", dynamic.for_all), ("0", dynamic.own)):
        if overrides:
            assert again.alter(*((key, DELETE, None) for key in tuple(overrides)), name=name)[0] is ErrorCode.none
    again.wire.close()


def test_who_wins(configured: Configured) -> None:
    topic, key, of_broker = configured.create(), "segment.bytes", "log.segment.bytes"
    default = (of_broker, str(1 << 30), DEFAULT)

    def of_topic() -> list[tuple[str, str | None, int]]:
        return configured.synonyms(key, topic.name, TOPIC)

    configured.set(of_broker, "2000000")
    for_all = (of_broker, "2000000", OF_ALL)
    assert of_topic() == configured.synonyms(of_broker) == [for_all, default]
    configured.set(of_broker, "3000000", name="0")
    own = (of_broker, "3000000", OF_BROKER)
    assert of_topic() == configured.synonyms(of_broker) == [own, for_all, default]
    assert configured.log_of(topic).config.segment_bytes == 3_000_000
    configured.set(key, "4000000", topic.name, TOPIC)
    assert of_topic() == [(key, "4000000", OF_TOPIC), own, for_all, default]
    assert configured.log_of(topic).config.segment_bytes == 4_000_000
    configured.unset(key, topic.name, TOPIC)
    assert configured.log_of(topic).config.segment_bytes == 3_000_000
    configured.unset(of_broker, "0")
    assert (of_topic(), configured.log_of(topic).config.segment_bytes) == ([for_all, default], 2_000_000)
    configured.unset(of_broker)
    assert (of_topic(), configured.log_of(topic).config.segment_bytes) == ([default], 1 << 30)


def test_what_the_file_says_comes_after_what_was_set(configured: Configured) -> None:
    key = "log.retention.check.interval.ms"
    assert configured.synonyms(key)[0] == (key, "50", OF_FILE)
    configured.set("log.segment.delete.delay.ms", "7")
    assert [source for _, _, source in configured.synonyms("log.segment.delete.delay.ms")] == [OF_ALL, OF_FILE, DEFAULT]


def test_segments_roll_at_the_new_size(configured: Configured) -> None:
    topic = configured.create()

    def segments_of_three() -> int:
        before = len(configured.log_of(topic).replacer.describe())
        for _ in range(3):
            assert topic.produce(9, make_batch(b"v" * 600_000)).error_code is ErrorCode.none
        return len(configured.log_of(topic).replacer.describe()) - before

    assert segments_of_three() == 0
    configured.set("log.segment.bytes", str(1 << 20))
    assert segments_of_three() == 3


def test_a_batch_may_be_as_large_as_the_new_limit(configured: Configured) -> None:
    topic = configured.create()
    own = configured.create(max_message_bytes="100000")
    configured.set("message.max.bytes", "1000")
    assert topic.produce(9, make_batch(b"v" * 2_000)).error_code is ErrorCode.message_too_large
    assert own.produce(9, make_batch(b"v" * 2_000)).error_code is ErrorCode.none
    configured.unset("message.max.bytes")
    assert topic.produce(9, make_batch(b"v" * 2_000)).error_code is ErrorCode.none


def test_min_insync_replicas_refuses(configured: Configured) -> None:
    topic = configured.create()
    configured.set("min.insync.replicas", "2", name="0")
    assert topic.produce(9, make_batch(b"v")).error_code is ErrorCode.not_enough_replicas
    assert topic.produce(9, make_batch(b"v"), acks=1).error_code is ErrorCode.none
    configured.unset("min.insync.replicas", name="0")
    assert topic.produce(9, make_batch(b"v")).error_code is ErrorCode.none


def test_retention_deletes(configured: Configured) -> None:
    topic = configured.create(segment_bytes=str(1 << 20))
    for _ in range(3):
        topic.produce(9, make_batch(b"v" * 600_000))
    assert topic.list_offset(1, -2).offset == 0
    configured.set("log.retention.bytes", "600000")
    wait_until(lambda: topic.list_offset(1, -2).offset > 0, "the oldest segment is deleted")


def test_timestamps_and_codec(configured: Configured) -> None:
    topic = configured.create()
    configured.set("log.message.timestamp.type", "LogAppendTime")
    configured.set("compression.type", "zstd")
    answer = topic.produce(9, make_batch(b"v" * 100))
    assert answer.log_append_time.year > 2000
    records = topic.fetch(12, 0).responses[0].partitions[0].records
    assert [header.codec for _, header in iterate_headers(records)] == [Codec.ZSTD]


def test_a_new_topic_has_the_new_default(configured: Configured) -> None:
    configured.set("log.cleanup.policy", "compact")
    topic = configured.create()
    assert configured.log_of(topic).config.cleanup_policy == ("compact",)
    assert configured.synonyms("cleanup.policy", topic.name, TOPIC)[0] == ("log.cleanup.policy", "compact", OF_ALL)


def test_lists_are_appended_to(configured: Configured) -> None:
    topic = configured.create()
    assert configured.alter(("log.cleanup.policy", APPEND, "compact"))[0] is ErrorCode.none
    assert configured.log_of(topic).config.cleanup_policy == ("delete", "compact")
    assert configured.alter(("log.cleanup.policy", SUBTRACT, "delete"))[0] is ErrorCode.none
    assert configured.log_of(topic).config.cleanup_policy == ("compact",)
    assert configured.alter(("log.retention.ms", APPEND, "1"))[0] is ErrorCode.invalid_config


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("max.connections", "2"),
        ("max.connections.per.ip", "2"),
        ("max.connections.per.ip.overrides", "localhost:2,127.0.0.1:2"),
    ],
)
def test_connections_beyond_the_new_limit_are_closed(configured: Configured, key: str, value: str) -> None:
    """One connection is open already, and stays open."""
    others = [Wire(configured.address), Wire(configured.address)]
    for other in others:
        assert is_served(other)
    configured.set(key, value)
    wait_until(lambda: not is_served_anew(configured), "another is refused")
    assert all(map(is_served, others))
    configured.unset(key)
    wait_until(lambda: is_served_anew(configured), "another is served")
    for other in others:
        other.close()


def is_served(wire: Wire) -> bool:
    try:
        ask_metadata(wire, 12, [], allow_auto_topic_creation=False)
    except ConnectionError:
        return False
    return True


def is_served_anew(configured: Configured) -> bool:
    with Wire(configured.address) as wire:
        return is_served(wire)


def test_a_name_that_nobody_knows_changes_no_limit(configured: Configured, caplog: pytest.LogCaptureFixture) -> None:
    configured.set("max.connections.per.ip.overrides", "no.such.host.invalid:0")
    wait_until(lambda: "limits of connections stay" in caplog.text, "it is logged")
    assert is_served_anew(configured)


def test_other_keys_of_the_broker(configured: Configured) -> None:
    broker = configured.broker.node.broker
    configured.set("request.log.slow.ms", "-1")
    assert broker.slow_requests.slow_s == float("inf")
    configured.set("leader.replication.throttled.rate", "1234", name="0")
    assert broker.dynamic.current.leader_replication_throttled_rate == 1234
    configured.unset("request.log.slow.ms")
    assert broker.slow_requests.slow_s == 1.0


def test_silent_producers_are_forgotten_after_the_new_time() -> None:
    with start_broker(kafka=True, producer_id_expiration_check_interval_ms=50) as broker:
        configured = Configured(broker)
        topic = configured.create()
        batch = make_batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
        assert topic.produce(9, batch).error_code is ErrorCode.none
        assert 7 in configured.log_of(topic).producers
        configured.set("producer.id.expiration.ms", "1")
        wait_until(lambda: not configured.log_of(topic).producers, "the producer is forgotten")
        configured.wire.close()


@pytest.mark.parametrize(
    ("key", "value", "name", "error", "why"),
    [
        ("num.partitions", "3", "", ErrorCode.invalid_request, "update mode is read-only): change the broker's file"),
        ("ssl.keystore.location", "/x", "0", ErrorCode.invalid_request, "start it again"),
        ("cordoned.log.dirs", "*", "", ErrorCode.invalid_request, "name the broker"),
        ("log.segment.bytes", "1", "", ErrorCode.invalid_config, "log.segment.bytes = '1': it must be"),
        ("max.connections.per.ip.overrides", "a", "", ErrorCode.invalid_config, "HOST:COUNT"),
        ("log.segment.byte", "1", "", ErrorCode.invalid_config, "did you mean log.segment.bytes?"),
    ],
)
def test_what_is_refused(configured: Configured, key: str, value: str, name: str, error: ErrorCode, why: str) -> None:
    found = configured.alter((key, SET, value), name=name)
    assert found[0] is error
    assert why in found[1]


def test_a_restart_keeps_them(tmp_path: Path) -> None:
    """Logs have the values before the broker serves clients, without an update of the controller."""
    with start_broker(kafka=True, data_dir=tmp_path) as broker:
        configured = Configured(broker)
        topic = configured.create()
        configured.set("log.segment.bytes", "2000000")
        configured.set("max.connections", "3", name="0")
        configured.set("compression.type", "lz4")
        configured.wire.close()
    with start_broker(kafka=True, data_dir=tmp_path) as broker:
        configured = Configured(broker)
        topic = Topic(configured.wire, topic.name)
        assert configured.log_of(topic).config.segment_bytes == 2_000_000
        topic.produce(9, make_batch(b"v" * 100))
        records = topic.fetch(12, 0).responses[0].partitions[0].records
        assert [header.codec for _, header in iterate_headers(records)] == [Codec.LZ4]
        others = [Wire(configured.address), Wire(configured.address)]
        assert all(map(is_served, others))
        assert not is_served_anew(configured)
        for wire in (*others, configured.wire):
            wire.close()


def test_librdkafka_sets_and_describes_them(configured: Configured) -> None:
    admin = AdminClient({"bootstrap.servers": configured.broker.kafka})
    entry = ConfigEntry("log.retention.ms", "5000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(Type.BROKER, "0", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)
    asked = ConfigResource(Type.BROKER, "0")
    found = admin.describe_configs([asked])[asked].result(PATIENCE_S)["log.retention.ms"]
    assert (found.value, found.source, found.is_read_only) == (
        "5000", ConfigSource.DYNAMIC_BROKER_CONFIG.value, False,
    )  # fmt: skip


def test_kafka_python_sets_them(configured: Configured) -> None:
    admin = KafkaAdminClient(bootstrap_servers=configured.broker.kafka)
    admin.alter_configs([PythonResource(ConfigResourceType.BROKER, "0", configs={"log.retention.ms": "6000"})])
    admin.close()
    assert configured.synonyms("log.retention.ms")[0] == ("log.retention.ms", "6000", OF_BROKER)
