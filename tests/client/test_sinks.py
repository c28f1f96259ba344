"""Batches of a sink against a real broker: readable records of writers, runs and restarts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparklog.base.errors import (
    ConcurrentTransactions,
    InvalidRequest,
    InvalidTxnState,
    ProducerFenced,
    SparklogError,
    TransactionalIdNotFound,
)
from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.client.sinks.sinks import BatchProducer, BatchWinner, SinkBatchId
from sparklog.client.sinks.sync import SinkClient
from sparklog.testing import RunningBroker, start_broker
from sparklog.transaction.marker_sender import MarkerSender
from support.names import unique
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until

pytestmark = pytest.mark.slow

TIMEOUT_MS = 60_000
PARTITIONS = 3


@pytest.fixture
def broker(sparklog_broker: RunningBroker) -> RunningBroker:
    return sparklog_broker


@pytest.fixture
def sinks(broker: RunningBroker) -> Iterator[SinkClient]:
    with SinkClient(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as client:
        yield client


@pytest.fixture
def sink_id() -> str:
    return unique("spark")


@pytest.fixture
def topic(admin: Admin) -> str:
    name = unique("t")
    admin.create_topic(name, partitions=PARTITIONS)
    return name


@contextmanager
def writer(bootstrap: str, sink_id: str, identity: BatchProducer) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap, transactional_id=sink_id, linger_ms=0) as producer:
        producer.enlist(*identity)
        yield producer


def write(broker: RunningBroker, sinks: SinkClient, batch: SinkBatchId, topic: str, *values: bytes) -> BatchWinner:
    """Write as a writer of the batch; the n-th value goes to partition n."""
    identity = sinks.join(batch, timeout_ms=TIMEOUT_MS)
    assert identity is not None
    with writer(broker.bootstrap, batch.sink_id, identity) as producer:
        for number, value in enumerate(values):
            producer.send(topic, value, partition=number)
        producer.flush()
    return BatchWinner(identity, {topic: list(range(len(values)))})


def committed(broker: RunningBroker, topic: str) -> list[bytes]:
    """All values for readers of committed records, after the end of every batch."""
    names = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with (
        Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer,
        Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_uncommitted") as everything,
    ):
        wait_until(lambda: consumer.end_offsets(names) == everything.end_offsets(names), "no marker is missing")
        consumer.assign(names)
        ends = consumer.end_offsets(names)
        found: list[bytes] = []
        while any(consumer.position(name) < end for name, end in ends.items()):
            found += [record.value for record in consumer.poll(PATIENCE_MS)]
    return sorted(found)


def test_readers_see_the_writers_that_the_commit_names_and_no_others(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    batch = SinkBatchId(sink_id, "run", 0)
    first = write(broker, sinks, batch, topic, b"1", b"2")
    write(broker, sinks, batch, topic, b"lost", b"lost", b"lost")
    second = write(broker, sinks, batch, topic, b"3", b"4", b"5")

    sinks.commit(batch, [first, second])

    assert committed(broker, topic) == [b"1", b"2", b"3", b"4", b"5"]


def test_a_committed_batch_can_be_read_after_a_wait(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    names = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        for number in range(5):
            batch = SinkBatchId(sink_id, "run", number)
            sinks.commit(batch, [write(broker, sinks, batch, topic, b"1", b"2", b"3")])
            sinks.await_readable(batch)
            assert consumer.end_offsets(names) == dict.fromkeys(names, 2 * (number + 1))
    with (
        SinkClient(bootstrap_servers=broker.bootstrap, default_api_timeout_ms=50) as impatient,
        pytest.raises(ConcurrentTransactions, match="lacks some of its markers"),
    ):
        impatient.await_readable(batch._replace(batch_id=5))


def test_batches_follow_one_another_with_the_same_producers(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    producers = set()
    for number in range(4):
        batch = SinkBatchId(sink_id, "run", number)
        winner = write(broker, sinks, batch, topic, b"%d" % number)
        producers.add(winner.producer.producer_id)
        sinks.commit(batch, [winner])
    assert committed(broker, topic) == [b"0", b"1", b"2", b"3"]
    assert len(producers) == 1


def test_a_batch_that_is_replayed_is_not_written_again(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    """The driver stops between this commit and Spark's own."""
    batch = SinkBatchId(sink_id, "run", 0)
    winner = write(broker, sinks, batch, topic, b"1")
    sinks.commit(batch, [winner])
    sinks.commit(batch, [winner])
    with pytest.raises(InvalidTxnState, match="is committed"):
        sinks.abort(batch)

    assert sinks.join(batch._replace(run_id="restarted"), timeout_ms=TIMEOUT_MS) is None

    with pytest.raises(InvalidTxnState, match="a sink of its own"):
        sinks.join(batch, timeout_ms=TIMEOUT_MS)
    assert committed(broker, topic) == [b"1"]


