"""Messages about an address without a broker, from gRPC's errors."""

from __future__ import annotations

import grpc
import pytest
from grpc.aio import AioRpcError, Metadata

from sparklog.client.config import ClientConfig
from sparklog.client.connection import Connections

ADDRESS = "orders.example:9094"


@pytest.mark.parametrize(
    ("details", "why"),
    [
        ("failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.1:9094: Connection refused", "refused"),
        (
            f"DNS resolution failed for {ADDRESS}: C-ares status is not ARES_SUCCESS qtype=A name=orders.example: "
            "[Domain name not found]",
            "no address is known for this host name",
        ),
        ("Socket closed", "it has gone, or what listens there is no gRPC, or wants TLS"),
    ],
)
async def test_the_reason_is_told_in_one_phrase(details: str, why: str) -> None:
    connections = Connections(ClientConfig(bootstrap_servers=ADDRESS))
    failure = AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), details)
    said = str(connections.get(ADDRESS).error_of(failure))
    assert said.startswith(f"no broker answers at {ADDRESS} (")
    assert said.endswith(f"{why})")
    await connections.close()
