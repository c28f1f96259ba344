"""Figures in Prometheus' text form over HTTP, on threads of their own: the door that brokers and job servers share."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.registry import Collector

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError


class MetricsServer:
    """Serves /metrics at one address from its making until `stop`."""

    def __init__(self, collector: Collector, listener: Address) -> None:
        """Raises ConfigError where the address is taken."""
        registry = CollectorRegistry()
        registry.register(collector)
        try:
            self._server, self._thread = start_http_server(listener.port, listener.host, registry)
        except OSError as error:
            raise ConfigError(f"metrics.listener = {listener}: {error.strerror}") from None
        self.address = str(listener._replace(port=self._server.server_port))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
