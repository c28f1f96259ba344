"""A job server in this process with cheap jobs: turns, failures, missed runs, and the stop."""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apscheduler.executors.base
import apscheduler.schedulers.base
import pytest

from sparklog.base.metric_table import JOB_SECTIONS
from sparklog.jobs import schedule as server_module
from sparklog.jobs.cron import parse_cron
from sparklog.jobs.job import run_job
from sparklog.jobs.metrics import JobCollector
from sparklog.jobs.options import parse_options
from sparklog.jobs.runs import last_runs
from sparklog.jobs.schedule import JobServer
from sparklog.jobs.schedule_config import Schedule, ServerConfig
from sparklog.jobs.session import WarmSession
from support.jobs.cheap_jobs import CHEAP
from support.metrics import Scrape, series_of
from support.patience import wait_until

NEVER = "0 0 29 2 mon"
EACH_SECOND = "* * * * * *"

pytestmark = pytest.mark.slow


class KeptSession(WarmSession):
    """The session of all tests; a server does not stop it."""

    def close(self) -> None:
        """Keep the session."""


def schedule(name: str, cron: str, missed: str = "once", **options) -> Schedule:
    return Schedule(
        name=name, job=CHEAP, cron=cron, trigger=parse_cron(cron, "UTC"), missed=missed,
        options=parse_options(CHEAP, options),
    )  # fmt: skip


@pytest.fixture
def serve(spark, tmp_path):
    started = []

    def serve(*schedules: Schedule, **keys) -> JobServer:
        config = ServerConfig(reports=str(tmp_path / "reports"), schedules=schedules, **keys)
        server = JobServer(config, KeptSession(lambda: spark))
        started.append(server)
        server.start()
        return server

    yield serve
    for server in started:
        server.stop()


def test_a_failing_schedule_does_not_stop_the_others_and_both_are_measured(serve):
    server = serve(schedule("good", EACH_SECOND, outcome="broken"), schedule("bad", EACH_SECOND, fail=True))
    metrics = server.metrics
    wait_until(
        lambda: metrics["good"].outcomes["findings"] and metrics["bad"].outcomes["could not run"] > 1,
        "one had findings and the other failed twice",
    )
    found = Scrape.from_collector(JobCollector(server))
    assert found.get("sparklog_job_last_run_status", job="cheap", schedule="bad") == 2
    assert found.get("sparklog_job_last_run_findings", job="cheap", schedule="good") == 1
    assert found.labels() == series_of(JOB_SECTIONS)
    assert server.stop()
    past = last_runs(f"{server.config.reports}/runs")
    assert past["cheap", "good"].outcome == "findings"
    assert past["cheap", "bad"].error == "nobody answers"


def test_a_job_never_runs_beside_itself_and_a_stop_waits_for_it(serve, tmp_path):
    gate = tmp_path / "gate"
    one, other = schedule("one", EACH_SECOND, until=str(gate)), schedule("other", EACH_SECOND)
    server = serve(one, other, parallel_runs=2)
    wait_until(Path(f"{gate}.started").exists, "the job runs")
    wait_until(lambda: server.metrics["one"].left_out and server.metrics["other"].left_out, "both were left out")
    assert server.metrics["other"].running_since is None
    gate.touch()
    assert server.stop()
    assert server.metrics["one"].last.outcome == "ok"


def test_what_does_not_end_in_time_is_cancelled(serve, tmp_path):
    gate = tmp_path / "gate"
    server = serve(schedule("slow", EACH_SECOND, until=str(gate)), stop_timeout_ms=0)
    wait_until(Path(f"{gate}.started").exists, "the job runs")
    assert server.stop()
    assert server.metrics["slow"].last.outcome == "could not run"
    assert last_runs(f"{server.config.reports}/runs")["cheap", "slow"].status == 2


@pytest.fixture
def ran_yesterday(make_context, tmp_path):
    """Runs of two schedules that a server began a year and a bit ago."""

    class Past:
        def time_ms(self):
            return int((datetime.now(UTC) - timedelta(days=400)).timestamp() * 1000)

    for name in ("made up", "left out"):
        context = make_context(clock=Past(), schedule=name, reports=str(tmp_path / "reports"))
        run_job(CHEAP, context, parse_options(CHEAP, {}))


def test_what_was_missed_is_made_up_for_once_where_it_should_be(serve, ran_yesterday):
    yearly = "0 0 1 1 *"
    server = serve(schedule("made up", yearly), schedule("left out", yearly, missed="skip"), schedule("new", yearly))
    wait_until(lambda: server.metrics["made up"].outcomes["ok"], "what was missed has run")
    assert server.stop()
    assert server.metrics["made up"].outcomes == {"ok": 1}
    assert not server.metrics["left out"].outcomes
    assert not server.metrics["new"].outcomes
    assert server.metrics["left out"].last.outcome == "ok"  # of the server before


def test_a_run_is_in_time_although_the_clock_was_put_forward(serve, monkeypatch):
    ahead = timedelta(0)

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + ahead

    for module in (apscheduler.schedulers.base, apscheduler.executors.base):
        monkeypatch.setattr(module, "datetime", Clock)
    monkeypatch.setattr(server_module, "LOOK_EVERY_S", 0.05)
    due = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=2)
    server, stop = serve(schedule("later", f"{due:%S %M %H} * * *", missed="skip")), threading.Event()
    waiting = threading.Thread(target=server.wait, args=(stop,))
    waiting.start()
    try:
        ahead = timedelta(hours=2, seconds=1)  # as if the machine had been suspended
        wait_until(lambda: server.metrics["later"].last, "the schedule has run")
    finally:
        stop.set()
        waiting.join()
    assert server.metrics["later"].left_out == 0
