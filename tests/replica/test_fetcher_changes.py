"""A fetch looks only at the partitions that may have changed, and says the same as if it had looked at all.

Each `World` compares every fetch with the latter (support/replicas/fetch_oracle.py).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from msgspec.structs import replace

from sparklog.base.errors import NotLeaderOrFollower
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.delete_records import _advance
from sparklog.replica.fetcher import LOOK_AT_ALL_S, LeaderFetcher
from sparklog.replica.messages import (
    LeaderAndIsr,
    LeaderAndIsrPartitionState,
    ReplicaFetch,
    ReplicaFetchResponse,
    StopPartition,
    StopReplica,
)
from sparklog.replica.state_changes import InitialFetchState
from support.replicas.replicating_brokers import NAME, TOPIC_ID, Broker, World, run, until
from support.runs.seeds import seeds


def partition(number: int) -> TopicPartition:
    return NAME._replace(partition=number)


def state_of(name: TopicPartition, leader_epoch: int = 1, isr: tuple[int, ...] = (1, 2)) -> LeaderAndIsrPartitionState:
    """Of a partition that broker 1 leads, and broker 2 follows."""
    return LeaderAndIsrPartitionState(
        name=name, topic_id=TOPIC_ID, leader=1, leader_epoch=leader_epoch, isr=isr, replicas=(1, 2),
        partition_epoch=leader_epoch,
    )  # fmt: skip


async def become(broker: Broker, *states: LeaderAndIsrPartitionState) -> None:
    await broker.state_changes.become(
        LeaderAndIsr(controller_id=0, controller_epoch=1, broker_epoch=broker.epoch, partitions=states, overrides={})
    )


async def stop(broker: Broker, name: TopicPartition, leader_epoch: int = 1) -> None:
    stopped = StopPartition(name=name, leader_epoch=leader_epoch)
    await broker.state_changes.stop(
        StopReplica(controller_id=0, controller_epoch=1, broker_epoch=broker.epoch, partitions=(stopped,))
    )


async def two(world: World, partitions: int) -> tuple[Broker, Broker]:
    """-> a leader, and a follower that has got a record of each partition and says nothing new any more."""
    names = [partition(number) for number in range(partitions)]
    brokers = world.start(1), world.start(2, replica_fetch_max_bytes=400, replica_fetch_response_max_bytes=800)
    for each in brokers:
        await become(each, *map(state_of, names))
    for name in names:
        brokers[0].append(name=name)
    await quiet(world)
    return brokers


async def quiet(world: World) -> None:
    """Until everything is copied, and a fetch names no partition."""

    def is_quiet() -> bool:
        leader, follower = world.brokers[1], world.brokers[2]
        ends = {each.partition.name: each.partition.high_watermark for each in leader.replicas}
        copied = all(each.log.log_end_offset >= ends[each.partition.name] for each in follower.replicas)
        return copied and not world.asked[-1].partitions

    await until(is_quiet)


async def next_request(world: World, append_to: TopicPartition = NAME) -> ReplicaFetch:
    """-> the fetch after the one that a new record ends."""
    count = len(world.asked)
    world.brokers[1].append(name=append_to)
    await until(lambda: len(world.asked) > count)
    return world.asked[count]


@contextmanager
def looks() -> Iterator[list[TopicPartition]]:
    """The partitions that fetchers look at meanwhile."""
    looked: list[TopicPartition] = []
    look_at = LeaderFetcher._look_at

    def note(self: LeaderFetcher, part, now: float) -> None:
        looked.append(part.name)
        look_at(self, part, now)

    LeaderFetcher._look_at = note  # type: ignore[method-assign]
    try:
        yield looked
    finally:
        LeaderFetcher._look_at = look_at  # type: ignore[method-assign]


def test_a_fetch_after_one_change_looks_at_few_partitions() -> None:
    async def test(world: World) -> None:
        await two(world, 1000)
        await until(lambda: world.asked[-1].session_epoch > 2)
        with looks() as looked:
            for number in (3, 500, 999):
                request = await next_request(world, partition(number))
                assert [part.name.partition for part in request.partitions] == [number]
            assert 3 <= len(looked) <= 9
            looked.clear()
            await asyncio.sleep(LOOK_AT_ALL_S + 1)
            assert 1000 <= len(looked) <= 1010

    run(test)


def test_a_session_that_begins_anew_names_all_partitions_in_order_as_they_are_now() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        follower.log(partition(4)).advance_log_start(1)
        world.unreachable = {1}
        await asyncio.sleep(2)
        world.unreachable = set()
        count = len(world.asked)
        await until(lambda: len(world.asked) > count)
        request = world.asked[count]
        assert request.session_epoch == 0
        assert [(part.name.partition, part.log_start_offset) for part in request.partitions] == [
            (number, int(number == 4)) for number in range(10)
        ]

    run(test)


def test_a_partition_that_pauses_is_forgotten_and_fetched_again_after_its_pause() -> None:
    def spoil(response: ReplicaFetchResponse) -> ReplicaFetchResponse:
        parts = tuple(
            replace(part, error=NotLeaderOrFollower("")) if part.name == NAME else part for part in response.partitions
        )
        return replace(response, partitions=parts)

    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        world.spoil = spoil
        world.asked.clear()
        request = await next_request(world)
        assert [part.name for part in request.forgotten] == [NAME]
        world.spoil = lambda response: response
        await until(lambda: follower.log().log_end_offset == 2)
        again = next(each for each in world.asked if each.partitions)
        assert [part.name for part in again.partitions] == [NAME]

    run(test)


def test_a_removed_partition_is_forgotten_and_one_that_is_added_again_named() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        await stop(follower, partition(4))
        request = await next_request(world)
        assert [part.name.partition for part in request.forgotten] == [4]
        world.asked.clear()
        await become(follower, state_of(partition(4), leader_epoch=2))
        await until(lambda: len(world.asked) > 0)
        assert [part.name.partition for part in world.asked[0].partitions] == [0, 1, 2, 3, 5, 6, 7, 8, 9, 4]

    run(test)


def test_a_partition_whose_disk_has_failed_is_no_longer_followed() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        follower.replicas.set_offline(partition(4), "its disk has failed")
        request = await next_request(world)
        assert [part.name.partition for part in request.forgotten] == [4]
        (fetcher,) = follower.fetchers._fetchers.values()
        assert len(fetcher) == 9

    run(test)


def test_a_replica_that_gets_another_log_is_fetched_from_its_end() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        replica = follower.replica(partition(4))
        follower.replicas.put(
            partition(4), follower.logs.create(partition(11), replica.config, topic_id=TOPIC_ID), replica.config,
            high_watermark=0,
        )  # fmt: skip
        request = await next_request(world)
        assert [(part.name.partition, part.fetch_offset) for part in request.partitions] == [(0, 2), (4, 0)]

    run(test)


def test_the_start_of_a_log_that_retention_moves_late_is_said_at_once() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        follower.log(partition(4)).advance_log_start(1)
        request = await next_request(world)
        assert [(part.name.partition, part.log_start_offset) for part in request.partitions] == [(0, 0), (4, 1)]

    run(test)


def test_any_other_change_is_said_after_a_while() -> None:
    async def test(world: World) -> None:
        _, follower = await two(world, 10)
        follower.log(partition(4))._state.start_offset = 1  # nothing counts that
        await asyncio.sleep(LOOK_AT_ALL_S + 1)
        said = [part for request in world.asked for part in request.partitions if part.log_start_offset]
        assert [(part.name.partition, part.log_start_offset) for part in said] == [(4, 1)]
        world.wrong_requests.clear()  # those before

    run(test)


def test_partitions_that_lag_are_held_back_by_the_throttle_and_others_are_not() -> None:
    async def test(world: World) -> None:
        leader, follower = await two(world, 10)
        follower.follower_rate = 1000
        for number in range(5):
            await become(leader, state_of(partition(number), 2, isr=(1,)))
            for _ in range(20):
                leader.append(size=100, name=partition(number))
        for number in range(5):
            await become(follower, state_of(partition(number), 2, isr=(1,)))
        await until(lambda: any(len(request.forgotten) == 5 for request in world.asked))
        request = await next_request(world, partition(9))
        assert 9 in [part.name.partition for part in request.partitions]
        assert leader.log().log_end_offset > follower.log().log_end_offset
        await quiet(world)

    run(test, follower_replication_throttled_replicas=("*",))


def test_after_events_in_any_order_fetches_say_what_they_must_say() -> None:
    for seed in seeds(15, soak=200):
        run(Story(seed).test, seed=seed, follower_replication_throttled_replicas=("0:2", "3:2"))


class Story:
    """Random events of a follower of eight partitions."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.epochs = dict.fromkeys(map(partition, range(8)), 1)

    async def test(self, world: World) -> None:
        self.leader, self.follower = await two(world, 8)
        self.world = world
        world.spoil = self.spoil
        self.share_of_errors = 0.0
        events = (self.append, self.trim, self.move, self.stop, self.fail, self.follow, self.part, self.err, self.limit)
        for _ in range(80):
            for event in self.chance.choices(events, (8, 2, 2, 2, 1, 1, 1, 1, 1), k=self.chance.choice((1, 1, 3))):
                await event(self.chance.choice(tuple(self.epochs)))
            await asyncio.sleep(self.chance.choice((0, 0.001, 0.01, 0.1, 1.0)))
        world.unreachable, world.loss, self.share_of_errors, self.follower.follower_rate = set(), 0.0, 0.0, 1 << 62
        for name in self.epochs:
            await self.move(name)
        await quiet(world)

    async def append(self, name: TopicPartition) -> None:
        self.leader.append(self.chance.randrange(1, 3), size=self.chance.randrange(100), name=name)

    async def trim(self, name: TopicPartition) -> None:
        _advance(self.leader.replica(name), -1)

    async def move(self, name: TopicPartition) -> None:
        """A new leader epoch."""
        self.epochs[name] += 1
        isr = self.chance.choice(((1,), (1, 2)))
        for each in (self.leader, self.follower):
            await become(each, state_of(name, self.epochs[name], isr))

    async def stop(self, name: TopicPartition) -> None:
        await stop(self.follower, name, self.epochs[name])

    async def fail(self, name: TopicPartition) -> None:
        self.follower.replicas.set_offline(name, "its disk has failed")

    async def follow(self, name: TopicPartition) -> None:
        """Copying begins again beside a fetch, as for another topic of the same name."""
        state = InitialFetchState(
            leader=1, leader_epoch=self.epochs[name], topic_id=self.chance.choice((TOPIC_ID, UUID(int=8)))
        )
        self.follower.fetchers.follow({name: state})

    async def part(self, name: TopicPartition) -> None:
        self.world.unreachable = {1} if self.chance.random() < 0.3 else set()
        self.world.loss = self.chance.choice((0, 0, 0, 0.3))

    async def err(self, name: TopicPartition) -> None:
        self.share_of_errors = self.chance.choice((0, 0, 0.3))

    async def limit(self, name: TopicPartition) -> None:
        self.follower.follower_rate = self.chance.choice((1000, 100_000, 1 << 62))

    def spoil(self, response: ReplicaFetchResponse) -> ReplicaFetchResponse:
        """Some partitions get an error, others no answer at all."""
        parts = tuple(
            replace(part, error=NotLeaderOrFollower("")) if self.chance.random() < self.share_of_errors else part
            for part in response.partitions
            if self.chance.random() >= self.share_of_errors
        )
        return replace(response, partitions=parts)
