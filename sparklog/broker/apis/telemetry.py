"""GetTelemetrySubscriptions (key 71) and PushTelemetry (72): collect the metrics of clients (KIP-714).

- Any client may ask and push, as in Kafka. Subscriptions to client metrics select the metrics (`alter_configs.py`);
  without one, clients only ask again every five minutes.
- The newest values of each client are shown beside the broker's own metrics. Kafka passes them on to a plug-in, and
  announces these APIs only if there is one.
- The broker asks for cumulative totals: then a lost push loses nothing. Deltas are added up.
- THROTTLING_QUOTA_EXCEEDED: a request before the push interval is over. UNKNOWN_SUBSCRIPTION_ID: the subscriptions have
  changed. TELEMETRY_TOO_LARGE: more than telemetry.max.bytes. INVALID_REQUEST: a push without an id, or after the last.
  UNSUPPORTED_COMPRESSION_TYPE. INVALID_RECORD: bytes that cannot be decompressed into four times telemetry.max.bytes,
  or are no metrics of OpenTelemetry.
- With telemetry.max.bytes=0 the APIs are not announced, and refused with UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from functools import partial
from itertools import islice
from uuid import UUID

from msgspec import Struct

from sparklog.base.client_metrics import ClientInstance
from sparklog.base.clock import Clock
from sparklog.base.config import BrokerConfig
from sparklog.base.errors import (
    CorruptRecord,
    InvalidRecord,
    TelemetryTooLarge,
    UnsupportedCompressionType,
    UnsupportedVersion,
)
from sparklog.broker.api import Api
from sparklog.broker.client_telemetry import MAX_SERIES_OF_CLIENT, ClientTelemetry
from sparklog.broker.otlp_metrics import Point, read_points
from sparklog.records.batch import Codec
from sparklog.records.compression import decompress
from sparklog.runtime.slices import Slices

ACCEPTED = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)
"""In Kafka's order; a client takes the first one that it knows."""
DECOMPRESSED = 4
"""Limit of decompressed metrics, as a multiple of telemetry.max.bytes."""


class GetTelemetrySubscriptionsRequest(Struct, frozen=True, kw_only=True):
    client_instance_id: UUID | None
    """None: the client has no id yet."""
    client: ClientInstance


class GetTelemetrySubscriptionsResponse(Struct, frozen=True, kw_only=True):
    client_instance_id: UUID
    subscription_id: int
    accepted_compression_types: tuple[Codec, ...]
    push_interval_ms: int
    telemetry_max_bytes: int
    delta_temporality: bool
    requested_metrics: tuple[str, ...]


class PushTelemetryRequest(Struct, frozen=True, kw_only=True):
    client_instance_id: UUID | None
    client: ClientInstance
    subscription_id: int
    terminating: bool
    compression_type: int
    metrics: bytes | memoryview


class PushTelemetryResponse(Struct, frozen=True, kw_only=True):
    pass


async def get(
    request: GetTelemetrySubscriptionsRequest, *, client_telemetry: ClientTelemetry, clock: Clock, config: BrokerConfig
) -> GetTelemetrySubscriptionsResponse:
    """Return the client's subscription. Raises ThrottlingQuotaExceeded, or UnsupportedVersion if none is served."""
    _check_served(config)
    found = client_telemetry.subscribe(request.client_instance_id, request.client, clock.monotonic_ms())
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=found.instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=ACCEPTED,
        push_interval_ms=found.subscribed.interval_ms,
        telemetry_max_bytes=config.telemetry_max_bytes,
        delta_temporality=False,
        requested_metrics=found.subscribed.metrics,
    )


async def push(
    request: PushTelemetryRequest,
    *,
    client_telemetry: ClientTelemetry,
    clock: Clock,
    config: BrokerConfig,
    slices: Slices,
) -> PushTelemetryResponse:
    """Keep the client's metrics; the answer is empty. Raises the errors that are listed above."""
    _check_served(config)
    now_ms, instance_id = clock.monotonic_ms(), request.client_instance_id

    def check() -> None:
        if request.compression_type not in (Codec.NONE, *ACCEPTED):
            raise UnsupportedCompressionType(f"there is no compression type {request.compression_type}")
        if len(request.metrics) > config.telemetry_max_bytes:
            raise TelemetryTooLarge(
                f"{len(request.metrics)} bytes of metrics, telemetry.max.bytes is {config.telemetry_max_bytes}"
            )

    client_telemetry.begin_push(
        instance_id, request.client, request.subscription_id, now_ms, check=check, is_last=request.terminating
    )
    assert instance_id is not None
    if not request.metrics:
        return PushTelemetryResponse()
    try:
        # In a thread also for small pushes: the first one loads OpenTelemetry's messages.
        points = await slices.in_thread(partial(_read, request, DECOMPRESSED * config.telemetry_max_bytes))
    except (CorruptRecord, InvalidRecord) as wrong:
        error = InvalidRecord(str(wrong))
        client_telemetry.refused(instance_id, error)
        raise error from None
    client_telemetry.keep(instance_id, request.client, points, now_ms)
    return PushTelemetryResponse()


def _check_served(config: BrokerConfig) -> None:
    if not config.telemetry_max_bytes:
        raise UnsupportedVersion("this broker takes no metrics of clients: its telemetry.max.bytes is 0")


def _read(request: PushTelemetryRequest, limit: int) -> list[Point]:
    """Return the points of a push, as many as are kept and one more. Raises InvalidRecord or CorruptRecord."""
    data = memoryview(decompress(Codec(request.compression_type), request.metrics, limit)).cast("B")
    return list(islice(read_points(data), MAX_SERIES_OF_CLIENT + 1))


GET_TELEMETRY_SUBSCRIPTIONS = Api(
    name="GetTelemetrySubscriptions",
    summary="tell a client which of its metrics to push, and how often",
    handle=get,
    rights=(),
    key=71,
    versions=(0, 0),
)
PUSH_TELEMETRY = Api(
    name="PushTelemetry",
    summary="keep the metrics of a client",
    handle=push,
    rights=(),
    key=72,
    versions=(0, 0),
)
