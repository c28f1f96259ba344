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
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from pyspark.sql.types import StructField, StructType

from sparklog.client import Producer
from sparklog.records.arrow import HEADERS_TYPE
from sparklog.spark.columns import TYPES
from sparklog.spark.source.option_parsing import parse_read_options
from sparklog.spark.source.option_table import OptionUse
from sparklog.spark.source.scan import FilesTask
from sparklog.spark.source.stream import TopicStreamReader
from sparklog.spark.source.tracing import MAX_LINKS, TraceLinks
from support.names import unique
from support.otlp import OtlpEndpoint, otlp_endpoint
from support.patience import PATIENCE_S
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow


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


def shape(*columns: str) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in columns])


def check_trail(endpoint: OtlpEndpoint, topic: str, traces: list[str]) -> None:
    """The spans of the application, of the broker and of the batch are linked; the batch has another record, too."""
    for trace in traces:
        order = endpoint.wait_for("order", trace=trace)
        assert endpoint.wait_for("Produce", trace=trace, service="sparklog").parent == order.id
    batch = endpoint.wait_for("micro-batch", service="sparklog-spark")
    read = endpoint.wait_for("read", trace=batch.trace)
    assert read.parent == batch.id
    assert set(read.links) == set(traces)
    assert read.attributes["messaging.destination.name"] == topic
    assert read.attributes["messaging.batch.message_count"] == len(traces) + 1


@pytest.mark.parametrize("mode", ["segments", "fetch"])
@pytest.mark.parametrize("columns", [("value",), ("headers", "value")])
def test_a_batch_is_linked_to_the_traces_of_its_records(tmp_path: Path, mode: str, columns: tuple[str, ...]) -> None:
    """As in Spark, tasks get copies of the plan and of the reader."""
    topic = unique("planned")
    with ExitStack() as stack:
        endpoint = stack.enter_context(otlp_endpoint())
        broker = stack.enter_context(BrokerProcess(tmp_path, f"tracing.otlp.endpoint={endpoint.address}"))
        traces = send_traced(broker, endpoint, topic, b"1", b"2")
        with Producer(bootstrap_servers=broker.grpc) as producer:
            producer.send(topic, b"3").result(PATIENCE_S)  # without a trace

        options = {"bootstrap.servers": broker.grpc, "subscribe": topic, "startingOffsets": "earliest"}
        traced = {"tracing.otlp.endpoint": endpoint.address, "readMode": mode}
        schema = shape(*columns)
        reader = TopicStreamReader(parse_read_options(options | traced, OptionUse.STREAM), schema)
        start = reader.initialOffset()
        end = reader.latestOffset(start, ReadAllAvailable())
        plan, copy = cloudpickle.loads(cloudpickle.dumps((reader.partitions(start, end), reader)))
        read = [value for task in plan for rows in copy.read(task) for value in rows.column("value").to_pylist()]
        assert read == [b"1", b"2", b"3"]
        reader.latestOffset(end, ReadAllAvailable())  # Spark asks as soon as the batch is done
        check_trail(endpoint, topic, traces)
        reader.stop()


def test_without_the_option_a_plan_and_its_reads_know_nothing_of_traces(tmp_path: Path) -> None:
    topic = unique("plain")
    with BrokerProcess(tmp_path) as broker:
        with Producer(bootstrap_servers=broker.grpc) as producer:
            producer.send(topic, b"1").result(PATIENCE_S)
        options = {"bootstrap.servers": broker.grpc, "subscribe": topic, "startingOffsets": "earliest"}
        reader = TopicStreamReader(parse_read_options(options, OptionUse.STREAM), shape("value"))
        start = reader.initialOffset()
        plan = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
        assert {type(task) for task in plan} == {FilesTask}
        assert reader.__getstate__()["_spans"] is None
        reader.stop()


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

        check_trail(endpoint, topic, traces)


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
    links = TraceLinks()
    links.collect(records(None, *(b"00-%032x-%016x-01" % (1 + n % 2, 1 + n) for n in range(10))))
    assert list(links.found) == [f"{1:032x}", f"{2:032x}"]
    links.collect(records(*(b"00-%032x-%016x-01" % (n, 1) for n in range(1, 1_000))))
    assert len(links.found) == MAX_LINKS
    assert links.records == 11 + 999
