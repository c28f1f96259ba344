"""Generates `conf/jobs.toml` from keys and options: ``python -m sparklog.jobs.config_doc > conf/jobs.toml``.

The file has a schedule for every job, with a cron line that suits most users. It lists all other keys and options with
their meanings and defaults, commented out.
"""

from __future__ import annotations

import importlib
import sys
import textwrap
from collections.abc import Iterator
from typing import Any

import click

from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS
from sparklog.base.config_doc import WIDTH, toml_value
from sparklog.base.config_keys import Key
from sparklog.base.extras import advice
from sparklog.jobs.table import JOBS, load_job

SUGGESTED = {
    "compaction": "*/15 * * * *",
    "archive": "*/30 * * * * *",  # with the time of a run, records wait less than the target's default
    "latest": "*/30 * * * * *",
    "retention": "5 * * * *",
    "offset_replay": "4-59/10 * * * *",  # between two runs of compaction, which makes older snapshots useless
    "isr_audit": "30 3 * * *",
}
_HEAD = """\
# The schedule of sparklog's jobs:
#     sparklog jobs serve --config jobs.toml
# Cron lines are crontab's: minute hour day month weekday, or six fields with seconds before them.
# What is commented out is the default. A job may have more schedules than one, with other options:
#     [schedule.orders]
#     job = "compaction"
#     cron = "*/5 * * * *"
"""
_CLIENTS = f"""\
# Keys of clients, as in the file of --client-config.
[client]
bootstrap.servers = "{DEFAULT_GRPC_ADDRESS}"
#security.protocol = "PLAINTEXT"

# Spark's settings, by their own names.
[spark]
#master = "local[*]"
#driver.memory = "1g"
"""


def jobs_toml() -> str:
    """Return the whole file."""
    keys = importlib.import_module("sparklog.jobs.schedule_config")  # imports packages of the optional extra
    server = [_key_entry(name, key) for name, key in keys.SERVER_KEYS.items()]
    missed = _key_entry("missed", keys.SCHEDULE_KEYS["missed"]).rstrip()
    return "\n".join([_HEAD, *server, _CLIENTS, *(line for name in JOBS for line in _schedule(name, missed))])


def _schedule(name: str, missed: str) -> Iterator[str]:
    yield f'# {JOBS[name]}\n[schedule.{name}]\ncron = "{SUGGESTED[name]}"'
    yield missed
    for option in load_job(name).parameters:
        if isinstance(option, click.Option):
            yield _entry(_meaning(option), str(option.name), _default(option)).rstrip()
    yield ""


def _meaning(option: click.Option) -> str:
    text = " ".join((option.help or "").partition("[default:")[0].split()).rstrip(".")
    allowed = ""
    if isinstance(option.type, click.Choice):
        allowed = f" Allowed: one of {', '.join(map(str, option.type.choices))}."
    return f"{text}.{allowed}"


def _default(option: click.Option) -> Any:
    """Return an option's default, or a placeholder if it has none."""
    default = option.to_info_dict()["default"]
    if option.multiple:
        return tuple(map(str, default or ()))
    if default is None or callable(default):
        return "true" if option.is_flag else "…"
    return default


def _key_entry(name: str, key: Key) -> str:
    return _entry(f"{key.doc} Allowed: {key.bound.text}.", name, key.default)


def _entry(meaning: str, name: str, value: Any) -> str:
    comment = textwrap.fill(meaning, WIDTH, initial_indent="# ", subsequent_indent="# ")
    return f"{comment}\n#{name} = {toml_value(value)}\n"


if __name__ == "__main__":
    try:
        sys.stdout.write(jobs_toml())
    except ModuleNotFoundError as missing:
        sys.exit(advice(missing) or str(missing))
