"""The audit of a running broker: no findings under load, each planted fault, and the same through gRPC."""

from __future__ import annotations

import shutil
import threading

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Maintenance, Producer
from sparklog.jobs.isr_audit import JOB
from sparklog.jobs.job import FINDINGS, OK, run_job
from sparklog.jobs.options import parse_options
from sparklog.spark.audit import broker as audit_broker
from sparklog.testing import start_broker
from support.logs.faulty_replicas import flip, places
from support.patience import PATIENCE_S
from support.transactions.markers import await_markers

pytestmark = pytest.mark.slow


def audit(context, **options):
    run = run_job(JOB, context, parse_options(JOB, options))
    rows = run.rows.collect()
    return run.status, {(row.outcome, row.kind, row.topic, row.offset) for row in rows if row.outcome != "ok"}, rows


class Writer:
    """Appends to topics, in small segments, for as long as it is told."""

    def __init__(self, topics, *names):
        self._topics, self._names = topics, names
        self._stop = threading.Event()
        self.has_begun = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        assert self.has_begun.wait(PATIENCE_S)
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _run(self):
        rounds = 0
        while not self._stop.wait(0.05):
            for name in self._names:
                self._topics.fill(name, 200, batches=4)
            rounds += 1
            if rounds == 5:
                self.has_begun.set()


def test_nothing_is_found_while_a_log_is_written_rolled_trimmed_and_made_and_deleted(topics, context):
    small = {"internal_segment_bytes": 20_000, "index_interval_bytes": 500}
    written = topics.create(**small)
    trimmed = topics.create(**{**small, "retention_bytes": 60_000, "file_delete_delay_ms": 0})
    with Writer(topics, written, trimmed):
        going = topics.create()
        told = []
        status, found, rows = audit(
            _saying(
                context, lambda text: told.append(text) or (len(told) == 1 and topics.admin.delete_topics([going]))
            ),
            topics=[written, trimmed, going],
        )
    assert (status, found) == (OK, set())
    assert {(row.topic, row.outcome) for row in rows} >= {(written, "ok"), (trimmed, "ok")}
    assert told[0].startswith("reading ")


def _saying(context, say):
    return type(context)(spark=context.spark, reports=context.reports, client=context.client, say=say)


def test_what_is_planted_in_the_folders_of_a_running_broker_is_found_and_kept_in_delta(topics, context, spark):
    damaged, misled = topics.create(internal_segment_bytes=20_000, index_interval_bytes=500), topics.create()
    topics.fill(damaged, 4000, batches=40)
    topics.fill(misled, 100, batches=2)
    folder = topics.broker.data_dir / f"{damaged}-0"
    first, second, *_ = sorted(folder.glob("*.log"))
    flip(first, places(first)[3][0] + 100)
    flip(second.with_suffix(".index"), 7)
    orphan = topics.broker.data_dir / f"{damaged}.forgotten-3"
    shutil.copytree(topics.broker.data_dir / f"{misled}-0", orphan)

    try:
        status, found, rows = audit(context, topics=[f"{damaged}.*", misled])
    finally:
        shutil.rmtree(orphan)

    assert status == FINDINGS
    wrong_at = next(offset for _, kind, _, offset in found if kind == "wrong_index_entry")
    assert found == {
        ("critical", "corrupt_batch", damaged, 300),
        ("warning", "wrong_index_entry", damaged, wrong_at),
        ("warning", "orphan_folder", f"{damaged}.forgotten", None),
    }
    assert all(row.next_step for row in rows if row.outcome != "ok")
    kept = spark.read.format("delta").load(context.table("isr_audit"))
    assert {(row.outcome, row.kind) for row in kept.collect()} == {(row.outcome, row.kind) for row in rows}


def test_a_broker_whose_disk_cannot_be_seen_is_audited_through_grpc(topics, context, monkeypatch):
    name = topics.create(internal_segment_bytes=20_000, index_interval_bytes=500)
    topics.fill(name, 2000, batches=20)
    monkeypatch.setattr(audit_broker, "belongs_to", lambda *_: False)
    last = sorted((topics.broker.data_dir / f"{name}-0").glob("*.log"))[0]
    flip(last, places(last)[1][0] + 100)
    with Writer(topics, name):
        assert audit(context, topics=[name])[:2] == (FINDINGS, {("critical", "corrupt_batch", name, 100)})


@pytest.mark.parametrize("is_visible", [True, False])
def test_a_transaction_index_that_lacks_an_abort_is_found(topics, context, monkeypatch, is_visible):
    """Otherwise readers of committed records would get aborted records."""
    name = topics.create()
    with Producer(bootstrap_servers=topics.broker.bootstrap, transactional_id=name) as producer:
        producer.begin()
        producer.send(name, b"x", partition=0).result()
        producer.abort()
    await_markers(topics.broker.bootstrap, TopicPartition(name, 0))
    if not is_visible:
        monkeypatch.setattr(audit_broker, "belongs_to", lambda *_: False)
    assert audit(context, topics=[name])[:2] == (OK, set())
    (topics.broker.data_dir / f"{name}-0" / f"{0:020}.txnindex").write_bytes(b"")
    assert audit(context, topics=[name])[:2] == (FINDINGS, {("critical", "wrong_transaction_index", name, 1)})


@pytest.mark.parametrize("is_visible", [True, False])
def test_nothing_is_found_in_a_log_in_which_transactions_are_aborted_meanwhile(
    topics, context, monkeypatch, is_visible
):
    if not is_visible:
        monkeypatch.setattr(audit_broker, "belongs_to", lambda *_: False)
    name = topics.create(internal_segment_bytes=2_000)
    stop, has_begun = threading.Event(), threading.Event()

    def abort_always():
        with Producer(bootstrap_servers=topics.broker.bootstrap, transactional_id=name, linger_ms=0) as producer:
            while not stop.is_set():
                producer.begin()
                producer.send(name, b"x", partition=0).result()
                producer.abort()
                has_begun.set()

    thread = threading.Thread(target=abort_always)
    thread.start()
    try:
        assert has_begun.wait(PATIENCE_S)
        assert audit(context, topics=[name])[:2] == (OK, set())
    finally:
        stop.set()
        thread.join()


def test_a_stopped_broker_is_audited_by_its_folder_and_a_dry_run_reads_nothing(context, tmp_path):
    with start_broker(tmp_path / "data") as broker, Maintenance(bootstrap_servers=broker.bootstrap) as maintenance:
        assert maintenance.describe_replicas() == []
    options = parse_options(JOB, {"path": [str(tmp_path / "data")]})
    assert run_job(JOB, context, options, dry_run=True).rows.count() == 0
    assert run_job(JOB, context, options).status == OK
