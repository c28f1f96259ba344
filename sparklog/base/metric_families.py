"""The metric families of one scrape, declared in the table of metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from sparklog.base.metric_types import MetricInfo, MetricType, Section

Family = CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily


class MetricFamilies:
    """Collects the samples of one scrape. Raises KeyError for a metric that is not in the table."""

    def __init__(self, sections: Iterable[Section], *, with_kafka_names: bool = False) -> None:
        """with_kafka_names: show metrics also under the names of Kafka's exporters"""
        self._infos = {info.name: info for section in sections for info in section.metrics}
        self._families = {name: _family(info, name) for name, info in self._infos.items()}
        self._kafka = {
            name: _family(info, info.kafka_name)
            for name, info in self._infos.items()
            if with_kafka_names and info.kafka_name
        }

    def __contains__(self, name: str) -> bool:
        return name in self._families

    def add(self, name: str, value: float, *labels: str) -> None:
        """Add a sample of a counter or a gauge; `labels` in the order of the table."""
        self._check(name, labels)
        for family in (self._families[name], self._kafka.get(name)):
            if family is not None:
                assert not isinstance(family, HistogramMetricFamily), f"{name} is a histogram"
                family.add_metric(labels, value)

    def add_histogram(
        self, name: str, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str
    ) -> None:
        """Add a sample of a histogram. `counts` has one number more than `bounds`: the values above the last one."""
        family = self._families[name]
        assert isinstance(family, HistogramMetricFamily), f"{name} is no histogram"
        self._check(name, labels)
        buckets = list(zip([*map(str, bounds), "+Inf"], accumulate(counts), strict=True))
        family.add_metric(labels, buckets, total)

    def __iter__(self) -> Iterator[Metric]:
        """Yield the families in the order of the table, then those under Kafka's names."""
        yield from self._families.values()
        yield from self._kafka.values()

    def _check(self, name: str, labels: Sequence[str]) -> None:
        expected = self._infos[name].labels
        if len(labels) != len(expected):  # prometheus_client would drop labels in silence
            raise ValueError(f"{name} has the labels {expected}, not {len(labels)} of them")


def _family(info: MetricInfo, name: str) -> Family:
    match info.type:
        case MetricType.COUNTER:
            return CounterMetricFamily(name, info.text, labels=info.labels)
        case MetricType.GAUGE:
            return GaugeMetricFamily(name, info.text, labels=info.labels)
        case MetricType.HISTOGRAM:
            return HistogramMetricFamily(name, info.text, labels=info.labels)
