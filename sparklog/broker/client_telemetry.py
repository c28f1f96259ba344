"""The metrics that clients push (KIP-714): subscriptions, push intervals, and the newest values of each client.

- A client asks for its subscription, then pushes once in each interval to a broker that it is connected to. Earlier
  requests are refused, as by org.apache.kafka.server.ClientMetricsManager.
- When subscriptions change, the next push of a client gets UNKNOWN_SUBSCRIPTION_ID, and the client asks again.
- The values of a client that is silent for three intervals (at least five minutes) are dropped. If all clients together
  have more than MAX_SERIES values, those of the client that pushed least recently are dropped.
- Used on the event loop. Only `pushed` may be called from other threads.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

from sparklog.base.client_metrics import (
    DEFAULT_INTERVAL_MS,
    ClientInstance,
    ClientMetricsConfig,
    ClientMetricsConfigs,
    ClientMetricsSubscription,
    InstanceSubscription,
)
from sparklog.base.errors import (
    InvalidRequest,
    KafkaError,
    ThrottlingQuotaExceeded,
    UnknownSubscriptionId,
    UnsupportedCompressionType,
)
from sparklog.broker.otlp_metrics import Point

MAX_INSTANCES = 16_384
"""Maximum number of clients with a state, as in Kafka; the one that asked least recently is dropped."""
MAX_SERIES, MAX_SERIES_OF_CLIENT = 10_000, 1_000
SILENT_INTERVALS = 3
logger = logging.getLogger(__name__)
Series = tuple[str, str]
"""A metric's name, and its attributes as text."""


class PushedMetrics(Struct, frozen=True, kw_only=True):
    """The newest values of one client."""

    instance_id: UUID
    client: ClientInstance
    points: Mapping[Series, Point]
    forget_at_ms: int


class TelemetrySubscription(NamedTuple):
    """A client's subscription, as the client gets it."""

    instance_id: UUID
    subscription_id: int
    subscribed: InstanceSubscription


class _ClientMetricsInstance:
    """The state of one client (org.apache.kafka.server.metrics.ClientMetricsInstance)."""

    __slots__ = (
        "asked_ms", "error", "forget_at_ms", "generation", "has_asked", "is_over", "subscribed", "subscription",
    )  # fmt: skip

    def __init__(
        self,
        subscribed: InstanceSubscription,
        subscription: int,
        generation: int,
        error: type[KafkaError] | None = None,
    ) -> None:
        self.subscribed = subscribed
        self.subscription = subscription
        self.generation = generation
        self.error = error
        """The error of the last request, if it was refused."""
        self.asked_ms: int | None = None
        """Time of the last request that was in time."""
        self.has_asked = False
        """Whether the client has asked for its subscription since its last push."""
        self.is_over = False
        """Whether the client has pushed for the last time."""
        self.forget_at_ms = 0

    def may_get(self, now_ms: int) -> bool:
        """Count a request for the subscription, and return whether it is in time: at any time after these errors."""
        if self.error not in (UnknownSubscriptionId, UnsupportedCompressionType) and not self._is_due(now_ms):
            return False
        self.asked_ms, self.has_asked = now_ms, True
        return True

    def may_push(self, now_ms: int) -> bool:
        """Count a push, and return whether it is in time: the first push after a request for the subscription is."""
        if not self.has_asked and not self._is_due(now_ms):
            return False
        self.asked_ms, self.has_asked = now_ms, False
        return True

    def _is_due(self, now_ms: int) -> bool:
        return self.asked_ms is None or now_ms - self.asked_ms >= self.subscribed.interval_ms


