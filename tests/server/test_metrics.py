"""A broker's metrics for Prometheus: every metric of the table, the lag of groups, and the state of the process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from kio.schema.errors import ErrorCode

from sparklog.base.ids import TopicPartition
from sparklog.base.metric_table import BROKER_SECTIONS, KAFKA_ONLY
from sparklog.client import Admin, Consumer, Maintenance, Producer
from sparklog.server.broker_collector import quantile
from sparklog.testing import RunningBroker, start_broker
from support.kafka.connection import Wire
from support.kafka.telemetry import metrics, push, subscribe, subscriptions
from support.metrics import Scrape, series_of
from support.names import unique
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with start_broker(
        kafka=True,
        metrics_listener="127.0.0.1:0",
        metrics_kafka_names=True,
        group_initial_rebalance_delay_ms=0,
        offsets_topic_num_partitions=2,
        log_retention_ms=-1,
    ) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: RunningBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap) as made:
        yield made


def scrape(broker: RunningBroker) -> Scrape:
    return Scrape.of(broker.node.metrics_address)


def fill(broker: RunningBroker, topic: str, count: int, *, timestamp_ms: int | None = None) -> None:
    """Send records one by one to partition 0, as a batch each."""
    with Producer(bootstrap_servers=broker.bootstrap, linger_ms=0) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0, timestamp_ms=timestamp_ms).result(PATIENCE_S)


def consume(broker: RunningBroker, topic: str, group: str, count: int) -> None:
    """Read this number of records with librdkafka, and commit them."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": broker.kafka, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    read: list[confluent_kafka.Message] = []
    wait_until(lambda: read.extend(consumer.consume(count, 0.1)) or len(read) >= count, "the records are read")
    consumer.commit(message=read[count - 1], asynchronous=False)
    consumer.close()


def test_every_metric_of_the_table_is_shown_and_no_other(broker: RunningBroker, admin: Admin) -> None:
    topic = unique("all")
    admin.create_topic(topic, partitions=1)
    fill(broker, topic, 2)
    consume(broker, topic, unique("all"), 1)
    with Wire(broker.node.kafka_addresses["PLAINTEXT"]) as wire:
        subscribe(broker, topic, metrics="*")
        assert push(wire, subscriptions(wire), metrics()) is ErrorCode.none
    with Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        maintenance.note_job_run("compaction", "1", started_ms=7_000, status=1, findings=3, schedule="nightly")

    found = scrape(broker)

    wanted = series_of((*BROKER_SECTIONS, KAFKA_ONLY), with_kafka_names=True)
    assert found.labels() == wanted


def test_kafka_s_names_are_shown_only_if_they_are_wanted() -> None:
    with start_broker(metrics_listener="127.0.0.1:0") as broker:
        found = scrape(broker)
    assert [name for name in found.samples if name.startswith("kafka_")] == []


def test_metrics_have_the_same_values_under_kafka_s_names(broker: RunningBroker, admin: Admin) -> None:
    topic, group = unique("names"), unique("names")
    admin.create_topic(topic, partitions=1)
    fill(broker, topic, 3)
    consume(broker, topic, group, 1)

    found = scrape(broker)

    for info in (info for section in BROKER_SECTIONS for info in section.metrics if info.kafka_name):
        assert found.samples[info.kafka_name] == found.samples[info.name], info.kafka_name
    at = {"topic": topic, "partition": "0"}
    assert found.get("kafka_server_brokertopicmetrics_messagesin_total", topic=topic) == 3
    assert found.get("kafka_consumergroup_lag", consumergroup=group, **at) == 2
    assert found.get("kafka_topic_partition_current_offset", **at) == 3
    assert found.get("kafka_topic_partition_oldest_offset", **at) == 0
    assert found.get("kafka_topic_partitions", topic=topic) == 1
    assert found.get("kafka_topic_partition_leader", **at) == broker.node.broker.config.broker_id
    assert found.get("kafka_topic_partition_in_sync_replica", **at) == 1
    assert found.get("kafka_topic_partition_under_replicated_partition", **at) == 0
    assert found.get("kafka_brokers") == 1
    of_fetch = found.samples["kafka_network_requestmetrics_requests_total"][frozenset({("request", "Fetch")})]
    assert of_fetch == found.get("sparklog_kafka_request_seconds_count", api="Fetch", part="TotalTime")
    times = {
        dict(labels)["quantile"]: value
        for labels, value in found.samples["kafka_network_requestmetrics_totaltimems"].items()
        if ("request", "Fetch") in labels
    }
    assert 0 < times["0.50"] <= times["0.99"] <= times["0.999"]


def test_a_quantile_lies_within_its_bucket() -> None:
    assert quantile([1.0, 2.0, 4.0], [0, 4, 0, 0], 0.5) == 1.5
    assert quantile([1.0, 2.0, 4.0], [2, 0, 2, 0], 0.75) == 3.0
    assert quantile([1.0, 2.0, 4.0], [0, 0, 0, 3], 0.5) == 4.0
    assert quantile([1.0, 2.0, 4.0], [0, 0, 0, 0], 0.5) == 0.0


