"""Time-outs of group members: coordinators that do not answer, and interrupted users."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sparklog.base.clock import SystemClock
from sparklog.base.errors import IllegalGeneration, KafkaError, RequestTimedOut
from sparklog.base.ids import TopicPartition
from sparklog.client.commits import GroupOffsets
from sparklog.client.config import ConsumerConfig
from sparklog.client.consumer.callback_invoker import CallbackInvoker
from sparklog.client.consumer.committer import Committer
from sparklog.client.consumer.membership import Membership
from sparklog.client.consumer.subscription_state import SubscriptionState
from sparklog.client.retry import Backoff
from sparklog.testing.sim.clock import LoopClock, SimClock
from sparklog.v1 import groups_pb2
from support.controller.virtual_time import simulated
from support.patience import PATIENCE_S

PARTITION = TopicPartition("t", 0)


class Silent:
    """A coordinator that accepts members, and then does not answer for longer than any time-out."""

    cluster = SimpleNamespace(clock=SystemClock(), backoff=Backoff(1, 5, Random(0)))

    async def ask(self, method: str, request: Any, timeout_ms: float) -> Any:
        if method == "SyncGroup":
            return groups_pb2.SyncGroupResponse()
        return await asyncio.Event().wait()

    def forget_if_wrong(self, error: KafkaError | None) -> None:
        assert isinstance(error, RequestTimedOut)


@pytest.fixture
def config() -> ConsumerConfig:
    return ConsumerConfig.parse(
        {
            "bootstrap_servers": "127.0.0.1:1",
            "group_id": "g",
            "heartbeat_interval_ms": 5,
            "session_timeout_ms": 50,
            "auto_commit_interval_ms": 1,
        }
    )


@pytest.fixture
def coordinator() -> Any:
    return Silent()


@pytest.fixture
def clock() -> SimClock:
    return SimClock()


@pytest.fixture
async def committer(config: ConsumerConfig, coordinator: Any, clock: SimClock) -> Committer:
    """A committer of a consumer with the position 7."""
    assignment = SubscriptionState()
    assignment.assign([PARTITION])
    assignment.state(PARTITION).move_to(7)
    membership = Membership(coordinator, config, lambda: 0)
    return Committer(
        GroupOffsets(coordinator, config), membership, assignment, CallbackInvoker(lambda: None), config, clock
    )


class OnceHung(Silent):
    """A coordinator that hangs until a new lookup finds its successor."""

    def __init__(self) -> None:
        self.is_forgotten = False
        self.another_is_it = asyncio.Event()

    async def ask(self, method: str, request: Any, timeout_ms: float) -> Any:
        if method == "SyncGroup":
            return groups_pb2.SyncGroupResponse()
        if not self.is_forgotten:
            return await asyncio.Event().wait()
        self.another_is_it.set()
        return groups_pb2.HeartbeatResponse()

    def forget_if_wrong(self, error: KafkaError | None) -> None:
        self.is_forgotten = isinstance(error, RequestTimedOut)


@simulated
async def test_a_coordinator_that_hangs_does_not_use_up_the_session_of_its_members(config: ConsumerConfig) -> None:
    coordinator = OnceHung()
    clock = LoopClock(asyncio.get_running_loop())
    coordinator.cluster = SimpleNamespace(clock=clock, backoff=Backoff(1, 5, Random(0)))
    membership = Membership(cast(Any, coordinator), replace(config, session_timeout_ms=3_000), lambda: 0)
    await membership.sync("range", {})
    async with asyncio.timeout(PATIENCE_S):
        await coordinator.another_is_it.wait()
    membership.check()
    membership.stop()


async def test_a_member_is_lost_when_its_session_ends_even_while_the_coordinator_is_looked_for(
    config: ConsumerConfig, coordinator: Any
) -> None:
    membership = Membership(coordinator, config, lambda: 0)
    await membership.sync("range", {})

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(IllegalGeneration, match="no heartbeat was answered"):
            await membership.until_due()


async def test_what_is_given_up_does_not_wait_for_commits_without_end(committer: Committer) -> None:
    failures: list[KafkaError | None] = []
    calls = committer._callbacks
    for offset in range(3):
        committer.commit_async({PARTITION: offset}, lambda _, error: failures.append(error))

    async with asyncio.timeout(PATIENCE_S):
        await committer.before_giving_up(10)
        await committer.finish(10)

    while call := calls.next_call():
        await call.run()
    assert [type(error) for error in failures] == [RequestTimedOut] * 3


async def test_a_call_that_was_not_made_is_asked_for_again() -> None:
    turns, made = CallbackInvoker(lambda: None), []
    waiting = asyncio.create_task(turns.call(made.append, 1))
    await asyncio.sleep(0)

    call = turns.next_call()  # and the user is interrupted
    assert call is not None
    assert turns.next_call() is call
    await call.run()
    await waiting
    assert (turns.next_call(), made) == (None, [1])


async def test_automatic_commits_do_not_pile_up(committer: Committer, clock: SimClock) -> None:
    for _ in range(5):
        clock.advance(1)
        committer.start_if_due()

    assert len(committer._tasks) == 1
    await committer.stop()
