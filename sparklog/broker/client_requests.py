"""Requests of clients, with the check of their rights: the allowed part is served, the rest is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from sparklog.base.acls import OPERATIONS, AclOperation, AclResourceType
from sparklog.base.errors import KafkaError, RequestTimedOut
from sparklog.broker.api import Api, Handler, Operation
from sparklog.broker.metrics import Metrics
from sparklog.broker.rights import Access, Accesses, apply
from sparklog.runtime.remote_waits import waiting_for_others
from sparklog.security.acls import Subject

Request = TypeVar("Request")
Response = TypeVar("Response")


class Caller(Protocol):
    """The sender of a request."""

    @property
    def subject(self) -> Subject:
        """The client whose rights are checked."""
        ...


class ClientRequests:
    """Serves the requests of one broker's clients. Without an authorizer, every client has all rights."""

    def __init__(
        self,
        serve: Callable[[Api[Any, Any], Any], Awaitable[Any]],
        metrics: Metrics,
        is_ready: asyncio.Event,
        *,
        has_authorizer: bool,
    ) -> None:
        """serve: handles and counts a request. is_ready: set once the broker serves clients, or stops"""
        self._serve = serve
        self._metrics = metrics
        self._is_ready = is_ready
        self._has_authorizer = has_authorizer
        self._accesses: Accesses | None = None

    def set_accesses(self, accesses: Accesses) -> None:
        """Check rights with `accesses`, if there is an authorizer. Called once the broker has joined its cluster."""
        self._accesses = accesses if self._has_authorizer else None

    def serve(self, api: Api[Request, Response], request: Request, caller: Caller) -> Awaitable[Response]:
        """Return the response to the allowed part. Raises KafkaError if the whole request is refused."""
        if self._has_authorizer and not (
            self._accesses is not None and self._accesses.admit(api.rights, request, caller.subject)
        ):
            return self.authorized(api, lambda served: self._serve(api, served), request, caller)
        return self._serve(api, request)

    async def authorized(
        self,
        operation: Operation[Request, Response],
        serve: Handler[Request, Response],
        request: Request,
        caller: Caller,
    ) -> Response:
        """Pass the allowed part of a request to `serve`, and return the response with errors for the rest."""
        access = await self.access(caller)
        if access is None:
            return await serve(request)
        asked = _CheckedRequest(serve)
        started = asyncio.get_running_loop().time()
        try:
            response: Response = await apply(
                operation.rights, request, access.with_callback(asked.note_empty), asked.serve
            )
        except KafkaError:
            if not asked.is_served:
                self.count_refused(operation, asyncio.get_running_loop().time() - started)
            raise
        if not asked.is_served:
            self.count_refused(operation, asyncio.get_running_loop().time() - started)
        elif asked.is_empty:
            self.count_refused(operation)
        return response

    def count_refused(self, operation: Operation[Any, Any], seconds: float | None = None) -> None:
        """Count a request of which the client has a right to no part; steps of requests are not counted.

        seconds: how long the request took; None: the request is counted where it is served
        """
        if isinstance(operation, Api):
            figures = self._metrics.requests[operation.name]
            figures.count_refused()
            if seconds is not None:
                figures.observe(seconds)

    def operations(self, resource_type: AclResourceType, name: str, caller: Caller) -> Sequence[AclOperation]:
        """Return what a client may do with a resource that it may describe (KIP-430)."""
        if self._accesses is None:  # no authorizer: with one, `access` has waited for `set_accesses`
            return OPERATIONS[resource_type]
        return self._accesses.of(caller.subject).operations(resource_type, name)

    async def access(self, caller: Caller) -> Access | None:
        """Return what a client may do; None if everybody may do everything.

        Raises RequestTimedOut if the broker stops before it has joined its cluster.
        """
        if not self._has_authorizer:
            return None
        if self._accesses is None:
            with waiting_for_others():
                await self._is_ready.wait()
        if self._accesses is None:
            raise RequestTimedOut("the broker stops, and has not joined its cluster")
        return self._accesses.of(caller.subject)


class _CheckedRequest(Generic[Request, Response]):
    """The outcome of a request whose rights are checked."""

    def __init__(self, serve: Handler[Request, Response]) -> None:
        self._serve = serve
        self.is_served = False
        self.is_empty = False
        """Whether the client has a right to none of the request's elements."""

    async def serve(self, request: Request) -> Response:
        self.is_served = True
        return await self._serve(request)

    def note_empty(self) -> None:
        self.is_empty = True
