"""Definition of a translation: one API of `broker/apis/` in Kafka's protocol.

A translation takes the request as a typed value of kio. It answers with a value of kio made by `KafkaCall.answer`; with
bytes and slices of the log, where kio would be slow or would copy (`Pieces`); or with None if no response is sent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from msgspec import Struct

from sparklog.base.acls import AclResourceType
from sparklog.base.errors import KafkaError
from sparklog.broker.api import Api, Operation
from sparklog.broker.node import Broker
from sparklog.broker.sasl import Authentication
from sparklog.log.slice import LogSlice
from sparklog.security.acls import Subject
from sparklog.security.quotas import Mutate, unlimited
from sparklog.server.kafka.answer_cache import AnswerCache
from sparklog.server.kafka.array_counts import MAX_ELEMENTS
from sparklog.server.kafka.messages import Message, make, response_type
from sparklog.server.kafka.throttle import ConnectionThrottle

Request = TypeVar("Request")
Response = TypeVar("Response")
OPERATIONS_NOT_ASKED = -(2**31)
"""The authorized operations in an answer to a request without them (KIP-430)."""
MAX_TOGETHER = 10_000
"""Maximum number of elements of a request that is not served in parts: less than 100 ms of work."""


@dataclass(slots=True, kw_only=True)
class Session:
    """State of one connection."""

    listener: str
    """Name of the listener, such as PLAINTEXT. Responses contain addresses of this listener."""
    host: str
    """The peer's address without the port."""
    port: int = 0
    principal: str = "User:ANONYMOUS"
    client_software: str = ""
    client_software_version: str = ""
    """The client software, from ApiVersions."""
    authentication: Authentication | None = None
    """State of the SASL authentication; None: the listener has no SASL."""
    max_request_bytes: int = (1 << 31) - 1
    """Larger requests end the connection. May change between requests."""
    admit: Callable[[Session, int], None] | None = None
    """If set, called before each request with its API key. Raises KafkaError to end the connection."""
    opaque: Callable[[Broker, Session, bytes], Awaitable[bytes]] | None = None
    """If set, frames are bare SASL tokens instead of requests. Returns the answer, which is sent with its length."""
    throttle: ConnectionThrottle | None = None
    """Counts the costs of the present request; None: no quota applies to the client."""
    answers: AnswerCache | None = None
    """The cached answers of this connection's listener; None without a cache."""
    is_over: bool = False
    """Whether the connection is closed after the answer to this request."""
    subject: Subject = field(init=False)
    """Principal and host of the client."""

    def __post_init__(self) -> None:
        self.subject = Subject(self.principal, self.host)

    def require(
        self,
        authentication: Authentication,
        admit: Callable[[Session, int], None],
        *,
        max_request_bytes: int,
    ) -> None:
        """Require authentication before any other request. max_request_bytes: limit until its end."""
        self.authentication, self.admit, self.max_request_bytes = authentication, admit, max_request_bytes

    def authenticated(self, user: str, *, max_request_bytes: int) -> None:
        """Set the user of the connection."""
        self.principal, self.max_request_bytes = f"User:{user}", max_request_bytes
        self.subject = Subject(self.principal, self.host)

    def count_with(self, throttle: ConnectionThrottle | None) -> None:
        """Set the throttle of the next request; None without quotas."""
        self.throttle = throttle

    def expect_tokens(self, serve: Callable[[Broker, Session, bytes], Awaitable[bytes]] | None) -> None:
        """Set `serve` for frames of bare SASL tokens; None: frames are requests again."""
        self.opaque = serve

    def end(self) -> None:
        """Close the connection after the answer to this request."""
        self.is_over = True

    def named(self, client_software: str, version: str) -> None:
        """Note the client's software."""
        self.client_software, self.client_software_version = client_software, version


