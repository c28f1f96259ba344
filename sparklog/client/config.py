"""Configuration of the clients: Kafka's names with underscores, checked once, into frozen values.

Each field is a keyword argument of its client: ``Producer(linger_ms=5)`` is Kafka's ``linger.ms``. Every value may also
be text (``acks="1"``, ``batch_size="65536"``), as read from a file or the environment. Defaults are Kafka's, with two
exceptions. `batch_size` and `buffer_memory` are larger, because this client's cost is per batch. `isolation_level` is
read_committed, as in librdkafka: readers should see transactions whole.

Add a new field to `options` too, where type checkers and editors find the keyword arguments.
"""

# ruff: noqa: RUF009 - key() declares a field, as dataclasses.field does

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS
from sparklog.base.config_keys import (
    MAX_INT,
    MAX_LONG,
    MINUTE_MS,
    Bound,
    boolean,
    integer,
    key,
    one_of,
    password,
    pem,
    text,
)
from sparklog.base.errors import ConfigError
from sparklog.base.jaas import PLAIN_MODULE
from sparklog.client.assignors import ASSIGNORS, Assignor
from sparklog.records.batch import Codec

MAX_IDEMPOTENT_IN_FLIGHT = 5
LOGIN_HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"
ACKS = {"all": "all", "-1": "all", "1": "1", "0": "0"}


def addresses() -> Bound:
    """Return the bound of one or more HOST:PORT, as a list or as text separated by commas."""

    def parse(value: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in value.split(",") if word.strip())
        if not found:
            raise ValueError
        for address in found:
            host, colon, port = address.rpartition(":")
            if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
                raise ValueError
        return found

    return Bound(parse, "HOST:PORT, or several with commas between")


def acknowledgements() -> Bound:
    """Return the bound of all (or -1), 1 or 0."""
    return Bound(lambda value: ACKS[value], "all, 1 or 0")


def function() -> Bound:
    """Return the bound of a callable, or None; text is refused."""
    return Bound(_parser_of(lambda value: value is None or callable(value)), "a function, or None")


def secret_function() -> Bound:
    """Return the bound of a function whose value errors do not show: a user may have given a secret instead."""
    return function()._replace(type="PASSWORD")


def optional_text() -> Bound:
    """Return the bound of text that is not empty, or None."""
    return Bound(_parser_of(lambda value: value is None or (isinstance(value, str) and bool(value))), "a text, or None")


def assignors() -> Bound:
    """Return the bound of assignors' names, as a list or as text separated by commas.

    A list may also contain Assignor objects.
    """

    def parse(value: Any) -> tuple[Assignor, ...]:
        items = value.split(",") if isinstance(value, str) else value
        found = tuple(item if isinstance(item, Assignor) else ASSIGNORS[item.strip()] for item in items)
        if not found:
            raise ValueError
        return found

    return Bound(parse, "one or more of " + ", ".join(ASSIGNORS))


def functions() -> Bound:
    """Return the bound of a list or tuple of objects."""
    return Bound(_parser_of(lambda value: isinstance(value, list | tuple)), "a list")


