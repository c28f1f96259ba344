"""Transactions of a killed producer, and with lost answers of a killed broker."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.client import Admin, Consumer, Producer
from sparklog.testing import RunningBroker
from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes.broker import BrokerProcess
from support.processes.lossy_proxy import LossyProxy

pytestmark = pytest.mark.slow
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TRANSACTIONS = 60
LOSE_AT = (10, 25, 40)
LEFT_OPEN = """
import sys, time
from sparklog.client import Producer
producer = Producer(bootstrap_servers=sys.argv[1], transactional_id="one")
producer.begin()
for partition in range(3):
    producer.send("t", b"lost", partition=partition).result(60)
print("open", flush=True)
time.sleep(600)
"""


def read_committed(bootstrap: str) -> list[bytes]:
    """All values of topic t once all transactions have ended, sorted."""
    options = {"bootstrap_servers": bootstrap, "auto_offset_reset": "earliest"}
    with Consumer(**options) as consumer, Consumer(**options, isolation_level="read_uncommitted") as all_reader:
        wait_until(
            lambda: consumer.end_offsets(PARTITIONS) == all_reader.end_offsets(PARTITIONS), "no marker is missing"
        )
        consumer.assign(PARTITIONS)
        ends = consumer.end_offsets(PARTITIONS)
        found: list[bytes] = []
        while any(consumer.position(each) < end for each, end in ends.items()):
            found += [record.value for record in consumer.poll(PATIENCE_MS)]
    return sorted(found)


def test_what_a_killed_producer_left_open_is_aborted_by_the_next_one_of_its_id(
    sparklog_broker: RunningBroker, admin: Admin
) -> None:
    bootstrap = sparklog_broker.bootstrap
    admin.create_topic("t", partitions=3)
    with subprocess.Popen([sys.executable, "-c", LEFT_OPEN, bootstrap], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        process.kill()
    with Producer(bootstrap_servers=bootstrap, transactional_id="one") as producer, producer.transaction():
        for partition in range(3):
            producer.send("t", b"kept", partition=partition)

    assert read_committed(bootstrap) == [b"kept"] * 3


@pytest.fixture
def proxy() -> Iterator[LossyProxy]:
    proxy = LossyProxy()
    yield proxy
    proxy.close()


@pytest.fixture
def process(tmp_path: Path, proxy: LossyProxy) -> Iterator[BrokerProcess]:
    process = BrokerProcess(tmp_path, f"grpc.advertised.listener={proxy.address}", "num.partitions=3")
    proxy.target = process.grpc
    process.start()
    yield process
    process.kill()


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_commit_whose_answer_was_lost_counts_once(process: BrokerProcess, proxy: LossyProxy, is_killed: bool) -> None:
    options = {"bootstrap_servers": proxy.address, "request_timeout_ms": 2_000}
    with ThreadPoolExecutor() as pool, Producer(**options, transactional_id="one") as producer:
        for number in range(TRANSACTIONS):
            producer.begin()
            for partition in range(3):
                producer.send("t", b"%d" % number, partition=partition)
            if number in LOSE_AT:
                producer.flush()
                proxy.lose_answers()
                ended = pool.submit(producer.abort if number % 2 else producer.commit)
                assert proxy.wait_for_loss(PATIENCE_S)
                if is_killed:
                    process.kill()
                proxy.restore()
                if is_killed:
                    process.start()
                ended.result(PATIENCE_S)
            elif number % 2:
                producer.abort()
            else:
                producer.commit()

    expected = sorted(b"%d" % number for number in range(0, TRANSACTIONS, 2) for _ in range(3))
    assert read_committed(proxy.address) == expected
