"""The SparkSession of a job: its own, or that of the spark-submit that runs the script.

    sparklog jobs run …          starts a JVM, with local[*] or --master; settings of --conf override others
    spark-submit jobs/….py       uses the running JVM, with spark-submit's master and settings

spark-submit without flags does not load Delta. If its JVM cannot find Delta's classes, this module adds the jars of
`spark.jars.delta_jars` to the class loader that spark-submit made for its --jars, and to `spark.jars`, from which
executors get them. That has the effect of --jars, because no SparkContext has started yet.

A local session gets the settings for small machines of `spark.session`, except those that are set explicitly.
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
"""Environment variable of a script that spark-submit runs: the port of its JVM."""
LOCAL = "local[*]"


def open_session(app_name: str, *, master: str | None = None, conf: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session, or return the running one.

    Delta's jars are fetched before the first session starts. Raises ConfigError if they cannot be fetched.
    """
    given = {**(conf or {}), **({"spark.master": master} if master else {})}
    # Workers need this interpreter's packages. PySpark reads only the variable.
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    if SUBMITTED in os.environ:
        settings = _submitted_settings(given)
    else:
        jars = _join_jars(given.get("spark.jars"), delta_jars(settings=given.get(IVY_SETTINGS)))
        settings = {"spark.master": LOCAL, **DELTA, **given, "spark.jars": jars}
    if settings["spark.master"].startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # or Spark warns about the host names of many machines
        settings = {**local_settings(os.cpu_count() or 1), **settings}
    return SparkSession.builder.appName(app_name).config(map=settings).getOrCreate()


def is_alive(session: SparkSession) -> bool:
    """Return whether the session's JVM is running and its context has not been stopped."""
    try:
        return not session.sparkContext._jsc.sc().isStopped()
    except (Py4JError, OSError, AttributeError):
        return False


class WarmSession:
    """A session that is kept from run to run, and replaced if its JVM has died. For one thread at a time."""

    def __init__(self, open_one: Callable[[], SparkSession]) -> None:
        self._open = open_one
        self._session: SparkSession | None = None

    def get(self) -> SparkSession:
        """Return the session; start a new one if there is none or its JVM is gone."""
        if self._session is None or not is_alive(self._session):
            if self._session is not None:
                forget_gateway()
            self._session = self._open()
        return self._session

    def cancel(self, run_id: str) -> None:
        """Cancel the present and future Spark jobs of a run; the run gets an error."""
        if self._session is not None and is_alive(self._session):
            self._session.sparkContext._jsc.sc().cancelJobGroupAndFutureJobs(run_id)

    def close(self) -> None:
        """Stop the session, if it runs."""
        if self._session is not None:
            if is_alive(self._session):
                self._session.stop()
            else:
                forget_gateway()
        self._session = None


def forget_gateway() -> None:
    """Make PySpark start a new JVM. Otherwise PySpark keeps using the old one, even if it is gone."""
    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
    SparkSession._instantiatedSession = None


def _submitted_settings(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a session under spark-submit: those of spark-submit, `given`, and Delta's."""
    SparkContext._ensure_initialized()
    settings = {"spark.master": LOCAL, **dict(SparkConf().getAll()), **given}
    extensions = [name for name in settings.get("spark.sql.extensions", "").split(",") if name]
    if DELTA["spark.sql.extensions"] not in extensions:
        extensions.append(DELTA["spark.sql.extensions"])
    delta = {**DELTA, "spark.sql.extensions": ",".join(extensions)}
    if not _has_delta():
        jars = delta_jars(settings=settings.get(IVY_SETTINGS))
        _load_classes(jars)
        delta["spark.jars"] = _join_jars(settings.get("spark.jars"), jars)
    return {**settings, **delta}


def _join_jars(given: str | None, jars: Iterable[Path]) -> str:
    """Return `spark.jars` with these jars after the given ones."""
    return ",".join([*filter(None, (given or "").split(",")), *map(str, jars)])


def _has_delta() -> bool:
    try:
        _class_loader().loadClass(DELTA["spark.sql.extensions"])
    except Py4JError:
        return False
    return True


def _load_classes(jars: Iterable[Path]) -> None:
    """Add these jars to the running JVM's class loader."""
    for jar in jars:
        _class_loader().addURL(SparkContext._jvm.java.net.URI(jar.as_uri()).toURL())


def _class_loader() -> Any:
    """Return spark-submit's class loader for the application, a MutableURLClassLoader shared by all its threads."""
    return SparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader()
