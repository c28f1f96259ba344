"""jobs.toml: valid files, and the errors of invalid ones."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from sparklog.base.errors import ConfigError
from sparklog.jobs.config_doc import jobs_toml
from sparklog.jobs.schedule_config import SCHEDULE_KEYS, load_server_config
from sparklog.jobs.table import JOBS, load_job
from support.patience import PATIENCE_S

CONF = Path(__file__).parents[2] / "conf" / "jobs.toml"
CHEAP = 'job = "support.jobs.cheap_jobs:CHEAP"\n'


@pytest.fixture
def write(tmp_path):
    def write(text: str) -> str:
        path = tmp_path / "jobs.toml"
        path.write_text(text)
        return str(path)

    return write


def test_a_schedule_has_its_job_its_times_and_its_options(write):
    config = load_server_config(
        write(
            'reports = "/r"\nparallel.runs = 2\n[spark]\ndriver.memory = "2g"\n[client]\nbootstrap.servers = "b:1"\n'
            f'[schedule.orders]\n{CHEAP}cron = "5 * * * *"\nmissed = "skip"\ntopics = ["a{{1,2}}", "b"]\npieces = 3\n'
            f'fail = true\n[schedule.other]\n{CHEAP}cron = "6 * * * *"\nfail = false\n'
        )
    )
    assert (config.reports, config.parallel_runs) == ("/r", 2)
    assert config.spark == {"spark.driver.memory": "2g"}
    assert config.client == {"bootstrap_servers": "b:1"}
    orders, other = config.schedules
    assert (orders.name, orders.job.name, orders.cron, orders.missed) == ("orders", "cheap", "5 * * * *", "skip")
    given = {"topics": ("a{1,2}", "b"), "pieces": 3, "fail": True}
    assert orders.options == {"outcome": "done", "refuse": False, "until": None, **given}
    assert (other.options["topics"], other.options["fail"], other.missed) == ((), False, "once")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('\nreport = "x"', ":2: unknown key 'report'; did you mean reports?"),
        ("parallel.runs = 0", ":1: parallel.runs = '0': it must be a whole number from 1 to 64"),
        ('timezone = ["UTC", 1]', ":1: timezone: it must be a text"),
        ('[client]\nboostrap.servers = "x:1"', ":2: unknown option 'boostrap_servers'; did you mean bootstrap_serv"),
        (f"[schedule.a]\n{CHEAP}", ":2: schedule.a has no cron line"),
        (f'[schedule.a]\n{CHEAP}cron = "no"', ":3: 'no': a cron line has five fields"),
        ('[schedule.compactoin]\ncron = "5 * * * *"', ":2: no job 'compactoin'; did you mean compaction?"),
        ('[schedule.a]\njob = "nowhere:JOB"\ncron = "5 * * * *"', ":2: nowhere: No module named 'nowhere'"),
        (f'[schedule.a]\n{CHEAP}cron = "5 * * * *"\npeices = 3', ":4: unknown key 'peices'; did you mean pieces?"),
        (f'[schedule.a]\n{CHEAP}cron = "5 * * * *"\npieces = "x"', ":4: pieces: 'x' is not a valid integer"),
        (f'[schedule.a]\n{CHEAP}cron = "5 * * * *"\nmissed = "never"', ":4: missed = 'never': it must be one of once"),
        ('schedule.a = "x"', ":1: schedule.a: a schedule is a table"),
        ('metrics.listener = "here"', "metrics.listener = 'here': it must be HOST:PORT"),
    ],
)
def test_an_error_says_where_it_was_written_and_what_may_have_been_meant(write, text, message):
    path = write(text)
    with pytest.raises(ConfigError) as refused:
        load_server_config(path)
    assert str(refused.value).startswith(path)
    assert message in str(refused.value)


def test_the_file_in_conf_is_what_the_keys_and_jobs_say():
    assert CONF.read_text() == jobs_toml(), "python -m sparklog.jobs.config_doc > conf/jobs.toml"


@pytest.mark.slow
def test_without_the_extra_the_generator_names_it(tmp_path):
    (tmp_path / "delta.py").write_text("raise ModuleNotFoundError('No module named delta', name='delta')")
    done = subprocess.run(
        [sys.executable, "-m", "sparklog.jobs.config_doc"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        check=False, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "delta is not installed: pip install 'sparklog[spark]'\n")


def test_the_file_in_conf_schedules_every_job_and_shows_their_defaults(tmp_path):
    config = load_server_config(str(CONF))
    assert [schedule.job.name for schedule in config.schedules] == list(JOBS)
    shown = tmp_path / "all.toml"
    keys = [line.removeprefix("#") if " = " in line and line[:1] == "#" and line[1:2] != " " else line
            for line in CONF.read_text().splitlines() if "…" not in line]  # fmt: skip
    shown.write_text("\n".join(keys))
    everything = load_server_config(str(shown))
    assert [each.options for each in everything.schedules] == [each.options for each in config.schedules]


@pytest.mark.parametrize("name", JOBS)
def test_a_job_has_the_name_it_is_known_by_and_options_of_its_own(name):
    job = load_job(name.replace("_", "-"))
    assert job.name == name
    shared = {"dry_run", "bootstrap", "client_config", "reports", "master", "settings", "as_json", *SCHEDULE_KEYS}
    assert not shared & {parameter.name for parameter in job.parameters}
