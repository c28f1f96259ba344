"""Configuration keys: Kafka's names, with their types, defaults, bounds and meaning, in one place.

A key is a field of `BrokerConfig` or `TopicConfig`; its Kafka name is the field's name with dots for underscores
(`log_segment_bytes` is ``log.segment.bytes``). A topic's key that has a broker-wide default names it as
`broker_key`; `BrokerConfig.topic_defaults` holds those. Both classes are made by parsing text, once, and never change:
every later reader gets checked, typed values. Files in `conf/` and the tables in the docs are generated from here.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS, DEFAULT_KAFKA_ADDRESS
from sparklog.base.errors import ConfigError, InvalidConfig

MAX_INT = 2**31 - 1
MAX_LONG = 2**63 - 1
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


class Bound(NamedTuple):
    """What values are allowed: read from text by `parse`, described by `text`."""

    parse: Callable[[str], Any]
    text: str
    type: str = "STRING"
    """As Kafka's tools call it: BOOLEAN, STRING, INT, LONG, DOUBLE, LIST or PASSWORD."""


def integer(low: int, high: int = MAX_LONG) -> Bound:
    """A whole number from `low` to `high`."""

    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Bound(parse, f"a whole number from {low} to {high}", "INT" if high <= MAX_INT else "LONG")


def real(low: float, high: float) -> Bound:
    """A number from `low` to `high`."""

    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Bound(parse, f"a number from {low} to {high}", "DOUBLE")


def one_of(*allowed: str) -> Bound:
    """One of some words."""

    def parse(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return Bound(parse, "one of " + ", ".join(allowed))


def some_of(*allowed: str) -> Bound:
    """Some of some words, separated by commas; at least one."""

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(","))
        if not set(words) <= set(allowed):
            raise ValueError
        return words

    return Bound(parse, "one or more of " + ", ".join(allowed) + ", separated by commas", "LIST")


def words(least: int = 0) -> Bound:
    """Texts, separated by commas."""

    def parse(text: str) -> tuple[str, ...]:
        found = tuple(word.strip() for word in text.split(",") if word.strip())
        if len(found) < least:
            raise ValueError
        return found

    return Bound(parse, f"at least {least} texts separated by commas" if least else "texts separated by commas", "LIST")


def boolean() -> Bound:
    """true or false."""

    def parse(text: str) -> bool:
        return {"true": True, "false": False}[text.strip().lower()]

    return Bound(parse, "true or false", "BOOLEAN")


def text() -> Bound:
    """Any text."""
    return Bound(str, "any text")


def password() -> Bound:
    """Any text, which is never shown."""
    return Bound(str, "any text", "PASSWORD")


def pem() -> Bound:
    """The one form of a store of keys that is read."""
    instead = (
        "PEM; make a PKCS12 store of a JKS one with: keytool -importkeystore -srckeystore store.jks "
        "-destkeystore store.p12 -deststoretype PKCS12; and a PEM file of that with: "
        "openssl pkcs12 -in store.p12 -noenc -out store.pem"
    )
    return Bound(one_of("PEM").parse, instead)


def key(default: Any, bound: Bound, doc: str, *, broker_key: str | None = None) -> Any:
    """Declare a configuration key as a dataclass field."""
    metadata = {"bound": bound, "doc": doc, "broker_key": broker_key}
    return field(default=default, metadata=metadata, repr=bound.type != "PASSWORD")


