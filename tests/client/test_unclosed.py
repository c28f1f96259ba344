"""A program that ends without closing its clients ends in silence."""

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


@pytest.mark.slow
def test_nothing_is_printed_of_clients_that_were_not_closed() -> None:
    with start_broker() as broker:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, broker.bootstrap],
            check=False, capture_output=True, text=True, timeout=PATIENCE_S,
        )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 1\n", "")
