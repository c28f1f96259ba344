"""A broker's counters: requests and latency by API, bytes and records by topic, connections by listener.

For requests over Kafka's wire the stages are measured too, in seconds (kafka.network.RequestMetrics: milliseconds):

    RequestQueueTime    from the request's last byte to the start of its work
    LocalTime           work
    RemoteTime          waiting for others: records, replicas, members of a group
    ResponseSendTime    until the response has been sent
    TotalTime           all of these

Counting takes a few additions on the event loop, as it happens for every request. The figures are converted to
Prometheus' format only on a scrape (`server/broker_collector.py`), on another thread, from copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

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
    """Durations; `buckets[i]` counts those up to ``LATENCY_BUCKETS_S[i]``, the last bucket the longer ones."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENCY_BUCKETS_S) + 1)
        self.seconds = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """The number of durations."""
        return sum(self.buckets)


class RequestMetrics(Histogram):
    """The latencies of one API's requests, from request to response."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def count_refused(self) -> None:
        """Count a request that ended with an error, or of which the client has a right to no part."""
        self.refused += 1


class StageMetrics:
    """The stage times of one API's requests over Kafka's wire."""

    __slots__ = ("local", "queue", "remote", "send", "total")

    def __init__(self) -> None:
        self.queue = Histogram()
        self.local = Histogram()
        self.remote = Histogram()
        self.send = Histogram()
        self.total = Histogram()

    def observe(self, queue: float, work: float, remote: float, send: float) -> None:
        """Count one request. All times are in seconds; `work` is the whole time of the work, including `remote`."""
        # Most requests neither queue nor wait: `histograms` adds their zeros.
        if queue:
            self.queue.observe(queue)
        if remote:
            self.remote.observe(remote)
        for stage, seconds in ((self.local, work - remote), (self.send, send), (self.total, queue + work + send)):
            stage.buckets[bisect_left(LATENCY_BUCKETS_S, seconds)] += 1  # as `observe`, for every request
            stage.seconds += seconds

    def histograms(self) -> dict[str, tuple[list[int], float]]:
        """Return buckets and total seconds of each stage, by Kafka's name; every request counts in every stage."""
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
    """Counts of one listener's connections since the broker's start."""

    __slots__ = ("accepted", "expired", "open", "refused")

    def __init__(self) -> None:
        self.open = 0
        self.accepted = 0
        self.refused = 0
        """Closed at once because of a quota."""
        self.expired = 0
        """Closed because they were idle for too long."""

    def connected(self) -> None:
        """Count a connection that was accepted, and is open."""
        self.accepted += 1
        self.open += 1

    def disconnected(self) -> None:
        """Count an open connection as closed."""
        self.open -= 1

    def count_refused(self) -> None:
        """Count a connection that was closed at once, because of a quota."""
        self.refused += 1

    def count_expired(self) -> None:
        """Count a connection that was closed because it was idle for too long."""
        self.expired += 1


class TopicMetrics:
    """Counts of one topic's traffic since the broker's start."""

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


class LoopDelay:
    """The delays of a periodic timer of the event loop: the time for which a request may wait for its turn.

    Timers of an idle loop are up to 1 ms late.
    """

    def __init__(self, interval_s: float) -> None:
        self.delays = Histogram()
        self._interval_s = interval_s
        self._due: float | None = None
        self._worst_s = 0.0

    def fired(self, now: float) -> None:
        """Count the timer's delay. now: the event loop's time in seconds; the caller sets the timer again at once"""
        if self._due is not None:
            delay_s = max(0.0, now - self._due)
            self.delays.observe(delay_s)
            self._worst_s = max(self._worst_s, delay_s)
        self._due = now + self._interval_s

    def take(self, now: float) -> float:
        """Return the longest delay in seconds since the last call, also one that still lasts. For any thread."""
        overdue = now - self._due if self._due is not None else 0.0
        worst, self._worst_s = self._worst_s, 0.0
        return max(0.0, worst, overdue)


class JobRun(NamedTuple):
    """The last reported run of a job."""

    started_ms: int
    status: int
    findings: int


MOST_JOBS = 1_000
"""Maximum number of pairs of schedule and job with counts; beyond it, the one that ran longest ago is dropped."""


class JobMetrics:
    """Counts of the runs of one job on one schedule."""

    __slots__ = ("last", "runs")

    def __init__(self) -> None:
        self.runs: defaultdict[int, int] = defaultdict(int)
        """The number of runs by status."""
        self.last: JobRun | None = None


class Metrics:
    """All figures of one broker."""

    def __init__(self, apis: Iterable[str]) -> None:
        self.requests = {api: RequestMetrics() for api in apis}
        self.stages: defaultdict[str, StageMetrics] = defaultdict(StageMetrics)
        """By API name; only requests over Kafka's wire."""
        self.listeners: defaultdict[str, ListenerMetrics] = defaultdict(ListenerMetrics)
        self.topics: defaultdict[str, TopicMetrics] = defaultdict(TopicMetrics)
        self.jobs: dict[tuple[str, str], JobMetrics] = {}
        """By schedule and job, in the order of their last runs."""

    def job_ran(self, schedule: str, job: str, run: JobRun) -> None:
        """Count a job run. schedule: empty if an operator has started the job"""
        figures = self.jobs.pop((schedule, job), None) or JobMetrics()
        figures.runs[run.status] += 1
        figures.last = run
        self.jobs[schedule, job] = figures
        if len(self.jobs) > MOST_JOBS:
            del self.jobs[next(iter(self.jobs))]

    def appended(self, topic: str, size_bytes: int, records: int) -> None:
        """Count bytes and records that producers have appended to a topic."""
        figures = self.topics[topic]
        figures.bytes_in += size_bytes
        figures.records_in += records

    def fetched(self, topic: str, size_bytes: int) -> None:
        """Count bytes of a topic that are sent to consumers."""
        self.topics[topic].bytes_out += size_bytes

    def replaced(self, topic: str, segments: int, bytes_before: int, bytes_after: int) -> None:
        """Count a replacement of `segments` segments by one."""
        figures = self.topics[topic]
        figures.replaced_segments += segments
        figures.replaced_bytes_before += bytes_before
        figures.replaced_bytes_after += bytes_after
