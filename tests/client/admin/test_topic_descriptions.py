"""Descriptions of topics with leaders on several brokers."""

from __future__ import annotations

import pytest

from sparklog.client import Admin, Producer
from sparklog.testing import start_cluster

pytestmark = pytest.mark.slow


def test_how_far_partitions_go_is_asked_of_their_leaders() -> None:
    with start_cluster(2) as cluster, Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topic("t", partitions=2, replication_factor=1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in (0, 0, 1):
                producer.send("t", b"x", partition=number).result()
        [topic] = admin.describe_topics(["t"])
        assert len({part.leader for part in topic.partitions}) == 2
        assert [(part.error, part.high_watermark) for part in topic.partitions] == [(None, 2), (None, 1)]
