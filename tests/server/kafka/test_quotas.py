"""The number and the order of admitted connections and requests."""

from __future__ import annotations

import asyncio

import pytest

from sparklog.base.errors import ConfigError
from sparklog.server.kafka.quotas import ConnectionQuotas, CreationRate, RequestQueue, parse_overrides


def test_connections_are_counted_by_host_and_together() -> None:
    quotas = ConnectionQuotas(3, 2, {"special": 0})
    assert [quotas.take(host) for host in ("a", "a", "b")] == ["", "", ""]
    assert quotas.take("c") == "there are 3 connections, which is max.connections"
    assert quotas.take("special") == "special has 0 connections, and max.connections.per.ip allows 0"
    quotas.give_back("b")
    assert quotas.take("a") == "a has 2 connections, and max.connections.per.ip allows 2"
    assert quotas.take("b") == ""


def test_overrides_are_hosts_with_counts_also_ipv6() -> None:
    assert parse_overrides(("127.0.0.1:5", "[::1]:6", "host:0")) == {"127.0.0.1": 5, "::1": 6, "host": 0}
    for wrong in ("host", ":5", "host:", "host:-1", "host:many"):
        with pytest.raises(ConfigError, match="must be HOST:COUNT"):
            parse_overrides((wrong,))


def test_connections_come_at_their_rate_once_those_saved_up_are_used() -> None:
    rate = CreationRate(10)
    assert [rate.wait_seconds(100.0) for _ in range(9)] == [0.0] * 9
    assert rate.wait_seconds(100.0) == pytest.approx(0.1)
    assert rate.wait_seconds(100.1) == pytest.approx(0.1)
    assert rate.wait_seconds(200.0) == 0.0


async def settled() -> None:
    """Wait for all callbacks that are due on the event loop."""
    for _ in range(100):
        await asyncio.sleep(0)


async def test_waiting_connections_go_on_one_for_each_place_in_their_order() -> None:
    queue = RequestQueue(max_requests=1)
    went_on: list[str] = []

    def waiter(name: str, *, stays: bool):
        def go_on() -> None:
            went_on.append(name)
            if stays:
                queue.reserve(10)
                queue.enter()

        return go_on

    queue.reserve(10)
    queue.enter()
    for name, stays in (("quick", False), ("slow", True), ("last", False)):
        queue.wait(waiter(name, stays=stays))
    assert queue.is_full
    queue.leave(10)
    await settled()
    assert went_on == ["quick", "slow"]
    queue.leave(10)
    await settled()
    assert went_on == ["quick", "slow", "last"]
    assert (queue.requests, queue.bytes, queue.waiting) == (0, 0, 0)


def test_bytes_in_work_are_limited_where_they_are() -> None:
    assert not RequestQueue(5).is_full
    queue = RequestQueue(5, max_bytes=100)
    queue.reserve(99)
    assert not queue.is_full
    queue.reserve(1)
    assert queue.is_full


def test_what_sets_the_most_connections_is_named() -> None:
    quotas = ConnectionQuotas(0, 2, {}, limit="what the system allows")
    assert quotas.take("a") == "there are 0 connections, which is what the system allows"


def test_the_largest_arriving_request_is_given_up_where_all_are_too_much() -> None:
    queue = RequestQueue(max_bytes=100)
    gave_up: list[str] = []

    class Sender:
        def __init__(self, name: str) -> None:
            self._name = name

        def give_up(self) -> None:
            gave_up.append(self._name)

    one, first, second = map(Sender, ("one", "first", "second"))
    queue.arrive(one, 150)  # by itself, each may be as large as a request
    assert not gave_up
    queue.arrive(first, 10)
    assert (gave_up, queue.arriving_bytes) == (["one"], 10)
    queue.arrive(second, 45)
    queue.arrive(first, 35)
    queue.arrive(one, 20)
    assert (gave_up, queue.arriving_bytes) == (["one", "first"], 65)
    for sender in (one, first, second):
        queue.end_arrival(sender)
    assert (queue.arriving_bytes, queue.bytes, queue.is_full) == (0, 0, False)
    free = RequestQueue(max_bytes=-1)
    free.arrive(one, 1 << 40)
    free.arrive(first, 1 << 40)
    assert gave_up == ["one", "first"]
