"""What a broker counts: requests and their latency by API, bytes and records by topic, connections by listener.

Of requests that came over Kafka's wire, the parts of their time are counted too, in seconds, as
kafka.network.RequestMetrics does in milliseconds:

    RequestQueueTime    from the request's last byte to the beginning of its work
    LocalTime           work
    RemoteTime          waiting for others: records, replicas, members of a group
    ResponseSendTime    until the response had left
    TotalTime           all of these

Counting is a few additions on the event loop, as it happens for every request; turning the figures into Prometheus'
form happens only when somebody asks (`server/broker_collector.py`), on another thread, from copies.
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


class Histogram:
    """Durations; `buckets[i]` counts those of at most ``LATENCY_BUCKETS_S[i]``, the last the longer ones."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        self.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        return sum(self.buckets)


class RequestMetrics(Histogram):
    """One API's requests, from request to answer."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0


class StageMetrics:
    """The parts of the time of one API's requests over Kafka's wire."""

    __slots__ = ("local", "queue", "remote", "send", "total")

    def __init__(self) -> None:
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.send = Histogram()
        self.total = Histogram()

    def observe(self, queue: float, work: float, remote: float, send: float) -> None:
        """`work` is from the beginning of the work to its end, with what was `remote` in it."""
        # Most requests never queue and wait for nobody: those are not put into a histogram one by one.
        if queue:
            self.queue.observe(queue)
        if remote:
            self.remote.observe(remote)
        self.local.observe(work - remote)
        self.send.observe(send)
        self.total.observe(queue + work + send)

    def histograms(self) -> dict[str, tuple[list[int], float]]:
        """Buckets and seconds of each part, by Kafka's name for it; every request is in each."""
        count = self.total.count
        found = {}
        for name, part in (
            ("RequestQueueTime", self.queue),
            ("LocalTime", self.local),
            ("RemoteTime", self.remote),
            ("ResponseSendTime", self.send),
            ("TotalTime", self.total),
        ):
            buckets = list(part.buckets)
            buckets[0] += max(0, count - sum(buckets))
            found[name] = (buckets, part.seconds)
        return found


class ListenerMetrics:
    """One listener's connections since the broker's start."""

    __slots__ = ("accepted", "expired", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        """Closed at once: over a quota."""
        self.expired = 0
        """Closed because nothing had happened for too long."""


class TopicMetrics:
    """One topic's traffic since the broker's start."""

    __slots__ = (
        "bytes_in", "bytes_out", "records_in", "replaced_bytes_after", "replaced_bytes_before", "replaced_segments",
    )  # fmt: skip

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.records_in = 0
        self.replaced_segments = 0
        self.replaced_bytes_before = 0
        self.replaced_bytes_after = 0


class Metrics:
    """All figures of one broker."""

    def __init__(self, apis: Iterable[str]) -> None:
        self.requests = {api: RequestMetrics() for api in apis}
        self.stages: defaultdict[str, StageMetrics] = defaultdict(StageMetrics)
        """By the API's name; only those that were asked over Kafka's wire."""
        self.listeners: defaultdict[str, ListenerMetrics] = defaultdict(ListenerMetrics)
        self.topics: defaultdict[str, TopicMetrics] = defaultdict(TopicMetrics)

    def appended(self, topic: str, size_bytes: int, records: int) -> None:
        figures = self.topics[topic]
        figures.bytes_in += size_bytes
        figures.records_in += records

    def fetched(self, topic: str, size_bytes: int) -> None:
        self.topics[topic].bytes_out += size_bytes

    def replaced(self, topic: str, segments: int, bytes_before: int, bytes_after: int) -> None:
        """One segment has taken the place of so many."""
        figures = self.topics[topic]
        figures.replaced_segments += segments
        figures.replaced_bytes_before += bytes_before
        figures.replaced_bytes_after += bytes_after
