"""Base classes of the clients. A synchronous client delegates to the asynchronous one of the same kind.

    class Admin(SyncClient[AsyncAdmin]):
        create_topic = blocking(AsyncAdmin.create_topic)  # a coroutine: runs on the shared loop, the caller waits
    class Consumer(SyncClient[AsyncConsumer]):
        seek = direct(AsyncConsumer.seek)  # never waits: runs in the caller's thread

Each such method has the name, signature, docstring and types of the asynchronous one, for `help`,
`inspect.signature` and type checkers. The class body lists every method, so that type checkers see them; a test finds
missing ones. Methods that work differently in the synchronous client are defined in its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar

from sparklog.client.loop_thread import shared_loop

P = ParamSpec("P")
T = TypeVar("T")
Core = TypeVar("Core")


class AsyncClient(ABC):
    """A client for code on an event loop."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources; also called at the end of an ``async with`` block."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class SyncClient(ABC, Generic[Core]):
    """A client for code without an event loop: its calls run on the shared loop thread while the caller waits."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._run = shared_loop().run

    @abstractmethod
    def close(self) -> None:
        """Release all resources; also called at the end of a ``with`` block."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def blocking(
    method: Callable[Concatenate[Core, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[SyncClient[Core], P], T]:
    """Return a method that runs the coroutine on the shared loop thread, and waits for its result."""

    @wraps(method)
    def call(self: SyncClient[Core], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._run(method(self._core, *args, **kwargs))

    return call


def direct(method: Callable[Concatenate[Core, P], T]) -> Callable[Concatenate[SyncClient[Core], P], T]:
    """Return a method that calls the asynchronous client's in the caller's thread."""

    @wraps(method)
    def call(self: SyncClient[Core], /, *args: P.args, **kwargs: P.kwargs) -> T:
        return method(self._core, *args, **kwargs)

    return call
