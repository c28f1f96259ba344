"""Apache Kafka's own dump of what a transaction coordinator of ours keeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from click.testing import CliRunner

from sparklog.cli.dump import command
from sparklog.records.records import Record, write_records
from sparklog.transaction.requests import TV1, TV2
from support.transactions.coordinator import SimCoordinator
from support.transactions.sinks import SimSinks


def test_kafka_s_dump_reads_what_the_coordinator_wrote(tmp_path: Path, kafka_tool: Callable[..., str]) -> None:
    it = SimCoordinator()
    for name, version in (("old", TV1), ("new", TV2)):
        answer = it.init(name)
        me = (answer.producer_id, answer.producer_epoch)
        it.add("a-0 b-1 a-2", me, name=name, version=version)
        it.end(me, commit=True, name=name, version=version)
        it.write_markers()
    it.init("new", known=me)  # the last epoch: a field that Kafka does not know
    it.now_ms += it.config.transactional_id_expiration_ms
    it.expire()
    sinks = SimSinks()
    me = sinks.join(0)
    sinks.enrol("a-0 b-1", (me.producer_id, 0))
    sinks.commit_batch(0, {(me.producer_id, 0): "a-0 b-1"})
    sinks.write_markers()
    records = [
        Record(offset=number, timestamp_ms=1, key=key, value=value)
        for number, (key, value) in enumerate(it.log + sinks.log)
    ]
    log = tmp_path / "__transaction_state-0" / "00000000000000000000.log"
    log.parent.mkdir()
    log.write_bytes(write_records(records))

    theirs = kafka_tool("org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(log))
    ours = CliRunner().invoke(command, [str(log), "--transaction-log-decoder"])

    assert any(record.value and record.value.last_producer_epoch >= 0 for record in it.records())
    assert ours.stdout == theirs
    assert '"transactionalId":"new"' in theirs
    assert '"transactionalId":"spark-query"' in theirs
    assert '"clientTransactionVersion":2' in theirs
    assert "<DELETE>" in theirs
    assert "skipping" not in theirs