def test_the_lag_of_a_group_and_the_age_of_what_it_has_not_read(broker: RunningBroker, admin: Admin) -> None:
    topic, group = unique("lag"), unique("lag")
    admin.create_topic(topic, partitions=2)
    for hours in (3, 2, 1):
        fill(broker, topic, 1, timestamp_ms=int(time.time() * 1000) - hours * HOUR_MS)

    def figures(name: str) -> dict[int, float]:
        return scrape(broker).by_partition(f"sparklog_consumergroup_{name}", consumergroup=group, topic=topic)

    assert figures("lag") == {}
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 1, TopicPartition(topic, 1): 0})
    assert figures("current_offset") == {0: 1, 1: 0}
    assert figures("lag") == {0: 2, 1: 0}
    seconds = figures("lag_seconds")
    assert 2 * 3600 <= seconds[0] < 2.5 * 3600
    assert seconds[1] == 0
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 3})
    assert figures("lag") == figures("lag_seconds") == {0: 0, 1: 0}


def test_records_that_are_deleted_are_not_the_oldest_ones(broker: RunningBroker, admin: Admin) -> None:
    topic, group = unique("deleted"), unique("deleted")
    admin.create_topic(topic, partitions=1)
    for hours in (3, 1):
        fill(broker, topic, 1, timestamp_ms=int(time.time() * 1000) - hours * HOUR_MS)
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    admin.delete_records({TopicPartition(topic, 0): 1})
    found = scrape(broker)
    at = {"consumergroup": group, "topic": topic, "partition": "0"}
    assert found.get("sparklog_consumergroup_lag", **at) == 2  # as Kafka's tools count
    assert 3600 <= (found.get("sparklog_consumergroup_lag_seconds", **at) or 0) < 1.5 * 3600


def test_offsets_of_a_deleted_topic_have_no_lag(broker: RunningBroker, admin: Admin) -> None:
    topic, group = unique("gone"), unique("gone")
    admin.create_topic(topic, partitions=1)
    admin.alter_group_offsets(group, {TopicPartition(topic, 0): 0})
    admin.delete_topics([topic])
    found = scrape(broker)
    assert found.by_partition("sparklog_consumergroup_current_offset", consumergroup=group) == {}
    assert found.by_partition("sparklog_consumergroup_lag", consumergroup=group) == {}


def test_the_members_of_a_group_are_counted(broker: RunningBroker, admin: Admin) -> None:
    topic, group = unique("members"), unique("members")
    admin.create_topic(topic, partitions=2)
    with Consumer(bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(50) or consumer.assignment(), "the consumer has joined")
        assert scrape(broker).get("sparklog_consumergroup_members", consumergroup=group) == 1


def test_file_descriptors_are_counted(broker: RunningBroker) -> None:
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(500)]
    try:
        found = scrape(broker)
    finally:
        for file in files:
            os.close(file)
    opened = found.get("process_open_fds") or 0
    assert 500 < opened < (found.get("process_max_fds") or 0)


def late(found: Scrape) -> float:
    """Timers that fired more than a second late."""
    name = "sparklog_event_loop_lag_seconds_bucket"
    return (found.get(name, le="+Inf") or 0) - (found.get(name, le="1.0") or 0)


def test_the_event_loop_s_longest_delay_shows_in_one_scrape(broker: RunningBroker) -> None:
    async def block() -> None:
        time.sleep(2.0)  # noqa: ASYNC251 - a blocked event loop is what is measured

    # The timer fires again after the delay, which may take a while on a busy machine.
    before = late(scrape(broker))
    broker.run(block())
    assert (scrape(broker).get("sparklog_event_loop_delay_seconds") or 0) > 1.5
    wait_until(lambda: late(scrape(broker)) > before, "the delay is counted")
    wait_until(lambda: (scrape(broker).get("sparklog_event_loop_delay_seconds") or 0) < 1.5, "the delay is over")


def test_job_runs_that_the_broker_is_told_of_are_counted(broker: RunningBroker) -> None:
    schedule = unique("schedule")
    with Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        for status in (0, 2):
            maintenance.note_job_run(
                "retention",
                f"run-{status}",
                started_ms=5_000 + status,
                status=status,
                findings=status,
                schedule=schedule,
            )
    found = scrape(broker)
    of = {"schedule": schedule, "job": "retention"}
    assert found.get("sparklog_noted_job_runs_total", **of, status="0") == 1
    assert found.get("sparklog_noted_job_runs_total", **of, status="2") == 1
    assert found.get("sparklog_noted_job_last_run_status", **of) == 2
    assert found.get("sparklog_noted_job_last_run_findings", **of) == 2
    assert found.get("sparklog_noted_job_last_run_timestamp_seconds", **of) == 5.002