def _parser_of(allowed: Callable[[Any], bool]) -> Callable[[Any], Any]:
    def parse(value: Any) -> Any:
        if not allowed(value):
            raise ValueError
        return value

    return parse


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """Options of every client."""

    bootstrap_servers: tuple[str, ...] = key(
        (DEFAULT_GRPC_ADDRESS,), addresses(), "Brokers to ask first; the rest of the cluster is learnt from them."
    )
    client_id: str = key("", text(), "Sent with every request, for the broker's logs.")
    request_timeout_ms: int = key(30_000, integer(1, MAX_INT), "How long to wait for one answer before trying again.")
    default_api_timeout_ms: int = key(
        MINUTE_MS, integer(0, MAX_INT), "How long a call without a time-out of its own is retried after failures."
    )
    retry_backoff_ms: int = key(100, integer(0), "Pause before the first retry; it doubles with each (KIP-580).")
    retry_backoff_max_ms: int = key(1_000, integer(0), "The longest pause before a retry.")
    reconnect_backoff_ms: int = key(50, integer(1), "Pause before the first attempt to connect again.")
    reconnect_backoff_max_ms: int = key(1_000, integer(1), "The longest pause between attempts to connect.")
    metadata_max_age_ms: int = key(5 * MINUTE_MS, integer(0), "After this, ask again which broker leads a partition.")
    security_protocol: str = key(
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "SSL, SASL_SSL: use TLS; brokers' certificates must have the names clients connect to. SASL_PLAINTEXT, "
        "SASL_SSL: show the user and password of sasl_jaas_config, or a token; without TLS everybody on the way can "
        "read them.",
    )
    sasl_mechanism: str = key(
        "PLAIN",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        "As of Kafka's clients. OAUTHBEARER: send a token. Otherwise the password itself is sent over gRPC, whatever "
        "the mechanism; the broker checks it.",
    )
    sasl_jaas_config: str = key(
        "",
        password(),
        f'User and password, as of Kafka\'s clients: {PLAIN_MODULE} required username="alice" password="…"; or the '
        "same with ScramLoginModule. For OAUTHBEARER with an https URL: OAuthBearerLoginModule with clientId, "
        "clientSecret and, if the issuer wants one, scope.",
    )
    sasl_oauthbearer_token_endpoint_url: str = key(
        "",
        text(),
        "Where OAUTHBEARER gets its token: a file URL, whose file is read again when it changes, or the https URL of "
        "an issuer's token endpoint, for the client credentials grant.",
    )
    sasl_login_callback_handler_class: str = key(
        "",
        one_of("", LOGIN_HANDLER),
        "For files that are shared with Kafka's tools, which need it for OAUTHBEARER. It has no effect here.",
    )
    token_provider: Callable[[], str] | None = key(
        None, secret_function(), "Returns the token for OAUTHBEARER, in a thread; asked again before the token expires."
    )
    ssl_truststore_location: str = key(
        "", text(), "A PEM file with the certificates of authorities trusted for brokers; empty: public authorities."
    )
    ssl_truststore_type: str = key("PEM", pem(), "The format of ssl_truststore_location.")
    ssl_keystore_location: str = key(
        "", text(), "A PEM file with the client's own private key, not encrypted, and its certificate chain."
    )
    ssl_keystore_type: str = key("PEM", pem(), "The format of ssl_keystore_location.")

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the configuration that `options` describe.

        Raises ConfigError for an unknown name, with the nearest known one, and for a value that is not allowed.
        """
        fields = {item.name: item for item in dataclasses.fields(cls)}
        values = {}
        for name, value in options.items():
            if name not in fields:
                near = difflib.get_close_matches(name, fields, n=1)
                raise ConfigError(
                    f"unknown option {name!r}"
                    + (f"; did you mean {near[0]}?" if near else f"; {cls.__name__} lists them")
                )
            bound: Bound = fields[name].metadata["bound"]
            try:
                values[name] = bound.parse(_as_text(value))
            except (ValueError, KeyError, TypeError, AttributeError):
                shown = "" if bound.type == "PASSWORD" else f" = {value!r}"
                raise ConfigError(f"{name}{shown}: it must be {bound.text}") from None
        config = cls(**values)
        config.check()
        return config

    def check(self) -> None:
        """Raise ConfigError if options contradict each other."""


def _as_text(value: Any) -> Any:
    """Return plain values and lists of texts as text, as a file has them; other values unchanged."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list | tuple) and value and all(isinstance(item, str) for item in value):
        return ",".join(value)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """Options of a producer (org.apache.kafka.clients.producer.ProducerConfig)."""

    enable_idempotence: bool = key(
        True,
        boolean(),
        "Write each record once, even if it is sent again; off by default if other options rule it out.",
    )
    transactional_id: str | None = key(
        None,
        optional_text(),
        "Names the producer across its restarts; with it, records are sent in transactions (begin, commit, abort).",
    )
    transaction_timeout_ms: int = key(
        MINUTE_MS,
        integer(1, MAX_INT),
        "How long a transaction may stay open; then the broker aborts it. At most its transaction.max.timeout.ms.",
    )
    acks: str = key(
        "all",
        acknowledgements(),
        "When a record is acknowledged: all: every in-sync replica has it. 1: its leader has it. 0: never.",
    )
    batch_size: int = key(
        256 << 10, integer(0, MAX_INT), "Close a partition's batch at this many bytes, before compression."
    )
    linger_ms: int = key(5, integer(0), "How long a batch that is not full waits for more records.")
    compression_type: str = key(
        "none", one_of("none", "gzip", "snappy", "lz4", "zstd"), "How batches are compressed, and stay on disk."
    )
    buffer_memory: int = key(
        64 << 20, integer(1), "Bytes of records that may wait for their acknowledgement; then `send` waits."
    )
    max_block_ms: int = key(
        MINUTE_MS, integer(0), "How long `send` waits for room in the buffer or for a topic's metadata."
    )
    delivery_timeout_ms: int = key(
        2 * MINUTE_MS, integer(1), "From `send` to the acknowledgement, retries included; then DeliveryTimeout."
    )
    max_request_size: int = key(
        1 << 20, integer(1, MAX_INT), "Largest record, and largest request unless one batch alone is larger."
    )
    max_in_flight_requests_per_connection: int = key(
        5, integer(1, 1_000), "Requests to one broker at once; a partition is never in more than one of them."
    )
    retries: int = key(MAX_INT, integer(0, MAX_INT), "Attempts after the first; `delivery_timeout_ms` ends them too.")
    partitioner: Callable[[str, bytes | None, int], int | None] | None = key(
        None,
        function(),
        "partitioner(topic, key, partitions) -> partition, or None for the sticky one. None: murmur2 of the key.",
    )
    key_serializer: Callable[[Any], Any] | None = key(None, function(), "Turns keys for `send` into bytes or text.")
    value_serializer: Callable[[Any], Any] | None = key(None, function(), "Turns values for `send` into bytes or text.")
    interceptors: tuple[Any, ...] = key((), functions(), "Interceptors: see sparklog.client.interceptors.")

    tracing: bool = key(
        False,
        boolean(),
        "Add the trace context of the current span of OpenTelemetry to records, as header `traceparent`, and to "
        "requests. Needs the extra otlp.",
    )

    @property
    def codec(self) -> Codec:
        """The codec of `compression_type`."""
        return Codec[self.compression_type.upper()]

    @classmethod
    def parse(cls, options: Mapping[str, Any]) -> Self:
        """Return the configuration as ClientConfig.parse does.

        Idempotence, unless `options` set it, is on if no other option rules it out.
        """
        if "enable_idempotence" in options or options.get("transactional_id") is not None:
            return super(ProducerConfig, cls).parse(options)  # plain super() fails in a dataclass with slots
        config = super(ProducerConfig, cls).parse({**options, "enable_idempotence": False})
        return dataclasses.replace(config, enable_idempotence=not config.not_idempotent())

    def not_idempotent(self) -> str:
        """Return which option rules out idempotence, and why; empty if none does."""
        if self.acks != "all":
            return f"acks = {self.acks}: it must be all"
        if self.retries == 0:
            return "retries = 0: it must be at least 1"
        if self.max_in_flight_requests_per_connection > MAX_IDEMPOTENT_IN_FLIGHT:
            count = self.max_in_flight_requests_per_connection
            return f"max_in_flight_requests_per_connection = {count}: it must be at most {MAX_IDEMPOTENT_IN_FLIGHT}"
        return ""

    def check(self) -> None:
        why = self.not_idempotent()
        if self.transactional_id is not None and (why or not self.enable_idempotence):
            raise ConfigError(f"{why or 'enable_idempotence = False: it must be True'} with transactional_id")
        if self.enable_idempotence and why:
            raise ConfigError(f"{why} with enable_idempotence")
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigError(
                f"delivery_timeout_ms = {self.delivery_timeout_ms}: it must be at least linger_ms = {self.linger_ms}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """Options of a consumer (org.apache.kafka.clients.consumer.ConsumerConfig)."""

    auto_offset_reset: str = key(
        "latest",
        one_of("earliest", "latest", "none"),
        "Where to begin if a position is missing or out of range: earliest, latest, or none: raise OffsetOutOfRange.",
    )
    fetch_min_bytes: int = key(1, integer(0, MAX_INT), "The broker answers a fetch once this many bytes are there.")
    fetch_max_wait_ms: int = key(500, integer(0, MAX_INT), "The broker waits at most this long for fetch_min_bytes.")
    fetch_max_bytes: int = key(50 << 20, integer(1, MAX_INT), "Most bytes of one answer; one batch may be larger.")
    max_partition_fetch_bytes: int = key(
        1 << 20, integer(1, MAX_INT), "Most bytes of one partition in one answer; one batch may be larger."
    )
    prefetch_max_bytes: int = key(
        64 << 20, integer(1), "Fetch ahead of `poll` while fewer bytes than this, as fetched, wait for it."
    )
    client_rack: str | None = key(
        None,
        optional_text(),
        "The consumer's rack: it reads from a replica there if brokers have replica.selector.class set for that.",
    )
    isolation_level: str = key(
        "read_committed",
        one_of("read_committed", "read_uncommitted"),
        "read_committed: records of committed transactions, and those without a transaction, up to the first record "
        "whose transaction is open. read_uncommitted: all records.",
    )
    max_poll_records: int = key(500, integer(1, MAX_INT), "Most records that one `poll` returns.")
    check_crcs: bool = key(True, boolean(), "Whether the CRC of every batch is checked.")
    key_deserializer: Callable[[bytes], Any] | None = key(None, function(), "Turns bytes into keys for `poll`.")
    value_deserializer: Callable[[bytes], Any] | None = key(None, function(), "Turns bytes into values for `poll`.")
    interceptors: tuple[Any, ...] = key((), functions(), "Interceptors: see sparklog.client.interceptors.")
    group_id: str | None = key(
        None, optional_text(), "The group to subscribe with; reading begins at its committed offsets."
    )
    group_instance_id: str | None = key(
        None, optional_text(), "Makes the consumer a static member, which has the same partitions after a restart."
    )
    session_timeout_ms: int = key(
        45_000, integer(1, MAX_INT), "Without heartbeats for this long, the consumer is removed from the group."
    )
    heartbeat_interval_ms: int = key(3_000, integer(1, MAX_INT), "How often the consumer sends a heartbeat.")
    max_poll_interval_ms: int = key(
        5 * MINUTE_MS, integer(1, MAX_INT), "Without `poll` for this long, the consumer leaves the group."
    )
    rebalance_timeout_ms: int = key(
        0, integer(0, MAX_INT), "How long a rebalance waits for the consumer; 0: max_poll_interval_ms."
    )
    partition_assignment_strategy: tuple[Assignor, ...] = key(
        (ASSIGNORS["range"], ASSIGNORS["cooperative-sticky"]),
        assignors(),
        "How partitions are assigned, the preferred way first: range, roundrobin, sticky, cooperative-sticky.",
    )
    enable_auto_commit: bool = key(True, boolean(), "Whether `poll` commits what earlier polls have returned.")
    auto_commit_interval_ms: int = key(5_000, integer(0, MAX_INT), "How often `poll` commits.")
    exclude_internal_topics: bool = key(True, boolean(), "Whether patterns leave out the brokers' own topics.")

    @property
    def rebalance_ms(self) -> int:
        """How long the group waits for the member in a rebalance, in ms: `max_poll_interval_ms` unless set."""
        return self.rebalance_timeout_ms or self.max_poll_interval_ms

    def check(self) -> None:
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError(
                f"heartbeat_interval_ms = {self.heartbeat_interval_ms}: it must be less than "
                f"session_timeout_ms = {self.session_timeout_ms}"
            )
        if self.group_instance_id and not self.group_id:
            raise ConfigError("group_instance_id needs a group_id")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """Options of an admin or maintenance client."""


LARGEST_TIMEOUT_MS = MAX_LONG
