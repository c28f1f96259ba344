"""What all asynchronous clients have in common: ``async with`` closes them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


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
