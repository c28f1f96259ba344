"""What a scrape of a broker or a job server shows."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from sparklog.base.metric_types import MetricInfo, Section
from support.patience import PATIENCE_S

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.samples: dict[str, dict[Labels, float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value

    @classmethod
    def of(cls, address: str) -> Scrape:
        """Scrape a listener, HOST:PORT."""
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=PATIENCE_S) as answer:
            return cls(answer.read().decode())

    @classmethod
    def from_collector(cls, collector: Collector) -> Scrape:
        """What a server without a listener for metrics would show."""
        registry = CollectorRegistry()
        registry.register(collector)
        return cls(generate_latest(registry).decode())

    def get(self, name: str, **labels: str) -> float | None:
        return self.samples.get(name, {}).get(frozenset(labels.items()))

    def by_partition(self, name: str, **labels: str) -> dict[int, float]:
        """The samples with these labels, by their label `partition`."""
        wanted = labels.items()
        found = ((dict(each), value) for each, value in self.samples.get(name, {}).items())
        return {int(each["partition"]): value for each, value in found if wanted <= each.items()}

    def labels(self) -> dict[str, set[frozenset[str]]]:
        """The names of the labels of each series."""
        return {name: {frozenset(dict(each)) for each in found} for name, found in self.samples.items()}


def series_of(sections: Iterable[Section], *, with_kafka_names: bool = False) -> Mapping[str, set[frozenset[str]]]:
    """The names of the labels of each series in a table of metrics."""
    found = {}
    for info in (info for section in sections for info in section.metrics):
        for name in info.series:
            found[name] = {frozenset(labels_of(info, name))}
        if with_kafka_names and info.kafka_name:
            found[info.kafka_name] = {frozenset(info.labels)}
    return found


def labels_of(info: MetricInfo, series: str) -> tuple[str, ...]:
    return (*info.labels, "le") if series == f"{info.name}_bucket" else info.labels
