"""Limits on connections (kafka.network.ConnectionQuotas), on requests in progress, and on the time of each iteration.

Connections beyond `max.connections`, or beyond `max.connections.per.ip` from one address, are closed at once, so that
the client tries its next broker; in Apache Kafka, connections beyond max.connections wait. Connections beyond
`max.connection.creation.rate` wait to be accepted.

While the requests in progress reach `queued.max.requests` or `queued.max.request.bytes`, no connection starts another
one. Waiting connections continue in the order of their arrival. Requests that wait for others are not in progress, so
any number of consumers may wait for records.

An arriving request is not in progress either: a slow client would block all others. Of all arriving requests, only the
received bytes count (in Apache Kafka the announced size). If their sum exceeds `queued.max.request.bytes`, the
connection with the largest of them is closed; of several, the oldest.

After 10 ms of requests in one iteration of the event loop, other requests that have arrived wait for the next
iteration, in the order of their arrival. Otherwise a hundred connections with a few requests each would block all
others until the last of these requests is answered.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Protocol

from sparklog.base.config_keys import MAX_INT
from sparklog.base.errors import ConfigError
from sparklog.runtime.slices import SLICE_S

NO_LIMIT = -1


class ConnectionQuotas:
    """Number of connections of a broker's listeners, in all and by peer address."""

    def __init__(
        self, most: int, most_per_ip: int, overrides: Mapping[str, int], *, limit: str = "max.connections"
    ) -> None:
        """limit: the configuration name of `most`, for the error text."""
        self._count = 0
        self._by_host: dict[str, int] = {}
        self.set_limits(most, most_per_ip, overrides, limit=limit)

    def set_limits(
        self, most: int, most_per_ip: int, overrides: Mapping[str, int], *, limit: str = "max.connections"
    ) -> None:
        """Set the limits for new connections; open connections stay."""
        self._most = most
        self._limit = limit
        self._most_per_ip = most_per_ip
        self._overrides = overrides

    def take(self, host: str) -> str:
        """Count a connection from `host` and return ""; for a refused connection return the reason."""
        of_host = self._by_host.get(host, 0)
        allowed = self._overrides.get(host, self._most_per_ip)
        if of_host >= allowed:
            return f"{host} has {of_host} connections, and max.connections.per.ip allows {allowed}"
        if self._count >= self._most:
            return f"there are {self._count} connections, which is {self._limit}"
        self._count += 1
        self._by_host[host] = of_host + 1
        return ""

    def give_back(self, host: str) -> None:
        """Uncount a closed connection from this address."""
        self._count -= 1
        self._by_host[host] -= 1
        if not self._by_host[host]:
            del self._by_host[host]


def parse_overrides(entries: Sequence[str]) -> dict[str, int]:
    """Return the limits of max.connections.per.ip.overrides by address. Raises ConfigError if an entry is invalid."""
    found = {}
    for entry in entries:
        host, _, count = entry.rpartition(":")
        if not (host and count.isascii() and count.isdigit()):
            raise ConfigError(f"max.connections.per.ip.overrides: {entry!r} must be HOST:COUNT")
        found[host.strip("[]")] = int(count)
    return found


class CreationRate:
    """A token bucket that allows `per_second` new connections per second, and bursts of up to `per_second`."""

    def __init__(self, per_second: int) -> None:
        self._per_second = per_second
        self._saved = float(per_second)
        self._last = 0.0

    def set_rate(self, per_second: int) -> None:
        """Set the rate from now on."""
        self._per_second = per_second

    def wait_seconds(self, now: float) -> float:
        """Count a connection at `now` and return the seconds to wait before accepting the next one."""
        self._saved = min(self._per_second, self._saved + (now - self._last) * self._per_second) - 1
        self._last = now
        return max(0.0, (1 - self._saved) / self._per_second)


class ArrivingConnection(Protocol):
    """The connection of an arriving request."""

    def give_up(self) -> None:
        """Close the connection, whose request the queue has removed."""
        ...


