"""What a translation is: the Kafka wire's side of one API of `broker/apis/`.

A translation takes the request as kio's typed value and answers with one of kio's, made by `Call.answer`; or with bytes
and slices of the log where kio would be too slow or would copy (`Pieces`); or with None: no response is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api
from sparklog.broker.node import Broker
from sparklog.broker.sasl import Authentication
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.array_counts import MAX_ELEMENTS
from sparklog.server.kafka.messages import Message, make, response_type

MAX_TOGETHER = 10_000
"""How many elements a request may have that is served as one: work of less than 100 ms."""
Request = TypeVar("Request")
Response = TypeVar("Response")


@dataclass(slots=True, kw_only=True)
class Session:
    """What is known of one connection, for as long as it lasts."""

    listener: str
    """The listener's name, such as PLAINTEXT; clients are told this listener's addresses."""
    host: str
    """The peer's, without a port."""
    principal: str = "User:ANONYMOUS"
    client_software: str = ""
    """Name and version, from ApiVersions."""
    authentication: Authentication | None = None
    """How the client shows who it is; None: the listener has no SASL."""
    max_request_bytes: int = (1 << 31) - 1
    """Larger requests end the connection; may be changed between requests."""
    admit: Callable[[Session, int], None] | None = None
    """Asked before each request, with its API key, as long as it is set; raises KafkaError to end the connection."""
    opaque: Callable[[Broker, Session, bytes], Awaitable[bytes]] | None = None
    """For as long as it is set, frames hold no requests: what it makes of one is the answer, behind its length."""
    is_over: bool = False
    """Set by a translation: the connection is closed once this request is answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request of a connection, but for its body."""

    broker: Broker
    session: Session
    key: int
    version: int
    correlation_id: int
    client_id: str | None

    @property
    def client_host(self) -> str:
        """As Kafka writes it: a name that it never looks up, and the address."""
        return f"/{self.session.host}"

    async def serve(self, api: Api[Request, Response], request: Request) -> Response:
        """Raises KafkaError where the request as a whole is refused."""
        return await self.broker.serve(api, request)

    def answer(self, **values: Any) -> Message:
        """The response of this version with these fields (`messages.make`)."""
        return make(response_type(self.key, self.version), **values)


Pieces = Sequence[bytes | LogSlice]
"""A response's body: what is joined, and what goes from the file to the socket."""
Answer = Message | Pieces | None


class Wide(NamedTuple):
    """How a request that names much is taken apart (`wide_requests`)."""

    asks: tuple[str, ...]
    """The arrays that name what is asked for, nested ones too, as they are called in any version."""
    tells: tuple[str, ...]
    """Those of the response with what becomes of it."""
    part: int = 100
    """How many elements are served together: work of a few milliseconds."""


PARTITIONS = Wide(("topics", "partitions", "partition_indexes"), ("topics", "partitions"))
"""Of topics and, within them, partitions."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Translation:
    """One entry of the table in `apis/__init__.py`."""

    api: Api[Any, Any]
    serve: Callable[[Call, Message], Awaitable[Answer]]
    refuse: Callable[[Call, Message, KafkaError], Answer] | None = None
    """The answer to a request that the handler refused as a whole, where the response has the error not at its top, or
    not only there: most of Kafka's repeat it for everything that the request names."""
    read: Callable[[int, memoryview], Message] | None = None
    """The request from its version and the bytes after its header; None: kio's. The bytes are the request's own,
    writable and alive for as long as somebody holds them, so large parts need not be copied. Raises InvalidRequest."""
    ends_with_connection: bool = False
    """Whether a request that waits is cancelled when its client goes away."""
    wide: Wide | None = None
    """None: a request is served as one."""
    max_elements: int | None = None
    """How many elements the arrays of a request may have in all; None: MAX_ELEMENTS where it is wide, MAX_TOGETHER."""

    @property
    def most_elements(self) -> int:
        """More than that is refused."""
        return self.max_elements or (MAX_ELEMENTS if self.wide else MAX_TOGETHER)

    async def respond(self, call: Call, request: Message) -> Answer:
        """The answer, be it that the request is refused; raises the KafkaError where the response has no place for it:
        the connection is to be closed.
        """
        try:
            return await self.serve(call, request)
        except KafkaError as error:
            if self.refuse:
                return self.refuse(call, request, error)
            if "error_code" not in response_type(call.key, call.version).__dataclass_fields__:
                raise
            return call.answer(error_code=error)
