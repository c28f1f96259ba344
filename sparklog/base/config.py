"""The broker's configuration keys (org.apache.kafka.server.config) and the defaults of topics.

A configuration is parsed from text once and never changes. `conf/broker.toml` and the tables in the docs are generated
from here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS, DEFAULT_KAFKA_ADDRESS
from sparklog.base.config_keys import (
    DAY_MS,
    MAX_INT,
    MAX_LONG,
    MINUTE_MS,
    boolean,
    declared_keys,
    integer,
    key,
    one_of,
    password,
    pem,
    some_of,
    text,
    unknown_key,
    words,
)
from sparklog.base.errors import ConfigError
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's configuration."""

    broker_id: int = key(0, integer(0, MAX_INT), "This broker's id in its cluster.")
    broker_rack: str = key("", text(), "Where this broker stands, for rack-aware assignment; empty: unknown.")
    log_dirs: tuple[str, ...] = key(
        ("./sparklog-data",), words(1), "Folders that hold partitions; a new partition goes to the one with the fewest."
    )
    log_dir_min_free_bytes: int = key(
        64 << 20,
        integer(0),
        "Append nothing while the disk of a log directory has less free; records stay readable. 0: do not look.",
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
        512 << 20,
        integer(-1),
        "Bytes of requests in work before further ones wait to be read, or, of gRPC's calls with one request, are "
        "refused if they are larger than 64 KiB. Kafka's listeners count theirs, the gRPC listener its own. "
        "-1: no limit.",
    )
    cluster_store: str = key(
        "",
        text(),
        "The file of the cluster store, shared by brokers on this machine; empty: cluster.sqlite in the first log "
        "directory. Not used with zookeeper.connect.",
    )
    cluster_store_session_timeout_ms: int = key(
        6_000,
        integer(100, MAX_INT),
        "How long a broker may be silent before others take it for dead, with cluster.store.",
    )
    zookeeper_connect: str = key(
        "",
        text(),
        "HOST:PORT,… of a ZooKeeper ensemble, with /path at the end if not at its root; empty: cluster.store.",
    )
    zookeeper_session_timeout_ms: int = key(
        18_000, integer(100, MAX_INT), "How long a broker may be silent before ZooKeeper takes it for dead."
    )
    zookeeper_connection_timeout_ms: int = key(
        18_000, integer(1, MAX_INT), "How long a starting broker waits for ZooKeeper."
    )
    num_replica_fetchers: int = key(1, integer(1, 1000), "Fetchers for each leader that this broker follows.")
    replica_fetch_min_bytes: int = key(1, integer(0, MAX_INT), "A follower's fetch waits for so many bytes.")
    replica_fetch_wait_max_ms: int = key(500, integer(0, MAX_INT), "The longest that a follower's fetch waits.")
    replica_fetch_max_bytes: int = key(
        1 << 20, integer(0, MAX_INT), "Bytes that a follower asks for of one partition at a time."
    )
    replica_fetch_response_max_bytes: int = key(
        10 << 20, integer(0, MAX_INT), "Bytes that a follower asks for at a time in all."
    )
    replica_fetch_backoff_ms: int = key(
        1_000, integer(0, MAX_INT), "How long a follower leaves a leader or a partition alone after an error."
    )
    replica_lag_time_max_ms: int = key(
        30_000,
        integer(1),
        "A follower that has not been at its leader's log end for so long leaves the in-sync replicas.",
    )
    replica_socket_timeout_ms: int = key(
        30_000, integer(1, MAX_INT), "How long a follower waits for an answer, beside replica.fetch.wait.max.ms."
    )
    replica_selector_class: str = key(
        "leader",
        one_of("leader", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        "Where consumers that say client.rack are sent: to the leader, or to a replica in their rack (KIP-392).",
    )
    leader_replication_throttled_rate: int = key(
        MAX_LONG,
        integer(1),
        "Bytes per second that this broker sends of replicas in leader.replication.throttled.replicas (a topic's key).",
    )
    follower_replication_throttled_rate: int = key(
        MAX_LONG,
        integer(1),
        "Bytes per second that this broker copies of replicas in follower.replication.throttled.replicas.",
    )
    cordoned_log_dirs: str = key(
        "",
        one_of("", "*"),
        "* while this broker gets no new partitions; those it has stay. Set by: sparklog cluster drain.",
    )
    controller_socket_timeout_ms: int = key(
        30_000, integer(1, MAX_INT), "How long the controller waits for a broker's answer before it asks again."
    )
    controlled_shutdown_enable: bool = key(
        True, boolean(), "Whether a stopping broker first has its leaderships moved to others."
    )
    controlled_shutdown_max_retries: int = key(3, integer(0, MAX_INT), "How often it tries.")
    controlled_shutdown_retry_backoff_ms: int = key(5_000, integer(0), "How long it waits between two tries.")
    cluster_history_enable: bool = key(
        False,
        boolean(),
        "Whether what is decided at this broker is also written to the topic __cluster_history; "
        "`sparklog up --brokers` and conf/three-brokers set it.",
    )
    auto_leader_rebalance_enable: bool = key(
        True, boolean(), "Whether leaderships go back to preferred replicas by themselves."
    )
    leader_imbalance_check_interval_seconds: int = key(300, integer(1), "How often the controller looks for that.")
    leader_imbalance_per_broker_percentage: int = key(
        10, integer(0, MAX_INT), "Of a broker's preferred leaderships, how many may be with others before they move."
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
        -1,
        integer(-1, 32767),
        "Replicas of __consumer_offsets, when it is created; -1: default.replication.factor. It is not created before "
        "so many brokers are there: 3 in a cluster that is to survive its brokers.",
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


BROKER_KEYS = declared_keys(BrokerConfig)


class Setting(NamedTuple):
    """One key as written in a configuration source."""

    name: str
    raw: str
    where: str
    """Prefix of error messages, such as ``broker.toml:3: ``."""


def parse_broker_config(settings: Iterable[Setting]) -> BrokerConfig:
    """Return the configuration that `settings` give; later ones override earlier ones.

    Raises ConfigError for an unknown key (naming the nearest known one) or a value that is not allowed.
    """
    broker: dict[str, Any] = {}
    topic: dict[str, Any] = {}
    for name, raw, where in settings:
        if found := BROKER_KEYS.get(name):
            broker[found.field] = found.parse(raw, where)
        elif found := BROKER_DEFAULTS_OF_TOPICS.get(name):
            topic[found.field] = dataclasses.replace(found, name=name).parse(raw, where)
        else:
            raise ConfigError(where + unknown_key(name, {**BROKER_KEYS, **BROKER_DEFAULTS_OF_TOPICS}))
    return BrokerConfig(**broker, topic_defaults=TopicConfig(**topic))
