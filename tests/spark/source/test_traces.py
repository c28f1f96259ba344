"""Spans of streaming queries: of micro-batches and their tasks, linked to the traces of the records that they read."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pyspark.sql import SparkSession

from sparklog.client import Producer
from sparklog.records.arrow import HEADERS_TYPE
from sparklog.spark.source.tracing import MAX_LINKS, Links
from support.names import unique
from support.otlp import OtlpEndpoint, otlp_endpoint
from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess


def send_traced(broker: BrokerProcess, endpoint: OtlpEndpoint, topic: str, *values: bytes) -> list[str]:
    """Send each record in a span of an application that traces; the traces."""
    provider = TracerProvider(resource=Resource({"service.name": "application"}), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{endpoint.address}/v1/traces")))
    traces = []
    with Producer(bootstrap_servers=broker.grpc, tracing=True) as producer:
        for value in values:
            with provider.get_tracer("application").start_as_current_span("order") as span:
                producer.send(topic, value).result(PATIENCE_S)
                traces.append(f"{span.get_span_context().trace_id:032x}")
    provider.shutdown()
    return traces


def copied(spark: SparkSession, broker: BrokerProcess, folder: Path, topic: str, **options: str) -> list[bytes]:
    """The values that a query has copied, in one run."""
    stream = spark.readStream.format("sparklog").option("kafka.bootstrap.servers", broker.grpc)
    rows = stream.option("subscribe", topic).option("startingOffsets", "earliest").options(**options).load()
    writer = rows.select("value").writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start(str(folder / "out"))
    assert query.awaitTermination(PATIENCE_S)
    return sorted(bytes(row.value) for row in spark.read.parquet(str(folder / "out")).collect())


@pytest.mark.parametrize("mode", ["segments", "fetch"])
def test_a_record_is_followed_from_its_producer_through_the_broker_into_a_batch(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    topic = unique("traced")
    with ExitStack() as stack:
        endpoint = stack.enter_context(otlp_endpoint())
        broker = stack.enter_context(BrokerProcess(tmp_path, f"tracing.otlp.endpoint={endpoint.address}"))
        traces = send_traced(broker, endpoint, topic, b"1", b"2")
        with Producer(bootstrap_servers=broker.grpc) as producer:
            producer.send(topic, b"3").result(PATIENCE_S)  # without a trace

        options = {"tracing.otlp.endpoint": endpoint.address, "readMode": mode}
        assert copied(spark, broker, tmp_path, topic, **options) == [b"1", b"2", b"3"]

        for trace in traces:
            order = endpoint.wait_for("order", trace=trace)
            assert endpoint.wait_for("Produce", trace=trace, service="sparklog").parent == order.id
        batch = endpoint.wait_for("micro-batch", service="sparklog-spark")
        read = endpoint.wait_for("read", trace=batch.trace)
        assert read.parent == batch.id
        assert set(read.links) == set(traces)
        assert read.attributes["messaging.destination.name"] == topic
        assert read.attributes["messaging.batch.message_count"] == 3


def test_a_query_goes_on_where_nobody_takes_its_spans(spark: SparkSession, tmp_path: Path) -> None:
    topic = unique("untaken")
    with BrokerProcess(tmp_path) as broker:
        with Producer(bootstrap_servers=broker.grpc) as producer:
            producer.send(topic, b"1").result(PATIENCE_S)
        options = {"tracing.otlp.endpoint": "http://127.0.0.1:1"}
        assert copied(spark, broker, tmp_path, topic, **options) == [b"1"]


def records(*traceparents: bytes | None) -> pa.RecordBatch:
    headers = [[("other", b"x"), ("traceparent", each)] if each else [] for each in traceparents]
    return pa.record_batch({"headers": pa.array(headers, HEADERS_TYPE)})


def test_links_are_to_distinct_traces_and_not_too_many() -> None:
    links = Links()
    links.collect(records(None, *(b"00-%032x-%016x-01" % (1 + n % 2, 1 + n) for n in range(10))))
    assert list(links.found) == [f"{1:032x}", f"{2:032x}"]
    links.collect(records(*(b"00-%032x-%016x-01" % (n, 1) for n in range(1, 1_000))))
    assert len(links.found) == MAX_LINKS
    assert links.records == 11 + 999
