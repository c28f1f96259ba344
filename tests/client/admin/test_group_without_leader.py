"""Committed offsets of a group with partitions without a leader."""

from __future__ import annotations

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.cli import run
from sparklog.client import Admin, Producer
from sparklog.client.admin.groups import GroupAdmin
from sparklog.testing import start_cluster
from support.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def test_a_group_is_described_while_a_partition_has_no_leader(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        start_cluster(2, offsets_topic_num_partitions=1) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        admin.create_topic("t", partitions=2, replication_factor=1)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer:
            for number in (0, 1):
                producer.send("t", b"v", partition=number).result(PATIENCE_S)
        dead, alive = TopicPartition("t", 0), TopicPartition("t", 1)
        admin.alter_group_offsets("g", {dead: 1, alive: 0})
        cluster.stop_broker(cluster.leader_of("t", 0))

        assert run(["groups", "describe", "g", "--bootstrap", cluster.bootstrap]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("t ")]
    assert [row[:5] for row in rows] == [["t", "0", "1", "-", "-"], ["t", "1", "0", "1", "1"]]


def test_a_partition_whose_leader_dies_while_the_group_is_described_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    is_led, asked = GroupAdmin._is_led, []

    async def was_led(admin: GroupAdmin, partition: TopicPartition) -> bool:
        asked.append(partition)
        return len(asked) <= 2 or await is_led(admin, partition)

    with (
        start_cluster(2, offsets_topic_num_partitions=1) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap, default_api_timeout_ms=20_000) as admin,
    ):
        admin.create_topic("t", partitions=2, replication_factor=1)
        dead, alive = TopicPartition("t", 0), TopicPartition("t", 1)
        admin.alter_group_offsets("g", {dead: 0, alive: 0})
        cluster.stop_broker(cluster.leader_of("t", 0))
        monkeypatch.setattr(GroupAdmin, "_is_led", was_led)

        found = admin.list_group_offsets("g")
    assert {item: offset.high_watermark for item, offset in found.items()} == {dead: -1, alive: 0}
