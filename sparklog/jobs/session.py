"""The SparkSession of a job: one of its own, or that of the spark-submit that runs the script.

    sparklog jobs run …          a JVM is started: local[*], or --master; --conf adds settings, and wins
    spark-submit jobs/….py       the JVM is there, the master and settings are those that spark-submit was given

spark-submit with no flags knows nothing of Delta. Where its JVM cannot find Delta's classes, the jars of
`spark.jars.delta_jars` are added to the class loader that spark-submit made for its --jars, and to `spark.jars`, by
which executors get them: what --jars would have done, as no SparkContext has begun by then.

A session on this machine gets the settings for small machines of `spark.session`, but for what somebody set.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from sparklog.spark.jars import delta_jars
from sparklog.spark.session import DELTA, IVY_SETTINGS, local_settings

SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""In the environment of a script that spark-submit runs: where its JVM listens."""
LOCAL = "local[*]"


def open_session(app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session, or return the one that runs.

    Delta's jars are fetched before the first one. Raises ConfigError where they cannot be.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # workers need the packages of this interpreter
    given = {**(conf or {}), **({"spark.master": master} if master else {})}
    if SUBMITTED in os.environ:
        settings = _submitted_settings(given)
    else:
        jars = delta_jars(settings=given.get(IVY_SETTINGS))
        settings = {"spark.master": LOCAL, "spark.jars": ",".join(map(str, jars)), **DELTA, **given}
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about the name of many a machine
        settings = {**local_settings(os.cpu_count() or 1), **settings}
    return SparkSession.builder.appName(app_name).config(map=settings).getOrCreate()


def is_alive(session: SparkSession) -> bool:
    """Whether there is a JVM behind the session, and a context that has not been stopped."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


class WarmSession:
    """A session that is kept for one run after the other, and made anew where it broke. For one thread at a time."""

    def __init__(self, open_one: Callable[[], SparkSession]) -> None:
        self._open = open_one
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """The session; a new one if there is none or its JVM is gone."""
        if self._session is None or not is_alive(self._session):
            if self._session is not None:
                forget_gateway()
            self._session = self._open()
        return self._session

    def cancel(self, run_id: str) -> None:
        """Cancel what a run does in it, and what the run would begin next; the run gets an error."""
        if self._session is not None and is_alive(self._session):
            self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(run_id)

    def close(self) -> None:
        if self._session is not None and is_alive(self._session):
            self._session.stop()
        self._session = None


def forget_gateway() -> None:
    """Let PySpark start another JVM: it keeps to the one it has had, gone or not."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _submitted_settings(given: Mapping[str, str]) -> dict[str, str]:
    """What a session under spark-submit must be set to, over what spark-submit has been told."""
    SparkContext._ensure_initialized()
    settings = {"spark.master": LOCAL, **dict(SparkConf().getAll()), **given}
    extensions = [name for name in settings.get("spark.sql.extensions", "").split(",") if name]
    if DELTA["spark.sql.extensions"] not in extensions:
        extensions.append(DELTA["spark.sql.extensions"])
    delta = {**DELTA, "spark.sql.extensions": ",".join(extensions)}
    if not _finds_delta():
        jars = delta_jars(settings=settings.get(IVY_SETTINGS))
        _load_classes(jars)
        delta["spark.jars"] = ",".join([*filter(None, settings.get("spark.jars", "").split(",")), *map(str, jars)])
    return {**settings, **delta}


def _finds_delta() -> bool:
    try:
        _class_loader().loadClass(DELTA["spark.sql.extensions"])
    except Py4JError:
        return False
    return True


def _load_classes(jars: Iterable[Path]) -> None:
    """Let the running JVM find the classes of these jars."""
    for jar in jars:
        _class_loader().addURL(SparkContext._jvm.java.net.URI(jar.as_uri()).toURL())


def _class_loader() -> Any:
    """The one that spark-submit made for the application, a MutableURLClassLoader: every thread of it has it."""
    return SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
