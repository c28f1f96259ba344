"""What a broker counts: requests and their latency by API, bytes and records by topic.

Counting is a few additions on the event loop, as it happens for every request; turning the figures into Prometheus'
form happens only when somebody asks (`server/metrics_http.py`), on another thread, from copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

LATENCY_BUCKETS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)


class RequestMetrics:
    """One API's requests; `buckets[i]` counts those that took at most ``LATENCY_BUCKETS_S[i]``, the last the slower."""

    __slots__ = ("buckets", "refused", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.seconds = 0.0
        self.refused = 0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


class TopicMetrics:
    """One topic's traffic since the broker's start."""

    __slots__ = ("bytes_in", "bytes_out", "records_in")

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0


class Metrics:
    """All figures of one broker."""

    def __init__(self, apis: Iterable[str]) -> None:
        self.requests = {api: RequestMetrics() for api in apis}
        self.topics: defaultdict[str, TopicMetrics] = defaultdict(TopicMetrics)

    def appended(self, topic: str, size_bytes: int, records: int) -> None:
        figures = self.topics[topic]
        figures.bytes_in += size_bytes
        figures.records_in += records

    def fetched(self, topic: str, size_bytes: int) -> None:
        self.topics[topic].bytes_out += size_bytes
