"""Archive and reports in an object store: Delta tables on an S3 endpoint, and no files of them on a disk."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from deltalake import DeltaTable

from sparklog.client import Admin, Producer
from sparklog.testing import RunningBroker
from support import CACHE
from support.names import unique
from support.patience import PATIENCE_S, wait_until
from support.processes.ports import reserve_port
from support.spark_topics import make_reader, rows_of

pytestmark = [pytest.mark.jvm, pytest.mark.slow]

JARS = CACHE / "s3a"
RECORDS = 200


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


def test_retention_archives_to_s3_and_reports_there(
    sparklog_broker: RunningBroker, topic: str, endpoint: str, tmp_path: Path
) -> None:
    jars = sorted(map(str, JARS.glob("*.jar")))
    assert jars, f"no jars in {JARS}: run `make test`, which fetches them"
    s3a = {"spark.hadoop.fs.s3a.endpoint": endpoint, "spark.hadoop.fs.s3a.path.style.access": "true"}
    place = ("--bootstrap", sparklog_broker.bootstrap, "--reports", "s3a://bucket/reports")
    sparklog("jobs", "run", "retention", "--topics", topic, *place, conf={**s3a, "spark.jars": ",".join(jars)})

    [report] = DeltaTable("s3://bucket/reports/retention").to_pyarrow_table().to_pylist()
    assert (report["topic"], report["outcome"]) == (topic, "done")
    archived = DeltaTable("s3://bucket/archive").to_pyarrow_table(columns=["offset"])
    assert sorted(archived["offset"].to_pylist()) == list(range(report["archived_to"]))

    options = {"kafka.bootstrap.servers": sparklog_broker.bootstrap, "subscribe": topic}
    assert len(rows_of(make_reader(options))) < RECORDS
    rows = rows_of(make_reader({**options, "readMode": "history"}))
    assert [(row["offset"], bytes(row["value"])) for row in rows] == [(n, b"%d" % n * 20) for n in range(RECORDS)]

    assert "retention" in sparklog("jobs", "list", "--reports", "s3a://bucket/reports")
