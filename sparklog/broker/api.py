"""What an API is: a name, and a handler that turns a request value into a response value.

Handlers know nothing of gRPC or of Kafka's wire protocol. What is wrong with one topic or partition goes into its
own part of the response; a KafkaError that a handler raises refuses the request as a whole.

A handler names what it uses of a broker by keyword-only parameters: those of a function, beside its request, or those
with which a class is made whose instances take the request. They have the names of the fields of `Services`.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, cast

Request = TypeVar("Request")
Response = TypeVar("Response")
Handler = Callable[[Request], Awaitable[Response]]
"""What is bound to what it uses."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Api(Generic[Request, Response]):
    """One entry of the table in `broker/apis/__init__.py`."""

    name: str
    handle: Callable[Concatenate[Request, ...], Awaitable[Response]] | Callable[..., Handler[Request, Response]]
    """A function, or a class."""
    key: int | None = None
    """Its number in Kafka's protocol; None: it is served over gRPC only."""
    versions: tuple[int, int] = (0, -1)
    """The first and the last version of Kafka's message that are served; none where it has no key."""

    @property
    def uses(self) -> tuple[str, ...]:
        """The names of what its handler uses of a broker."""
        parameters = inspect.signature(self.handle).parameters.values()
        return tuple(each.name for each in parameters if each.kind is inspect.Parameter.KEYWORD_ONLY)

    def bind(self, services: object) -> Handler[Request, Response]:
        """The handler with what it uses of these."""
        used = {name: getattr(services, name) for name in self.uses}
        if isinstance(self.handle, type):
            return cast(Handler[Request, Response], self.handle(**used))
        return cast(Handler[Request, Response], partial(self.handle, **used) if used else self.handle)


class Handlers(dict[Api[Any, Any], Handler[Any, Any]]):
    """The handlers of one broker, by their APIs; one that is asked for first is bound then."""

    _services: object

    def bind(self, services: object, apis: Iterable[Api[Any, Any]]) -> None:
        """Once, before any is asked for."""
        self._services = services
        self.update((api, api.bind(services)) for api in apis)

    def __missing__(self, api: Api[Request, Response]) -> Handler[Request, Response]:
        handler = self[api] = api.bind(self._services)
        return handler

    if TYPE_CHECKING:

        def __getitem__(self, api: Api[Request, Response]) -> Handler[Request, Response]: ...
