"""The client of sinks for code without an event loop."""

from __future__ import annotations

from typing import Unpack

from sparklog.client.base import SyncClient, blocking
from sparklog.client.options import AdminOptions
from sparklog.client.sinks.sinks import AsyncSinkClient


class SinkClient(SyncClient[AsyncSinkClient]):
    """Client of sinks. Options are those of AdminConfig; the methods are those of AsyncSinkClient."""

    def __init__(self, **options: Unpack[AdminOptions]) -> None:
        super().__init__(AsyncSinkClient(**options))
        self.config = self._core.config

    join = blocking(AsyncSinkClient.join)
    renew = blocking(AsyncSinkClient.renew)
    commit = blocking(AsyncSinkClient.commit)
    await_readable = blocking(AsyncSinkClient.await_readable)
    abort = blocking(AsyncSinkClient.abort)
    list = blocking(AsyncSinkClient.list)
    describe = blocking(AsyncSinkClient.describe)
    reset = blocking(AsyncSinkClient.reset)
    close = blocking(AsyncSinkClient.close)
