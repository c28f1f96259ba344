"""The cost of a follower's fetch is that of the partitions that have changed; their changes of any kind reach it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from sparklog.base.ids import TopicPartition
from sparklog.broker import fetch_sessions
from sparklog.broker.apis import replica_fetch
from support.brokers.on_one_loop import BrokersOnOneLoop
from support.patience import PATIENCE_MS, until

pytestmark = pytest.mark.slow

PARTITIONS = 200
Batch = Callable[..., bytearray]


@pytest.fixture
async def two(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[BrokersOnOneLoop]:
    """Two brokers; 1 leads all partitions of a topic, and 2 follows. Partitions are not looked at from time to time."""
    monkeypatch.setattr(fetch_sessions, "RECHECK_MS", 10**9)
    made = BrokersOnOneLoop()
    await made.start(1, 2)
    for broker in made.brokers.values():
        metadata = broker.services.metadata
        assert await metadata.wait_until(lambda metadata=metadata: len(metadata.brokers) == 2, PATIENCE_MS)
    await made.create("t", [[1, 2]] * PARTITIONS, retention_bytes="1", internal_segment_bytes="200")
    await until(lambda: not active(made), "all partitions are quiet", every_s=0.005)
    yield made
    await made.stop_all()


def active(two: BrokersOnOneLoop) -> int:
    """Return how many partitions of the follower's session may have news."""
    sessions = two.brokers[1].services.follower_fetches.sessions._sessions.values()
    return sum(len(each.active) for each in sessions) if sessions else PARTITIONS


async def test_a_fetch_looks_only_at_what_has_changed(
    two: BrokersOnOneLoop, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[TopicPartition] = []
    find = replica_fetch.find_led

    def find_led(replicas: object, name: TopicPartition, **how: object) -> object:
        looked.append(name)
        return find(replicas, name, **how)

    monkeypatch.setattr(replica_fetch, "find_led", find_led)
    assert (await two.produce(1, TopicPartition("t", 7), batch([b"one"]))).error is None  # acks=all
    assert set(looked) == {TopicPartition("t", 7)}


async def test_a_log_start_that_retention_has_moved_reaches_the_follower(two: BrokersOnOneLoop, batch: Batch) -> None:
    name = TopicPartition("t", 3)
    for value in (b"old", b"new"):
        assert (await two.produce(1, name, batch([value * 30]))).error is None
    await until(lambda: not active(two), "the partition is quiet", every_s=0.005)
    leader, follower = (two.brokers[each].services.replicas.get(name).log for each in (1, 2))
    assert leader.delete_old_segments(0) == 1
    assert leader.log_start_offset == 1
    await until(lambda: follower.log_start_offset == 1, "the follower has the log start", every_s=0.005)
    await until(lambda: not active(two), "the partition is quiet again", every_s=0.005)


async def test_a_follower_that_has_left_the_isr_comes_back(two: BrokersOnOneLoop) -> None:
    name = TopicPartition("t", 5)
    replicas = two.brokers[1].services.replicas
    partition = replicas.get(name).partition
    change = partition._begin_alter((1,), {})
    replicas.isr_changes.resume(partition)
    await until(lambda: partition.pending is not change, "the ISR is written", every_s=0.001)
    await two.until_led(name, 1, isr={1, 2})
