"""Figures in Prometheus' text form over HTTP, on threads of their own: the listener that brokers and job servers share.

/metrics    the figures
/health     {"status": "ok"}, or what is wrong; 503 where that leaves nothing to be written to
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
    """How somebody is who serves."""

    is_ready: bool = True
    troubles: Mapping[str, object] = {}
    """What is wrong, by what it is called; empty where nothing is."""


class MetricsServer:
    """Serves at one address from its making until `stop`."""

    def __init__(self, collector: Collector, listener: Address, health: Callable[[], Health] = Health) -> None:
        """Raises ConfigError where the address is taken."""
        registry = CollectorRegistry()
        registry.register(collector)
        self._metrics = make_wsgi_app(registry)
        self._health = health
        try:
            self._server = make_server(listener.host, listener.port, self._answer, _Server, _Quiet)
        except OSError as error:
            raise ConfigError(f"metrics.listener = {listener}: {error.strerror}") from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True)
        self._thread.start()
        self.address = str(listener._replace(port=self._server.server_port))

    def stop(self) -> None:
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
        """Every scrape would be a line."""
