"""docs/operating/backup.md, step by step: a copy of a broker's folder has the same topics, groups and users."""

from __future__ import annotations

import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Producer

from support.patience import PATIENCE_MS, PATIENCE_S, wait_until
from support.processes import contents
from support.processes.broker import BrokerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
SETTINGS = (*contents.AUTHORIZED, *contents.FEW, contents.FEW_TRANSACTIONS, "log.segment.bytes=1048576")
STORE = "cluster.sqlite"
BUSY = "busy"
VALUE = bytes(50_000)
SEGMENTS_MEANWHILE = 2


def copy(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", source, target], check=True, timeout=PATIENCE_S)


def back_up_store(source: Path, target: Path) -> None:
    """Copy as `sqlite3 source ".backup target"` does."""
    for file in target.parent.glob(f"{STORE}*"):
        file.unlink()
    with closing(sqlite3.connect(source)) as live, closing(sqlite3.connect(target)) as copied:
        live.backup(copied)


@contextmanager
def written_to(broker: BrokerProcess) -> Iterator[list[int]]:
    """A producer that writes until the end of the block; yields the growing list of acknowledged offsets."""
    acknowledged: list[int] = []
    ends = threading.Event()

    def write() -> None:
        producer = Producer({"bootstrap.servers": broker.kafka, "message.timeout.ms": PATIENCE_MS})
        while not ends.is_set():
            producer.produce(
                BUSY, VALUE, partition=0, on_delivery=lambda error, found: error or acknowledged.append(found.offset())
            )
            producer.flush(PATIENCE_S)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield acknowledged
    finally:
        ends.set()
        writer.join()


def test_a_copy_of_a_stopped_broker_has_everything(tmp_path: Path) -> None:
    original, restored = tmp_path / "original", tmp_path / "restored"
    original.mkdir()
    restored.mkdir()
    with BrokerProcess(original, *SETTINGS) as broker:
        contents.fill(broker.kafka)
        before = contents.read(broker.kafka)
    copy(original / "data", restored / "data")
    with BrokerProcess(restored, *SETTINGS) as broker:
        assert contents.read(broker.kafka) == before
        contents.send(broker.kafka, contents.ORDERS, [99], partition=1)


@pytest.mark.parametrize("has_own_backup_of_store", [True, False])
def test_a_copy_of_a_broker_that_writes_has_what_was_acknowledged_before(
    has_own_backup_of_store: bool, tmp_path: Path
) -> None:
    original, restored = tmp_path / "original", tmp_path / "restored"
    original.mkdir()
    restored.mkdir()
    segments = original / "data" / f"{BUSY}-0"
    with BrokerProcess(original, *SETTINGS) as broker:
        contents.fill(broker.kafka)
        before = contents.read(broker.kafka)
        with written_to(broker) as acknowledged:
            wait_until(lambda: len([*segments.glob("*.log")]) > SEGMENTS_MEANWHILE, "it has closed segments")
            last = acknowledged[-1]
            copy(original / "data", restored / "data")
            if has_own_backup_of_store:
                back_up_store(original / "data" / STORE, restored / "data" / STORE)
            after = len(acknowledged)
            wait_until(lambda: len(acknowledged) > after, "it goes on")
    with BrokerProcess(restored, *SETTINGS) as broker:
        found = contents.read(broker.kafka)
        busy = found["records"].pop(f"{BUSY}-0")
        del found["topics"][BUSY]
        assert found == before
        assert [each[0] for each in busy[: last + 1]] == [*range(last + 1)]
        assert all(each[3] == VALUE.decode() for each in busy)
        contents.send(broker.kafka, BUSY, [1], partition=0)
        assert len(contents.read(broker.kafka)["records"][f"{BUSY}-0"]) == len(busy) + 1
