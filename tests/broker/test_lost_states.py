"""A cluster store that has lost the states of partitions, and kept their topics: no partition counts as new."""

from __future__ import annotations

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.broker import store_guard
from sparklog.cluster.memory import MemoryStore
from sparklog.cluster.store import subtree
from sparklog.log.directory.topic_configs import LEAP
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.logs.builders import batch
from support.patience import until

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.mark.slow
@pytest.mark.parametrize("lost", ["/brokers/topics/t/partitions/0/state", "/brokers/topics/t/partitions"])
async def test_a_restart_restores_lost_states_with_later_leader_epochs(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, lost: str
) -> None:
    monkeypatch.setattr(store_guard, "SURE_S", 0.01)
    cluster = BrokersOnOneLoop()
    await cluster.start(1, 2)
    await cluster.create("t", [[1, 2], [2, 1]])
    await cluster.until_led(T0, 1, isr={1, 2})
    await cluster.until_led(T1, 2, isr={1, 2})
    await cluster.produce(1, T0, batch(value=b"kept"))
    store = MemoryStore(cluster.tree)
    for path in subtree(store, lost):
        store.delete(path)

    await cluster.stop(1)
    guard = cluster.brokers[2].services.store_guard
    await until(lambda: guard.is_lost and "start this broker again" in caplog.text, "broker 2 gives up")
    assert "the cluster store has lost the states of t-0" in caplog.text
    await cluster.stop(2)
    await cluster.start(2, 1)

    await until(lambda: _leader_epoch(cluster, T0) > LEAP, "t-0 is led in an epoch that nobody has seen")
    leader = cluster.brokers[2].services.metadata.find_partition(T0).leader
    await cluster.until_led(T0, leader, isr={1, 2})
    assert b"kept" in await cluster.read(leader, T0)
    await cluster.stop_all()


def _leader_epoch(cluster: BrokersOnOneLoop, name: TopicPartition) -> int:
    info = cluster.brokers[2].services.metadata.find_partition(name)
    return info.leader_epoch if info and info.leader >= 0 else -1