@dataclass(frozen=True, slots=True)
class Key:
    """One declared key, for tables, documentation and checks."""

    name: str
    field: str
    default: Any
    bound: Bound
    doc: str
    broker_key: str | None

    def parse(self, raw: str, where: str = "") -> Any:
        """The typed value of `raw`; raises ConfigError with `where` and what is allowed."""
        try:
            return self.bound.parse(raw)
        except (ValueError, KeyError):
            raise ConfigError(f"{where}{self.name} = {raw!r}: it must be {self.bound.text}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """What a topic may set for itself (org.apache.kafka.common.config.TopicConfig)."""

    cleanup_policy: tuple[str, ...] = key(
        ("delete",),
        some_of("delete", "compact"),
        "delete: old segments go by retention.ms and retention.bytes. compact: the newest record of each key stays.",
        broker_key="log.cleanup.policy",
    )
    compression_type: str = key(
        "producer",
        one_of("producer"),
        "How batches are stored: producer, as the producer compressed them.",
        broker_key="compression.type",
    )
    delete_retention_ms: int = key(
        DAY_MS,
        integer(0),
        "How long a tombstone stays after the first cleaning that saw it.",
        broker_key="log.cleaner.delete.retention.ms",
    )
    file_delete_delay_ms: int = key(
        MINUTE_MS,
        integer(0),
        "How long a removed segment stays on disk as .deleted, for readers in flight.",
        broker_key="log.segment.delete.delay.ms",
    )
    flush_messages: int = key(
        MAX_LONG,
        integer(1),
        "Flush to disk once this many records were appended since the last flush.",
        broker_key="log.flush.interval.messages",
    )
    flush_ms: int = key(
        MAX_LONG,
        integer(0),
        "Flush to disk once this long has passed since the last flush.",
        broker_key="log.flush.interval.ms",
    )
    index_interval_bytes: int = key(
        4096,
        integer(0, MAX_INT),
        "Bytes of log between two index entries.",
        broker_key="log.index.interval.bytes",
    )
    max_compaction_lag_ms: int = key(
        MAX_LONG,
        integer(1),
        "A record must have been compacted after this long.",
        broker_key="log.cleaner.max.compaction.lag.ms",
    )
    max_message_bytes: int = key(
        1_048_588,
        integer(0, MAX_INT),
        "Largest record batch that is accepted, compressed, its header included.",
        broker_key="message.max.bytes",
    )
    message_timestamp_after_max_ms: int = key(
        3_600_000,
        integer(0),
        "A record whose timestamp is later than now by more than this is refused (CreateTime only).",
        broker_key="log.message.timestamp.after.max.ms",
    )
    message_timestamp_before_max_ms: int = key(
        MAX_LONG,
        integer(0),
        "A record whose timestamp is earlier than now by more than this is refused (CreateTime only).",
        broker_key="log.message.timestamp.before.max.ms",
    )
    message_timestamp_type: str = key(
        "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whose clock timestamps are from: the producer's or the broker's.",
        broker_key="log.message.timestamp.type",
    )
    min_cleanable_dirty_ratio: float = key(
        0.5,
        real(0, 1),
        "Compact once this share of the log has not been compacted.",
        broker_key="log.cleaner.min.cleanable.ratio",
    )
    min_compaction_lag_ms: int = key(
        0,
        integer(0),
        "A record is not compacted before this long.",
        broker_key="log.cleaner.min.compaction.lag.ms",
    )
    min_insync_replicas: int = key(
        1,
        integer(1, MAX_INT),
        "acks=all is refused while fewer replicas than this are in sync.",
        broker_key="min.insync.replicas",
    )
    retention_bytes: int = key(
        -1,
        integer(-1),
        "Delete the oldest segments while a partition is larger than this; -1: never.",
        broker_key="log.retention.bytes",
    )
    retention_ms: int = key(
        7 * DAY_MS,
        integer(-1),
        "Delete segments whose newest record is older than this; -1: never.",
        broker_key="log.retention.ms",
    )
    segment_bytes: int = key(
        1 << 30,
        integer(1 << 20, MAX_INT),
        "Roll to a new segment before the file would grow beyond this.",
        broker_key="log.segment.bytes",
    )
    internal_segment_bytes: int = key(
        0,
        integer(0, MAX_INT),
        "For tests: segment.bytes without its lower bound; 0: not set.",
    )
    segment_index_bytes: int = key(
        10 << 20,
        integer(4, MAX_INT),
        "Roll to a new segment when an index has reached this size.",
        broker_key="log.index.size.max.bytes",
    )
    segment_jitter_ms: int = key(
        0,
        integer(0),
        "Roll up to this much earlier than segment.ms, at random, so that partitions do not roll at once.",
        broker_key="log.roll.jitter.ms",
    )
    segment_ms: int = key(
        7 * DAY_MS,
        integer(1),
        "Roll to a new segment when the first record of the active one is older than this.",
        broker_key="log.roll.ms",
    )
    unclean_leader_election_enable: bool = key(
        False,
        boolean(),
        "Whether a replica that is not in sync may become leader, at the price of lost records.",
        broker_key="unclean.leader.election.enable",
    )

    @property
    def roll_bytes(self) -> int:
        """Size beyond which a segment does not grow."""
        return self.internal_segment_bytes or self.segment_bytes

    @classmethod
    def parse(cls, overrides: Mapping[str, str], defaults: TopicConfig) -> TopicConfig:
        """`defaults` with a topic's own keys put over them.

        Raises InvalidConfig for a key that is unknown (with the nearest known one) or a value that is not allowed.
        """
        try:
            values = {TOPIC_KEYS[name].field: TOPIC_KEYS[name].parse(raw) for name, raw in overrides.items()}
        except KeyError as unknown:
            raise InvalidConfig(_unknown(str(unknown.args[0]), TOPIC_KEYS)) from None
        except ConfigError as bad:
            raise InvalidConfig(str(bad)) from None
        return dataclasses.replace(defaults, **values)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """What a broker is started with (org.apache.kafka.server.config)."""

    broker_id: int = key(0, integer(0, MAX_INT), "This broker's id in its cluster.")
    broker_rack: str = key("", text(), "Where this broker stands, for rack-aware assignment; empty: unknown.")
    log_dirs: tuple[str, ...] = key(
        ("./sparklog-data",), words(1), "Folders that hold partitions; a new partition goes to the one with the fewest."
    )
    grpc_listener: str = key(DEFAULT_GRPC_ADDRESS, text(), "HOST:PORT of the gRPC listener; port 0: any free one.")
    grpc_advertised_listener: str = key("", text(), "HOST:PORT that clients should use; empty: the listener's own.")
    listeners: tuple[str, ...] = key(
        (f"PLAINTEXT://{DEFAULT_KAFKA_ADDRESS}",),
        words(),
        "Kafka listeners, as NAME://HOST:PORT; no host: all interfaces; port 0: any free one; empty: gRPC only.",
    )
    advertised_listeners: tuple[str, ...] = key(
        (), words(), "What clients are told instead of a listener's own address, as NAME://HOST:PORT."
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        words(1),
        "The security protocol of each listener, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    max_connections: int = key(
        MAX_INT, integer(0, MAX_INT), "Connections of Kafka listeners at once; a further one is closed."
    )
    max_connections_per_ip: int = key(
        MAX_INT, integer(0, MAX_INT), "Connections at once from one address; a further one is closed."
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        (), words(), "max.connections.per.ip of some hosts, as HOST:COUNT."
    )
    max_connection_creation_rate: int = key(
        MAX_INT, integer(1, MAX_INT), "Connections accepted in a second by one listener; further ones wait."
    )
    connections_max_idle_ms: int = key(
        10 * MINUTE_MS, integer(1), "A connection on which nothing has happened for this long is closed."
    )
    queued_max_requests: int = key(
        500, integer(1, MAX_INT), "Requests in work before further ones wait to be read; long polls do not count."
    )
    queued_max_request_bytes: int = key(
        -1, integer(-1), "Bytes of requests in work before further ones wait to be read; -1: no limit."
    )
    num_partitions: int = key(1, integer(1, 100_000), "Partitions of a topic that is created without saying how many.")
    default_replication_factor: int = key(
        1, integer(1, 32767), "Replicas of a topic that is created without saying how many."
    )
    auto_create_topics_enable: bool = key(
        True, boolean(), "Create a topic when a client produces to it or asks for it by name."
    )
    delete_topic_enable: bool = key(True, boolean(), "Whether topics can be deleted.")
    log_retention_check_interval_ms: int = key(
        5 * MINUTE_MS, integer(1), "How often retention looks for segments to delete."
    )
    log_flush_scheduler_interval_ms: int = key(
        1_000, integer(1), "How often the flusher looks for logs whose flush.ms has passed."
    )
    log_flush_offset_checkpoint_interval_ms: int = key(MINUTE_MS, integer(0), "How often recovery points are written.")
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        MINUTE_MS, integer(0), "How often log start offsets are written."
    )
    producer_id_expiration_ms: int = key(
        DAY_MS,
        integer(1, MAX_INT),
        "A producer id is forgotten by a partition when nothing has come from it for so long.",
    )
    producer_id_expiration_check_interval_ms: int = key(
        10 * MINUTE_MS, integer(1, MAX_INT), "How often producer ids to be forgotten are looked for."
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        5_000, integer(0), "How often high watermarks are written."
    )
    num_recovery_threads_per_data_dir: int = key(2, integer(1, 64), "Threads that open and recover logs at start.")
    fetch_max_bytes: int = key(
        55 << 20, integer(1024, MAX_INT), "Largest fetch response, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        1000, integer(0, MAX_INT), "Fetch sessions that are kept; consumers beyond fetch without one."
    )
    socket_request_max_bytes: int = key(100 << 20, integer(1024, MAX_INT), "Largest request that is accepted.")
    max_outstanding_produces: int = key(
        64, integer(1, 10_000), "Produce requests of one stream in flight before its reading pauses."
    )
    controlled_shutdown_timeout_ms: int = key(
        10_000, integer(0), "How long a stopping broker waits for requests in flight."
    )
    offsets_topic_num_partitions: int = key(
        50, integer(1, 10_000), "Partitions of __consumer_offsets, when it is created; it cannot change after that."
    )
    offsets_topic_replication_factor: int = key(
        1, integer(1, 32767), "Replicas of __consumer_offsets, when it is created."
    )
    offsets_topic_segment_bytes: int = key(
        100 << 20, integer(1 << 20, MAX_INT), "segment.bytes of __consumer_offsets, when it is created."
    )
    offset_metadata_max_bytes: int = key(
        4096, integer(0, MAX_INT), "Longest text that may be committed with an offset."
    )
    offsets_commit_timeout_ms: int = key(
        5_000, integer(1, MAX_INT), "How long the coordinator waits for replicas before it refuses a commit."
    )
    offsets_retention_minutes: int = key(
        7 * 24 * 60, integer(1, MAX_INT), "How long offsets are kept that no consumer uses any more."
    )
    offsets_retention_check_interval_ms: int = key(
        10 * MINUTE_MS, integer(1), "How often the coordinator looks for offsets that have expired."
    )
    group_initial_rebalance_delay_ms: int = key(
        3_000, integer(0, MAX_INT), "How long the first rebalance of an empty group waits for more members to join."
    )
    group_min_session_timeout_ms: int = key(
        6_000, integer(0, MAX_INT), "Shortest session timeout that a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = key(
        30 * MINUTE_MS, integer(0, MAX_INT), "Longest session timeout that a member of a classic group may ask for."
    )
    group_max_size: int = key(MAX_INT, integer(1, MAX_INT), "Most members that a classic group may have.")
    group_consumer_session_timeout_ms: int = key(
        45_000, integer(1, MAX_INT), "How long a member of a group of the new protocol may be silent."
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000, integer(1, MAX_INT), "How often members of groups of the new protocol are told to send heartbeats."
    )
    group_consumer_max_size: int = key(
        MAX_INT, integer(1, MAX_INT), "Most members that a group of the new protocol may have."
    )
    group_consumer_assignment_interval_ms: int = key(
        1_000,
        integer(0, MAX_INT),
        "Shortest time between two assignments of a group of the new protocol: who joins meanwhile waits for the next.",
    )
    group_consumer_assignors: tuple[str, ...] = key(
        ("uniform", "range"),
        some_of("uniform", "range"),
        "Assignors that members may ask for; the first where they ask for none.",
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a classic group becomes one of the new protocol when the first such member joins (upgrade), "
        "and back when the last one leaves (downgrade).",
    )
    metrics_listener: str = key(
        "", text(), "HOST:PORT where Prometheus may read the broker's figures, under /metrics; empty: nowhere."
    )
    grpc_security_protocol: str = key(
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL"),
        "SSL: the gRPC listener speaks TLS, with the keys of ssl.*; it always takes both versions of TLS, and does not "
        "ask for certificates where ssl.client.auth is requested.",
    )
    ssl_keystore_location: str = key("", text(), "A PEM file with the private key and the chain of certificates.")
    ssl_keystore_type: str = key("PEM", pem(), "The form of ssl.keystore.location.")
    ssl_key_password: str = key("", password(), "What the private key is encrypted with, if it is; not for gRPC.")
    ssl_truststore_location: str = key(
        "", text(), "A PEM file with the certificates of those who may vouch for clients."
    )
    ssl_truststore_type: str = key("PEM", pem(), "The form of ssl.truststore.location.")
    ssl_client_auth: str = key(
        "none",
        one_of("none", "requested", "required"),
        "Whether a client shows a certificate of its own: it is not asked, it may, or it must.",
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        ("TLSv1.2", "TLSv1.3"), some_of("TLSv1.2", "TLSv1.3"), "The versions of TLS that Kafka listeners speak."
    )
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        some_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        "How clients may show who they are on SASL_PLAINTEXT and SASL_SSL; PLAIN only where plain.sasl.jaas.config "
        "names users.",
    )
    plain_sasl_jaas_config: str = key(
        "",
        password(),
        "Users of PLAIN, as Kafka has them: org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="her password" user_bob="his";',
    )
    sasl_server_max_receive_size: int = key(
        512 << 10, integer(1024, MAX_INT), "Largest request of a client that has not yet shown who it is."
    )
    connection_failed_authentication_delay_ms: int = key(
        100, integer(0, 30_000), "How long the answer to a failed authentication is held back."
    )
    connections_max_reauth_ms: int = key(
        0, integer(0), "A client must show again who it is after this long (KIP-368), or is cut off; 0: never."
    )
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)


def _declared(cls: type) -> dict[str, Key]:
    return {
        item.name.replace("_", "."): Key(
            item.name.replace("_", "."), item.name, item.default,
            item.metadata["bound"], item.metadata["doc"], item.metadata["broker_key"],
        )
        for item in dataclasses.fields(cls)
        if item.metadata
    }  # fmt: skip


TOPIC_KEYS = _declared(TopicConfig)
BROKER_KEYS = _declared(BrokerConfig)
BROKER_DEFAULTS_OF_TOPICS = {item.broker_key: item for item in TOPIC_KEYS.values() if item.broker_key}


class Setting(NamedTuple):
    """One key as somebody wrote it."""

    name: str
    raw: str
    where: str
    """For error messages, such as ``broker.toml:3: ``."""


def parse_broker_config(settings: Iterable[Setting]) -> BrokerConfig:
    """The configuration that `settings` give, later ones over earlier ones.

    Raises ConfigError for a key that is unknown (with the nearest known one) or a value that is not allowed.
    """
    broker: dict[str, Any] = {}
    topic: dict[str, Any] = {}
    for name, raw, where in settings:
        if found := BROKER_KEYS.get(name):
            broker[found.field] = found.parse(raw, where)
        elif found := BROKER_DEFAULTS_OF_TOPICS.get(name):
            topic[found.field] = _parse_as(found, name, raw, where)
        else:
            raise ConfigError(where + _unknown(name, {**BROKER_KEYS, **BROKER_DEFAULTS_OF_TOPICS}))
    return BrokerConfig(**broker, topic_defaults=TopicConfig(**topic))


def render(value: Any) -> str:
    """A value as it would be written in a file; what `Key.parse` reads back."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _parse_as(found: Key, name: str, raw: str, where: str) -> Any:
    return dataclasses.replace(found, name=name).parse(raw, where)


def _unknown(name: str, known: Mapping[str, Key]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"unknown key {name!r}" + (f"; did you mean {near[0]}?" if near else "; the README lists the keys")
