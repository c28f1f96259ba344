"""What an API is: a name, and a handler that turns a request value into a response value.

Handlers know nothing of gRPC or of Kafka's wire protocol. What is wrong with one topic or partition goes into its
own part of the response; a KafkaError that a handler raises refuses the request as a whole.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from sparklog.broker.services import Services

Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api(Generic[Request, Response]):
    """One entry of the table in `broker/apis/__init__.py`."""

    name: str
    handle: Callable[[Services, Request], Awaitable[Response]]
    key: int | None = None
    """Its number in Kafka's protocol; None: it is served over gRPC only."""
    versions: tuple[int, int] = (0, -1)
    """The first and the last version of Kafka's message that are served; none where it has no key."""
