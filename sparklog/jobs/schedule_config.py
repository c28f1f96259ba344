"""The configuration in `jobs.toml`: keys of the server, of Spark and of clients, and the schedules.

    reports = "/var/lib/sparklog/reports"      the server's keys: ServerConfig
    [spark]
    driver.memory = "2g"                       Spark's settings, here spark.driver.memory
    [client]
    bootstrap.servers = "broker:9094"          the keys of clients, as in --client-config
    [schedule.orders]                          a schedule and its name; there may be any number
    job = "compaction"                         the job; by default the one with the schedule's name
    cron = "15 * * * *"
    topics = ["orders.*"]                      the job's options, with underscores

All values are checked when the file is read. An error message starts with the place in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from apscheduler.triggers.cron import CronTrigger

from sparklog.base.addresses import Address
from sparklog.base.config_file import TomlValue, read_values
from sparklog.base.config_keys import (
    MAX_INT,
    MINUTE_MS,
    declared_keys,
    integer,
    key,
    log_format,
    one_of,
    render,
    text,
    unknown_key,
)
from sparklog.base.errors import ConfigError
from sparklog.client.config import AdminConfig
from sparklog.jobs.cron import parse_cron
from sparklog.jobs.job import Job, Options
from sparklog.jobs.options import parse_options
from sparklog.jobs.table import load_job

SPARK, CLIENT, SCHEDULE = "spark.", "client.", "schedule."
ONCE, SKIP = "once", "skip"
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleKeys:
    """The keys of every schedule, apart from the options of its job."""

    cron: str = key("", text(), "When it runs: minute hour day month weekday, or with seconds before them.")
    job: str = key("", text(), "Which job; by default the one that has the schedule's name. MODULE:NAME is your own.")
    missed: str = key(
        ONCE,
        one_of(ONCE, SKIP),
        "How to treat runs that were due while the server was down or busy: one run makes up for all of them (once), "
        "or they are left out (skip).",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A job with its options, and the times when it runs."""

    name: str
    job: Job
    cron: str
    trigger: CronTrigger
    missed: str
    options: Options


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerConfig:
    """The configuration of `sparklog jobs serve`."""

    reports: str = key("./sparklog-reports", text(), "The folder of the Delta tables with reports, or a URL.")
    timezone: str = key("UTC", text(), "The time zone of the cron lines.")
    parallel_runs: int = key(1, integer(1, 64), "How many jobs may run at a time; a job never runs beside itself.")
    missed_after_ms: int = key(
        MINUTE_MS, integer(1, MAX_INT), "A run that could not begin for this long is missed, where missed is skip."
    )
    stop_timeout_ms: int = key(
        MINUTE_MS, integer(0, MAX_INT), "How long a stop waits for what runs, before it is cancelled."
    )
    metrics_listener: str = key(
        "", text(), "HOST:PORT where Prometheus may read figures of the jobs, under /metrics; empty: nowhere."
    )
    logging_format: str = log_format()
    spark: Mapping[str, str] = field(default_factory=dict)
    client: Mapping[str, Any] = field(default_factory=dict)
    schedules: tuple[Schedule, ...] = ()


SERVER_KEYS = declared_keys(ServerConfig)
SCHEDULE_KEYS = declared_keys(ScheduleKeys)


def load_server_config(path: str) -> ServerConfig:
    """Return the configuration in a file. Raises ConfigError, with the place in the file, if anything is wrong."""
    server: dict[str, Any] = {}
    spark: dict[str, str] = {}
    client: dict[str, Any] = {}
    schedules: dict[str, list[TomlValue]] = {}
    for written in read_values(path):
        name, value, where = written
        if name.startswith(SCHEDULE):
            schedule, _, option = name.removeprefix(SCHEDULE).partition(".")
            if not option:
                raise ConfigError(f"{where}{name}: a schedule is a table: [schedule.NAME], with cron = …")
            schedules.setdefault(schedule, []).append(TomlValue(option, value, where))
        elif name.startswith(SPARK):
            spark[name] = _value_text(written)
        elif name.startswith(CLIENT):
            client |= _client_option(written)
        elif known := SERVER_KEYS.get(name):
            server[known.field] = known.parse(_value_text(written), where)
        else:
            raise ConfigError(where + unknown_key(name, [*SERVER_KEYS, "spark", "client", "schedule"]))
    config = ServerConfig(**server, spark=spark, client=client)
    if config.metrics_listener:
        Address.parse(config.metrics_listener, f"{path}: metrics.listener")
    found = tuple(_schedule(name, items, config.timezone, path) for name, items in schedules.items())
    return ServerConfig(**server, spark=spark, client=client, schedules=found)


def _schedule(name: str, items: Iterable[TomlValue], timezone: str, path: str) -> Schedule:
    own: dict[str, str] = {}
    options: dict[str, Any] = {}
    where: dict[str, str] = {}
    for item in items:
        where[item.name] = item.where
        if known := SCHEDULE_KEYS.get(item.name):
            own[known.field] = known.parse(_value_text(item), item.where)
        else:
            options[item.name] = item.value
    keys = ScheduleKeys(**own)
    if not keys.cron:
        raise ConfigError(f"{next(iter(where.values()), f'{path}: ')}schedule.{name} has no cron line")
    job = _with_place(where.get("job", next(iter(where.values()))), lambda: load_job(keys.job or name))
    unknown = [option for option in options if option not in {str(item.name) for item in job.parameters}]
    if unknown:
        allowed = [*SCHEDULE_KEYS, *(str(item.name) for item in job.parameters)]
        raise ConfigError(where[unknown[0]] + unknown_key(unknown[0], allowed))
    trigger = _with_place(where["cron"], lambda: parse_cron(keys.cron, timezone))
    parsed = parse_options(job, options, where)
    return Schedule(name=name, job=job, cron=keys.cron, trigger=trigger, missed=keys.missed, options=parsed)


def _client_option(written: TomlValue) -> dict[str, Any]:
    name = written.name.removeprefix(CLIENT).replace(".", "_")
    option = {name: _value_text(written)}
    _with_place(written.where, lambda: AdminConfig.parse(option))
    return option


def _value_text(written: TomlValue) -> str:
    """Return a value as text. Raises ConfigError unless it is a string, a number, a boolean or a list of strings."""
    value = written.value
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = tuple(value)
    if not isinstance(value, str | bool | int | float | tuple):
        raise ConfigError(f"{written.where}{written.name}: it must be a text, a number, true or false")
    return render(value)


def _with_place(where: str, parse: Callable[[], Result]) -> Result:
    """Return the result of `parse`. Put the place in the file before the message of its ConfigError."""
    try:
        return parse()
    except ConfigError as error:
        raise ConfigError(f"{where}{error}") from None
