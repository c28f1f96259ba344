"""`partition.metadata`: the topic id of a partition's folder."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.log.directory.checkpoints import PartitionMetadataFile
from sparklog.log.directory.manager import LogManager
from sparklog.testing.memory_fs import MemoryFs
from sparklog.testing.sim.clock import SimClock
from support import GOLDEN
from support.logs.builders import START_MS, batch, file_content, topic_config

ORDERS = TopicPartition("orders", 0)
FILE = "/logs/orders-0/partition.metadata"
ID, OTHER_ID = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def fs() -> MemoryFs:
    return MemoryFs()


def start(fs: MemoryFs) -> LogManager:
    fs._locks.clear()  # the former broker is gone
    manager = LogManager(fs, ("/logs",), BrokerConfig(topic_defaults=topic_config()), SimClock(START_MS))
    manager.load()
    return manager


def rewrite(fs: MemoryFs, content: bytes) -> None:
    file = fs.open(FILE, create=True)
    file.truncate(0)
    file.append(content)
    file.close()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("*/partition.metadata")), ids=lambda path: path.parent.name)
def test_the_file_is_kafkas(path: Path, tmp_path: Path) -> None:
    topic_id = PartitionMetadataFile(LocalFs(), str(path.parent)).read()
    assert topic_id is not None
    PartitionMetadataFile(LocalFs(), str(tmp_path)).write(topic_id)
    assert (tmp_path / "partition.metadata").read_bytes() == path.read_bytes()


def test_a_log_is_made_with_its_topics_id_and_opened_with_it(fs: MemoryFs) -> None:
    assert start(fs).create(ORDERS, topic_config(), topic_id=ID).topic_id == ID
    again = start(fs).get(ORDERS)
    assert again
    assert again.topic_id == ID


@pytest.mark.parametrize(
    "content", [None, b"", b"version: 0", b"version: 1\ntopic_id: x", b"\xff", b"version: 0\ntopic_id: !"]
)
def test_a_missing_or_broken_file_is_written_anew(fs: MemoryFs, content: bytes | None) -> None:
    start(fs).create(ORDERS, topic_config())
    if content is not None:
        rewrite(fs, content)
    log = start(fs).create(ORDERS, topic_config(), topic_id=ID, is_new=False)
    assert log.topic_id == ID
    assert file_content(fs, FILE) == b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"


def test_a_log_of_another_topic_is_offline_and_stays_as_it_is(fs: MemoryFs) -> None:
    start(fs).create(ORDERS, topic_config(), topic_id=ID).append(batch(3), leader_epoch=0)
    manager = start(fs)
    with pytest.raises(KafkaStorageError, match="INCONSISTENT_TOPIC_ID"):
        manager.create(ORDERS, topic_config(), topic_id=OTHER_ID, is_new=False)
    with pytest.raises(KafkaStorageError, match="INCONSISTENT_TOPIC_ID"):
        manager.get(ORDERS)
    manager.close()

    restored = start(fs).create(ORDERS, topic_config(), topic_id=ID, is_new=False)
    assert restored.log_end_offset == 3


def test_a_log_of_another_topic_can_be_deleted(fs: MemoryFs) -> None:
    start(fs).create(ORDERS, topic_config(), topic_id=ID)
    manager = start(fs)
    with pytest.raises(KafkaStorageError):
        manager.create(ORDERS, topic_config(), topic_id=OTHER_ID)
    manager.delete(ORDERS)
    assert manager.create(ORDERS, topic_config(), topic_id=OTHER_ID).topic_id == OTHER_ID
