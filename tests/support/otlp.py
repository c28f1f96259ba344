"""An OTLP endpoint in the test's process, which keeps the spans that it is sent."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from support.patience import wait_until


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span, with ids as in a traceparent."""

    service: str
    name: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    """Traces of the spans that it is linked to."""
    attributes: dict[str, Any]
    is_error: bool
    start_ns: int
    end_ns: int


class OtlpEndpoint:
    """What has come."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.spans: list[Span] = []

    def wait_for(self, name: str, **wanted: str) -> Span:
        """The first span of this name with these fields."""

        def find() -> Span | None:
            return next(
                (
                    span
                    for span in tuple(self.spans)
                    if span.name == name and all(getattr(span, field) == value for field, value in wanted.items())
                ),
                None,
            )

        return wait_until(find, f"a span {name} {wanted} comes", tell=lambda: str(self.spans))

    def take(self, data: bytes) -> None:
        for of_resource in ExportTraceServiceRequest.FromString(data).resource_spans:
            resource = {each.key: each.value.string_value for each in of_resource.resource.attributes}
            for scope in of_resource.scope_spans:
                self.spans += [_span(resource["service.name"], each) for each in scope.spans]


def _span(service: str, found: Any) -> Span:
    return Span(
        service=service,
        name=found.name,
        trace=found.trace_id.hex(),
        id=found.span_id.hex(),
        parent=found.parent_span_id.hex(),
        links=tuple(link.trace_id.hex() for link in found.links),
        attributes={each.key: getattr(each.value, each.value.WhichOneof("value")) for each in found.attributes},
        is_error=found.status.code == 2,
        start_ns=found.start_time_unix_nano,
        end_ns=found.end_time_unix_nano,
    )


@contextmanager
def otlp_endpoint() -> Iterator[OtlpEndpoint]:
    """An endpoint on a free port of this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                data = gzip.decompress(data)
            if self.path == "/v1/traces":
                endpoint.take(data)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        host, port = server.server_address[:2]
        endpoint = OtlpEndpoint(f"http://{host!s}:{port}")
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            yield endpoint
        finally:
            server.shutdown()
            serving.join()