def test_a_new_run_takes_over_and_the_former_cannot_write_or_commit(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    old, new = SinkBatchId(sink_id, "old", 0), SinkBatchId(sink_id, "new", 0)
    identity = sinks.join(old, timeout_ms=TIMEOUT_MS)
    assert identity is not None
    with writer(broker.bootstrap, sink_id, identity) as zombie:
        zombie.send(topic, b"zombie", partition=0)
        zombie.flush()

        winner = write(broker, sinks, new, topic, b"1")

        with pytest.raises(SparklogError):
            zombie.send(topic, b"zombie", partition=0).result(PATIENCE_S)
        for number in (1, 2):
            with pytest.raises(SparklogError):
                zombie.send(topic, b"zombie", partition=number).result(PATIENCE_S)
    with pytest.raises(ProducerFenced):
        sinks.commit(old, [BatchWinner(identity, {topic: [0]})])
    sinks.commit(new, [winner])
    assert committed(broker, topic) == [b"1"]


def test_an_abort_leaves_nothing(broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str) -> None:
    batch = SinkBatchId(sink_id, "run", 0)
    winner = write(broker, sinks, batch, topic, b"lost", b"lost")
    for _ in range(2):
        sinks.abort(batch)
    with pytest.raises(ProducerFenced, match="has given up"):
        sinks.commit(batch, [winner])
    with pytest.raises(ProducerFenced, match="has given up"):
        sinks.join(batch, timeout_ms=TIMEOUT_MS)
    again = batch._replace(run_id="restarted")
    sinks.commit(again, [write(broker, sinks, again, topic, b"1")])
    assert committed(broker, topic) == [b"1"]


def test_a_batch_whose_time_is_up_cannot_be_committed(sink_id: str) -> None:
    with (
        start_broker(transaction_abort_timed_out_transaction_cleanup_interval_ms=50) as broker,
        SinkClient(bootstrap_servers=broker.bootstrap, retry_backoff_ms=10) as sinks,
    ):
        batch = SinkBatchId(sink_id, "run", 0)
        identity = sinks.join(batch, timeout_ms=100)
        assert identity is not None
        wait_until(lambda: sinks.describe(sink_id).state == "CompleteAbort", "the batch is aborted")
        with pytest.raises(InvalidTxnState, match="its time was up"):
            sinks.renew(batch, identity, timeout_ms=100)
        with pytest.raises(InvalidTxnState, match="its time was up"):
            sinks.commit(batch, [])


@pytest.mark.slow
def test_a_restarted_coordinator_finishes_what_was_decided(
    sink_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silent(self: object, marker: object, is_wanted: Callable[[], bool]) -> bool:
        return False

    batch = SinkBatchId(sink_id, "run", 0)
    with monkeypatch.context() as stopped:
        stopped.setattr(MarkerSender, "send", silent)
        with start_broker(tmp_path) as broker, SinkClient(bootstrap_servers=broker.bootstrap) as sinks:
            with Admin(bootstrap_servers=broker.bootstrap) as admin:
                admin.create_topic("t", partitions=PARTITIONS)
            winner = write(broker, sinks, batch, "t", b"1", b"2")
            write(broker, sinks, batch, "t", b"lost")
            sinks.commit(batch, [winner])
            assert sinks.describe(sink_id).state == "PrepareCommit"
    with start_broker(tmp_path) as broker, SinkClient(bootstrap_servers=broker.bootstrap) as sinks:
        assert committed(broker, "t") == [b"1", b"2"]
        sinks.commit(batch, [winner])
        assert sinks.join(batch._replace(run_id="restarted"), timeout_ms=TIMEOUT_MS) is None
        assert sinks.describe(sink_id).committed_batch_id == 0


def test_sinks_are_listed_described_and_reset(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    batch = SinkBatchId(sink_id, "run", 7)
    sinks.commit(batch, [write(broker, sinks, batch, topic, b"1")])
    wait_until(lambda: sinks.describe(sink_id).state == "CompleteCommit", "the batch is over")
    [listed] = [each for each in sinks.list() if each.sink_id == sink_id]
    assert (listed.state, listed.committed_batch_id) == ("CompleteCommit", 7)
    later = batch._replace(batch_id=8)
    write(broker, sinks, later, topic, b"open")
    described = sinks.describe(sink_id)
    assert (described.batch_id, described.committed_batch_id, described.producers) == (8, 7, 1)
    assert described.partitions == (TopicPartition(topic, 0),)

    sinks.reset(sink_id)

    with pytest.raises(TransactionalIdNotFound):
        sinks.describe(sink_id)
    assert sinks.join(batch._replace(batch_id=0), timeout_ms=TIMEOUT_MS)
    assert committed(broker, topic) == [b"1"]


def test_a_producer_of_a_batch_does_not_end_it(
    broker: RunningBroker, sinks: SinkClient, sink_id: str, topic: str
) -> None:
    identity = sinks.join(SinkBatchId(sink_id, "run", 0), timeout_ms=TIMEOUT_MS)
    assert identity is not None
    with writer(broker.bootstrap, sink_id, identity) as producer:
        producer.send(topic, b"1", partition=0)
        for end in (producer.commit, producer.abort):
            with pytest.raises(InvalidTxnState, match="whoever has begun it"):
                end()
    with Producer(bootstrap_servers=broker.bootstrap, transactional_id=sink_id) as other, pytest.raises(InvalidRequest):
        other.begin()
    assert sinks.describe(sink_id).state == "Ongoing"


def test_an_open_batch_is_not_taken_for_a_hanging_transaction(
    broker: RunningBroker, sinks: SinkClient, admin: Admin, sink_id: str, topic: str
) -> None:
    """An operator who aborts hanging transactions must not abort a part of the batch."""
    batch = SinkBatchId(sink_id, "run", 0)
    winners = [write(broker, sinks, batch, topic, b"v", b"v") for _ in range(3)]

    found = admin.find_hanging_transactions(topics=[topic], max_timeout_ms=0).found
    producers = {each.producer.producer_id for each in winners}
    listed = admin.list_transactions(producer_ids=producers)

    assert found == ()
    assert {(each.transactional_id, each.producer_id) for each in listed} == {(sink_id, each) for each in producers}
    sinks.commit(batch, winners)
