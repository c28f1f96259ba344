"""Replication throttle (KIP-73): a rate limit for copying, and the replicas that it applies to.

    leader.replication.throttled.replicas, follower.…   topic key: "*", or PARTITION:BROKER,…
    leader.replication.throttled.rate, follower.…       broker key, in bytes per second

Only fetches of out-of-sync replicas are held back, so a throttle by itself never removes a replica from the ISR. Sent
bytes are a debt, paid off at the rate; while there is debt, throttled replicas send nothing. A response is sent whole,
so the rate holds on average.

Pure: the time, in seconds, comes with each call.
"""

from __future__ import annotations

from collections.abc import Callable

ALL_REPLICAS = ("*",)
LEAST_PAUSE_S = 0.001


def is_listed(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Return whether a topic's list of throttled replicas names this one."""
    return bool(replicas) and (replicas == ALL_REPLICAS or f"{partition}:{broker_id}" in replicas)


class ReplicationThrottle:
    """The throttle of one broker in one direction."""

    def __init__(self, rate: Callable[[], int]) -> None:
        """rate: returns bytes per second; called each time, as it may change."""
        self._rate = rate
        self._debt = 0.0
        self._paid_at = 0.0

    def pause(self, now: float) -> float:
        """Return for how many seconds nothing may be sent; 0: sending is allowed."""
        self._pay(now)
        return 0.0 if self._debt < 1 else max(self._debt / self._rate(), LEAST_PAUSE_S)

    def sent(self, size_bytes: int, now: float) -> None:
        """Add bytes that were sent, throttled or not, to the debt. now: as for `pause`"""
        self._pay(now)
        self._debt += size_bytes

    def _pay(self, now: float) -> None:
        self._debt = max(0.0, self._debt - (now - self._paid_at) * self._rate())
        self._paid_at = now
