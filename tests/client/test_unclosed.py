"""A program that ends without closing its clients prints nothing, unless it loses records."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sparklog.testing import start_broker
from support.patience import PATIENCE_S

PROGRAM = """
import sys
from sparklog.client import Admin, Consumer, Producer
producer, consumer = Producer(bootstrap_servers=sys.argv[1]), Consumer(bootstrap_servers=sys.argv[1], group_id="g")
admin = Admin(bootstrap_servers=sys.argv[1])
print(producer.send("t", b"v").result(60).offset, len(admin.list_topics()))
consumer.subscribe(["t"])
consumer.poll(100)
"""


LOSING = """
import sys
from sparklog.client import Producer
producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=600_000, delivery_timeout_ms=1_000_000)
for number in range(1_000):
    producer.send("t", b"v")
"""
ON_A_LOOP = """
import asyncio, sys
from sparklog.client.aio import AsyncConsumer, AsyncProducer
async def main():
    global producer, consumer
    producer = AsyncProducer(bootstrap_servers=sys.argv[1])
    print((await (await producer.send("t", b"v"))).offset)
    consumer = AsyncConsumer(bootstrap_servers=sys.argv[1], group_id="g")
    consumer.subscribe(["t"])
    await consumer.poll(100)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
"""


def output_of(program: str) -> tuple[int, str, str]:
    with start_broker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", program, broker.bootstrap],
            check=False, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
def test_nothing_is_printed_of_clients_that_were_not_closed() -> None:
    assert output_of(PROGRAM) == (0, "0 1\n", "")


@pytest.mark.slow
def test_records_that_are_lost_with_a_producer_are_counted() -> None:
    status, _, said = output_of(LOSING)
    assert status == 0
    assert said == "Producer not closed: 1000 records were not sent; call close() or use it in a with statement\n"


@pytest.mark.slow
def test_nothing_is_printed_of_clients_whose_event_loop_is_closed() -> None:
    assert output_of(ON_A_LOOP) == (0, "0\n", "")
