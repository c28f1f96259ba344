"""The broker's metrics for Prometheus, under the names of `base/metric_table.py`.

The broker changes the values during the read; each value is correct for some moment of it. Values that only the event
loop may read are collected there, in slices, while the thread of the scrape waits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, TypeVar

from prometheus_client import ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sparklog.base.ids import encode_id
from sparklog.base.metric_families import MetricFamilies
from sparklog.base.metric_table import BROKER_SECTIONS, KAFKA_ONLY
from sparklog.broker.metrics import LATENCY_BUCKETS_S
from sparklog.broker.node import Broker

WAIT_S = 8.0
"""Less than Prometheus' default scrape_timeout: a scrape without groups is better than none."""
QUANTILES = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""Quantiles of Kafka's histograms, in the notation of the JMX exporter."""
Result = TypeVar("Result")
logger = logging.getLogger(__name__)


class BrokerCollector(Collector):
    """Collector that reads the metrics of one broker on each scrape."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._process = ProcessCollector(registry=None)
        self._has_kafka_names = broker.config.metrics_kafka_names

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect from a broker that has not started."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of the broker. Blocks until the event loop has collected its values."""
        sections = (*BROKER_SECTIONS, KAFKA_ONLY) if self._has_kafka_names else BROKER_SECTIONS
        families = MetricFamilies(sections, with_kafka_names=self._has_kafka_names)
        self._add_requests(families)
        self._add_connections(families)
        self._add_topics(families)
        self._add_partitions(families)
        self._add_groups(families)
        self._add_client_metrics(families)
        self._add_figures(families)
        self._add_jobs(families)
        self._add_process(families)
        if self._has_kafka_names:
            self._add_quantiles(families)
            self._add_cluster_topics(families)
        yield from families

    def _add_requests(self, families: MetricFamilies) -> None:
        metrics = self._broker.metrics
        for api, figures in metrics.requests.items():
            families.add("sparklog_requests_total", figures.count, api)
            families.add("sparklog_requests_refused_total", figures.refused, api)
            families.add_histogram("sparklog_request_seconds", LATENCY_BUCKETS_S, figures.buckets, figures.seconds, api)
        for api, stages in tuple(metrics.stages.items()):
            for part, (buckets, total) in stages.histograms().items():
                families.add_histogram("sparklog_kafka_request_seconds", LATENCY_BUCKETS_S, buckets, total, api, part)
        quotas = self._broker.client_quotas
        families.add("sparklog_throttled_requests_total", quotas.waits)
        families.add("sparklog_throttle_seconds_total", quotas.waited_s)
        families.add("sparklog_waiting_requests", self._broker.waiting_requests)

    def _add_connections(self, families: MetricFamilies) -> None:
        for listener, figures in tuple(self._broker.metrics.listeners.items()):
            families.add("sparklog_connections", figures.open, listener)
            families.add("sparklog_connections_accepted_total", figures.accepted, listener)
            families.add("sparklog_connections_refused_total", figures.refused, listener)
            families.add("sparklog_connections_expired_total", figures.expired, listener)

    def _add_topics(self, families: MetricFamilies) -> None:
        for topic, figures in tuple(self._broker.metrics.topics.items()):
            families.add("sparklog_bytes_in_total", figures.bytes_in, topic)
            families.add("sparklog_records_in_total", figures.records_in, topic)
            families.add("sparklog_bytes_out_total", figures.bytes_out, topic)
            families.add("sparklog_replaced_segments_total", figures.replaced_segments, topic)
            families.add("sparklog_replaced_bytes_before_total", figures.replaced_bytes_before, topic)
            families.add("sparklog_replaced_bytes_after_total", figures.replaced_bytes_after, topic)

    def _add_partitions(self, families: MetricFamilies) -> None:
        for replica in self._broker.replicas():
            partition, log = replica.partition, replica.log
            labels = (partition.name.topic, str(partition.name.partition))
            families.add("sparklog_log_start_offset", log.log_start_offset, *labels)
            families.add("sparklog_high_watermark", partition.high_watermark, *labels)
            families.add("sparklog_log_end_offset", partition.log_end_offset, *labels)
            families.add("sparklog_log_size_bytes", log.size_bytes, *labels)
            if self._has_kafka_names and partition.is_leader:
                families.add("kafka_topic_partition_current_offset", partition.high_watermark, *labels)
                families.add("kafka_topic_partition_oldest_offset", log.log_start_offset, *labels)

    def _add_groups(self, families: MetricFamilies) -> None:
        found = self._ask(self._broker.group_figures, "the lag of consumer groups")
        if found is None:
            return
        for group_id, members in found.members:
            families.add("sparklog_consumergroup_members", members, group_id)
        for group_id, name, offset, lag, seconds in found.lags:
            labels = (group_id, name.topic, str(name.partition))
            families.add("sparklog_consumergroup_current_offset", offset, *labels)
            if lag is not None:
                families.add("sparklog_consumergroup_lag", lag, *labels)
            if seconds is not None:
                families.add("sparklog_consumergroup_lag_seconds", seconds, *labels)

    def _add_client_metrics(self, families: MetricFamilies) -> None:
        for pushed in self._broker.pushed_metrics():
            client = pushed.client
            labels = client.client_id, encode_id(pushed.instance_id), client.software_name, client.software_version
            for point in pushed.points.values():
                name = "sparklog_client_metric_total" if point.is_total else "sparklog_client_metric"
                families.add(name, point.value, *labels, point.name, point.attributes)

    def _add_figures(self, families: MetricFamilies) -> None:
        for name, value in self._broker.figures().items():
            families.add(f"sparklog_{name}", value)
        for name, value in self._broker.cluster_figures().items():
            families.add(f"sparklog_cluster_{name}", value)

    def _add_jobs(self, families: MetricFamilies) -> None:
        for labels, figures in tuple(self._broker.metrics.jobs.items()):
            for status, runs in tuple(figures.runs.items()):
                families.add("sparklog_noted_job_runs_total", runs, *labels, str(status))
            if last := figures.last:
                families.add("sparklog_noted_job_last_run_timestamp_seconds", last.started_ms / 1000, *labels)
                families.add("sparklog_noted_job_last_run_status", last.status, *labels)
                families.add("sparklog_noted_job_last_run_findings", last.findings, *labels)

    def _add_process(self, families: MetricFamilies) -> None:
        if loop := self._broker.loop:
            found = self._broker.loop_delay
            families.add("sparklog_event_loop_delay_seconds", found.take(loop.time()))
            lag = found.delays
            families.add_histogram("sparklog_event_loop_lag_seconds", LATENCY_BUCKETS_S, lag.buckets, lag.seconds)
        for metric in self._process.collect():
            for sample in metric.samples:
                if sample.name in families:
                    families.add(sample.name, sample.value)

    def _add_quantiles(self, families: MetricFamilies) -> None:
        for api, stages in tuple(self._broker.metrics.stages.items()):
            buckets, _ = stages.histograms()["TotalTime"]
            families.add("kafka_network_requestmetrics_requests_total", sum(buckets), api)
            for text in QUANTILES:
                found_ms = 1000 * quantile(LATENCY_BUCKETS_S, buckets, float(text))
                families.add("kafka_network_requestmetrics_totaltimems", found_ms, api, text)

    def _add_cluster_topics(self, families: MetricFamilies) -> None:
        topics = self._ask(self._broker.topics_if_controller, "the topics of the cluster") or ()
        if topics and (found := self._broker.cluster_figures()):
            families.add("kafka_brokers", found["brokers"])
        for topic in topics:
            families.add("kafka_topic_partitions", len(topic.partitions), topic.name)
            for name, info in topic.named_partitions():
                labels = (name.topic, str(name.partition))
                in_sync, replicas = len(info.in_sync_replicas), len(info.replicas)
                families.add("kafka_topic_partition_leader", info.leader, *labels)
                families.add("kafka_topic_partition_replicas", replicas, *labels)
                families.add("kafka_topic_partition_in_sync_replica", in_sync, *labels)
                families.add("kafka_topic_partition_under_replicated_partition", in_sync < replicas, *labels)

    def _ask(self, ask: Callable[[], Coroutine[Any, Any, Result]], what: str) -> Result | None:
        """Return the result of a coroutine on the broker's event loop; None before the start, or after WAIT_S."""
        loop = self._broker.loop
        if loop is None or loop.is_closed():
            return None
        answer = asyncio.run_coroutine_threadsafe(ask(), loop)
        try:
            return answer.result(WAIT_S)
        except TimeoutError:
            answer.cancel()
            logger.warning("a scrape lacks %s: the broker took more than %g s", what, WAIT_S)
            return None


def quantile(bounds: Sequence[float], counts: Sequence[int], wanted: float) -> float:
    """Return a quantile of a histogram, as PromQL's histogram_quantile does: linear within a bucket; 0 if it is empty.

    `counts` has one number more than `bounds`. A value above the last bound counts as that bound.
    """
    rank = wanted * sum(counts)
    below, lower = 0, 0.0
    for upper, count in zip(bounds, counts, strict=False):
        if count and below + count >= rank:
            return lower + (upper - lower) * (rank - below) / count
        below, lower = below + count, upper
    return bounds[-1] if sum(counts) else 0.0
