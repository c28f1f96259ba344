"""The network of a simulation: late, lost, blocked, broken; and nothing shared."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sparklog.base.errors import InvalidRequest, NetworkException, RequestTimedOut
from sparklog.broker.apis import group_apis, list_topics
from sparklog.testing.sim import network as sim_network
from sparklog.testing.sim.loop import SimLoop, SimProcess
from sparklog.testing.sim.network import SimNetwork
from sparklog.testing.sim.trace import Trace

pytestmark = pytest.mark.slow

API = list_topics.API


class Network:
    """Two processes, of which `server` answers with what it is asked."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = SimLoop()
        self.trace = Trace(self.loop.time)
        self.network = SimNetwork(self.loop, random.Random(seed), self.trace)
        self.server = SimProcess("server")
        self.asked: list[Any] = []
        self.network.attach("server", self.server, self.serve)

    async def serve(self, api: Any, request: Any) -> Any:
        self.asked.append(request)
        if request == "bad":
            raise InvalidRequest("bad")
        return request

    async def call(self, request: Any = "?") -> Any:
        return await self.network.call("client", "server", API, request, timeout_ms=1_000)

    def run(self, main: Callable[[], Awaitable[Any]]) -> Any:
        async def run() -> Any:
            return await main()

        return self.loop.run(run())


def test_an_answer_is_a_copy() -> None:
    net, request = Network(), {"records": bytearray(b"abc")}
    answer = net.run(lambda: net.call(request))
    assert answer == request == net.asked[0]
    assert len({id(each["records"]) for each in (request, net.asked[0], answer)}) == 3


def test_a_refusal_arrives_as_it_is() -> None:
    net = Network()
    with pytest.raises(InvalidRequest, match="bad"):
        net.run(lambda: net.call("bad"))


def test_calls_may_overtake_one_another() -> None:
    net = Network()
    net.run(lambda: asyncio.gather(*(net.call(number) for number in range(20))))
    assert sorted(net.asked) == list(range(20)) != net.asked


def test_one_way_is_blocked() -> None:
    net = Network()
    net.network.block("server", "client")
    with pytest.raises((RequestTimedOut, NetworkException)):
        net.run(net.call)
    assert net.asked == ["?"]


def test_lost_messages_are_told_or_time_out() -> None:
    net = Network()
    net.network.weather.chance_of_loss = 1
    outcomes = net.run(lambda: asyncio.gather(*(net.call() for _ in range(30)), return_exceptions=True))
    assert {type(outcome) for outcome in outcomes} == {RequestTimedOut, NetworkException}
    assert net.asked == []


def test_who_waits_for_a_killed_process_is_told() -> None:
    net = Network()

    async def main() -> None:
        net.server.pause()
        waiting = asyncio.create_task(net.call())
        await asyncio.sleep(0.1)
        net.server.kill()
        net.network.break_connections("server")
        with pytest.raises(NetworkException):
            await waiting
        with pytest.raises(NetworkException):
            await net.call()
        assert net.loop.time() < 0.5

    net.run(main)


def test_a_paused_process_answers_when_it_goes_on() -> None:
    net = Network()

    async def main() -> None:
        net.server.pause()
        net.loop.call_later(0.9, net.server.resume, net.loop)
        assert await net.call() == "?"

    net.run(main)


@pytest.mark.parametrize("api", [group_apis.HEARTBEAT, list_topics.API])
def test_the_trace_of_a_seed_is_always_the_same(api: Any) -> None:
    def digest(seed: int) -> str:
        net = Network(seed)
        net.run(lambda: asyncio.gather(*(net.call(number) for number in range(5))))
        return net.trace.digest

    assert digest(1) == digest(1) != digest(2)


def test_a_request_that_is_held_up_reaches_its_own_process_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim_network, "CHANCE_TO_HOLD_UP", 1.0)
    net = Network()

    async def call() -> Any:
        return await net.network.call("client", "server", API, "?", timeout_ms=5_000, may_be_held_up=True)

    async def main() -> None:
        assert await call() == "?"
        assert net.loop.time() > 0.1
        waiting = asyncio.create_task(call())
        await asyncio.sleep(0)
        net.network.attach("server", SimProcess("server"), net.serve)
        with pytest.raises(NetworkException):
            await waiting
        assert net.asked == ["?"]

    net.run(main)
