"""The options of `config` as typed keyword arguments of the clients, for type checkers and editors.

The classes in `config` define the options: names, meanings, defaults, bounds and types. This module repeats names and
types, because type checkers do not accept a dataclass for keyword arguments; a test compares the two. An option that
accepts several forms has a union of their types. These types exclude values as text (``linger_ms="5"``) from a file or
the environment: pass them as ``Producer(**settings)``, with ``settings: dict[str, Any]``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypedDict

from sparklog.client.assignors import Assignor


class ClientOptions(TypedDict, total=False):
    """Options of every client: see ClientConfig."""

    bootstrap_servers: str | list[str] | tuple[str, ...]
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    security_protocol: str
    sasl_mechanism: str
    sasl_jaas_config: str
    sasl_oauthbearer_token_endpoint_url: str
    sasl_login_callback_handler_class: str
    token_provider: Callable[[], str] | None
    ssl_truststore_location: str
    ssl_truststore_type: str
    ssl_keystore_location: str
    ssl_keystore_type: str


class ProducerOptions(ClientOptions, total=False):
    """Options of a producer: see ProducerConfig."""

    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    acks: str | int
    batch_size: int
    linger_ms: int
    compression_type: str
    buffer_memory: int
    max_block_ms: int
    delivery_timeout_ms: int
    max_request_size: int
    max_in_flight_requests_per_connection: int
    retries: int
    partitioner: Callable[[str, bytes | None, int], int | None] | None
    key_serializer: Callable[[Any], Any] | None
    value_serializer: Callable[[Any], Any] | None
    interceptors: list[Any] | tuple[Any, ...]
    tracing: bool


class ConsumerOptions(ClientOptions, total=False):
    """Options of a consumer: see ConsumerConfig."""

    auto_offset_reset: str
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    prefetch_max_bytes: int
    client_rack: str | None
    isolation_level: str
    max_poll_records: int
    check_crcs: bool
    key_deserializer: Callable[[bytes], Any] | None
    value_deserializer: Callable[[bytes], Any] | None
    interceptors: list[Any] | tuple[Any, ...]
    group_id: str | None
    group_instance_id: str | None
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    rebalance_timeout_ms: int
    partition_assignment_strategy: str | Sequence[str | Assignor]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    exclude_internal_topics: bool


class AdminOptions(ClientOptions, total=False):
    """Options of an admin or maintenance client: see AdminConfig."""
