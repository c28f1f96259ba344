"""Data directories of earlier versions: the present code opens them, and reads and continues everything.

tests/data/releases/0.2.0 was written by version 0.2.0, `unreleased` by the code after it; support.runs.release_data
writes one.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from sparklog.client import Admin
from support.patience import PATIENCE_S
from support.processes import contents
from support.processes.broker import BrokerProcess
from support.runs.release_data import RELEASES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
WRITTEN = sorted(path.name for path in RELEASES.iterdir())
MARKER = ".kafka_cleanshutdown"


def opened(version: str, folder: Path) -> tuple[BrokerProcess, dict[str, Any]]:
    """A broker on a copy of what the version wrote, and what is in there."""
    shutil.copytree(RELEASES / version / "data", folder / "data")
    written = json.loads((RELEASES / version / "contents.json").read_text())
    return BrokerProcess(folder, *contents.AUTHORIZED, *contents.FEW, contents.FEW_TRANSACTIONS), written


def test_there_is_the_last_release_and_what_comes_next() -> None:
    assert WRITTEN == ["0.2.0", "unreleased"]


@pytest.mark.parametrize("version", WRITTEN)
def test_everything_is_read_and_continued_and_still_there_after_a_stop(version: str, tmp_path: Path) -> None:
    broker, written = opened(version, tmp_path)
    with broker:
        assert contents.read(broker.kafka) == written
        contents.send(broker.kafka, contents.ORDERS, [99], partition=1)
    assert (tmp_path / "data" / MARKER).exists()
    with broker:
        found = contents.read(broker.kafka)
    added = found["records"]["orders-1"].pop()
    assert (added[0], added[2]) == (len(written["records"]["orders-1"]), "99")
    assert found == written


def test_a_transactional_producer_of_the_earlier_code_is_known_and_continues(tmp_path: Path) -> None:
    broker, written = opened("unreleased", tmp_path)
    with broker:
        with Admin(bootstrap_servers=broker.grpc) as admin:
            [listed] = admin.list_transactions()
        assert (listed.transactional_id, listed.state) == ("payments", "CompleteAbort")
        producer = Producer({"bootstrap.servers": broker.kafka, "transactional.id": "payments"})
        producer.init_transactions(PATIENCE_S)
        producer.begin_transaction()
        producer.produce(contents.PAID, value=b"next", partition=0)
        producer.commit_transaction(PATIENCE_S)
        found = contents.read(broker.kafka)["records"]["paid-0"]
    assert found[:-1] == written["records"]["paid-0"]
    assert found[-1][3] == "next"
