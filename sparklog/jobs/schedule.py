"""`sparklog jobs serve`: runs jobs by their cron lines in one warm Spark session, until it is stopped.

Two runs of a job never overlap. A schedule that is due while its last run still runs or waits is skipped, and two
schedules of one job take turns. At most `parallel.runs` jobs run at a time (one by default); others wait. A failed job
is logged and recorded, and does not affect other jobs. If the session's JVM is gone, the next run gets a new session.

The table of runs shows which runs were due while the server was down. If `missed` is "once", a schedule that has run
before and was due since then runs once at the start. So does a schedule whose run was killed: it left no row.

`stop` starts no more runs, waits `stop.timeout.ms` for running ones, then cancels them.
"""

from __future__ import annotations

import functools
import logging
import threading
import traceback
import uuid
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from apscheduler.events import EVENT_JOB_MAX_INSTANCES, EVENT_JOB_MISSED, JobExecutionEvent
from apscheduler.executors.pool import ThreadPoolExecutor
from apscheduler.schedulers.background import BackgroundScheduler

from sparklog.base.clock import Clock, SystemClock
from sparklog.base.errors import SparklogError
from sparklog.jobs.job import COULD_NOT_RUN, RUNS, JobContext, run_job
from sparklog.jobs.runs import PastRun, last_runs
from sparklog.jobs.schedule_config import ONCE, Schedule, ServerConfig
from sparklog.jobs.session import WarmSession
from sparklog.spark.shipping import error_text

LOOK_EVERY_S = 10
CANCEL_TIMEOUT_S = 60
"""How long a cancelled run may take to end and to be recorded."""
logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ScheduleMetrics:
    """The state of a schedule, for metrics."""

    last: PastRun | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    """Runs of this server, by outcome."""
    running_since: datetime | None = None
    run_id: str = ""
    """Id of the present run, or of the last one."""
    left_out: int = 0


