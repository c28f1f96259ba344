"""The gRPC listener: the services `Log`, `Groups`, `Admin`, `Maintenance`, `Transactions`, `Sinks` and `Replication` on
one address, with health and reflection.

The address is bound before the broker starts. So a port in use is detected at once, and a port of 0 is resolved before
the broker registers its address in the cluster. Calls are accepted once the broker has started. On stop, new calls get
UNAVAILABLE, long polls and subscriptions end, and requests in flight may finish within the grace period.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Any

import grpc
from grpc._cython.cygrpc import ExecuteBatchError
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sparklog.base.addresses import Address
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import ConfigError
from sparklog.broker.node import Broker
from sparklog.server.grpc.admin import AdminServicer
from sparklog.server.grpc.call import authenticated
from sparklog.server.grpc.groups import GroupsServicer
from sparklog.server.grpc.log import LogServicer
from sparklog.server.grpc.maintenance import MaintenanceServicer
from sparklog.server.grpc.replication import SERVICE as REPLICATION
from sparklog.server.grpc.replication import ReplicationServicer
from sparklog.server.grpc.response_memory import ResponseMemory
from sparklog.server.grpc.service import service_handler
from sparklog.server.grpc.sinks import SinksServicer
from sparklog.server.grpc.throttle import HeldCalls
from sparklog.server.grpc.transactions import TransactionsServicer
from sparklog.server.kafka.quotas import RequestQueue
from sparklog.server.security import ListenerSecurity
from sparklog.v1 import admin_pb2, groups_pb2, log_pb2, maintenance_pb2, sinks_pb2, transactions_pb2

LOG = log_pb2.DESCRIPTOR.services_by_name["Log"]
ADMIN = admin_pb2.DESCRIPTOR.services_by_name["Admin"]
GROUPS = groups_pb2.DESCRIPTOR.services_by_name["Groups"]
MAINTENANCE = maintenance_pb2.DESCRIPTOR.services_by_name["Maintenance"]
TRANSACTIONS = transactions_pb2.DESCRIPTOR.services_by_name["Transactions"]
SINKS = sinks_pb2.DESCRIPTOR.services_by_name["Sinks"]
HEALTH_S = 1
GRPC_LOGGER = logging.getLogger("grpc._cython.cygrpc")
SERVICES = (
    LOG.full_name, GROUPS.full_name, ADMIN.full_name, MAINTENANCE.full_name, TRANSACTIONS.full_name, SINKS.full_name,
    REPLICATION,
)  # fmt: skip


class GrpcServer:
    """The listener of one broker."""

    def __init__(self, broker: Broker, security: ListenerSecurity) -> None:
        """Prepare the services without accepting connections. Needs a running event loop."""
        GRPC_LOGGER.addFilter(_is_worth_logging)
        self._config = broker.config
        self._security = security
        self.queue = queue = RequestQueue(max_bytes=broker.config.queued_max_request_bytes)
        """The requests in progress of all services except `Replication`."""
        self.memory = memory = ResponseMemory()
        """The memory for the responses of the same services."""
        self._held = HeldCalls()
        begin = authenticated(broker, security, self._held)
        self._log = LogServicer(broker, queue, memory)
        self._maintenance = MaintenanceServicer(broker)
        self._replication = ReplicationServicer(broker, begin=begin)
        self._health = _HealthServicer()
        self._is_started = False
        self._broker = broker
        self._reported: bool | None = None
        """Last reported health: whether the broker accepts records."""
        self._reporting: asyncio.Task[None] | None = None
        self._server = grpc.aio.server(
            options=(
                ("grpc.max_receive_message_length", _max_request_bytes(broker.config)),
                ("grpc.max_send_message_length", -1),
                ("grpc.so_reuseport", 0),
            )
        )
        self._server.add_generic_rpc_handlers(
            (
                service_handler(LOG, self._log, broker.slices, queue, memory, begin),
                service_handler(GROUPS, GroupsServicer(broker), broker.slices, queue, memory, begin),
                service_handler(ADMIN, AdminServicer(broker), broker.slices, queue, memory, begin),
                service_handler(MAINTENANCE, self._maintenance, broker.slices, queue, memory, begin),
                service_handler(TRANSACTIONS, TransactionsServicer(broker), broker.slices, queue, memory, begin),
                service_handler(SINKS, SinksServicer(broker), broker.slices, queue, memory, begin),
                self._replication.handler(),
            )
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        reflection.enable_server_reflection((*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME), self._server)

    def bind(self, listener: Address) -> Address:
        """Bind the address and return it; a port of 0 is replaced by the chosen port.

        Raises ConfigError if the address is in use or not local.
        """
        try:
            _check_bindable(listener)
            return listener._replace(port=self._add_port(str(listener)))
        except (OSError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            raise ConfigError(f"cannot listen on {listener}: {why}; choose another with --grpc HOST:PORT") from None

    def _add_port(self, address: str) -> int:
        if self._config.grpc_security_protocol.endswith("SSL"):
            assert self._security.tls
            return int(self._server.add_secure_port(address, self._security.tls.server_credentials()))
        return int(self._server.add_insecure_port(address))

    async def start(self) -> None:
        """Accept calls from now on, and keep the health service up to date."""
        self._is_started = True
        await self._server.start()
        await self._report_health()
        self._reporting = asyncio.create_task(self._keep_reporting_health(), name="sparklog grpc health")

    async def _report_health(self) -> None:
        """Report the broker and `Log` as NOT_SERVING while appends are impossible; the other services stay SERVING."""
        takes_records = self._broker.takes_records
        if takes_records == self._reported:
            return
        self._reported = takes_records
        serving, not_serving = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
        for service in ("", *SERVICES):
            appends = service in ("", LOG.full_name)
            await self._health.set(service, serving if takes_records or not appends else not_serving)

    async def _keep_reporting_health(self) -> None:
        while True:
            await asyncio.sleep(HEALTH_S)
            await self._report_health()

    async def stop(self, grace_ms: int) -> None:
        """Refuse new calls, and end the calls in flight within `grace_ms`."""
        if self._reporting:
            self._reporting.cancel()
        await self._health.enter_graceful_shutdown()
        self._health.end_watches()
        self._held.release()
        self._log.stop()
        self._maintenance.stop()
        if not self._is_started:
            await self._server.start()  # without a start, gRPC keeps the port until the process ends
        await self._server.stop(grace_ms / 1000)
        await self._replication.settled()


def _max_request_bytes(config: BrokerConfig) -> int:
    return min(config.grpc_request_max_bytes, config.socket_request_max_bytes)


def _is_worth_logging(record: logging.LogRecord) -> bool:
    """Return False for gRPC's error of an answer whose call the client has reset."""
    return not (record.exc_info and isinstance(record.exc_info[1], ExecuteBatchError))


def _check_bindable(listener: Address) -> None:
    """Bind a socket to the address once. Raises OSError with the reason, which gRPC does not report."""
    family, _, _, _, address = socket.getaddrinfo(*listener, type=socket.SOCK_STREAM)[0]
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


class _HealthServicer(health.aio.HealthServicer):  # type: ignore[misc]
    """The standard health service, with watches that end at the stop of the broker and do not delay it."""

    def __init__(self) -> None:
        super().__init__()
        self._watches: set[asyncio.Task[None]] = set()

    async def Watch(self, request: health_pb2.HealthCheckRequest, context: Any) -> None:
        watch = asyncio.create_task(super().Watch(request, context))
        self._watches.add(watch)
        try:
            await asyncio.wait((watch,))
        finally:
            watch.cancel()
            self._watches.discard(watch)

    def end_watches(self) -> None:
        for watch in self._watches:
            watch.cancel()
