"""Prometheus metrics of a job server: the state of its schedules under the names of `base/metric_table.py`."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from sparklog.base.metric_families import MetricFamilies
from sparklog.base.metric_table import JOB_SECTIONS
from sparklog.jobs.runs import OUTCOMES
from sparklog.jobs.schedule import JobServer, ScheduleMetrics


class JobCollector(Collector):
    """Turns the metrics of a server's schedules into Prometheus metrics on each scrape."""

    def __init__(self, server: JobServer) -> None:
        self._server = server

    def describe(self) -> list[Metric]:
        """Return nothing, so that registering collects no metrics."""
        return []

    def collect(self) -> Iterator[Metric]:
        families = MetricFamilies(JOB_SECTIONS)
        for schedule in self._server.config.schedules:
            self._add_metrics(families, schedule.name, schedule.job.name, self._server.metrics[schedule.name])
        yield from families

    def _add_metrics(self, families: MetricFamilies, schedule: str, job: str, metrics: ScheduleMetrics) -> None:
        labels = (schedule, job)
        for outcome in OUTCOMES:
            families.add("sparklog_job_runs_total", metrics.outcomes[outcome], *labels, outcome)
        families.add("sparklog_job_left_out_total", metrics.left_out, *labels)
        families.add("sparklog_job_running", metrics.running_since is not None, *labels)
        if due := self._server.next_run(schedule):
            families.add("sparklog_job_next_run_timestamp_seconds", due.timestamp(), *labels)
        if last := metrics.last:
            families.add("sparklog_job_last_run_timestamp_seconds", last.started.timestamp(), *labels)
            families.add("sparklog_job_last_run_seconds", last.seconds, *labels)
            families.add("sparklog_job_last_run_status", last.status, *labels)
            families.add("sparklog_job_last_run_findings", last.findings, *labels)
