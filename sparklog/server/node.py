"""A broker with its listeners, for `sparklog up` and the test fixtures.

Start: bind the addresses, join the cluster, and open the gRPC listener, which other brokers and the controller use.
Once the broker leads the partitions that it can lead, the Kafka listeners open.

Stop: other brokers take over this broker's leaderships while the listeners are still open. Then all parts close in
reverse order, within controlled.shutdown.timeout.ms: the first half for requests in flight, the rest for the disks.

Metrics and probes are served from before the start until after the stop.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from functools import partial
from typing import TYPE_CHECKING

from sparklog.base.addresses import Address
from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.fs import Fs
from sparklog.base.health import Health, is_loop_running
from sparklog.broker.node import Broker
from sparklog.cluster.store import Store
from sparklog.server.grpc.peers import GrpcPeers
from sparklog.server.grpc.server import GrpcServer
from sparklog.server.security import ConfigFile, ListenerSecurity

if TYPE_CHECKING:
    from sparklog.base.metrics_http import MetricsServer
    from sparklog.server.kafka.server import KafkaServer

logger = logging.getLogger(__name__)


class BrokerNode:
    """One running broker. Create, start and stop it on one event loop; call `start` and `stop` once each."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        fs: Fs | None = None,
        clock: Clock | None = None,
        store: Store | None = None,
        file: ConfigFile | None = None,
    ) -> None:
        """Prepare the broker. Raises ConfigError if a key or a certificate cannot be used.

        file: the configuration file, if a change of its users of PLAIN should apply without a restart
        """
        self._security = ListenerSecurity(config, clock=clock, file=file)
        self.has_lost_store = asyncio.Event()
        """Set once the cluster store has lost topics: the node must then be restarted."""
        self.broker = Broker(
            config, fs=fs, clock=clock, store=store, peers=GrpcPeers(self._security),
            on_lost_store=self.has_lost_store.set,
        )  # fmt: skip
        self.grpc_address = ""
        self._config = config
        self._grpc: GrpcServer | None = None
        self._kafka: KafkaServer | None = None
        self._metrics: MetricsServer | None = None
        self._unavailable = "starting"
        """The reason why clients cannot use this broker; empty between start and stop."""
        self.kafka_addresses: dict[str, Address] = {}
        """Addresses for clients of Kafka's protocol, by listener name."""

    async def start(self) -> None:
        """Start the broker; it then accepts clients at `grpc_address`.

        Raises ConfigError, with nothing left running, if an address or a log directory is in use.
        """
        listener = Address.parse(self._config.grpc_listener, "grpc.listener")
        if advertised := self._config.grpc_advertised_listener:
            Address.parse(advertised, "grpc.advertised.listener")
        self._grpc = GrpcServer(self.broker, self._security)
        try:
            self._security.start()
            self.grpc_address = str(self._grpc.bind(listener))
            await self._bind_kafka()
            self._serve_metrics()
            await self.broker.join(advertised or self.grpc_address, self.kafka_addresses)
            await self._grpc.start()
            await self.broker.ready()
            if self._kafka:
                self._kafka.start()
            self._unavailable = ""
        except BaseException:
            await self.stop()
            raise

    @property
    def metrics_address(self) -> str:
        """Address of /metrics as HOST:PORT; empty if metrics are not served."""
        return self._metrics.address if self._metrics else ""

    async def stop(self) -> None:
        """Refuse new requests, answer the requests in flight, flush and close."""
        self._unavailable = "stopping"
        try:
            await self._stop()
        finally:
            if self._metrics:
                await asyncio.to_thread(self._metrics.stop)

    async def _stop(self) -> None:
        await self.broker.leave()
        self.broker.prepare_stop()
        grace_ms = self._config.controlled_shutdown_timeout_ms // 2
        await asyncio.gather(*(server.stop(grace_ms) for server in (self._grpc, self._kafka) if server))
        await self._security.stop()
        await self.broker.stop()

    def health(self) -> Health:
        """Return the state of the broker. May be called on any thread."""
        return Health(
            takes_records=self.broker.takes_records,
            troubles=self.broker.troubles(),
            not_ready=self._unavailable or self.broker.not_ready,
        )

    async def _bind_kafka(self) -> None:
        """Bind the addresses of `listeners`."""
        if not (self._config.listeners or self._config.advertised_listeners):
            return
        # Imported only if needed: Kafka's messages take longer to import than a broker takes to start.
        module = importlib.import_module("sparklog.server.kafka.server")
        kafka: KafkaServer = module.KafkaServer(self.broker, self._security)
        self._kafka = kafka
        await kafka.bind()
        self.kafka_addresses = kafka.addresses

    def _serve_metrics(self) -> None:
        if not self._config.metrics_listener:
            return
        # Imported only if needed: prometheus_client imports an HTTP server, a third of a broker's start-up time.
        figures = importlib.import_module("sparklog.server.broker_collector")
        http = importlib.import_module("sparklog.base.metrics_http")
        listener = Address.parse(self._config.metrics_listener, "metrics.listener")
        server: MetricsServer = http.MetricsServer(
            figures.BrokerCollector(self.broker),
            listener,
            self.health,
            partial(is_loop_running, asyncio.get_running_loop()),
        )
        server.start()
        self._metrics = server
