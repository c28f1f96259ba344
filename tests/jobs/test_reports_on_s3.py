"""Tables and reports of jobs in an object store: Delta tables on an S3 endpoint, and no files of them on a disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Producer
from sparklog.spark.history import merging
from sparklog.spark.history.archive_files import TableLocation
from sparklog.testing import RunningBroker
from support import CACHE
from support.jobs.archives import DAY_MS, FIRST_DAY_MS, InProcess, archive_closed, archived_rows
from support.names import unique
from support.patience import PATIENCE_S, wait_until
from support.processes.ports import reserve_port
from support.spark_topics import Topics, make_reader, rows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow, pytest.mark.timeout(1200)]

JARS = CACHE / "s3a"
RECORDS = 200
NOON = FIRST_DAY_MS + DAY_MS // 2


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An S3 endpoint with a bucket, which the variables of the environment name.

    It is a process of its own: deltalake waits for answers with the lock that Python's threads share.
    """
    port = reserve_port(monkeypatch)
    url = f"http://127.0.0.1:{port}"
    named = {"AWS_ACCESS_KEY_ID": "somebody", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    for name, value in {**named, "AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true"}.items():
        monkeypatch.setenv(name, value)
    command = [sys.executable, "-m", "moto.server", "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        wait_until(lambda: is_made(f"{url}/bucket"), "the bucket is made")
        yield url
        server.terminate()


def is_made(bucket: str) -> bool:
    try:
        with urlopen(Request(bucket, method="PUT"), timeout=PATIENCE_S):
            return True
    except URLError:
        return False  # the server is not there yet


@pytest.fixture
def topic(sparklog_broker: RunningBroker) -> str:
    """Its segments are small; the archive is in the bucket."""
    name = unique("stored")
    kept = {"internal.segment.bytes": "3000", "retention.bytes": "6000", "retention.archive": "s3://bucket/archive"}
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1, configs=kept)
    with Producer(bootstrap_servers=sparklog_broker.bootstrap, batch_size=0, linger_ms=0) as producer:
        for number in range(RECORDS):
            producer.send(name, b"%d" % number * 20)
    return name


def sparklog(*arguments: str, conf: Mapping[str, str] | None = None) -> str:
    """Return the output of the command line."""
    settings = (word for name, value in (conf or {}).items() for word in ("--conf", f"{name}={value}"))
    command = [sys.executable, "-m", "sparklog", *arguments, *settings]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=2 * PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def s3a_jars() -> list[str]:
    jars = sorted(map(str, JARS.glob("*.jar")))
    assert jars, f"no jars in {JARS}: run `make test`, which fetches them"
    return jars


def run_job(job: str, *arguments: str, broker: RunningBroker, endpoint: str) -> None:
    """Run a job that reports to the bucket."""
    s3a = {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    place = ("--bootstrap", broker.bootstrap, "--reports", "s3a://bucket/reports")
    sparklog("jobs", "run", job, *arguments, *place, conf={**s3a, "spark.jars": ",".join(s3a_jars())})


def test_retention_archives_to_s3_and_reports_there(
    sparklog_broker: RunningBroker, topic: str, endpoint: str, tmp_path: Path
) -> None:
    run_job("retention", "--topics", topic, broker=sparklog_broker, endpoint=endpoint)

    [report] = DeltaTable("s3://bucket/reports/retention").to_pyarrow_table().to_pylist()
    assert (report["topic"], report["outcome"]) == (topic, "done")
    archived = DeltaTable("s3://bucket/archive").to_pyarrow_table(columns=["offset"])
    assert sorted(archived["offset"].to_pylist()) == list(range(report["archived_to"]))

    options = {"kafka.bootstrap.servers": sparklog_broker.bootstrap, "subscribe": topic}
    assert len(rows_of(make_reader(options))) < RECORDS
    rows = rows_of(make_reader({**options, "readMode": "history"}))
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(n, b"%d" % n * 20) for n in range(RECORDS)]

    assert "retention" in sparklog("jobs", "list", "--reports", "s3a://bucket/reports")


def test_archive_and_latest_keep_tables_on_s3_by_the_schedule_of_a_server(
    sparklog_broker: RunningBroker, endpoint: str, tmp_path: Path
) -> None:
    events, customers = unique("events"), unique("customers")
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic(events, partitions=1, configs={"retention.archive": "s3://bucket/served"})
        admin.create_topic(customers, partitions=1, configs={"cleanup.policy": "compact"})
    config = tmp_path / "jobs.toml"
    config.write_text(
        f"""
        reports = "s3a://bucket/reports"
        [client]
        bootstrap.servers = "{sparklog_broker.bootstrap}"
        [spark]
        master = "local[2]"
        jars = "{",".join(s3a_jars())}"
        sql.codegen.wholeStage = "false"
        sql.codegen.factoryMode = "NO_CODEGEN"
        sql.shuffle.partitions = "1"
        hadoop.fs.s3a.endpoint = "{endpoint}"
        hadoop.fs.s3a.path.style.access = "true"
        [schedule.archive]
        cron = "*/2 * * * * *"
        topics = ["{events}"]
        [schedule.latest]
        cron = "*/2 * * * * *"
        topics = ["{customers}"]
        tables = "s3a://bucket/tables"
        """
    )
    command = [sys.executable, "-m", "sparklog", "jobs", "serve", "--config", str(config)]
    with (
        Producer(bootstrap_servers=sparklog_broker.bootstrap, linger_ms=0) as producer,
        subprocess.Popen(command, stdout=subprocess.DEVNULL) as server,
    ):
        try:
            for number in range(2):
                producer.send(events, b"%d" % number).result(PATIENCE_S)
                producer.send(customers, b"%d" % number, key=b"a").result(PATIENCE_S)
                producer.send(customers, None if number else b"0", key=b"b").result(PATIENCE_S)
                archived = [b"%d" % each for each in range(number + 1)]
                newest = {b"a": b"%d" % number} | ({} if number else {b"b": b"0"})
                wait_for_table(lambda: table("served").get("value") == archived, "the archive has what was sent")  # noqa: B023
                wait_for_table(lambda: newest_of(customers) == newest, "the table has the newest records")  # noqa: B023
        finally:
            server.terminate()
    assert server.returncode == 0
    runs = table("reports/runs")
    assert set(zip(runs["job"], runs["status"], strict=True)) == {("archive", 0), ("latest", 0)}


def wait_for_table(is_so: Callable[[], bool], what: str) -> None:
    """Wait for two runs of jobs. Looks are rare: each costs the slow endpoint many requests."""
    wait_until(is_so, what, every_s=1, patience_s=2 * PATIENCE_S)


def newest_of(topic: str) -> dict[bytes, bytes]:
    found = table(f"tables/{topic}_latest")
    return dict(zip(found["key"], found["value"], strict=True)) if found else {}


def table(path: str) -> dict[str, list[Any]]:
    """Return the columns of a table in the bucket, empty if it does not exist yet; an archive's by offset."""
    try:
        rows = DeltaTable(f"s3://bucket/{path}").to_pyarrow_table()
    except TableNotFoundError:
        return {}
    return (rows.sort_by("offset") if path == "served" else rows).to_pydict()


def test_small_files_of_an_archive_on_s3_are_merged(
    topics: Topics, endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "FEWEST", 3)
    topic, place = topics.create(internal_segment_bytes=1000), TableLocation("s3://bucket/merged")
    for _ in range(3):
        topics.fill(topic, 100, batches=10, timestamp=pa.array([NOON] * 100, pa.timestamp("ms", "UTC")))
        archive_closed(topics, topic, place.uri)
    before = archived_rows(place.uri)
    assert len(before) > 200

    assert merging.merge_small_files(InProcess(), place, [TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 3}  # type: ignore[arg-type]

    assert len(DeltaTable(place.uri).file_uris()) == 1
    assert archived_rows(place.uri) == before
