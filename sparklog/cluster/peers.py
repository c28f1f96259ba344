"""Calls of a broker and its controller to other brokers, over gRPC or over a simulated network.

A request is the value that the API's handler takes (`broker/apis/`), and the answer is the value that the handler
returns. The type of the request determines the API. A broker's call to itself goes straight to its handlers.
"""

from __future__ import annotations

from typing import Any, Protocol

from sparklog.cluster.model import BrokerInfo


class Peers(Protocol):
    """Calls of brokers by brokers. Used on one event loop."""

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        """Send a request and return the answer.

        Raises the KafkaError with which the broker refuses the request, NetworkException if the broker cannot be
        reached or the connection fails (the request may have been carried out, or not), or RequestTimedOut.

        Calls to the same broker may overtake each other: a caller that needs an order waits for each answer.
        """
        ...

    async def close(self) -> None:
        """Close all connections; calls that wait for an answer raise NetworkException."""
        ...
