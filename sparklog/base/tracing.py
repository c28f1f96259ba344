"""Spans of OpenTelemetry, sent to an OTLP endpoint over HTTP, and the W3C trace context that links them.

    00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01      traceparent: version, trace, span, flags

Producers put it into a header of a record and into the metadata of a call; brokers and the Spark source read it there.
The packages are those of the extra `otlp`. They are loaded only where tracing is on: that takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from sparklog.base.errors import ConfigError

TRACEPARENT = "traceparent"
EXPORT_TIMEOUT_S = 2.0
"""Timeout of one request to the endpoint, retries included. Later the request's spans are dropped."""
SERVER, CONSUMER, INTERNAL = "SERVER", "CONSUMER", "INTERNAL"
"""Kinds of spans."""
_PATH = "/v1/traces"
_SCOPE = "sparklog"
Attributes = Mapping[str, Any]
Loaded = TypeVar("Loaded")


class Tracing:
    """Makes spans of one process, and sends them. May be used by any thread."""

    def __init__(self, endpoint: str, service: str, resource: Attributes, *, at_once: bool = False) -> None:
        """Prepare to send to `endpoint`, as http://HOST:PORT; nothing is sent yet. Loads modules, so it may block.

        service: the name of this process in traces
        at_once: send each span when it ends, and wait for that; otherwise a thread sends spans every second

        Raises ConfigError if the endpoint is no URL, or the extra `otlp` is not installed.
        """
        if not endpoint.startswith(("http://", "https://")):
            raise ConfigError(f"tracing.otlp.endpoint = {endpoint!r}: it must be http://HOST:PORT or https://HOST:PORT")
        url = endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
        self._provider = _load_extra("tracing.otlp.endpoint is set", lambda: _provider(url, service, resource, at_once))
        self._tracer = self._provider.get_tracer(_SCOPE)

    def start(
        self,
        name: str,
        parent: str,
        kind: str,
        attributes: Attributes,
        *,
        start_ns: int | None = None,
    ) -> Any:
        """Return a new span of OpenTelemetry. parent: its traceparent; empty or invalid: no parent"""
        from opentelemetry.trace import SpanKind

        return self._tracer.start_span(
            name,
            context=_parent_context(parent),
            kind=SpanKind[kind],
            attributes=attributes,
            start_time=start_ns,
        )

    def link(self, span: Any, traceparent: str) -> None:
        """Link a span of this object to another span, unless `traceparent` is invalid."""
        from opentelemetry.trace import get_current_span

        other = get_current_span(_parent_context(traceparent)).get_span_context()
        if other.is_valid:
            span.add_link(other)

    def close(self) -> None:
        """Send the remaining spans. Blocks for a few times EXPORT_TIMEOUT_S at most."""
        self._provider.shutdown()


class RequestTracing:
    """Makes the spans of a broker's requests, once they have been answered.

    A request gets a span if its client names a parent span, or else if it is one of `every` requests; 0: none.
    """

    def __init__(self, tracing: Tracing, every: int) -> None:
        self._tracing = tracing
        self._every = every
        self._passed = 0

    def is_wanted(self, traceparent: str) -> bool:
        """Return whether a request gets a span, and count the request."""
        if traceparent:
            return True
        self._passed += 1
        if self._passed != self._every:
            return False
        self._passed = 0
        return True

    def answered(
        self,
        name: str,
        traceparent: str,
        *,
        now_ns: int,
        local_s: float,
        remote_s: float,
        attributes: Attributes,
        error: BaseException | None = None,
    ) -> None:
        """Make the span of a request that was answered now.

        local_s, remote_s: seconds in which the broker has worked on the request, and has waited for others
        """
        from opentelemetry.trace import StatusCode

        start_ns = now_ns - round((local_s + remote_s) * 1e9)
        measured = {"sparklog.local_ms": local_s * 1e3, "sparklog.remote_ms": remote_s * 1e3}
        span = self._tracing.start(name, traceparent, SERVER, {**attributes, **measured}, start_ns=start_ns)
        if error is not None:
            span.set_status(StatusCode.ERROR, str(error))
        if name in _PRODUCES:
            parent, appended_ns = traceparent_of(span), start_ns + round(local_s * 1e9)
            self._tracing.start("append", parent, INTERNAL, {}, start_ns=start_ns).end(appended_ns)
            if remote_s:
                self._tracing.start("wait for replicas", parent, INTERNAL, {}, start_ns=appended_ns).end(now_ns)
        span.end(now_ns)

    def close(self) -> None:
        """Send the remaining spans. Blocks as `Tracing.close` does."""
        self._tracing.close()


_PRODUCES = {"Produce", "ProduceStream"}


def traceparent_of(span: Any) -> str:
    """Return the trace context of a span of OpenTelemetry; empty if it has none."""
    context = span.get_span_context()
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def load_current_traceparent() -> Callable[[], str]:
    """Return a function that returns the trace context of the caller's current span; empty without one.

    Raises ConfigError if OpenTelemetry is not installed.
    """

    def load() -> Any:
        from opentelemetry.trace import get_current_span

        return get_current_span

    current_span = _load_extra("tracing is on", load)
    return lambda: traceparent_of(current_span())


def _parent_context(traceparent: str) -> Any:
    from opentelemetry.context import Context
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract({TRACEPARENT: traceparent}, Context())


def _provider(url: str, service: str, resource: Attributes, at_once: bool) -> Any:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor

    exporter = OTLPSpanExporter(endpoint=url, timeout=EXPORT_TIMEOUT_S)
    provider = TracerProvider(resource=Resource.create({"service.name": service, **resource}), shutdown_on_exit=False)
    processor = SimpleSpanProcessor(exporter) if at_once else BatchSpanProcessor(exporter, schedule_delay_millis=1_000)
    provider.add_span_processor(processor)
    return provider


def _load_extra(why: str, load: Callable[[], Loaded]) -> Loaded:
    try:
        return load()
    except ModuleNotFoundError as missing:
        if not (missing.name or "").startswith("opentelemetry"):
            raise
        raise ConfigError(f"{why}, but {missing.name} is not installed: pip install 'sparklog[otlp]'") from None
