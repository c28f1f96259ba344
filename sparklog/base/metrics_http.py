"""HTTP server for metrics and health, on its own threads; brokers and job servers use it.

/metrics    the metrics in Prometheus' text format; also at /
/health     {"status": "ok"}, or "degraded" or "down" with the troubles; 503 if not ready
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from socketserver import ThreadingMixIn
from typing import Any, NamedTuple
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError


class Health(NamedTuple):
    """State of the server process."""

    is_ready: bool = True
    troubles: Mapping[str, object] = {}
    """Current problems by name; empty if there are none."""


class MetricsServer:
    """Serves at one address from `start` until `stop`."""

    def __init__(self, collector: Collector, listener: Address, health: Callable[[], Health] = Health) -> None:
        registry = CollectorRegistry()
        registry.register(collector)
        self._metrics = make_wsgi_app(registry)
        self._health = health
        self._listener = listener
        self._server: WSGIServer | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address that is served, as HOST:PORT, with the chosen port if the configured one is 0."""
        return str(self._listener._replace(port=self._server.server_port) if self._server else self._listener)

    def start(self) -> None:
        """Start serving. Raises ConfigError if the address cannot be bound."""
        listener = self._listener
        try:
            server = make_server(listener.host, listener.port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise ConfigError(f"metrics.listener = {listener}: {error.strerror}") from None
        self._server = server
        self._thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop serving, and wait for the thread. Has no effect before `start`."""
        if self._server and self._thread:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def _answer(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        match environ["PATH_INFO"]:
            case "/metrics" | "/":
                found: Iterable[bytes] = self._metrics(environ, start_response)
                return found
            case "/health":
                health = self._health()
                status = "200 OK" if health.is_ready else "503 Service Unavailable"
                says = "ok" if not health.troubles else "degraded" if health.is_ready else "down"
                body = json.dumps({"status": says, **health.troubles}).encode()
            case _:
                status, body = "404 Not Found", b'{"error": "there are /metrics and /health"}'
        start_response(status, [("Content-Type", "application/json")])
        return [body + b"\n"]


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: every scrape would be a line."""
