"""Controlled shutdown of a broker, and requests to the controller on this broker or another."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from sparklog.base.config import BrokerConfig
from sparklog.base.errors import KafkaError, NetworkException, NotController, StaleBrokerEpoch
from sparklog.base.ids import TopicPartition
from sparklog.broker.apis.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse
from sparklog.broker.controlled_shutdown import hand_over_leaderships
from sparklog.broker.peers import LEAST_TIMEOUT_MS, ask_controller
from sparklog.replica.messages import NO_LEADER
from sparklog.testing.sim.clock import LoopClock
from sparklog.testing.sim.loop import SimLoop

T0 = TopicPartition("t", 0)
Answer = ControlledShutdownResponse | KafkaError


async def _wait_until(is_so: Callable[[], bool], timeout_ms: int) -> bool:
    if not is_so():
        await asyncio.sleep(timeout_ms / 1000)
    return is_so()


class Services(SimpleNamespace):
    """The services that a controlled shutdown uses: the live brokers, and their answers."""

    def __init__(
        self,
        loop: SimLoop,
        *answers: Answer,
        alive: tuple[int, ...] = (1, 2),
        leader: int = 1,
        in_sync: tuple[int, ...] = (1, 2),
    ) -> None:
        brokers = {number: f"broker {number}" for number in alive}
        super().__init__(
            asked=[],
            clock=LoopClock(loop),
            config=BrokerConfig(
                broker_id=1, controlled_shutdown_max_retries=3, controlled_shutdown_retry_backoff_ms=1_000
            ),
            metadata=SimpleNamespace(
                brokers=brokers,
                controller=brokers.get(2),
                find_partition=lambda _: SimpleNamespace(replicas=(1, 2), leader=leader, in_sync_replicas=in_sync),
                wait_until=_wait_until,
            ),
            peers=SimpleNamespace(call=self._call),
        )
        self._answers = list(answers)

    @property
    def ways(self) -> dict[str, Any]:
        """Calls to the controller."""
        return {"clock": self.clock, "metadata": self.metadata, "peers": self.peers}

    async def _call(self, broker: str, request: Any, *, timeout_ms: int) -> Any:
        self.asked.append((broker, request))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer


def left(*names: TopicPartition) -> ControlledShutdownResponse:
    return ControlledShutdownResponse(remaining=names)


def simulate(made: Callable[[SimLoop], Services], epoch: int = 7) -> tuple[Services, tuple[TopicPartition, ...], float]:
    """Return the services, the partitions still led, and the duration in seconds."""
    loop = SimLoop()
    services = made(loop)
    remaining = loop.run(hand_over_leaderships(epoch, config=services.config, **services.ways))
    return services, remaining, loop.time()


def test_a_broker_asks_until_nothing_remains() -> None:
    services, remaining, seconds = simulate(lambda loop: Services(loop, left(T0), left(T0), left()))
    assert remaining == ()
    assert services.asked == [("broker 2", ControlledShutdownRequest(broker_id=1, broker_epoch=7))] * 3
    assert seconds == 2


def test_a_broker_stops_after_its_last_retry_when_the_session_of_a_silent_broker_has_ended() -> None:
    services, remaining, seconds = simulate(lambda loop: Services(loop, left(T0)))
    assert (remaining, len(services.asked)) == ((T0,), 4)
    assert seconds == 2 * services.config.cluster_store_session_timeout_ms / 1000 > 3


def test_the_last_pause_does_not_wait_for_replicas_that_are_not_in_sync() -> None:
    services, remaining, seconds = simulate(lambda loop: Services(loop, left(T0), in_sync=(1,)))
    assert (remaining, len(services.asked), seconds) == ((T0,), 4, 3)


def test_a_pause_ends_when_another_broker_leads_and_this_one_has_left_the_isr() -> None:
    loop = SimLoop()
    services = Services(loop, left(T0))
    states = [(1, (1, 2)), (2, (1, 2)), (2, (2,))]

    async def wait_until(is_so: Callable[[], bool], timeout_ms: int) -> bool:
        while not is_so():
            await asyncio.sleep(0.01)
            states.pop(0)
        return True

    services.metadata.wait_until = wait_until
    services.metadata.find_partition = lambda _: SimpleNamespace(
        replicas=(1, 2), leader=states[0][0], in_sync_replicas=states[0][1]
    )
    assert loop.run(hand_over_leaderships(7, config=services.config, **services.ways)) == ()
    assert (len(services.asked), loop.time()) == (1, pytest.approx(0.02))


def test_a_broker_does_not_wait_without_a_successor() -> None:
    services = Services(SimLoop(), left(T0), alive=(1, 3))
    services.metadata.controller = "broker 3"
    loop = SimLoop()
    assert loop.run(hand_over_leaderships(7, config=services.config, **services.ways)) == (T0,)
    assert (len(services.asked), loop.time()) == (1, 0)


@pytest.mark.parametrize("leader", [NO_LEADER, 2])
@pytest.mark.parametrize(("in_sync", "requests", "duration_s"), [((1, 2), 4, 12), ((1,), 1, 0)])
def test_a_follower_waits_until_a_broker_that_is_gone_has_left_the_isr(
    leader: int, in_sync: tuple[int, ...], requests: int, duration_s: float
) -> None:
    def made(loop: SimLoop) -> Services:
        services = Services(loop, left(T0), alive=(1, 3), leader=leader, in_sync=in_sync)
        services.metadata.controller = "broker 3"
        return services

    services, _, seconds = simulate(made)
    assert 2 * services.config.cluster_store_session_timeout_ms == 12_000
    assert (len(services.asked), seconds) == (requests, duration_s)


def test_a_broker_stops_if_the_controller_is_unreachable() -> None:
    services, remaining, _ = simulate(lambda loop: Services(loop, StaleBrokerEpoch("no"), left()))
    assert (remaining, len(services.asked)) == ((), 2)
    _, remaining, _ = simulate(lambda loop: Services(loop, NetworkException("no")))
    assert remaining == ()


def test_the_next_controller_is_asked_if_the_known_one_has_resigned() -> None:
    loop = SimLoop()
    services = Services(loop, NotController("no"), NetworkException("no"), left())
    assert loop.run(ask_controller("request", **services.ways, timeout_ms=0)) == left()
    assert len(services.asked) == 3


@pytest.mark.parametrize("error", [NotController("no"), NetworkException("no")])
def test_the_last_error_is_raised_when_the_time_is_up(error: KafkaError) -> None:
    loop = SimLoop()
    with pytest.raises(type(error)):
        loop.run(ask_controller("request", **Services(loop, error).ways, timeout_ms=9_000))
    assert loop.time() == pytest.approx(9, abs=0.1)
    loop = SimLoop()
    services = Services(loop, error)
    services.metadata.controller = None
    with pytest.raises(NotController):
        loop.run(ask_controller("request", **services.ways, timeout_ms=0))
    assert loop.time() == pytest.approx(LEAST_TIMEOUT_MS / 1000, abs=0.1)