class ClientTelemetry:
    """The clients of one broker."""

    def __init__(self, new_id: Callable[[], UUID]) -> None:
        self._new_id = new_id
        self._subscriptions: Sequence[ClientMetricsSubscription] = ()
        self._generation = 0
        self._instances: dict[UUID, _ClientMetricsInstance] = {}  # the one that asked least recently first
        self._pushed: dict[UUID, PushedMetrics] = {}  # the one that pushed least recently first
        self._series = 0
        self.dropped = 0
        """Number of values dropped because of the limits."""

    def set_subscriptions(self, configs: ClientMetricsConfigs) -> None:
        """Replace the cluster's subscriptions. Invalid ones are left out, with a warning."""
        found = []
        for name, config in configs.items():
            try:
                found.append(ClientMetricsSubscription.of(ClientMetricsConfig.parse(config)))
            except KafkaError as wrong:
                logger.warning("subscription %r to client metrics is left out: %s", name, wrong)
        self._subscriptions = found
        self._generation += 1

    @property
    def subscriptions(self) -> Sequence[ClientMetricsSubscription]:
        """All valid subscriptions of the cluster."""
        return self._subscriptions

    def subscribe(self, instance_id: UUID | None, client: ClientInstance, now_ms: int) -> TelemetrySubscription:
        """Return a client's subscription. instance_id: None for a new client

        Raises ThrottlingQuotaExceeded if the client asks too early.
        """
        known = instance_id or self._new_id()
        instance = self._instance(known, client, now_ms)
        if not instance.may_get(now_ms):
            raise ThrottlingQuotaExceeded(f"client {client.client_id!r} asks before its push interval is over")
        instance.error = None
        return TelemetrySubscription(known, instance.subscription, instance.subscribed)

    def begin_push(
        self,
        instance_id: UUID | None,
        client: ClientInstance,
        subscription_id: int,
        now_ms: int,
        *,
        check: Callable[[], None],
        is_last: bool,
    ) -> None:
        """Admit a push. check: raises if the metrics are not acceptable

        Raises InvalidRequest without an id or after the last push, ThrottlingQuotaExceeded if the client pushes too
        early, UnknownSubscriptionId for another subscription than the client's, and what `check` raises.
        """
        if instance_id is None or instance_id.int <= 1:  # Kafka's reserved ids
            raise InvalidRequest(f"client {client.client_id!r} pushes without an instance id")
        instance = self._instance(instance_id, client, now_ms)
        try:
            if instance.is_over:
                raise InvalidRequest(f"client {client.client_id!r} pushes after its last push")
            if not instance.may_push(now_ms) and not is_last:
                raise ThrottlingQuotaExceeded(f"client {client.client_id!r} pushes before its push interval is over")
            if subscription_id != instance.subscription:
                raise UnknownSubscriptionId(f"client {client.client_id!r} pushes for a subscription that is over")
            check()
        except KafkaError as error:
            instance.error = type(error)
            raise
        instance.error, instance.is_over = None, is_last

    def refused(self, instance_id: UUID, error: KafkaError) -> None:
        """Record the error with which the metrics of an admitted push were refused."""
        if instance := self._instances.get(instance_id):
            instance.error = type(error)

    def keep(self, instance_id: UUID, client: ClientInstance, points: Sequence[Point], now_ms: int) -> None:
        """Replace a client's values by those of a push; deltas are added to the earlier values.

        points: those beyond MAX_SERIES_OF_CLIENT are dropped
        """
        before = self._pushed.get(instance_id)
        known: Mapping[Series, Point] = before.points if before else {}
        found: dict[Series, Point] = {}
        for point in points[:MAX_SERIES_OF_CLIENT]:
            series = point.name, point.attributes
            earlier = known.get(series) if point.is_delta else None
            found[series] = point._replace(value=earlier.value + point.value) if earlier else point
        self.dropped += len(points[MAX_SERIES_OF_CLIENT:])
        self._forget(instance_id)
        if instance := self._instances.get(instance_id):
            self._pushed[instance_id] = PushedMetrics(
                instance_id=instance_id, client=client, points=found, forget_at_ms=instance.forget_at_ms
            )
            self._series += len(found)
        self._make_room(now_ms)

    def pushed(self, now_ms: int) -> list[PushedMetrics]:
        """Return the values of the clients that are not silent. For any thread."""
        return [each for each in tuple(self._pushed.values()) if each.forget_at_ms > now_ms]

    def _make_room(self, now_ms: int) -> None:
        for each in [each for each in self._pushed.values() if each.forget_at_ms <= now_ms]:
            self._forget(each.instance_id)
        while self._series > MAX_SERIES:
            self.dropped += self._forget(next(iter(self._pushed)))

    def _forget(self, instance_id: UUID) -> int:
        """Forget the values of a client, and return how many there were."""
        before = self._pushed.pop(instance_id, None)
        count = len(before.points) if before else 0
        self._series -= count
        return count

    def _instance(self, instance_id: UUID, client: ClientInstance, now_ms: int) -> _ClientMetricsInstance:
        """Return the client's state: a new one if the subscriptions have changed."""
        instances = self._instances
        instance = instances.pop(instance_id, None)
        if instance is not None and instance.forget_at_ms <= now_ms:
            instance = None
        if instance is None or instance.generation != self._generation:
            subscribed = InstanceSubscription.of(self._subscriptions, client.selected_by(instance_id))
            error = instance.error if instance else None
            instance = _ClientMetricsInstance(
                subscribed, subscribed.subscription_id(instance_id), self._generation, error
            )
        silence_ms = max(SILENT_INTERVALS * instance.subscribed.interval_ms, DEFAULT_INTERVAL_MS)
        instance.forget_at_ms = now_ms + silence_ms
        instances[instance_id] = instance
        if len(instances) > MAX_INSTANCES:
            del instances[next(iter(instances))]
        return instance