class JobServer:
    """Runs the jobs of a configuration from `start` to `stop`."""

    def __init__(self, config: ServerConfig, session: WarmSession, clock: Clock | None = None) -> None:
        self.config = config
        self.metrics = {schedule.name: ScheduleMetrics() for schedule in config.schedules}
        self._session = session
        self._clock = clock or SystemClock()
        self._locks = {schedule.job.name: threading.Lock() for schedule in config.schedules}
        self._session_lock = threading.Lock()
        self._stopping = threading.Event()
        self._ended = threading.Condition()
        self._running = 0
        pool = {"default": ThreadPoolExecutor(config.parallel_runs)}
        self._scheduler = BackgroundScheduler(executors=pool, timezone=config.timezone)
        self._scheduler.add_listener(self._note_left_out, EVENT_JOB_MAX_INSTANCES | EVENT_JOB_MISSED)

    def start(self) -> None:
        """Start Spark, then the schedules. Raises an error of Spark's start."""
        self._session.get()
        past = last_runs(f"{self.config.reports.rstrip('/')}/{RUNS}")
        for schedule in self.config.schedules:
            last = past.get((schedule.job.name, schedule.name))
            self.metrics[schedule.name].last = last
            self._add_schedule(
                schedule, at_once=schedule.missed == ONCE and last is not None and self._is_overdue(schedule, last)
            )
        self._scheduler.start()

    def wait(self, stop: threading.Event) -> None:
        """Wait until `stop` is set, and meanwhile have the scheduler look at the clock.

        The scheduler waits for the next due time by a timer that stands still while the machine is suspended, and does
        not see the clock put forward: a run would come late, or be left out as missed.
        """
        while not stop.wait(LOOK_EVERY_S):
            self._scheduler.wakeup()

    def next_run(self, name: str) -> datetime | None:
        """Return when a schedule is due next; None if it never is."""
        job = self._scheduler.get_job(name)
        found: datetime | None = job.next_run_time if job else None
        return found

    def stop(self) -> bool:
        """Start no more runs, wait for running ones, cancel those that take too long. Return whether all have ended."""
        self._stopping.set()
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        ended = self._await_end(self.config.stop_timeout_ms / 1000)
        if not ended:
            logger.warning("cancelling what still runs after stop.timeout.ms = %d", self.config.stop_timeout_ms)
            self.cancel()
            ended = self._await_end(CANCEL_TIMEOUT_S)
        if ended:
            self._session.close()
        return ended

    def cancel(self) -> None:
        """Cancel all running runs."""
        for run_id in [metrics.run_id for metrics in self.metrics.values() if metrics.running_since]:
            self._session.cancel(run_id)

    def _add_schedule(self, schedule: Schedule, *, at_once: bool) -> None:
        if at_once:
            logger.info("%s was due while no server ran: it runs now", schedule.name)
        grace_s = None if schedule.missed == ONCE else max(1, self.config.missed_after_ms // 1000)
        first = {"next_run_time": self._now()} if at_once else {}
        self._scheduler.add_job(
            self._run, schedule.trigger, [schedule], id=schedule.name, name=schedule.name,
            max_instances=1, coalesce=True, misfire_grace_time=grace_s, **first,
        )  # fmt: skip

    def _is_overdue(self, schedule: Schedule, last: PastRun) -> bool:
        due = schedule.trigger.get_next_fire_time(None, last.started + timedelta(milliseconds=1))
        return due is not None and due <= self._now()

    def _run(self, schedule: Schedule) -> None:
        """Run a schedule once, on a thread of the scheduler; raises nothing."""
        with self._ended:
            if self._stopping.is_set():
                return
            self._running += 1
        metrics = self.metrics[schedule.name]
        try:
            with self._locks[schedule.job.name]:
                if not self._stopping.is_set():
                    metrics.run_id = uuid.uuid4().hex
                    metrics.running_since = self._now()
                    metrics.last = self._run_job(schedule, metrics.run_id, metrics.running_since)
                    metrics.outcomes[metrics.last.outcome] += 1
        finally:
            metrics.running_since = None
            with self._ended:
                self._running -= 1
                self._ended.notify_all()

    def _run_job(self, schedule: Schedule, run_id: str, started: datetime) -> PastRun:
        """Run the job, log the result and return it."""
        status, findings, error = COULD_NOT_RUN, 0, None
        logger.info("%s begins", schedule.name)
        try:
            with self._session_lock:
                spark = self._session.get()
            context = JobContext(
                spark=spark, reports=self.config.reports, client=self.config.client, clock=self._clock,
                say=functools.partial(logger.info, "%s: %s", schedule.name),
                schedule=schedule.name, run_id=run_id,
            )  # fmt: skip
            _, status, _, findings, error = run_job(schedule.job, context, schedule.options)
        except Exception as failure:  # noqa: BLE001 - one job's failure is not the server's
            error = error_text(failure).partition("\n")[0]
            if not isinstance(failure, SparklogError):
                logger.error("%s: %s", schedule.name, "".join(traceback.format_exception(failure)))
        ended = self._now()
        past = PastRun(schedule.job.name, schedule.name, run_id, started, ended, status, findings, error)
        logger.log(
            logging.WARNING if status else logging.INFO, "%s: %s, %d findings, %.1f s%s",
            schedule.name, past.outcome, findings, past.seconds, f": {error}" if error else "",
        )  # fmt: skip
        return past

    def _await_end(self, timeout_s: float) -> bool:
        with self._ended:
            return self._ended.wait_for(lambda: not self._running, timeout_s)

    def _note_left_out(self, event: JobExecutionEvent) -> None:
        self.metrics[event.job_id].left_out += 1
        why = "it still runs, or waits its turn" if event.code == EVENT_JOB_MAX_INSTANCES else "it is too late"
        logger.warning("%s was due and is left out: %s", event.job_id, why)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock.time_ms() / 1000, UTC)
