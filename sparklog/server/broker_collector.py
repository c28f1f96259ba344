"""The broker's metrics for Prometheus.

    sparklog_requests_total{api}, sparklog_requests_refused_total{api}
    sparklog_request_seconds_bucket{api, le}, _count, _sum
    sparklog_kafka_request_seconds_bucket{api, part, le}, _count, _sum      part: RequestQueueTime and the others of
                                                                            `broker/metrics.py`
    sparklog_connections{listener}                                          open connections of Kafka's protocol
    sparklog_connections_accepted_total{listener}, sparklog_connections_refused_total{listener},
    sparklog_connections_expired_total{listener}
    sparklog_bytes_in_total{topic}, sparklog_records_in_total{topic}, sparklog_bytes_out_total{topic}
    sparklog_replaced_segments_total{topic}, sparklog_replaced_bytes_before_total{topic},
    sparklog_replaced_bytes_after_total{topic}                              segments replaced by compaction
    sparklog_log_start_offset{topic, partition}, sparklog_high_watermark{…}, sparklog_log_end_offset{…},
    sparklog_log_size_bytes{…}
    sparklog_waiting_requests                                               fetches and produces that are waiting
    sparklog_partitions, sparklog_leaders, sparklog_offline_partitions      replicas of this broker
    sparklog_failed_log_dirs, sparklog_full_log_dirs                        log directories that have failed or are full
    sparklog_under_replicated_partitions, sparklog_under_min_isr_partitions led partitions with fewer in-sync
                                                                            replicas than replicas, or than
                                                                            min.insync.replicas
    sparklog_isr_shrinks_total, sparklog_isr_expands_total, sparklog_isr_update_failures_total
    sparklog_follower_max_lag                                               largest lag of a partition, in records
    sparklog_active_controller                                              1: this broker is the controller
    sparklog_history_written_total, sparklog_history_dropped_total, sparklog_history_waiting
                                                                            this broker's records of __cluster_history
    sparklog_cluster_brokers, sparklog_cluster_topics, sparklog_cluster_partitions,
    sparklog_cluster_leaderless_partitions, sparklog_cluster_not_preferred_leaders,
    sparklog_cluster_reassigning_partitions, sparklog_cluster_topics_to_delete
                                                                            on the controller only: the whole cluster

The values are read while the broker changes them. Each is correct for some moment during the read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sparklog.broker.metrics import LATENCY_BUCKETS_S
from sparklog.broker.node import Broker

_FIGURES: dict[str, tuple[type[GaugeMetricFamily] | type[CounterMetricFamily], str]] = {
    "partitions": (GaugeMetricFamily, "Replicas of this broker."),
    "leaders": (GaugeMetricFamily, "Partitions that this broker leads."),
    "offline_partitions": (GaugeMetricFamily, "Replicas of this broker whose log has failed."),
    "failed_log_dirs": (GaugeMetricFamily, "Log directories that have failed."),
    "full_log_dirs": (GaugeMetricFamily, "Log directories that take no records until there is room."),
    "under_replicated_partitions": (GaugeMetricFamily, "Led partitions with fewer replicas in sync than they have."),
    "under_min_isr_partitions": (
        GaugeMetricFamily, "Led partitions with fewer replicas in sync than min.insync.replicas.",
    ),
    "follower_max_lag": (GaugeMetricFamily, "Records that the slowest followed partition is behind its leader."),
    "active_controller": (GaugeMetricFamily, "1: this broker is the controller."),
    "history_waiting": (GaugeMetricFamily, "Records for the cluster's history, not written yet."),
    "isr_shrinks": (CounterMetricFamily, "Replicas that left an ISR, as this broker wrote."),
    "isr_expands": (CounterMetricFamily, "Replicas that joined an ISR, as this broker wrote."),
    "isr_update_failures": (CounterMetricFamily, "ISR changes that were refused, or whose end is not known."),
    "history_written": (CounterMetricFamily, "Records of this broker in the cluster's history."),
    "history_dropped": (CounterMetricFamily, "Records of the history that were lost before they were written."),
}  # fmt: skip
"""The metrics of a broker's figures, by name, each with its text."""
_CLUSTER_FIGURES = {"not_preferred_leaders": "partitions that their preferred replica does not lead"}
"""Figures of the controller whose names do not say what they count."""


