"""How much of the network copying may take (KIP-73): a rate, and which replicas it holds for.

    leader.replication.throttled.replicas, follower.…   a topic's: "*", or PARTITION:BROKER,…
    leader.replication.throttled.rate, follower.…       a broker's, in bytes per second

A replica is held back only while it is not in sync, so a throttle never takes a replica out of the ISR by itself. What
was sent is a debt that is paid off at the rate; while there is one, nothing more of such replicas is sent. An answer is
sent as a whole, so that the rate holds on the average.

Pure: the time, in seconds, comes with each call.
"""

from __future__ import annotations

from collections.abc import Callable

ALL_REPLICAS = ("*",)
LEAST_PAUSE_S = 0.001


def is_listed(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas names this one."""
    return bool(replicas) and (replicas == ALL_REPLICAS or f"{partition}:{broker_id}" in replicas)


class Throttle:
    """One broker's, in one direction."""

    def __init__(self, rate: Callable[[], int]) -> None:
        """rate: bytes per second, asked for each time as it may change."""
        self._rate = rate
        self._debt = 0.0
        self._paid_at = 0.0

    def pause(self, now: float) -> float:
        """For how many seconds nothing more may be sent; 0: it may."""
        self._pay(now)
        return 0.0 if self._debt < 1 else max(self._debt / self._rate(), LEAST_PAUSE_S)

    def sent(self, size_bytes: int, now: float) -> None:
        self._pay(now)
        self._debt += size_bytes

    def _pay(self, now: float) -> None:
        self._debt = max(0.0, self._debt - (now - self._paid_at) * self._rate())
        self._paid_at = now
