"""One listener for clients that speak Kafka's protocol: it accepts, and serves each connection's requests in order."""

from __future__ import annotations

import asyncio
import logging
import struct

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError, KafkaError
from sparklog.broker.node import Broker
from sparklog.log.slice import LogSlice
from sparklog.server.kafka.dispatch import answer
from sparklog.server.kafka.translation import Session

logger = logging.getLogger(__name__)


class KafkaListener:
    """One address, until `stop`."""

    def __init__(self, broker: Broker, name: str) -> None:
        self.name = name
        self._broker = broker
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def bind(self, listener: Address) -> Address:
        """Take the address and return it, with the port that was chosen where it is 0; raises ConfigError."""
        try:
            self._server = await asyncio.start_server(self._accepted, *listener, start_serving=False)
        except OSError as error:
            raise ConfigError(f"cannot listen on {listener}: {error.strerror}") from None
        return listener._replace(port=self._server.sockets[0].getsockname()[1])

    async def start(self) -> None:
        if self._server:
            await self._server.start_serving()

    async def stop(self) -> None:
        if self._server:
            self._server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None:
            return
        self._connections.add(task)
        session = Session(listener=self.name, host=writer.get_extra_info("peername")[0])
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                for part in await answer(self._broker, session, bytearray(await reader.readexactly(size))):
                    writer.write(part.read() if isinstance(part, LogSlice) else part)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except KafkaError as error:
            logger.info("closing the connection from %s: %s", session.host, error)
        finally:
            self._connections.discard(task)
            writer.close()
