"""An API: a name, and a handler that turns a request value into a response value.

Handlers are independent of gRPC and of Kafka's wire protocol. An error of one topic or partition goes into its own part
of the response; a KafkaError that a handler raises refuses the whole request.

A handler declares the services it uses as keyword-only parameters: of the function, beside the request, or of the
constructor of a class whose instances take the request. The parameters have the names of the fields of `Services`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, TypeVar, cast

from sparklog.broker.rights import Right

Request = TypeVar("Request")
Response = TypeVar("Response")
Handler = Callable[[Request], Awaitable[Response]]
"""A handler that is bound to the services it uses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation(Generic[Request, Response]):
    """A handler and the services it uses. An operation that is no `Api` is one step of a listener's request."""

    handle: Callable[Concatenate[Request, ...], Awaitable[Response]] | Callable[..., Handler[Request, Response]]
    """A function, or a class whose instances take the request."""
    rights: tuple[Right, ...]
    """The rights that a client needs, checked in this order; empty: none."""

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of the services that the handler uses."""
        return _services_of(self.handle)

    def bind(self, services: object) -> Handler[Request, Response]:
        """Return the handler, bound to the services it uses."""
        used = {name: getattr(services, name) for name in self.uses}
        if isinstance(self.handle, type):
            return cast(Handler[Request, Response], self.handle(**used))
        return cast(Handler[Request, Response], partial(self.handle, **used) if used else self.handle)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api(Operation[Request, Response]):
    """An operation that clients or brokers request: one entry of the table in `broker/apis/__init__.py`."""

    name: str
    summary: str = ""
    """What the API does, for the reference; empty: the first sentence of the handler's module."""
    key: int | None = None
    """The API's key in Kafka's protocol; None: served over gRPC only."""
    versions: tuple[int, int] = (0, -1)
    """The first and last version of Kafka's message served; an empty range without a key."""
    cached_by: Callable[..., int] | None = None
    """Returns the generation of all state that answers depend on; its parameters are services, as the handler's. While
    the generation is the same, listeners may send the bytes of an answer without errors again. None: answers are not
    cached."""


class ApiVersion(NamedTuple):
    """The versions of one API that a broker serves: its key in Kafka's protocol, the first and the last version."""

    key: int
    min_version: int
    max_version: int


class Handlers(dict[Operation[Any, Any], Handler[Any, Any]]):
    """The handlers of one broker, by operation. Each is bound when it is first looked up."""

    def __init__(self, services: object) -> None:
        super().__init__()
        self._services = services

    def __missing__(self, operation: Operation[Request, Response]) -> Handler[Request, Response]:
        handler = self[operation] = operation.bind(self._services)
        return handler

    def generation_of(self, api: Api[Any, Any]) -> Callable[[], int]:
        """Return the API's `cached_by`, bound to the services it uses."""
        assert api.cached_by
        return partial(api.cached_by, **{name: getattr(self._services, name) for name in _services_of(api.cached_by)})

    if TYPE_CHECKING:

        def __getitem__(self, operation: Operation[Request, Response]) -> Handler[Request, Response]: ...


def _services_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the services that a function takes."""
    parameters = inspect.signature(function).parameters.values()
    return tuple(each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY)
