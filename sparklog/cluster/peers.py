"""The other brokers, as a broker and its controller reach them: over gRPC, or over a simulated network.

A request is the value that the API's handler takes there (`broker/apis/`), and the answer is what the handler returns:
which API it is for follows from its type. A broker calls itself this way too; that goes straight to its handlers.
"""

from __future__ import annotations

from typing import Any, Protocol

from sparklog.cluster.model import BrokerInfo


class Peers(Protocol):
    """Calls of brokers by brokers. Used on one event loop."""

    async def call(self, broker: BrokerInfo, request: Any, *, timeout_ms: int) -> Any:
        """The answer. Raises the KafkaError that it refuses the request with, NetworkException where it cannot be
        reached or the connection fails (the request may have been carried out, or not), or RequestTimedOut.

        Calls to the same broker may overtake one another: who needs an order waits for each answer.
        """
        ...

    async def close(self) -> None:
        """End all connections; calls that wait for an answer raise NetworkException."""
        ...