class BrokerCollector(Collector):
    """Collector that reads the metrics of one broker on each scrape."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def describe(self) -> list[Metric]:
        """Return nothing, so that the registry does not collect from a broker that has not started."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._kafka_requests()
        yield from self._connections()
        yield from self._topics()
        yield from self._partitions()
        yield from self._replication()
        yield from self._cluster()

    def _requests(self) -> Iterator[Metric]:
        refused = CounterMetricFamily("sparklog_requests_refused", "Requests refused as a whole.", labels=["api"])
        seconds = HistogramMetricFamily(
            "sparklog_request_seconds", "From request to answer, waits included.", labels=["api"]
        )
        requests = CounterMetricFamily("sparklog_requests", "Requests answered or refused.", labels=["api"])
        for api, figures in self._broker.metrics.requests.items():
            requests.add_metric([api], figures.count)
            refused.add_metric([api], figures.refused)
            seconds.add_metric([api], _cumulative(figures.buckets), figures.seconds)
        yield from (requests, refused, seconds)

    def _kafka_requests(self) -> Iterator[Metric]:
        seconds = HistogramMetricFamily(
            "sparklog_kafka_request_seconds", "Parts of the time of requests on Kafka's wire.", labels=["api", "part"]
        )
        for api, stages in tuple(self._broker.metrics.stages.items()):
            for part, (buckets, total) in stages.histograms().items():
                seconds.add_metric([api, part], _cumulative(buckets), total)
        yield seconds

    def _connections(self) -> Iterator[Metric]:
        labels = ["listener"]
        now = GaugeMetricFamily("sparklog_connections", "Open connections of a Kafka listener.", labels=labels)
        accepted = CounterMetricFamily("sparklog_connections_accepted", "Connections accepted.", labels=labels)
        refused = CounterMetricFamily("sparklog_connections_refused", "Closed at once, over a quota.", labels=labels)
        expired = CounterMetricFamily("sparklog_connections_expired", "Closed after too long a silence.", labels=labels)
        for name, figures in tuple(self._broker.metrics.listeners.items()):
            now.add_metric([name], figures.open)
            accepted.add_metric([name], figures.accepted)
            refused.add_metric([name], figures.refused)
            expired.add_metric([name], figures.expired)
        yield from (now, accepted, refused, expired)

    def _topics(self) -> Iterator[Metric]:
        bytes_in = CounterMetricFamily("sparklog_bytes_in", "Bytes of record batches appended.", labels=["topic"])
        records_in = CounterMetricFamily("sparklog_records_in", "Records appended.", labels=["topic"])
        bytes_out = CounterMetricFamily("sparklog_bytes_out", "Bytes of record batches fetched.", labels=["topic"])
        replaced = CounterMetricFamily(
            "sparklog_replaced_segments", "Segments that compaction has replaced.", labels=["topic"]
        )
        before = CounterMetricFamily(
            "sparklog_replaced_bytes_before", "Bytes of the segments that were replaced.", labels=["topic"]
        )
        after = CounterMetricFamily(
            "sparklog_replaced_bytes_after", "Bytes of the segments that took their place.", labels=["topic"]
        )
        for topic, figures in tuple(self._broker.metrics.topics.items()):
            replaced.add_metric([topic], figures.replaced_segments)
            before.add_metric([topic], figures.replaced_bytes_before)
            after.add_metric([topic], figures.replaced_bytes_after)
            bytes_in.add_metric([topic], figures.bytes_in)
            records_in.add_metric([topic], figures.records_in)
            bytes_out.add_metric([topic], figures.bytes_out)
        yield from (bytes_in, records_in, bytes_out, replaced, before, after)

    def _partitions(self) -> Iterator[Metric]:
        labels = ["topic", "partition"]
        start = GaugeMetricFamily("sparklog_log_start_offset", "The first offset there is.", labels=labels)
        committed = GaugeMetricFamily("sparklog_high_watermark", "Records below it are committed.", labels=labels)
        end = GaugeMetricFamily("sparklog_log_end_offset", "The offset of the next record.", labels=labels)
        size = GaugeMetricFamily("sparklog_log_size_bytes", "Bytes of all segments.", labels=labels)
        waiting = GaugeMetricFamily("sparklog_waiting_requests", "Requests that wait for records or replicas.")
        for replica in self._broker.replicas():
            name = [replica.partition.name.topic, str(replica.partition.name.partition)]
            start.add_metric(name, replica.log.log_start_offset)
            committed.add_metric(name, replica.partition.high_watermark)
            end.add_metric(name, replica.partition.log_end_offset)
            size.add_metric(name, replica.log.size_bytes)
        waiting.add_metric([], self._broker.waiting_requests)
        yield from (start, committed, end, size, waiting)

    def _replication(self) -> Iterator[Metric]:
        figures = self._broker.figures()
        for name, value in figures.items():
            family, text = _FIGURES[name]
            yield family(f"sparklog_{name}", text, value=value)

    def _cluster(self) -> Iterator[Metric]:
        for name, value in self._broker.cluster_figures().items():
            what = _CLUSTER_FIGURES.get(name) or f"{name.replace('_', ' ')} in the cluster"
            yield GaugeMetricFamily(f"sparklog_cluster_{name}", f"The number of {what} (controller only).", value=value)


def _cumulative(buckets: Sequence[int]) -> list[tuple[str, int]]:
    """Return Prometheus' cumulative buckets: each bound with the number of values up to it."""
    return list(zip([*map(str, LATENCY_BUCKETS_S), "+Inf"], accumulate(buckets), strict=True))
