"""A broker's spans of requests: of clients with a trace, and of a sample."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import confluent_kafka
import grpc
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import get_current_span

from sparklog.base.errors import ConfigError
from sparklog.base.tracing import traceparent_of
from sparklog.client import Consumer, Producer
from sparklog.testing import RunningBroker, start_broker, start_cluster
from sparklog.v1 import admin_pb2, log_pb2
from sparklog.v1.admin_pb2_grpc import AdminStub
from sparklog.v1.log_pb2_grpc import LogStub
from support.names import unique
from support.otlp import OtlpEndpoint, otlp_endpoint
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[OtlpEndpoint]:
    with otlp_endpoint() as made:
        yield made


@pytest.fixture(scope="module")
def broker(endpoint: OtlpEndpoint) -> Iterator[RunningBroker]:
    with start_broker(kafka=True, tracing_otlp_endpoint=endpoint.address) as running:
        yield running


def application_spans() -> TracerProvider:
    """A tracer of an application whose spans are dropped."""
    return TracerProvider(shutdown_on_exit=False)


def test_the_producer_s_span_is_in_the_record_and_the_broker_s_span_belongs_to_it(
    broker: RunningBroker, endpoint: OtlpEndpoint
) -> None:
    topic = unique("traced")
    tracer = application_spans().get_tracer("application")
    with (
        Producer(bootstrap_servers=broker.bootstrap, tracing=True) as producer,
        tracer.start_as_current_span("order") as span,
    ):
        producer.send(topic, b"v", headers=[("own", b"1")]).result(PATIENCE_S)
        traceparent = traceparent_of(get_current_span())
    context = span.get_span_context()

    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        record = next(iter(consumer))
    assert list(record.headers) == [("own", b"1"), ("traceparent", traceparent.encode())]

    produced = endpoint.wait_for("Produce", trace=f"{context.trace_id:032x}")
    assert produced.parent == f"{context.span_id:016x}"
    assert produced.service == "sparklog"
    assert produced.start_ns < produced.end_ns
    appended = endpoint.wait_for("append", trace=produced.trace)
    assert appended.parent == produced.id


def test_a_wait_for_replicas_is_a_span_of_its_own(endpoint: OtlpEndpoint) -> None:
    with start_cluster(2, tracing_otlp_endpoint=endpoint.address, default_replication_factor=2) as cluster:
        tracer = application_spans().get_tracer("application")
        with (
            Producer(bootstrap_servers=cluster.bootstrap, tracing=True) as producer,
            tracer.start_as_current_span("order") as span,
        ):
            producer.send(unique("replicated"), b"v").result(PATIENCE_S)
        trace = f"{span.get_span_context().trace_id:032x}"
        produced = endpoint.wait_for("Produce", trace=trace)
        waited = endpoint.wait_for("wait for replicas", trace=trace)
        assert waited.parent == produced.id
        assert produced.start_ns <= waited.start_ns <= waited.end_ns == produced.end_ns


def test_any_call_may_bring_a_trace(broker: RunningBroker, endpoint: OtlpEndpoint) -> None:
    with grpc.insecure_channel(broker.bootstrap) as channel:
        AdminStub(channel).ListTopics(admin_pb2.ListTopicsRequest(), metadata=[("traceparent", TRACEPARENT)])  # type: ignore[no-untyped-call]
    listed = endpoint.wait_for("ListTopics", trace=TRACE)
    assert (listed.parent, listed.is_error) == (PARENT, False)


def test_a_refused_call_is_an_error(broker: RunningBroker, endpoint: OtlpEndpoint) -> None:
    request = log_pb2.ProduceRequest(acks=77).SerializeToString()  # type: ignore[arg-type]
    with grpc.insecure_channel(broker.bootstrap) as channel:
        produce = channel.unary_unary("/sparklog.v1.Log/Produce")
        with pytest.raises(grpc.RpcError, match="there is no acks 77"):
            produce(request, metadata=[("traceparent", TRACEPARENT.replace("4bf9", "4bfa"))])
    refused = endpoint.wait_for("Produce", trace=TRACE.replace("4bf9", "4bfa"))
    assert refused.is_error


@pytest.mark.parametrize("traceparent", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"00-{TRACE}-{PARENT}-00"])
def test_no_other_call_has_a_span(broker: RunningBroker, endpoint: OtlpEndpoint, traceparent: str) -> None:
    topic = unique("untraced")
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        producer.send(topic, b"v", headers=[("traceparent", traceparent.encode())]).result(PATIENCE_S)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka})
    producer.produce(topic, b"v")
    assert producer.flush(PATIENCE_S) == 0
    # Spans are sent in their order: whatever came before the next one has come.
    with grpc.insecure_channel(broker.bootstrap) as channel:
        last = TRACEPARENT.replace("4bf9", f"{len(traceparent):04x}")
        LogStub(channel).ListOffsets(log_pb2.ListOffsetsRequest(), metadata=[("traceparent", last)])  # type: ignore[no-untyped-call]
    marker = endpoint.wait_for("ListOffsets", trace=last[3:35])
    before = endpoint.spans[: endpoint.spans.index(marker)]
    assert not [span for span in before if span.service == "sparklog" and not span.parent]


def test_one_request_in_so_many_has_a_span_without_asking(endpoint: OtlpEndpoint) -> None:
    with start_broker(kafka=True, tracing_otlp_endpoint=endpoint.address, tracing_sample_every=2) as broker:
        client_id, topic = unique("sampled"), unique("topic")
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.kafka, "client.id": client_id})
        for _ in range(20):
            producer.produce(topic, b"v")
            assert producer.flush(PATIENCE_S) == 0
        found = endpoint.wait_for("Produce", parent="", service="sparklog")
        assert found.attributes["messaging.system"] == "kafka"
    names = [span.name for span in endpoint.spans if span.attributes.get("messaging.client.id") == client_id]
    assert 5 <= names.count("Produce") <= 15  # half of 20; a request of another kind may come between two


def test_an_endpoint_that_does_not_answer_costs_spans_only() -> None:
    with (
        start_broker(tracing_otlp_endpoint="http://127.0.0.1:1", tracing_sample_every=1) as broker,
        Producer(bootstrap_servers=broker.bootstrap) as producer,
    ):
        assert producer.send(unique("topic"), b"v").result(PATIENCE_S).offset == 0


def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="it must be http://HOST:PORT"), start_broker(tracing_otlp_endpoint="here"):
        pass
    for module in [name for name in sys.modules if name.startswith("opentelemetry.exporter")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparklog\[otlp\]'"):
        start_broker(tracing_otlp_endpoint="http://127.0.0.1:4318").__enter__()
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ConfigError, match=r"pip install 'sparklog\[otlp\]'"):
        Producer(bootstrap_servers="127.0.0.1:1", tracing=True)
