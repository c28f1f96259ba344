"""The Kafka listeners of one broker, and the state that their connections share (kafka.network.SocketServer).

Stop: the listeners and idle connections are closed. Requests in progress are answered, then their connections are
closed. Requests that are not answered within the grace period are cancelled.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
from collections.abc import Mapping
from contextlib import suppress
from time import monotonic

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.config_keys import MAX_INT
from sparklog.base.errors import ConfigError
from sparklog.base.listeners import parse_listeners
from sparklog.broker.node import Broker
from sparklog.log.directory.open_files import OpenFileLimits
from sparklog.server.kafka.connection import SHARED_BYTES, KafkaConnection
from sparklog.server.kafka.listener import KafkaListener
from sparklog.server.kafka.quotas import ConnectionQuotas, RequestQueue, TimeSlice, parse_overrides
from sparklog.server.kafka.sasl import warn_where_grpc_is_open
from sparklog.server.security import ListenerSecurity

MIN_SWEEP_S, MAX_SWEEP_S = 0.01, 5.0
CUT_OFF_S = 1.0
"""Time for cancelled requests to end."""
REFUSALS_LOGGED_EVERY_S = 1.0
logger = logging.getLogger(__name__)


class KafkaServer:
    """The Kafka listeners of one broker. Create, bind, start and stop it once each, on one event loop."""

    def __init__(self, broker: Broker, security: ListenerSecurity) -> None:
        """Parse the listeners. Raises ConfigError if the configuration is invalid."""
        config = broker.config
        self.broker = broker
        self.idle_s = config.connections_max_idle_ms / 1000
        self.is_stopping = False
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.queue = RequestQueue(config.queued_max_requests, config.queued_max_request_bytes)
        self.time_slice = TimeSlice()
        self.quotas: ConnectionQuotas
        self.connections: set[KafkaConnection] = set()
        self.addresses: dict[str, Address] = {}
        """Advertised addresses by listener name."""
        self._listeners = parse_listeners(
            config.listeners, config.advertised_listeners, config.listener_security_protocol_map, socket.gethostname()
        )
        if any(listener.has_sasl for listener in self._listeners):
            warn_where_grpc_is_open(config)
        self._servers = [KafkaListener(self, listener, security) for listener in self._listeners]
        self._all_ended = asyncio.Event()
        self._limiting: asyncio.Task[None] | None = None
        """Sets the limits of connections after a change of the configuration."""
        self._sweep: asyncio.TimerHandle | None = None
        self._sweep_s = min(MAX_SWEEP_S, max(MIN_SWEEP_S, self.idle_s / 4))
        self._refused_since = 0
        self._logged_at = 0.0

    async def bind(self) -> None:
        """Bind all addresses. Raises ConfigError if an address is in use or the host of a quota cannot be resolved."""
        self.quotas = ConnectionQuotas(0, 0, {})
        await self._set_limits(self.broker.dynamic.current)
        for listener, server in zip(self._listeners, self._servers, strict=True):
            bound = await server.bind()
            told = listener.advertised
            self.addresses[listener.name] = told if told.port else told._replace(port=bound.port)

    def start(self) -> None:
        """Accept connections. Call it after the broker has started."""
        for server in self._servers:
            server.start()
        self._sweep_later()
        self.broker.dynamic.subscribe(self._config_changed)

    async def stop(self, grace_ms: int) -> None:
        """Stop accepting connections, and end the open ones.

        Requests in progress may finish within `grace_ms`; then they are cancelled, and get CUT_OFF_S to end.
        """
        self.is_stopping = True
        if self._limiting:
            self._limiting.cancel()
        for server in self._servers:
            server.close()
        for connection in tuple(self.connections):
            connection.stop()
        await self._wait_for_all(grace_ms / 1000)
        for connection in tuple(self.connections):
            connection.cut_off()
        await self._wait_for_all(CUT_OFF_S)
        if self._sweep:
            self._sweep.cancel()

    def _config_changed(self, config: BrokerConfig) -> None:
        if self._limiting:
            self._limiting.cancel()
        if not self.is_stopping:
            self._limiting = asyncio.get_running_loop().create_task(self._try_to_set_limits(config))

    async def _try_to_set_limits(self, config: BrokerConfig) -> None:
        try:
            await self._set_limits(config)
        except ConfigError as error:
            logger.error("the limits of connections stay as they were: %s", error)

    async def _set_limits(self, config: BrokerConfig) -> None:
        """Set the limits of connections. Without max.connections, file descriptors are reserved for the logs.

        Raises ConfigError if the name of a host cannot be resolved.
        """
        most, limit = config.max_connections, "max.connections"
        if most == MAX_INT and (allowed := OpenFileLimits.of_process().connections) < most:
            most = allowed
            limit = "what the limit of open files leaves them: raise it (ulimit -n), or set max.connections"
        self.quotas.set_limits(most, config.max_connections_per_ip, await _resolved_overrides(config), limit=limit)

    def lost(self, connection: KafkaConnection) -> None:
        """Update the quotas after a connection was closed. One of its requests may still be in progress."""
        self.quotas.give_back(connection.session.host)
        connection.figures.disconnected()

    def ended(self, connection: KafkaConnection) -> None:
        """Remove a closed connection whose last request has ended."""
        self.connections.discard(connection)
        if not self.connections:
            self._all_ended.set()

    def refused(self, why: str) -> None:
        """Count a refused connection. Refusals are logged at most once a second, with their number."""
        self._refused_since += 1
        if monotonic() - self._logged_at >= REFUSALS_LOGGED_EVERY_S:
            logger.warning("refused %d connections, the last one because %s", self._refused_since, why)
            self._refused_since, self._logged_at = 0, monotonic()

    async def _wait_for_all(self, seconds: float) -> None:
        if self.connections:
            self._all_ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._all_ended.wait(), seconds)

    def _sweep_later(self) -> None:
        self._sweep = asyncio.get_running_loop().call_later(self._sweep_s, self._close_expired)

    def _close_expired(self) -> None:
        now = monotonic()
        for connection in tuple(self.connections):
            if connection.deadline <= now:
                connection.expire()
        self._sweep_later()


async def _resolved_overrides(config: BrokerConfig) -> Mapping[str, int]:
    """Return max.connections.per.ip.overrides by address. Raises ConfigError if a host name cannot be resolved."""
    found = {}
    for host, count in parse_overrides(config.max_connections_per_ip_overrides).items():
        for address in await _addresses_of(host):
            found[address] = count
    return found


async def _addresses_of(host: str) -> set[str]:
    with suppress(ValueError):
        return {str(ipaddress.ip_address(host))}
    try:
        known = await asyncio.get_running_loop().getaddrinfo(host, None)
    except OSError as error:
        raise ConfigError(f"max.connections.per.ip.overrides: {host!r}: {error.strerror}") from None
    return {str(each[4][0]) for each in known}
