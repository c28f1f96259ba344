"""A broker is killed in the middle of a job: the run reports it, and the next run does the rest."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from sparklog.base.errors import SparklogError
from sparklog.client import Admin, Producer
from sparklog.jobs import isr_audit, retention
from sparklog.jobs.job import OK, JobContext, run_job
from sparklog.jobs.options import parse_options
from support.processes.broker import BrokerProcess

pytestmark = pytest.mark.slow

PATIENCE = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 6_000}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as process:
        yield process


@pytest.fixture
def context(broker: BrokerProcess, make_context: Callable[..., JobContext]) -> JobContext:
    return make_context(client={"bootstrap_servers": broker.grpc, **PATIENCE})


def fill(broker: BrokerProcess, **configs: str) -> None:
    """A topic t of small segments, 200 records."""
    with Admin(bootstrap_servers=broker.grpc) as admin:
        admin.create_topic("t", partitions=1, configs={"internal.segment.bytes": "2000", **configs})
    with Producer(bootstrap_servers=broker.grpc, batch_size=0, linger_ms=0) as producer:
        for number in range(200):
            producer.send("t", b"%d" % number, partition=0)


def killing(broker: BrokerProcess, then: Callable[..., Any]) -> Callable[..., Any]:
    """Return `then`, preceded by the kill of the broker."""

    def call(*arguments: Any, **named: Any) -> Any:
        broker.kill()
        return then(*arguments, **named)

    return call


@pytest.mark.soak_only
def test_what_is_archived_when_the_broker_dies_is_deleted_by_the_next_run(
    broker: BrokerProcess, context: JobContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = str(tmp_path / "archive")
    fill(broker, **{"retention.archive": uri, "retention.bytes": "4000"})
    options = parse_options(retention.JOB, {"topics": ["t"]})

    with monkeypatch.context() as patched:
        patched.setattr(retention, "_delete", killing(broker, retention._delete))
        failed = run_job(retention.JOB, context, options)
    assert [row.outcome for row in failed.rows.collect()] == ["failed"]
    archived = DeltaTable(uri).version()

    broker.start()
    done = run_job(retention.JOB, context, options)
    assert [row.outcome for row in done.rows.collect()] == ["done"]
    assert DeltaTable(uri).version() == archived
    offsets = DeltaTable(uri).to_pyarrow_table(columns=["offset"])["offset"].to_pylist()
    assert sorted(offsets) == list(range(len(offsets)))
    with Admin(bootstrap_servers=broker.grpc) as admin:
        [topic] = admin.describe_topics(["t"])
    assert 0 < topic.partitions[0].log_start_offset <= len(offsets)


def test_an_audit_whose_broker_dies_says_that_it_could_not_run_and_the_next_one_finds_nothing(
    broker: BrokerProcess, context: JobContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(broker)
    options = parse_options(isr_audit.JOB, {})

    with monkeypatch.context() as patched:
        patched.setattr(isr_audit, "Auditor", killing(broker, isr_audit.Auditor))
        with pytest.raises(SparklogError, match="no broker answers"):
            run_job(isr_audit.JOB, context, options)

    broker.start()
    assert run_job(isr_audit.JOB, context, options).status == OK
