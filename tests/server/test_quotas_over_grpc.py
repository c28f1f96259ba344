"""Client quotas over gRPC: a client over its quota gets the throttle time, and its next call waits (KIP-219)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from sparklog.base.quotas import ClientQuota, QuotaChange, entity
from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker, start_broker
from sparklog.v1 import admin_pb2, admin_pb2_grpc, log_pb2, log_pb2_grpc
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

BYTES, RECORDS = log_pb2.BATCHES, log_pb2.RECORDS
SetQuotas = Callable[..., None]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker() as broker:
        yield broker


@pytest.fixture
def set_quotas(broker: RunningBroker) -> Iterator[SetQuotas]:
    """Set quotas of the client id `grpc` and wait until they apply; remove all of them after the test."""
    known, name = broker.node.broker.client_quotas, entity({"client-id": "grpc"})
    with Admin(bootstrap_servers=broker.bootstrap) as admin:

        def set_quotas(**values: float) -> None:
            admin.alter_client_quotas([QuotaChange(entity=name, values=values)])
            wait_until(lambda: ClientQuota(entity=name, values=values) in known.quotas, "the quotas apply")

        yield set_quotas
        for quota in admin.describe_client_quotas():
            admin.alter_client_quotas([QuotaChange(entity=quota.entity, removed=list(quota.values))])
        wait_until(lambda: not known.quotas, "no quotas apply")


class Stubs:
    """A client with a unique id."""

    def __init__(self, broker: RunningBroker, client_id: str) -> None:
        self._channel = grpc.insecure_channel(broker.bootstrap)
        self.metadata = (("client-id", client_id),)
        self.log = log_pb2_grpc.LogStub(self._channel)
        self.admin = admin_pb2_grpc.AdminStub(self._channel)

    def produce(self, topic: str, data: bytes, **options: float) -> log_pb2.ProduceResponse:
        return self.log.Produce(produced(topic, data), metadata=self.metadata, **options)

    def fetch(self, topic: str, offset: int, form: int = BYTES) -> log_pb2.FetchResponse:
        part = log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=offset)
        return self.log.Fetch(log_pb2.FetchRequest(partitions=[part], format=form), metadata=self.metadata)

    def close(self) -> None:
        self._channel.close()


def produced(topic: str, data: bytes) -> log_pb2.ProduceRequest:
    return log_pb2.ProduceRequest(partitions=[log_pb2.PartitionProduce(topic=topic, partition=0, batches=data)])


@pytest.fixture
def client(broker: RunningBroker) -> Iterator[Stubs]:
    stubs = Stubs(broker, "grpc")
    yield stubs
    stubs.close()


@pytest.fixture
def payload(batch) -> bytes:
    """A batch of 40 kB."""
    return bytes(batch([bytes(40_000)]))


@pytest.fixture
def topic(broker: RunningBroker, names: Iterator[str]) -> str:
    name = next(names)
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic(name)
    return name


def test_a_producer_over_its_quota_is_told_and_its_next_call_waits(
    client: Stubs, topic: str, payload: bytes, set_quotas: SetQuotas
) -> None:
    set_quotas(producer_byte_rate=20_000)
    began = time.monotonic()
    told = client.produce(topic, payload).throttle_time_ms
    assert 0 < told <= 1_100  # 40 kB and a few bytes, less the second's worth that was saved up
    assert client.produce(topic, payload).throttle_time_ms > 1_100
    assert time.monotonic() - began >= 0.9


def test_a_stream_is_not_read_while_its_client_waits(
    client: Stubs, topic: str, payload: bytes, set_quotas: SetQuotas
) -> None:
    set_quotas(producer_byte_rate=40_000)
    began = time.monotonic()
    stream = client.log.ProduceStream(iter([produced(topic, payload)] * 4), metadata=client.metadata)
    offsets = [answer.partitions[0].base_offset for answer in stream]
    assert offsets == [0, 1, 2, 3]
    assert time.monotonic() - began > 1.8  # 160 kB at 40 kB/s, less a second's worth and the last request


@pytest.mark.parametrize("form", [BYTES, RECORDS])
def test_a_consumer_gets_a_second_s_worth_and_its_next_call_waits(
    client: Stubs, broker: RunningBroker, topic: str, payload: bytes, set_quotas: SetQuotas, form: int
) -> None:
    other = Stubs(broker, "other")
    for _ in range(4):
        assert not other.produce(topic, payload).throttle_time_ms
    other.close()
    set_quotas(consumer_byte_rate=40_000)
    offset, began, told = 0, time.monotonic(), 0
    while offset < 4:
        fetched = client.fetch(topic, offset, form)
        assert fetched.partitions[0].next_offset == offset + 1
        offset, told = offset + 1, told + fetched.throttle_time_ms
    assert time.monotonic() - began > 1.8
    assert told > 0


def test_a_subscription_flows_at_its_client_s_rate(
    client: Stubs, topic: str, payload: bytes, set_quotas: SetQuotas
) -> None:
    for _ in range(4):
        client.produce(topic, payload)
    set_quotas(consumer_byte_rate=40_000)
    part = log_pb2.PartitionFetch(topic=topic, partition=0, fetch_offset=0)
    began = time.monotonic()
    stream = client.log.Subscribe(log_pb2.SubscribeRequest(partitions=[part]), metadata=client.metadata)
    messages = itertools.takewhile(lambda message: message.partitions[0].next_offset < 4, stream)
    assert len(list(messages)) == 3
    stream.cancel()
    assert time.monotonic() - began > 1.8


def test_a_call_that_would_wait_beyond_its_deadline_is_refused_at_once(
    client: Stubs, broker: RunningBroker, topic: str, payload: bytes, set_quotas: SetQuotas
) -> None:
    set_quotas(producer_byte_rate=100)
    client.produce(topic, payload)
    with pytest.raises(grpc.RpcError) as refused:
        client.produce(topic, payload, timeout=PATIENCE_S)
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert refused.value.details().startswith(
        "THROTTLING_QUOTA_EXCEEDED: the client has used up its quota: try again in"
    )
    assert client.fetch(topic, 0).partitions[0].next_offset == 1
    other = Stubs(broker, "other")
    assert not other.produce(topic, payload).throttle_time_ms
    other.close()


def test_work_is_limited_to_a_part_of_the_time(client: Stubs, set_quotas: SetQuotas) -> None:
    set_quotas(request_percentage=0.01)
    describe = admin_pb2.DescribeClusterRequest()
    for _ in range(2):
        client.admin.DescribeCluster(describe, metadata=client.metadata)
    began = time.monotonic()
    for _ in range(2):
        client.admin.DescribeCluster(describe, metadata=client.metadata)
    assert time.monotonic() - began > 0.5


def test_partitions_are_created_at_their_rate(client: Stubs, names: Iterator[str], set_quotas: SetQuotas) -> None:
    set_quotas(controller_mutation_rate=0.1)
    topics = [admin_pb2.NewTopic(name=next(names), partitions=count) for count in (5, 1)]
    results = client.admin.CreateTopics(admin_pb2.CreateTopicsRequest(topics=topics), metadata=client.metadata).topics
    assert [result.error.name for result in results] == ["", "THROTTLING_QUOTA_EXCEEDED"]
    deleted = client.admin.DeleteTopics(
        admin_pb2.DeleteTopicsRequest(names=[topics[0].name]), metadata=client.metadata
    ).topics
    assert deleted[0].error.name == "THROTTLING_QUOTA_EXCEEDED"


def test_the_python_producer_waits_as_it_is_told_and_loses_nothing(
    broker: RunningBroker, topic: str, set_quotas: SetQuotas
) -> None:
    set_quotas(producer_byte_rate=40_000)
    began = time.monotonic()
    with Producer(bootstrap_servers=broker.bootstrap, client_id="grpc", batch_size=10_000) as producer:
        sent = [producer.send(topic, value=bytes(9_000), partition=0) for _ in range(16)]
        producer.flush()
    assert sorted(each.result().offset for each in sent) == list(range(16))
    assert time.monotonic() - began > 1.5
    figures = broker.node.broker.metrics.requests["Produce"]
    assert figures.refused == 0


def test_calls_that_wait_end_when_the_broker_stops(names: Iterator[str], payload: bytes) -> None:
    with start_broker(controlled_shutdown_timeout_ms=240_000) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("t")
            admin.alter_client_quotas(
                [QuotaChange(entity=entity({"client-id": "grpc"}), values={"producer_byte_rate": 100})]
            )
        wait_until(lambda: broker.node.broker.client_quotas.has_client_quotas, "the quota applies")
        client = Stubs(broker, "grpc")
        client.produce("t", payload)
        waiting = client.log.Produce.future(produced("t", payload), metadata=client.metadata)
        wait_until(lambda: broker.node._grpc._held._bytes > 0, "the call waits")
        stopping = threading.Thread(target=broker.stop, daemon=True)
        stopping.start()
        stopping.join(PATIENCE_S)
        assert not stopping.is_alive(), "the broker does not stop"
        assert waiting.done()
        client.close()
