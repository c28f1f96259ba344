"""Client quotas on Kafka's listener: a client over its quota gets its answer at once, and is muted (KIP-219)."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.quotas import ClientQuota, entity
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.topic import CLUSTER, PRODUCE, Topic, make_batch, values_in
from support.patience import wait_until

pytestmark = pytest.mark.slow

DESCRIBE, ALTER, CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS = 48, 49, 19, 20, 37
WIRE = {"client-id": "wire"}
"""The client id of `Wire`."""
CALM = 0.05
"""Clocks and timers may be this much apart, in seconds."""
SetQuotas = Callable[..., None]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(kafka=True) as broker:
        yield broker


@pytest.fixture(scope="module")
def address(broker: RunningBroker) -> tuple[str, int]:
    return broker.node.kafka_addresses["PLAINTEXT"]


@pytest.fixture
def admin(address: tuple[str, int], monkeypatch: pytest.MonkeyPatch) -> Iterator[Wire]:
    """A connection of a client whose id has no quotas."""
    with Wire(address) as connection:
        connection.client_id = "admin"
        yield connection


def alter(admin: Wire, parts: dict[str, str | None], **values: float | None) -> Any:
    entry = {
        "entity": [{"entity_type": type, "entity_name": name} for type, name in parts.items()],
        "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in values.items()],
    }
    return admin.send(ALTER, 1, entries=[entry], validate_only=False).entries[0]


@pytest.fixture
def set_quotas(broker: RunningBroker, admin: Wire) -> Iterator[SetQuotas]:
    """Set quotas of an entity and wait until they apply; remove all of them after the test."""
    known = broker.node.broker.client_quotas

    def set_quotas(parts: dict[str, str | None] = WIRE, /, **values: float | None) -> None:
        altered = alter(admin, parts, **values)
        assert altered.error_code is ErrorCode.none, altered.error_message
        wanted = ClientQuota(entity=entity(parts), values={key: value for key, value in values.items() if value})
        wait_until(lambda: wanted in known.quotas, "the quotas apply")

    yield set_quotas
    for quota in known.quotas:
        alter(admin, {part.type: part.name for part in quota.entity}, **dict.fromkeys(quota.values))
    wait_until(lambda: not known.quotas, "no quotas apply")


@pytest.fixture
def wire(address: tuple[str, int]) -> Iterator[Wire]:
    with Wire(address) as connection:
        yield connection


@pytest.fixture
def topic(wire: Wire, new_name: Callable[[], str]) -> Topic:
    return Topic(wire, new_name())


def produce(topic: Topic, size: int, version: int = 9, **fields: Any) -> Any:
    part = {"index": 0, "records": make_batch(bytes(size))}
    data = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": [part]}]
    fields = {"acks": -1, "timeout": 1000, "topic_data": data} | fields
    return (
        topic.wire.send(PRODUCE, version, **fields) if fields["acks"] else topic.wire.write(PRODUCE, version, **fields)
    )


def waited(wire: Wire) -> float:
    """Seconds until the answer to another request of the connection."""
    began = time.monotonic()
    wire.send(CLUSTER, 0, include_cluster_authorized_operations=False)
    return time.monotonic() - began


def is_about(seconds: float, told: Any) -> bool:
    return told.total_seconds() - CALM <= seconds


@pytest.mark.parametrize("version", [3, 9, 12])
def test_a_producer_over_its_quota_is_answered_and_waits(topic: Topic, set_quotas: SetQuotas, version: int) -> None:
    set_quotas(producer_byte_rate=20_000)
    assert produce(topic, 10_000, version).throttle_time.total_seconds() == 0
    told = produce(topic, 40_000, version).throttle_time
    assert 0 < told.total_seconds() < 1.6  # 50 kB, less the second's worth that was saved up
    assert is_about(waited(topic.wire), told)


def test_a_producer_without_answers_waits_too(topic: Topic, set_quotas: SetQuotas) -> None:
    set_quotas(producer_byte_rate=20_000)
    produce(topic, 60_000, acks=0)
    assert waited(topic.wire) > 0.2
    assert len(values_in(topic.fetch(4, 0).responses[0].partitions[0].records)) == 1


@pytest.mark.parametrize("version", [4, 11, 12])
def test_a_consumer_gets_a_second_s_worth_and_waits(topic: Topic, set_quotas: SetQuotas, version: int) -> None:
    for _ in range(6):
        produce(topic, 10_000)
    set_quotas(consumer_byte_rate=20_000)
    seen, began = 0, time.monotonic()
    while seen < 6:
        fetched = topic.fetch(version, seen)
        got = len(values_in(fetched.responses[0].partitions[0].records))
        assert 1 <= got <= 2
        seen += got
        assert is_about(waited(topic.wire), fetched.throttle_time)
    assert time.monotonic() - began > 1.8  # 60 kB at 20 kB/s, of which a second's worth came at once


def test_waits_are_counted(broker: RunningBroker, topic: Topic, set_quotas: SetQuotas) -> None:
    quotas = broker.node.broker.client_quotas
    waits, waited_s = quotas.waits, quotas.waited_s
    set_quotas(producer_byte_rate=20_000)
    produce(topic, 1_000)
    assert quotas.waits == waits
    told = produce(topic, 40_000).throttle_time
    waited(topic.wire)
    assert quotas.waits == waits + 1
    assert 0 < quotas.waited_s - waited_s <= told.total_seconds()


def test_other_clients_do_not_wait(topic: Topic, set_quotas: SetQuotas, admin: Wire) -> None:
    set_quotas(producer_byte_rate=1_000)
    assert produce(topic, 60_000).throttle_time.total_seconds() > 50
    assert waited(admin) < 5


def test_clients_with_one_id_share_their_quota(topic: Topic, set_quotas: SetQuotas, address: tuple[str, int]) -> None:
    set_quotas(producer_byte_rate=20_000)
    with Wire(address) as other:
        same = Topic(other, topic.name)
        produce(topic, 40_000)
        assert produce(same, 40_000).throttle_time.total_seconds() > 1.2  # a second, if each had its own


def test_requests_sent_ahead_are_answered_in_their_order_after_the_wait(topic: Topic, set_quotas: SetQuotas) -> None:
    set_quotas(producer_byte_rate=50_000)
    wire, began = topic.wire, time.monotonic()
    part = {"index": 0, "records": make_batch(bytes(25_000))}
    data = [{"name": topic.name, "topic_id": topic.topic_id, "partition_data": [part]}]
    sent = [wire.write(PRODUCE, 9, acks=-1, timeout=1000, topic_data=data) for _ in range(6)]
    answers = [wire.read(PRODUCE, 9, each).responses[0].partition_responses[0] for each in sent]
    assert [answer.base_offset for answer in answers] == list(range(6))
    assert time.monotonic() - began > 1.2  # 150 kB at 50 kB/s, less a second's worth and the last request


def test_work_is_limited_to_a_part_of_the_time(wire: Wire, set_quotas: SetQuotas) -> None:
    set_quotas(request_percentage=0.01)
    answers = (wire.send(CLUSTER, 0, include_cluster_authorized_operations=False) for _ in range(100))
    told = next(each.throttle_time for each in answers if each.throttle_time)
    assert told.total_seconds() <= 1
    assert is_about(waited(wire), told)


def test_a_quota_that_is_lifted_lets_the_client_go_on(topic: Topic, set_quotas: SetQuotas) -> None:
    set_quotas(producer_byte_rate=50_000)
    assert produce(topic, 150_000).throttle_time.total_seconds() > 0
    set_quotas(producer_byte_rate=10_000_000)
    assert produce(topic, 60_000).throttle_time.total_seconds() == 0


def create(wire: Wire, version: int, **partitions: int) -> Any:
    topics = [
        {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": (), "configs": ()}
        for name, count in partitions.items()
    ]
    return wire.send(CREATE_TOPICS, version, topics=topics, timeout=10_000, validate_only=False)


def test_partitions_are_created_at_their_rate(wire: Wire, set_quotas: SetQuotas, new_name: Callable[[], str]) -> None:
    set_quotas(controller_mutation_rate=0.1)
    first, second = new_name(), new_name()
    created = create(wire, 6, **{first: 5, second: 1})  # 1.1 are saved up
    assert [topic.error_code for topic in created.topics] == [ErrorCode.none, ErrorCode.throttling_quota_exceeded]
    assert "quota has been exceeded" in created.topics[1].error_message
    assert created.throttle_time.total_seconds() > 10


def test_an_old_client_creates_partitions_and_waits(
    wire: Wire, set_quotas: SetQuotas, new_name: Callable[[], str]
) -> None:
    set_quotas(controller_mutation_rate=0.1)
    created = create(wire, 5, **{new_name(): 5, new_name(): 1})
    assert [topic.error_code for topic in created.topics] == [ErrorCode.none] * 2
    assert created.throttle_time.total_seconds() > 10


def test_a_controller_quota_counts_growth_and_deletion_and_delays_old_clients(
    wire: Wire, set_quotas: SetQuotas, new_name: Callable[[], str]
) -> None:
    name = new_name()
    create(wire, 6, **{name: 1})
    set_quotas(controller_mutation_rate=1)
    grown = wire.send(
        CREATE_PARTITIONS, 2, topics=[{"name": name, "count": 12, "assignments": None}], timeout=10_000,
        validate_only=False,
    )  # fmt: skip
    assert grown.results[0].error_code is ErrorCode.none
    deleted = wire.send(DELETE_TOPICS, 4, topic_names=[name], timeout=10_000)
    assert deleted.responses[0].error_code is ErrorCode.none
    assert deleted.throttle_time.total_seconds() > 5


def is_served(address: tuple[str, int]) -> bool:
    with Wire(address) as connection:
        try:
            connection.send(CLUSTER, 0, include_cluster_authorized_operations=False)
        except ConnectionError:
            return False
        return True


def test_an_address_opens_connections_at_its_rate(
    broker: RunningBroker, address: tuple[str, int], set_quotas: SetQuotas
) -> None:
    refused = broker.node.broker.metrics.listeners["PLAINTEXT"].refused
    set_quotas({"ip": "127.0.0.1"}, connection_creation_rate=4)
    began = time.monotonic()
    served = [is_served(address) for _ in range(16)]
    seconds = time.monotonic() - began
    assert served[:4] == [True] * 4
    assert served.count(False) > 0
    assert served.count(True) <= 4 + 4 * seconds + 1
    assert broker.node.broker.metrics.listeners["PLAINTEXT"].refused - refused == served.count(False)


def test_a_client_that_leaves_while_it_waits_costs_nothing(
    broker: RunningBroker, topic: Topic, set_quotas: SetQuotas
) -> None:
    set_quotas(producer_byte_rate=100)
    open_before = broker.node.broker.metrics.listeners["PLAINTEXT"].open
    assert produce(topic, 10_000).throttle_time.total_seconds() > 60
    topic.wire.socket.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: broker.node.broker.metrics.listeners["PLAINTEXT"].open < open_before, "the connection is closed")


def test_a_broker_stops_while_clients_wait(new_name: Callable[[], str]) -> None:
    with start_broker(kafka=True, controlled_shutdown_timeout_ms=120_000) as broker:
        address = broker.node.kafka_addresses["PLAINTEXT"]
        with Wire(address) as admin, Wire(address) as wire:
            admin.client_id = "admin"
            topic = Topic(wire, new_name())
            assert alter(admin, WIRE, producer_byte_rate=100.0).error_code is ErrorCode.none
            wait_until(lambda: broker.node.broker.client_quotas.has_client_quotas, "the quota applies")
            assert produce(topic, 10_000).throttle_time.total_seconds() > 60
            held = wire.write(CLUSTER, 0, include_cluster_authorized_operations=False)
            began = time.monotonic()
            broker.stop()
            assert time.monotonic() - began < 30  # half of what requests in progress would get
            assert wire.read(CLUSTER, 0, held).cluster_id


def test_quotas_are_described_as_they_were_altered(admin: Wire, set_quotas: SetQuotas) -> None:
    set_quotas({"user": "alice", "client-id": None}, producer_byte_rate=1024, request_percentage=12.5)
    set_quotas({"user": "alice"}, consumer_byte_rate=2048)

    def described(*components: dict[str, Any], strict: bool = False) -> list[Any]:
        return admin.send(DESCRIBE, 1, components=components, strict=strict).entries

    alice = {"entity_type": "user", "match_type": 0, "match": "alice"}
    both = described(alice)
    assert [[(part.entity_type, part.entity_name) for part in each.entity] for each in both] == [
        [("client-id", None), ("user", "alice")],
        [("user", "alice")],
    ]
    assert {each.key: each.value for each in both[0].values} == {"producer_byte_rate": 1024, "request_percentage": 12.5}
    assert len(described(alice, strict=True)) == 1


def test_changes_that_make_no_sense_are_refused_and_only_checked_ones_not_made(
    broker: RunningBroker, admin: Wire
) -> None:
    for parts, values, error in (
        ({"user": "a"}, {"nonsense": 1.0}, ErrorCode.invalid_request),
        ({"user": "a"}, {"producer_byte_rate": -1.0}, ErrorCode.invalid_request),
        ({"ip": "localhost"}, {"connection_creation_rate": 1.0}, ErrorCode.invalid_request),
        ({"team": "a"}, {"producer_byte_rate": 1.0}, ErrorCode.unsupported_version),
    ):
        refused = alter(admin, parts, **values)
        assert refused.error_code is error
        assert refused.error_message
    entry = {
        "entity": [{"entity_type": "user", "entity_name": "a"}],
        "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": False}],
    }
    assert admin.send(ALTER, 1, entries=[entry], validate_only=True).entries[0].error_code is ErrorCode.none
    assert admin.send(DESCRIBE, 1, components=(), strict=False).entries == ()
    twice = admin.send(ALTER, 1, entries=[entry, entry | {"ops": ()}], validate_only=False)
    assert {each.error_code for each in twice.entries} == {ErrorCode.invalid_request}
    assert broker.node.broker.client_quotas.quotas == []


@pytest.mark.parametrize("kind", ["user", "team"])
def test_an_entity_of_many_parts_is_refused_without_being_repeated(admin: Wire, kind: str) -> None:
    parts = [{"entity_type": kind, "entity_name": f"{number}"} for number in range(1_000)]
    [refused] = admin.send(ALTER, 1, entries=[{"entity": parts, "ops": ()}], validate_only=False).entries
    assert refused.error_code in (ErrorCode.invalid_request, ErrorCode.unsupported_version)
    assert len(refused.entity) < len(parts)
