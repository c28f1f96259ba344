"""Jobs as operators run them, in processes of their own: by spark-submit, by hand, and served on a schedule."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from click.testing import CliRunner

from sparklog.cli import cli
from sparklog.cli.jobs import SCRIPTS
from sparklog.jobs.runs import last_runs
from sparklog.jobs.table import JOBS
from support import ROOT, environment
from support.patience import PATIENCE_S, wait_until
from support.processes.output import first_line
from support.processes.probes import probe

ENVIRONMENT = {
    **environment(),
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYSPARK_PYTHON": sys.executable,
}
SPARKLOG = [sys.executable, "-m", "sparklog", "jobs"]

pytestmark = [pytest.mark.jvm, pytest.mark.slow]


@pytest.fixture
def start(tmp_path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            arguments, cwd=tmp_path, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.soak_only
def test_spark_submit_needs_no_flags_and_gives_the_status_of_the_run(start, tmp_path):
    script = tmp_path / "cheap.py"
    script.write_text('from sparklog.cli.jobs import submit\nsubmit("run", "support.jobs.cheap_jobs:CHEAP")\n')
    process = start("spark-submit", str(script), "--outcome", "broken", "--json")
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 1, err
    [found] = [line for line in out.splitlines() if line.startswith("{")]  # spark-submit puts the log there, too
    assert json.loads(found)["outcome"] == "broken"
    last = last_runs(str(tmp_path / "sparklog-reports" / "runs"))["cheap", None]
    assert (last.status, last.findings) == (1, 1)


def test_a_checkout_has_the_scripts_that_are_installed():
    assert {path.name for path in (ROOT / "jobs").iterdir()} == {path.name for path in SCRIPTS.glob("*.py")}


@pytest.mark.parametrize("name", [*JOBS, "schedule"])
def test_the_path_of_each_script_is_printed(name):
    printed = CliRunner().invoke(cli, ["jobs", "script", name]).stdout.strip()
    assert printed == str(SCRIPTS / f"{name}.py")


@pytest.mark.parametrize(
    "script",
    sorted([*(ROOT / "jobs").glob("*.py"), *SCRIPTS.glob("*.py")]),
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_each_script_for_spark_submit_is_a_command_with_help(script, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code == 0
    assert "Usage: sparklog jobs" in capsys.readouterr().out


@pytest.mark.soak_only
def test_an_interrupted_run_says_so_in_its_status_and_in_the_table_of_runs(start, tmp_path):
    process = start(*SPARKLOG, "run", "support.jobs.cheap_jobs:CHEAP", "--until", "gate")
    wait_until((tmp_path / "gate.started").exists, "the job runs")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=2 * PATIENCE_S)
    assert process.returncode == 130, err
    assert last_runs(str(tmp_path / "sparklog-reports" / "runs"))["cheap", None].outcome == "interrupted"


def children(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def runs_that_were_ok(address: str) -> int:
    with urlopen(f"http://{address}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    [line] = [line for line in text.splitlines() if 'runs_total{job="cheap",outcome="ok"' in line]
    return int(float(line.split()[-1]))


@pytest.mark.skipif(sys.platform != "linux", reason="finds the JVM in /proc")
def test_a_server_outlives_its_jvm_and_stops_when_it_is_told_to(start, tmp_path):
    (tmp_path / "jobs.toml").write_text(
        'metrics.listener = "127.0.0.1:0"\nlogging.format = "json"\n'
        '[spark]\nmaster = "local[1]"\ndriver.memory = "600m"\n'
        'sql.codegen.wholeStage = "false"\nsql.codegen.factoryMode = "NO_CODEGEN"\nsql.adaptive.enabled = "false"\n'
        '[schedule.often]\njob = "support.jobs.cheap_jobs:CHEAP"\ncron = "* * * * * *"\n'
    )
    server = start(*SPARKLOG, "serve", "--config", "jobs.toml")
    said = first_line(server)
    assert said.startswith("sparklog jobs serves 1 schedule")
    address = said.split()[-1]
    assert probe(address, "/readyz") == (200, {"status": "ready"})
    assert probe(address, "/livez") == (200, {"status": "ok"})
    wait_until(lambda: runs_that_were_ok(address) > 0, "a run was ok")
    [jvm] = [pid for pid in children(server.pid) if "java" in Path(f"/proc/{pid}/comm").read_text()]
    os.kill(jvm, signal.SIGKILL)
    before = runs_that_were_ok(address)
    wait_until(lambda: runs_that_were_ok(address) > before + 1, "a run in another JVM was ok")
    server.send_signal(signal.SIGTERM)
    _, err = server.communicate(timeout=PATIENCE_S)
    assert server.returncode == 0, err
    logged = [json.loads(line) for line in err.splitlines() if line.startswith("{")]  # the JVM logs there, too
    assert any(each["logger"].startswith("sparklog.jobs.") for each in logged)
    assert not any("broker" in each for each in logged)
    assert not [line for line in err.splitlines() if " sparklog." in line and not line.startswith("{")]
    listed = subprocess.run(
        [*SPARKLOG, "list", "--config", "jobs.toml", "--json"],
        check=True, capture_output=True, text=True, timeout=PATIENCE_S, cwd=tmp_path, env=ENVIRONMENT,
    )  # fmt: skip
    [row] = [json.loads(line) for line in listed.stdout.splitlines()]
    assert (row["schedule"], row["job"], row["outcome"]) == ("often", "cheap", "ok")
    assert row["next_run"] > row["last_run"]