class RequestQueue:
    """The requests in progress, the arriving requests, and the connections that wait for room."""

    def __init__(self, max_requests: int = MAX_INT, max_bytes: int = NO_LIMIT) -> None:
        self._max_requests = max_requests
        self._max_bytes = max_bytes
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_waking = False
        self._arriving: dict[ArrivingConnection, int] = {}
        self.requests = 0
        self.bytes = 0
        """Size of the requests in progress."""
        self.arriving_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no further request may begin: their number or their bytes have reached a limit."""
        return self.requests >= self._max_requests or self.bytes >= self._max_bytes != NO_LIMIT

    @property
    def waiting(self) -> int:
        """Number of connections that wait for room."""
        return len(self._waiting)

    def arrive(self, connection: ArrivingConnection, size: int) -> None:
        """Count received bytes of an arriving request. Closes connections if all arriving requests are too large."""
        arriving = self._arriving
        arriving[connection] = arriving.get(connection, 0) + size
        self.arriving_bytes += size
        while self.arriving_bytes > self._max_bytes != NO_LIMIT and len(arriving) > 1:
            largest = max(arriving, key=arriving.__getitem__)
            self.end_arrival(largest)
            largest.give_up()

    def end_arrival(self, connection: ArrivingConnection) -> None:
        """Remove the connection's arriving request, if any, after its end or that of the connection."""
        self.arriving_bytes -= self._arriving.pop(connection, 0)

    def reserve(self, size: int) -> None:
        """Count the bytes of a complete request."""
        self.bytes += size

    def enter(self) -> None:
        """Count a request whose bytes have been reserved."""
        self.requests += 1

    def leave(self, size: int, requests: int = 1) -> None:
        """Remove a request of `size` bytes, and wake the connection that has waited longest if there is room."""
        self.requests -= requests
        self.bytes -= size
        self._wake()

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later iteration of the event loop, once there is room."""
        self._waiting.append(go_on)

    def _wake(self) -> None:
        # One connection at a time: its request determines whether there is room for another.
        if self._waiting and not (self._is_waking or self.is_full):
            self._is_waking = True
            asyncio.get_running_loop().call_soon(self._continue_waiting, self._waiting.popleft())

    def _continue_waiting(self, go_on: Callable[[], None]) -> None:
        self._is_waking = False
        go_on()
        self._wake()


class TimeSlice:
    """The time of requests in one iteration of the event loop, and the connections that wait for the next iteration.

    Only a callback in the next iteration detects the end of one. It is scheduled for each 10 ms of requests, not for
    each iteration, so a request costs only a comparison with `ends`. One iteration serves requests for at most 20 ms:
    until `ends`, and for 10 ms after it.
    """

    def __init__(self) -> None:
        self.ends = 0.0
        """A request that begins after this time must call `late`."""
        self.is_over = False
        """Whether this iteration may begin no more requests."""
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_next_scheduled = False

    @property
    def waiting(self) -> int:
        """Number of connections that wait for the next iteration."""
        return len(self._waiting)

    def late(self, now: float) -> None:
        """Begin 10 ms at `now`, or end the slice if 10 ms have passed since the start of the iteration."""
        if self._is_next_scheduled:
            self.is_over = True
        else:
            self._begin(now)

    def wait(self, go_on: Callable[[], None]) -> None:
        """Call `go_on` in a later iteration, after the connections that wait already."""
        self._waiting.append(go_on)
        self._schedule_next()

    def _begin(self, now: float) -> None:
        self.ends = now + SLICE_S
        self._schedule_next()

    def _schedule_next(self) -> None:
        if not self._is_next_scheduled:
            self._is_next_scheduled = True
            asyncio.get_running_loop().call_soon(self._begin_iteration)

    def _begin_iteration(self) -> None:
        self._is_next_scheduled = self.is_over = False
        if not self._waiting:
            return
        self._begin(monotonic())
        for _ in range(len(self._waiting)):
            self._waiting.popleft()()
            if self.is_over or monotonic() > self.ends:
                self.is_over = True
                break
