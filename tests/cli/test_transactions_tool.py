"""`sparklog transactions`, on a broker with an open transaction and one that hangs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.log.producers.verifications import UNVERIFIED
from sparklog.records.records import Record, write_records
from sparklog.testing import RunningBroker, start_broker
from support.clients.command_result import CommandResult

Sparklog = Callable[..., CommandResult]
NAME = TopicPartition("orders", 0)
HANGING = 7_777


@pytest.fixture
def sparklog_broker(tmp_path) -> Iterator[RunningBroker]:
    with start_broker(tmp_path, transaction_state_log_num_partitions=1) as broker:
        yield broker


@pytest.fixture(autouse=True)
def producer(sparklog_broker: RunningBroker) -> Iterator[Producer]:
    """A producer with an open transaction in partition 1; partition 0 has a hanging one."""
    with Admin(bootstrap_servers=sparklog_broker.bootstrap) as admin:
        admin.create_topic("orders", partitions=2)
    sparklog_broker.run(hang(sparklog_broker))
    with Producer(bootstrap_servers=sparklog_broker.bootstrap, transactional_id="billing-1") as producer:
        producer.begin()
        producer.send("orders", b"x", partition=1)
        producer.flush()
        yield producer
        producer.abort()


async def hang(broker: RunningBroker) -> None:
    """Append a transactional batch without the check at the coordinator (KIP-890), as in old versions."""
    replicas = broker.node.broker.services.replicas
    record = Record(offset=0, timestamp_ms=1_000, key=None, value=b"lost", sequence=0)
    batch = write_records([record], producer_id=HANGING, producer_epoch=3, transactional=True)
    replicas.append(replicas.get_leader(NAME), batch, acks=-1, verification=UNVERIFIED)


def last_stable_offset(broker: RunningBroker) -> int:
    with Consumer(bootstrap_servers=broker.bootstrap, isolation_level="read_committed") as consumer:
        return consumer.end_offsets([NAME])[NAME]


def test_transactional_ids_are_listed(sparklog: Sparklog) -> None:
    head, row = sparklog("transactions", "list").out.splitlines()
    assert head.split() == ["TRANSACTIONAL", "ID", "COORDINATOR", "PRODUCER", "ID", "STATE"]
    assert row.split()[0::3] == ["billing-1", "Ongoing"]
    assert sparklog("transactions", "list", "--state", "Ongoing", "--json").rows[0]["transactional_id"] == "billing-1"
    for none in (("--state", "Empty"), ("--producer-id", "5"), ("--transactional-id-pattern", "other-.*")):
        assert sparklog("transactions", "list", *none).out == ""
    wrong = sparklog("transactions", "list", "--state", "Open")
    assert wrong.status != 0
    assert "Open" in wrong.err


def test_a_transactional_id_is_described(sparklog: Sparklog) -> None:
    [found] = sparklog("transactions", "describe", "billing-1", "--json").rows
    assert (found["state"], found["timeout_ms"], found["partitions"]) == ("Ongoing", 60_000, ["orders-1"])
    assert found["duration_ms"] >= 0
    assert "billing-1" in sparklog("transactions", "describe", "billing-1").out
    unknown = sparklog("transactions", "describe", "nobody")
    assert unknown.status != 0
    assert "nobody" in unknown.err


def test_the_producers_of_a_partition_are_shown(sparklog: Sparklog) -> None:
    where = ("--topic", "orders", "--partition", "0")
    [found] = sparklog("transactions", "describe-producers", *where, "--json").rows
    assert (found["producer_id"], found["producer_epoch"], found["start_offset"]) == (HANGING, 3, 0)
    assert str(HANGING) in sparklog("transactions", "describe-producers", *where).out


def test_a_hanging_transaction_is_found_and_aborted(sparklog: Sparklog, sparklog_broker: RunningBroker) -> None:
    assert last_stable_offset(sparklog_broker) == 0
    found = sparklog("transactions", "find-hanging")
    assert found.status == 1
    assert str(HANGING) in found.out
    assert "billing-1" not in found.out
    step = "sparklog transactions abort --topic orders --partition 0 --start-offset 0"
    assert step in found.err

    done = sparklog(*step.split()[1:], "--yes")

    assert done.status == 0, done.err
    assert last_stable_offset(sparklog_broker) == 2
    assert sparklog("transactions", "find-hanging").status == 0


@pytest.mark.slow
def test_nothing_is_aborted_without_a_yes(
    sparklog: Sparklog, sparklog_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", StringIO("n\n"))
    refused = sparklog("transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    assert refused.status != 0
    assert "give --yes" in refused.err
    assert last_stable_offset(sparklog_broker) == 0
    nowhere = sparklog("transactions", "abort", "--topic", "orders", "--partition", "0", "--start-offset", "9", "--yes")
    assert nowhere.status != 0
    assert "no transaction is open in orders-0 from offset 9" in nowhere.err
