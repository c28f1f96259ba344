"""`sparklog sinks`, on a broker with a sink that has a committed batch and a sink with an open one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.sinks.sinks import BatchWinner, SinkBatchId
from sparklog.client.sinks.sync import SinkClient
from sparklog.testing import RunningBroker, start_broker
from sparklog.transaction.marker_sender import MarkerSender
from support.clients.command_result import CommandResult
from support.patience import PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

Sparklog = Callable[..., CommandResult]
SINK = "spark-0b6e9f0a-orders"
NAME = TopicPartition("orders", 0)


@pytest.fixture
def sparklog_broker(tmp_path) -> Iterator[RunningBroker]:
    with start_broker(tmp_path, transaction_state_log_num_partitions=1) as broker:
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            admin.create_topic("orders", partitions=2)
        yield broker


@pytest.fixture(autouse=True)
def sinks(sparklog_broker: RunningBroker) -> Iterator[SinkClient]:
    """Batch 7 of SINK is committed, batch 8 is open; a job has committed its only batch."""
    with SinkClient(bootstrap_servers=sparklog_broker.bootstrap) as sinks:
        job = SinkBatchId("spark-job-1", "job", 0)
        for batch in (SinkBatchId(SINK, "run-1", 7), job):
            sinks.commit(batch, [write(sparklog_broker, sinks, batch)])
        wait_until(lambda: sinks.describe(SINK).state == "CompleteCommit", "the batch has ended")
        wait_until(lambda: sinks.describe("spark-job-1").state == "CompleteCommit", "the job has ended")
        write(sparklog_broker, sinks, SinkBatchId(SINK, "run-2", 8))
        yield sinks


def write(broker: RunningBroker, sinks: SinkClient, batch: SinkBatchId) -> BatchWinner:
    identity = sinks.join(batch, timeout_ms=300_000)
    assert identity is not None
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=batch.sink_id) as producer:
        producer.enlist(*identity)
        producer.send("orders", b"%d" % batch.batch_id, partition=0)
        producer.flush()
    return BatchWinner(identity, {"orders": [0]})


def committed(broker: RunningBroker) -> int:
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([NAME])
        consumer.seek_to_beginning(NAME)
        found = 0
        while consumer.position(NAME) < consumer.end_offsets([NAME])[NAME]:
            found += len(consumer.poll(100))
        return found


def answer(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", StringIO(text))


def test_sinks_are_listed(sparklog: Sparklog) -> None:
    head, *rows = sparklog("sinks", "list").out.splitlines()
    assert head.split() == ["SINK", "COORDINATOR", "STATE", "COMMITTED", "LAST", "CHANGE"]
    assert [row.split()[:4] for row in rows] == [
        [SINK, "0", "Ongoing", "7"],
        ["spark-job-1", "0", "CompleteCommit", "0"],
    ]
    [found] = sparklog("sinks", "list", "--state", "ongoing", "--json").rows
    assert (found["sink_id"], found["committed_batch_id"]) == (SINK, 7)
    [found] = sparklog("sinks", "list", "--sink-id-pattern", "spark-job-.*", "--json").rows
    assert found["sink_id"] == "spark-job-1"
    none = sparklog("sinks", "list", "--sink-id-pattern", "job")
    assert (none.status, none.out) == (0, "")
    assert "no sinks" in none.err
    for wrong in (("--state", "Open"), ("--sink-id-pattern", "(")):
        assert sparklog("sinks", "list", *wrong).status == 2


def test_a_sink_is_described(sparklog: Sparklog) -> None:
    [found] = sparklog("sinks", "describe", SINK, "--json").rows
    told = {name: found[name] for name in ("state", "batch_id", "run_id", "committed_batch_id", "committed_run_id")}
    assert told == {
        "state": "Ongoing", "batch_id": 8, "run_id": "run-2", "committed_batch_id": 7, "committed_run_id": "run-1"
    }  # fmt: skip
    assert (found["timeout_ms"], found["writers"], found["partitions"]) == (300_000, 1, ["orders-0"])
    _, row = sparklog("sinks", "describe", SINK).out.splitlines()
    assert row.split()[:7] == [SINK, "Ongoing", "8", "7", "1", "300.0", "s"]
    assert row.split()[-3:] == ["run-2", "run-1", "orders-0"]


def test_a_sink_that_is_not_there_is_told_with_the_next_step(sparklog: Sparklog) -> None:
    for command in (("describe",), ("reset", "--yes")):
        unknown = sparklog("sinks", *command, "nobody")
        assert unknown.status == 1
        assert "there is no sink 'nobody': see what there is with: sparklog sinks list" in unknown.err


def test_a_reset_says_what_it_means_and_asks(
    sparklog: Sparklog, sparklog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer("n\n", monkeypatch)
    refused = sparklog("sinks", "reset", SINK)
    assert refused.status == 1
    assert "has committed batches up to 7" in refused.err
    assert "Batch 8 is open: it is aborted" in refused.err
    assert "give --yes" in refused.err
    assert [row["state"] for row in sparklog("sinks", "describe", SINK, "--json").rows] == ["Ongoing"]

    answer("y\n", monkeypatch)
    done = sparklog("sinks", "reset", SINK)

    assert done.status == 0, done.err
    assert done.out == f"reset sink {SINK}: batches up to 7 are written again if they come\n"
    assert sparklog("sinks", "describe", SINK).status == 1


def test_a_batch_is_written_again_after_a_reset_and_skipped_without(
    sparklog: Sparklog, sparklog_broker: RunningBroker, sinks: SinkClient
) -> None:
    again = SinkBatchId(SINK, "run-3", 7)
    assert sinks.join(again, timeout_ms=300_000) is None
    before = committed(sparklog_broker)

    assert sparklog("sinks", "reset", SINK, "--yes").status == 0

    sinks.commit(again, [write(sparklog_broker, sinks, again)])
    wait_until(lambda: committed(sparklog_broker) == before + 1, "the batch is there twice")


def test_a_reset_that_has_to_wait_for_markers_says_so(sparklog: Sparklog, monkeypatch: pytest.MonkeyPatch) -> None:
    send, leaders_answer = MarkerSender.send, threading.Event()

    async def send_late(*arguments: Any) -> bool:
        await asyncio.to_thread(leaders_answer.wait, PATIENCE_S)
        return await send(*arguments)

    monkeypatch.setattr(MarkerSender, "send", send_late)
    waits = sparklog("sinks", "reset", SINK, "--yes")
    assert waits.status == 1
    assert "run the command again in a moment" in waits.err
    leaders_answer.set()
    wait_until(lambda: sparklog("sinks", "reset", SINK, "--yes").status == 0, "the batch is aborted, the sink gone")
