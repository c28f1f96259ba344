"""A topic's id stands in the folders of its partitions, and outlives the cluster store."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from sparklog.base.errors import KafkaStorageError
from sparklog.base.fs import LocalFs
from sparklog.base.ids import TopicPartition
from sparklog.cluster.engines import CLUSTER_STORE
from sparklog.log.directory.checkpoints import PartitionMetadataFile
from sparklog.testing import RunningBroker, start_broker
from support import GOLDEN


def test_a_folder_that_kafka_wrote_keeps_its_topics_id(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "idempotent-0", tmp_path / "idempotent-0")
    written = PartitionMetadataFile(LocalFs(), str(tmp_path / "idempotent-0")).read()
    for _ in range(2):
        with start_broker(tmp_path) as broker:
            assert topic_id(broker, "idempotent") == written
            assert broker.run(broker.node.broker.services.producer_ids.next()) > 5  # Kafka has given that one
        (tmp_path / CLUSTER_STORE).unlink()


def test_a_folder_of_an_earlier_topic_is_offline_and_the_others_work(tmp_path: Path) -> None:
    with start_broker(tmp_path) as broker:
        broker.run(broker.node.broker.services.topics.create("orders", partitions=2))
        first = topic_id(broker, "orders")
    folder = str(tmp_path / "orders-1")
    PartitionMetadataFile(LocalFs(), folder).write(UUID(int=1))
    with start_broker(tmp_path) as broker:
        assert topic_id(broker, "orders") == first
        replicas = broker.node.broker.services.replicas
        assert replicas.get(TopicPartition("orders", 0)).log.topic_id == first
        with pytest.raises(KafkaStorageError, match="INCONSISTENT_TOPIC_ID"):
            replicas.get(TopicPartition("orders", 1))


def topic_id(broker: RunningBroker, name: str) -> UUID:
    return broker.node.broker.services.metadata.get(name).topic_id
