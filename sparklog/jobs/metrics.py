"""Prometheus metrics of a job server.

sparklog_job_runs_total{schedule, job, outcome}             outcome: ok, findings, could not run
sparklog_job_left_out_total{schedule, job}                  runs skipped because one was running, or it was too late
sparklog_job_running{schedule, job}                         1 while the job runs
sparklog_job_next_run_timestamp_seconds{schedule, job}
sparklog_job_last_run_timestamp_seconds{schedule, job}      start of the last run, also of one before this server
sparklog_job_last_run_seconds{schedule, job}                duration of the last run
sparklog_job_last_run_status{schedule, job}                 exit status of the last run: 0, 1 or 2
sparklog_job_last_run_findings{schedule, job}
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sparklog.jobs.runs import OUTCOMES
from sparklog.jobs.schedule import Figures, JobServer

LABELS = ["schedule", "job"]


class JobCollector(Collector):
    """Turns the figures of a server into Prometheus metrics on each scrape."""

    def __init__(self, server: JobServer) -> None:
        self._server = server

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering collects no metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        yield from self._counts()
        yield from self._times()
        yield from self._last_runs()

    def _counts(self) -> Iterator[Metric]:
        runs = CounterMetricFamily("sparklog_job_runs", "Runs that this server has ended.", labels=[*LABELS, "outcome"])
        left_out = CounterMetricFamily("sparklog_job_left_out", "Runs that were due and did not begin.", labels=LABELS)
        for labels, figures in self._figures():
            for outcome in OUTCOMES:
                runs.add_metric([*labels, outcome], figures.outcomes[outcome])
            left_out.add_metric(labels, figures.left_out)
        yield from (runs, left_out)

    def _times(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("sparklog_job_running", "1: the job runs.", labels=LABELS)
        upcoming = GaugeMetricFamily(
            "sparklog_job_next_run_timestamp_seconds", "When the next run is due.", labels=LABELS
        )
        for labels, figures in self._figures():
            running.add_metric(labels, figures.running_since is not None)
            if due := self._server.next_run(labels[0]):
                upcoming.add_metric(labels, due.timestamp())
        yield from (running, upcoming)

    def _last_runs(self) -> Iterator[Metric]:
        began = GaugeMetricFamily("sparklog_job_last_run_timestamp_seconds", "When the last run began.", labels=LABELS)
        took = GaugeMetricFamily("sparklog_job_last_run_seconds", "How long the last run took.", labels=LABELS)
        status = GaugeMetricFamily("sparklog_job_last_run_status", "The exit status of the last run.", labels=LABELS)
        findings = GaugeMetricFamily("sparklog_job_last_run_findings", "The findings of the last run.", labels=LABELS)
        for labels, figures in self._figures():
            if last := figures.last:
                began.add_metric(labels, last.started.timestamp())
                took.add_metric(labels, last.seconds)
                status.add_metric(labels, last.status)
                findings.add_metric(labels, last.findings)
        yield from (began, took, status, findings)

    def _figures(self) -> Iterator[tuple[list[str], Figures]]:
        for schedule in self._server.config.schedules:
            yield [schedule.name, schedule.job.name], self._server.figures[schedule.name]