class KafkaCall(Struct, frozen=True, kw_only=True):
    """One request of a connection, without its body."""

    broker: Broker
    session: Session
    key: int
    version: int
    correlation_id: int
    client_id: str | None

    def serve(self, api: Api[Request, Response], request: Request) -> Awaitable[Response]:
        """Return the handler's response, with errors for refused resources. Raises KafkaError for a refused request."""
        return self.broker.clients.serve(api, request, self.session)

    def serve_step(self, step: Operation[Request, Response], request: Request) -> Awaitable[Response]:
        """Return the response to a step of a request, as `serve` does."""
        return self.broker.clients.authorized(step, self.broker.handlers[step], request, self.session)

    def mutation_quota(self, *, strict_from: int) -> Mutate:
        """Return the function that counts the partitions that a request creates or deletes.

        strict_from: the first version whose clients know THROTTLING_QUOTA_EXCEEDED
        """
        throttle = self.session.throttle
        return partial(throttle.mutate, strict=self.version >= strict_from) if throttle else unlimited

    def operations(self, resource_type: AclResourceType, name: str, *, is_asked: bool = True) -> int:
        """Return the client's authorized operations on a resource as a set of bits (KIP-430).

        is_asked: whether the request asks for them
        """
        if not is_asked:
            return OPERATIONS_NOT_ASKED
        return sum(1 << each for each in self.broker.clients.operations(resource_type, name, self.session))

    @property
    def client_host(self) -> str:
        """The client's address in Kafka's form, HOSTNAME/ADDRESS; Kafka leaves the host name empty."""
        return f"/{self.session.host}"

    def answer(self, **values: Any) -> Message:
        """Return the response of this version with these fields (`messages.make`)."""
        return make(response_type(self.key, self.version), **values)


Pieces = Sequence[bytes | LogSlice]
"""A response body: bytes, and log slices that go from the file to the socket."""
ResponseBody = Message | Pieces | None


class WideArrays(NamedTuple):
    """The arrays by which a request with many elements is split into parts (`wide_requests`)."""

    request_arrays: tuple[str, ...]
    """Names, in any version, of the request's arrays to split, including nested ones."""
    response_arrays: tuple[str, ...]
    """Names of the response's arrays with the results."""
    part: int = 100
    """Number of elements that are served together: a few milliseconds of work."""
    once: bool = False
    """Whether duplicate elements are answered once, also in small requests. For reads only."""
    beside: tuple[str, ...] = ()
    """Names of fields that do not distinguish elements if `once` is set; those of the first element apply."""


PARTITIONS = WideArrays(("topics", "partitions", "partition_indexes"), ("topics", "partitions"))
"""Topics, and partitions within them."""
READ_PARTITIONS = PARTITIONS._replace(once=True)


class Translation(Struct, frozen=True, kw_only=True, eq=False):
    """One entry of the table in `apis/__init__.py`."""

    api: Api[Any, Any]
    serve: Callable[[KafkaCall, Message], Awaitable[ResponseBody]]
    refuse: Callable[[KafkaCall, Message, KafkaError], ResponseBody] | None = None
    """Makes the answer to a request that the handler refused as a whole. None: the error goes only to the top of the
    response. Most of Kafka's responses repeat it for every element of the request."""
    read: Callable[[int, memoryview], Message] | None = None
    """Decodes the request from its version and the bytes after its header; None: kio does. The bytes belong to this
    request and are writable, so that large parts need not be copied. Raises InvalidRequest."""
    throttled: Callable[[Pieces, int], Pieces] | None = None
    """Sets the throttle time in an answer of pieces; None: the answer has it already."""
    ends_with_connection: bool = False
    """Whether a waiting request is cancelled when its client disconnects."""
    wide: WideArrays | None = None
    """The split of large requests; None: they are not split."""
    max_elements: int | None = None
    """Maximum number of elements in all arrays of a request. None: MAX_ELEMENTS if `wide` is set, else MAX_TOGETHER."""
    is_cached: Callable[[Message], bool] = lambda _: True
    """Whether the answer to a request depends only on the state of `api.cached_by`."""
    note_session: Callable[[Session, Message], None] | None = None
    """Notes the request's description of its connection; called for a cached answer, instead of `serve`."""

    @property
    def most_elements(self) -> int:
        """Maximum total number of elements; larger requests are refused."""
        return self.max_elements or (MAX_ELEMENTS if self.wide else MAX_TOGETHER)

    async def respond(self, call: KafkaCall, request: Message) -> ResponseBody:
        """Return the answer, also if the request is refused.

        Raises the KafkaError if the response has no field for it; the connection must then be closed.
        """
        try:
            return await self.serve(call, request)
        except KafkaError as error:
            if self.refuse:
                return self.refuse(call, request, error)
            if "error_code" not in response_type(call.key, call.version).__dataclass_fields__:
                raise
            return call.answer(error_code=error)
