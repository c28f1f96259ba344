"""The client of sinks for code without an event loop."""

from __future__ import annotations

from typing import Unpack

from sparklog.client.base import Blocking, blocking
from sparklog.client.options import AdminOptions
from sparklog.client.sinks.sinks import AsyncSinks


class Sinks(Blocking[AsyncSinks]):
    """Client of sinks. Options are those of AdminConfig; the methods are those of AsyncSinks."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AsyncSinks(**options))
        self.config = self._core.config

    join = blocking(AsyncSinks.join)
    renew = blocking(AsyncSinks.renew)
    commit = blocking(AsyncSinks.commit)
    await_readable = blocking(AsyncSinks.await_readable)
    abort = blocking(AsyncSinks.abort)
    list = blocking(AsyncSinks.list)
    describe = blocking(AsyncSinks.describe)
    reset = blocking(AsyncSinks.reset)
    close = blocking(AsyncSinks.close)
