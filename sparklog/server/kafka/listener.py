"""One listener for Kafka's protocol: accepts connections, with or without TLS.

`bind` binds the address, so that a port in use is detected before the broker starts. From `start` on, connections are
accepted in the order of their arrival. A connection over a quota is closed before the first read.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from time import monotonic

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError, SaslAuthenticationFailed
from sparklog.base.listeners import Listener
from sparklog.server.certificate_names import principal_of
from sparklog.server.kafka import sasl
from sparklog.server.kafka.answer_cache import AnswerCache
from sparklog.server.kafka.channels import Channel, PlainChannel, TlsChannel
from sparklog.server.kafka.connection import ConnectionOwner, KafkaConnection
from sparklog.server.kafka.quotas import CreationRate
from sparklog.server.kafka.translation import Session
from sparklog.server.security import ListenerSecurity
from sparklog.server.tls import HANDSHAKE_TIMEOUT_S

BACKLOG = 512
ACCEPTED_PER_ITERATION = 64
NO_DESCRIPTORS_PAUSE_S = 1.0
"""Pause after a failure of accept for lack of file descriptors, against a busy loop."""
MAPPED = "::ffff:"
"""Prefix of an IPv4 peer's address on an IPv6 socket."""
logger = logging.getLogger(__name__)


class KafkaListener:
    """One bound address and the connections that it accepts."""

    def __init__(self, host: ConnectionOwner, listener: Listener, security: ListenerSecurity) -> None:
        """Prepare the listener."""
        self._host = host
        self._listener = listener
        self._security = security
        self._figures = host.broker.metrics.listeners[listener.name]
        self._answers = AnswerCache(host.broker)
        self._rate = CreationRate(host.broker.config.max_connection_creation_rate)
        host.broker.dynamic.subscribe(lambda config: self._rate.set_rate(config.max_connection_creation_rate))
        self._socket: socket.socket | None = None
        self._resume_timer: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()
        self._refused: dict[socket.socket, asyncio.TimerHandle] = {}
        """Connections over the quota of their address, and the timers that close them."""

    async def bind(self) -> Address:
        """Bind the address and return it with the chosen port if it is 0. Raises ConfigError if it cannot be bound."""
        wanted = self._listener.address
        try:
            self._socket = await _listen(wanted)
        except OSError as error:
            # create_server's strerror repeats the address as a tuple.
            why = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror
            raise ConfigError(
                f"cannot listen on {wanted}: {why}; choose another with --kafka HOST:PORT or `listeners`, "
                "or none with --kafka none"
            ) from None
        self._socket.setblocking(False)
        return wanted._replace(port=self._socket.getsockname()[1])

    def start(self) -> None:
        """Accept connections from now on, on the running event loop. No effect before `bind`."""
        if self._socket:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def close(self) -> None:
        """Stop accepting connections."""
        if self._resume_timer:
            self._resume_timer.cancel()
        for handshake in self._handshakes:
            handshake.cancel()
        for refused, closing in self._refused.items():
            closing.cancel()
            refused.close()
        if self._socket:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None

    def _accept(self) -> None:
        assert self._socket
        for _ in range(ACCEPTED_PER_ITERATION):
            try:
                accepted, peer = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionError):
                return
            except OSError as error:
                logger.error("%s accepts no connections for a while: %s", self._listener.name, error)
                self._pause_accepting(NO_DESCRIPTORS_PAUSE_S)
                return
            self._begin_connection(accepted, peer[0].removeprefix(MAPPED), peer[1])
            if wait := self._rate.wait_seconds(monotonic()):
                self._pause_accepting(wait)
                return

    def _pause_accepting(self, seconds: float) -> None:
        assert self._socket
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._socket)
        self._resume_timer = loop.call_later(seconds, self.start)

    def _begin_connection(self, accepted: socket.socket, peer: str, port: int) -> None:
        if why := self._host.quotas.take(peer):
            self._figures.count_refused()
            self._host.refused(why)
            accepted.close()
            return
        accepted.setblocking(False)
        if wait_s := self._host.broker.client_quotas.connect(peer, monotonic()):
            self._refuse_later(accepted, peer, wait_s)
            return
        self._figures.connected()
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._listener.has_tls:
            assert self._security.tls
            context = self._security.tls.current.context
            handshake = asyncio.get_running_loop().create_task(self._shake_hands(accepted, peer, port, context))
            self._handshakes.add(handshake)
            handshake.add_done_callback(self._handshakes.discard)
            return
        self._new_connection(peer, port, partial(PlainChannel, asyncio.get_running_loop(), accepted)).channel.resume()

    def _refuse_later(self, accepted: socket.socket, peer: str, seconds: float) -> None:
        """Close a connection over its address's quota once the quota has room, so that a retry can succeed."""

        def close() -> None:
            del self._refused[accepted]
            accepted.close()
            self._host.quotas.give_back(peer)

        self._figures.count_refused()
        self._host.refused(f"{peer} opens more of them than its connection_creation_rate allows")
        self._refused[accepted] = asyncio.get_running_loop().call_later(seconds, close)

    async def _shake_hands(self, accepted: socket.socket, peer: str, port: int, context: ssl.SSLContext) -> None:
        is_open = False

        def opened(channel: Channel, tls: ssl.SSLObject) -> KafkaConnection:
            nonlocal is_open
            principal = principal_of(tls, self._host.broker.principals)
            connection = self._new_connection(peer, port, lambda _: channel, principal)
            is_open = True
            return connection

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: TlsChannel(opened),
                accepted,
                ssl=context,
                ssl_handshake_timeout=HANDSHAKE_TIMEOUT_S,
                ssl_shutdown_timeout=HANDSHAKE_TIMEOUT_S,
            )
        except (OSError, ValueError, SaslAuthenticationFailed) as error:
            # OSError includes SSLError and TimeoutError; a bad name is a ValueError
            logger.info("no TLS with %s on %s: %s", peer, self._listener.name, error)
        finally:
            if not is_open:
                accepted.close()
                self._host.quotas.give_back(peer)
                self._figures.disconnected()

    def _new_connection(
        self,
        peer: str,
        port: int,
        open_channel: Callable[[KafkaConnection], Channel],
        principal: str = "User:ANONYMOUS",
    ) -> KafkaConnection:
        broker = self._host.broker
        session = Session(
            listener=self._listener.name,
            host=peer,
            port=port,
            principal=principal,
            max_request_bytes=broker.config.socket_request_max_bytes,
            answers=self._answers,
        )
        if self._listener.has_sasl:
            sasl.begin(broker, session, self._security)
        connection = KafkaConnection(self._host, session, self._figures, open_channel)
        self._host.connections.add(connection)
        return connection


async def _listen(address: Address) -> socket.socket:
    """Return a listening socket. If a name has several addresses, use one, preferably IPv4, as in Apache Kafka."""
    if not address.host:
        if socket.has_dualstack_ipv6():
            return socket.create_server(address, family=socket.AF_INET6, backlog=BACKLOG, dualstack_ipv6=True)
        return socket.create_server(address, backlog=BACKLOG)
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    family, _, _, _, bound = min(found, key=lambda each: each[0] != socket.AF_INET)
    return socket.create_server(bound[:2], family=family, backlog=BACKLOG)
