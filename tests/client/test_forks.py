"""A process with clients may fork, for example a JVM for Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from support.patience import PATIENCE_S

FORKS = """
import subprocess, sys
from sparklog.client import Consumer, Producer
from sparklog.testing import start_broker

with start_broker(sys.argv[1]) as broker, Producer(bootstrap_servers=broker.bootstrap) as producer:
    producer.send("busy", b"first").result()
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign_topic("busy")
        for _ in range(100):
            producer.send("busy", b"more")
            # With a preexec_fn, as PySpark has one, Python forks; without, it would take vfork.
            print(subprocess.run(["true"], preexec_fn=lambda: None).returncode)
"""


@pytest.mark.slow
def test_children_live_whatever_grpc_is_doing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True)

    assert done.stdout.split() == ["0"] * 100
