"""HTTP server for metrics and health, on its own threads; brokers and job servers use it.

/metrics    the metrics in Prometheus' text format; also at /
/livez      {"status": "ok"}; 503 if the process must be restarted
/readyz     {"status": "ready"}; 503 and {"status": "not ready", "reason": …} if clients should use other servers
/health     {"status": "ok"}, or "degraded" or "down" with the troubles; 503 if no records are taken
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.registry import Collector

from sparklog.base.addresses import Address
from sparklog.base.errors import ConfigError
from sparklog.base.health import Health

OK, UNAVAILABLE, NOT_FOUND = "200 OK", "503 Service Unavailable", "404 Not Found"


class MetricsServer:
    """Serves at one address from `start` until `stop`."""

    def __init__(
        self,
        collector: Collector,
        listener: Address,
        health: Callable[[], Health] = Health,
        is_live: Callable[[], bool] = lambda: True,
    ) -> None:
        """health, is_live: called on this server's threads. is_live: returns whether the process works; may block"""
        registry = CollectorRegistry()
        registry.register(collector)
        self._metrics = make_wsgi_app(registry)
        self._health = health
        self._is_live = is_live
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
            server = make_server(listener.host, listener.port, self._answer, _ThreadingServer, _QuietRequestHandler)
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
        path = environ["PATH_INFO"]
        if path in ("/metrics", "/"):
            found: Iterable[bytes] = self._metrics(environ, start_response)
            return found
        status, body = self._probe(path)
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(body).encode() + b"\n"]

    def _probe(self, path: str) -> tuple[str, dict[str, object]]:
        """Return the HTTP status and the JSON of a probe."""
        match path:
            case "/livez":
                return (OK, {"status": "ok"}) if self._is_live() else (UNAVAILABLE, {"status": "stuck"})
            case "/readyz":
                health = self._health()
                if health.not_ready:
                    return UNAVAILABLE, {"status": "not ready", "reason": health.not_ready, **health.troubles}
                return OK, {"status": "ready"}
            case "/health":
                health = self._health()
                says = "ok" if not health.troubles else "degraded" if health.takes_records else "down"
                return OK if health.takes_records else UNAVAILABLE, {"status": says, **health.troubles}
        return NOT_FOUND, {"error": "there are /metrics, /livez, /readyz and /health"}


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietRequestHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: every scrape would be a line."""
