"""A run from plan to report: the tables, the output, and the exit status."""

from __future__ import annotations

import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JError

from sparklog.base.errors import ConfigError, NetworkException
from sparklog.cli.job_runs import RunOptions, run_in
from sparklog.jobs.job import append, run_job
from sparklog.jobs.options import parse_options
from sparklog.jobs.runs import last_runs
from support.jobs.cheap_jobs import CHEAP
from support.patience import wait_until


def written(context, name):
    return context.spark.read.format("delta").load(context.table(name)).collect()


def test_a_run_leaves_its_rows_and_a_row_of_its_own(make_context):
    context = make_context(schedule="nightly")
    run = run_job(CHEAP, context, parse_options(CHEAP, {"pieces": 2, "outcome": "broken"}))
    assert (run.status, run.findings, run.error) == (1, 2, None)
    report = sorted(written(context, "cheap"), key=lambda row: row.partition)
    assert [(row.run_id, row.topic, row.partition, row.outcome) for row in report] == [
        (run.run_id, "orders", 0, "broken"), (run.run_id, "orders", 1, "broken"),
    ]  # fmt: skip
    [row] = written(context, "runs")
    assert (row.run_id, row.job, row.schedule, row.status, row.rows, row.findings, row.error) == (
        run.run_id, "cheap", "nightly", 1, 2, 2, None,
    )  # fmt: skip
    assert row.started == report[0].at <= row.ended
    assert json.loads(row.options)["outcome"] == "broken"


@pytest.mark.parametrize(("option", "error"), [("fail", NetworkException), ("refuse", ConfigError)])
def test_a_run_that_could_not_be_done_is_written_down_and_raises(context, option, error):
    with pytest.raises(error):
        run_job(CHEAP, context, parse_options(CHEAP, {option: True}))
    last = last_runs(context.table("runs"))["cheap", None]
    assert (last.status, last.outcome, last.run_id) == (2, "could not run", context.run_id)
    assert last.error in ("nobody answers", "the moon is not right")


def test_a_report_that_cannot_be_written_does_not_hide_what_was_done(make_context, tmp_path, capsys):
    (tmp_path / "file").touch()
    context = make_context(reports=str(tmp_path / "file"))
    run = run_job(CHEAP, context, parse_options(CHEAP, {}))
    assert run.status == 2
    assert "the work is done, its report could not be written" in run.error
    assert [row.outcome for row in run.rows.collect()] == ["done"]


def test_runs_that_end_together_all_have_their_rows(make_context):
    contexts = [make_context() for _ in range(4)]

    def add(context):
        row = context.spark.createDataFrame([(context.run_id,)], "run_id string")
        append(row, context.table("together"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(add, contexts))
    assert {row.run_id for row in written(contexts[0], "together")} == {context.run_id for context in contexts}


@pytest.fixture
def run(spark, tmp_path):
    def run(*, dry_run=False, as_json=False, **options):
        shared = RunOptions(
            client={}, reports=str(tmp_path / "reports"), master=None, conf={}, dry_run=dry_run, as_json=as_json
        )
        return run_in(spark, CHEAP, parse_options(CHEAP, options), shared)

    return run


def test_a_dry_run_shows_the_plan_and_changes_nothing(run, tmp_path, capsys):
    assert run(dry_run=True, pieces=2) == 0
    assert capsys.readouterr().out.splitlines() == [
        "TOPIC   PARTITION  REASON",
        "orders          0  it is due",
        "orders          1  it is due",
    ]
    assert not (tmp_path / "reports").exists()


def test_scripts_get_one_line_of_json_for_each_row_and_nothing_else(run, capsys):
    assert run(as_json=True, outcome="broken") == 1
    out, err = capsys.readouterr()
    [row] = [json.loads(line) for line in out.splitlines()]
    assert (row["topic"], row["outcome"], row["bytes"]) == ("orders", "broken", 12)
    assert "1 finding" in err


def test_a_long_report_is_cut_on_the_terminal_and_whole_in_delta(run, context, capsys):
    assert run(pieces=130) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 101
    assert "30 more rows" in err
    assert len(written(context, "cheap")) == 130


def test_a_run_with_nothing_to_do_says_so(run, capsys):
    assert run(pieces=0) == 0
    assert "nothing to do" in capsys.readouterr().err


def test_an_interrupted_run_says_so_in_the_table_of_runs(run, context, tmp_path):
    gate = tmp_path / "gate"

    def interrupt():
        wait_until((tmp_path / "gate.started").exists, "the job is at work")
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    with ThreadPoolExecutor(1) as threads:
        interrupting = threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            run(until=str(gate))
        interrupting.result()
    assert last_runs(context.table("runs"))["cheap", None].outcome == "interrupted"


def test_an_interrupt_that_py4j_makes_an_error_of_is_an_interrupt(context):
    def apply(*_):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise Py4JError("Gateway must be connected to send cancel cmd.")  # noqa: B904 - as Py4J does

    with pytest.raises(KeyboardInterrupt):
        run_job(replace(CHEAP, apply=apply), context, parse_options(CHEAP, {}))
    assert last_runs(context.table("runs"))["cheap", None].outcome == "interrupted"


def test_a_fresh_table_of_runs_has_no_runs(tmp_path: Path):
    assert last_runs(str(tmp_path / "runs")) == {}
