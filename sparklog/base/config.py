"""The broker's configuration keys (org.apache.kafka.server.config) and the defaults of topics.

A configuration is parsed from text once and never changes. `conf/broker.toml` and the tables in the docs are generated
from this module.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sparklog.base.addresses import DEFAULT_GRPC_ADDRESS, DEFAULT_KAFKA_ADDRESS
from sparklog.base.config_keys import (
    CLUSTER_WIDE,
    DAY_MS,
    MAX_INT,
    MAX_LONG,
    MINUTE_MS,
    PER_BROKER,
    READ_ONLY,
    Key,
    boolean,
    declared_keys,
    host_counts,
    integer,
    key,
    log_format,
    one_of,
    password,
    pem,
    principals,
    some_of,
    text,
    unknown_key,
    words,
)
from sparklog.base.errors import ConfigError
from sparklog.base.topic_config import BROKER_DEFAULTS_OF_TOPICS, TopicConfig

STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One broker's configuration."""

    broker_id: int = key(0, integer(0, MAX_INT), "This broker's id in its cluster.")
    broker_rack: str = key("", text(), "The rack of this broker, for rack-aware assignment; empty: unknown.")
    log_dirs: tuple[str, ...] = key(
        ("./sparklog-data",),
        words(1),
        "The log directories. A new partition goes to the one with the fewest partitions.",
    )
    log_dir_min_free_bytes: int = key(
        64 << 20,
        integer(0),
        "The broker refuses appends while a log directory's disk has less free space; reads continue. 0: no check.",
    )
    grpc_listener: str = key(DEFAULT_GRPC_ADDRESS, text(), "HOST:PORT of the gRPC listener; port 0: any free one.")
    grpc_advertised_listener: str = key(
        "", text(), "HOST:PORT that clients should use; empty: the address of the listener."
    )
    listeners: tuple[str, ...] = key(
        (f"PLAINTEXT://{DEFAULT_KAFKA_ADDRESS}",),
        words(),
        "Kafka listeners, as NAME://HOST:PORT; no host: all interfaces; port 0: any free one; empty: gRPC only.",
    )
    advertised_listeners: tuple[str, ...] = key(
        (), words(), "The addresses that clients get instead of the listeners' own, as NAME://HOST:PORT."
    )
    listener_security_protocol_map: tuple[str, ...] = key(
        ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        words(1),
        "The security protocol of each listener, as NAME:PROTOCOL: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    )
    max_connections: int = key(
        MAX_INT,
        integer(0, MAX_INT),
        "Maximum connections of all Kafka listeners; the broker closes further ones.",
        update_mode=CLUSTER_WIDE,
    )
    max_connections_per_ip: int = key(
        MAX_INT,
        integer(0, MAX_INT),
        "Maximum connections from one address; the broker closes further ones.",
        update_mode=CLUSTER_WIDE,
    )
    max_connections_per_ip_overrides: tuple[str, ...] = key(
        (),
        host_counts(),
        "Overrides of max.connections.per.ip for some hosts, as HOST:COUNT.",
        update_mode=CLUSTER_WIDE,
    )
    max_connection_creation_rate: int = key(
        MAX_INT,
        integer(1, MAX_INT),
        "Maximum connections that one listener accepts in a second; further ones wait.",
        update_mode=CLUSTER_WIDE,
    )
    quota_window_size_seconds: int = key(
        1,
        integer(1, MAX_INT),
        "Seconds of its quota that a client may use at once after a silence; also the longest wait for "
        "request_percentage.",
    )
    controller_quota_window_num: int = key(
        11, integer(1, MAX_INT), "Windows of controller_mutation_rate that a client may use up at once."
    )
    controller_quota_window_size_seconds: int = key(
        1, integer(1, MAX_INT), "Seconds of a window of controller_mutation_rate."
    )
    connections_max_idle_ms: int = key(
        10 * MINUTE_MS, integer(1), "The broker closes a connection that has been idle for this long."
    )
    queued_max_requests: int = key(
        500,
        integer(1, MAX_INT),
        "Maximum requests in progress; the broker reads further ones later. Long polls do not count.",
    )
    queued_max_request_bytes: int = key(
        128 << 20,
        integer(-1),
        "Maximum bytes of requests in progress; the broker reads further ones later. A unary gRPC call of more than "
        "64 KiB is refused instead. The Kafka listeners count together, the gRPC listener on its own. Also the maximum "
        "of requests that are still arriving over Kafka's protocol; above it, the connection with the largest is "
        "closed. -1: no limit.",
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
        "Session timeout of a broker with cluster.store. A broker that is silent for longer counts as dead.",
    )
    zookeeper_connect: str = key(
        "",
        text(),
        "HOST:PORT,… of a ZooKeeper ensemble, with /path at the end if not at its root; empty: cluster.store.",
    )
    zookeeper_session_timeout_ms: int = key(
        18_000,
        integer(100, MAX_INT),
        "Session timeout in ZooKeeper. A broker that is silent for longer counts as dead.",
    )
    zookeeper_connection_timeout_ms: int = key(
        18_000, integer(1, MAX_INT), "Maximum time that a starting broker waits for ZooKeeper."
    )
    zookeeper_ssl_client_enable: bool = key(
        False, boolean(), "Speak TLS with ZooKeeper, at the secureClientPort of its servers."
    )
    zookeeper_ssl_truststore_location: str = key(
        "",
        text(),
        "A PEM file with the authorities that may vouch for ZooKeeper's servers, beside those of the system.",
    )
    zookeeper_ssl_keystore_location: str = key(
        "", text(), "A PEM file with the private key and certificates to show to ZooKeeper; empty: none."
    )
    zookeeper_ssl_keystore_password: str = key(
        "", password(), "The password of an encrypted private key in zookeeper.ssl.keystore.location."
    )
    zookeeper_ssl_endpoint_identification_algorithm: str = key(
        "HTTPS", one_of("HTTPS", ""), "HTTPS: a server's certificate must name the host in zookeeper.connect."
    )
    zookeeper_sasl_jaas_config: str = key(
        "",
        password(),
        "The user that logs in to ZooKeeper (SASL DIGEST-MD5), as a client's JAAS file has it: "
        'org.apache.zookeeper.server.auth.DigestLoginModule required username="broker" password="secret"; It needs '
        "the extra zookeeper-sasl. Empty: no login.",
    )
    zookeeper_set_acl: bool = key(
        False,
        boolean(),
        "Let only clients with the same user, or a certificate of the same subject, change the nodes that the brokers "
        "create, and read users' password verifiers. Existing nodes stay as they are.",
    )
    num_replica_fetchers: int = key(1, integer(1, 1000), "Fetchers for each leader that this broker follows.")
    replica_fetch_min_bytes: int = key(1, integer(0, MAX_INT), "Minimum bytes for which a follower's fetch waits.")
    replica_fetch_wait_max_ms: int = key(500, integer(0, MAX_INT), "Maximum time that a follower's fetch waits.")
    replica_fetch_max_bytes: int = key(
        1 << 20, integer(0, MAX_INT), "Maximum bytes of one partition in a follower's fetch."
    )
    replica_fetch_response_max_bytes: int = key(
        10 << 20, integer(0, MAX_INT), "Maximum bytes of all partitions in a follower's fetch."
    )
    replica_fetch_backoff_ms: int = key(
        1_000,
        integer(0, MAX_INT),
        "Pause after an error before a follower fetches from the leader, or the partition, again.",
    )
    replica_lag_time_max_ms: int = key(
        30_000,
        integer(1),
        "A follower that has not reached its leader's log end for this long leaves the ISR.",
    )
    replica_socket_timeout_ms: int = key(
        30_000,
        integer(1, MAX_INT),
        "Maximum time that a follower waits for a response, in addition to replica.fetch.wait.max.ms.",
    )
    replica_selector_class: str = key(
        "leader",
        one_of("leader", "org.apache.kafka.common.replica.RackAwareReplicaSelector"),
        "The replica for consumers with client.rack: the leader, or a replica in their rack (KIP-392).",
    )
    leader_replication_throttled_rate: int = key(
        MAX_LONG,
        integer(1),
        "Maximum bytes per second that this broker sends of replicas in leader.replication.throttled.replicas.",
        update_mode=CLUSTER_WIDE,
    )
    follower_replication_throttled_rate: int = key(
        MAX_LONG,
        integer(1),
        "Maximum bytes per second that this broker copies of replicas in follower.replication.throttled.replicas.",
        update_mode=CLUSTER_WIDE,
    )
    replica_alter_log_dirs_io_max_bytes_per_second: int = key(
        MAX_LONG,
        integer(1),
        "Maximum bytes per second that this broker copies of replicas that move from one log directory to another.",
        update_mode=CLUSTER_WIDE,
    )
    cordoned_log_dirs: str = key(
        "",
        one_of("", "*"),
        "*: this broker gets no new partitions, and keeps its own. Set by: sparklog cluster drain.",
        update_mode=PER_BROKER,
    )
    controller_socket_timeout_ms: int = key(
        30_000,
        integer(1, MAX_INT),
        "Maximum time that the controller waits for a broker's response before it repeats the request.",
    )
    controlled_shutdown_enable: bool = key(
        True, boolean(), "Whether a stopping broker first moves its leaderships to others."
    )
    controlled_shutdown_max_retries: int = key(3, integer(0, MAX_INT), "Maximum attempts of a controlled shutdown.")
    controlled_shutdown_retry_backoff_ms: int = key(
        5_000, integer(0), "Pause between two attempts of a controlled shutdown."
    )
    cluster_history_enable: bool = key(
        False,
        boolean(),
        "Whether this broker also writes its decisions to the topic __cluster_history. `sparklog up --brokers` and "
        "conf/three-brokers set it.",
    )
    auto_leader_rebalance_enable: bool = key(
        True, boolean(), "Whether the controller moves leaderships back to preferred replicas."
    )
    leader_imbalance_check_interval_seconds: int = key(
        300, integer(1), "How often the controller looks for leaders that are not the preferred replica."
    )
    leader_imbalance_per_broker_percentage: int = key(
        10,
        integer(0, MAX_INT),
        "Percentage of a broker's preferred leaderships that others may have before the controller moves them back.",
    )
    num_partitions: int = key(1, integer(1, 100_000), "Partitions of a new topic whose creator names no number.")
    default_replication_factor: int = key(
        1, integer(1, 32767), "Replicas of a new topic whose creator names no number."
    )
    auto_create_topics_enable: bool = key(
        True, boolean(), "Create a topic when a client produces to it or asks for it by name."
    )
    delete_topic_enable: bool = key(True, boolean(), "Whether topics can be deleted.")
    log_retention_check_interval_ms: int = key(
        5 * MINUTE_MS, integer(1), "How often the broker looks for segments to delete."
    )
    log_flush_scheduler_interval_ms: int = key(
        1_000, integer(1), "How often the broker looks for logs whose flush.ms has passed."
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        MINUTE_MS, integer(0), "How often the broker writes recovery points."
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        MINUTE_MS, integer(0), "How often the broker writes log start offsets."
    )
    producer_id_expiration_ms: int = key(
        DAY_MS,
        integer(1, MAX_INT),
        "A partition forgets a producer id that has sent nothing for this long.",
        update_mode=CLUSTER_WIDE,
    )
    producer_id_expiration_check_interval_ms: int = key(
        10 * MINUTE_MS, integer(1, MAX_INT), "How often the broker looks for expired producer ids."
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        5_000, integer(0), "How often the broker writes high watermarks."
    )
    num_recovery_threads_per_data_dir: int = key(
        2, integer(1, 64), "Threads that open and recover logs at start.", update_mode=CLUSTER_WIDE
    )
    fetch_max_bytes: int = key(
        55 << 20, integer(1024, MAX_INT), "Maximum bytes of a fetch response, whatever the client asks for."
    )
    max_incremental_fetch_session_cache_slots: int = key(
        1000, integer(0, MAX_INT), "Maximum fetch sessions; further consumers fetch without one."
    )
    socket_request_max_bytes: int = key(100 << 20, integer(1024, MAX_INT), "Maximum bytes of a request.")
    grpc_request_max_bytes: int = key(
        32 << 20,
        integer(1024, MAX_INT),
        "Maximum bytes of a request over gRPC; socket.request.max.bytes limits it too. Nothing else is served while "
        "gRPC receives a whole one: one to two milliseconds for each megabyte.",
    )
    max_outstanding_produces: int = key(
        64, integer(1, 10_000), "Maximum Produce requests of one stream in flight; the broker reads further ones later."
    )
    controlled_shutdown_timeout_ms: int = key(
        10_000, integer(0), "Maximum time that a stopping broker waits for requests in flight."
    )
    offsets_topic_num_partitions: int = key(
        50, integer(1, 10_000), "Partitions of a new __consumer_offsets; the number cannot change later."
    )
    offsets_topic_replication_factor: int = key(
        -1,
        integer(-1, 32767),
        "Replicas of a new __consumer_offsets; -1: default.replication.factor. The topic is created once that many "
        "brokers run. Use 3 in a cluster that must survive the loss of a broker.",
    )
    offsets_topic_segment_bytes: int = key(
        100 << 20, integer(1 << 20, MAX_INT), "segment.bytes of a new __consumer_offsets."
    )
    transaction_state_log_num_partitions: int = key(
        50, integer(1, 10_000), "Partitions of a new __transaction_state; the number cannot change later."
    )
    transaction_state_log_replication_factor: int = key(
        -1,
        integer(-1, 32767),
        "Replicas of a new __transaction_state; -1: default.replication.factor. Use 3 in a cluster that must survive "
        "the loss of a broker.",
    )
    transaction_state_log_min_isr: int = key(
        1,
        integer(1, 32767),
        "min.insync.replicas of a new __transaction_state. Use 2 with three replicas.",
    )
    transaction_state_log_segment_bytes: int = key(
        100 << 20, integer(1 << 20, MAX_INT), "segment.bytes of a new __transaction_state."
    )
    transaction_max_timeout_ms: int = key(
        15 * MINUTE_MS,
        integer(1, MAX_INT),
        "Longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = key(
        7 * DAY_MS,
        integer(1, MAX_INT),
        "The coordinator forgets a transactional id that has had no transaction for this long.",
    )
    sink_id_expiration_ms: int = key(
        -1,
        integer(-1, MAX_LONG),
        "The coordinator forgets a sink, and which batch of its Spark query was committed last, once it has had no "
        "batch for this long. -1: never. A query that is restarted later writes its last batch again.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        10_000, integer(1, MAX_INT), "How often the coordinator looks for transactions past their timeout."
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        60 * MINUTE_MS, integer(1, MAX_INT), "How often the coordinator looks for expired transactional ids."
    )
    transaction_partition_verification_enable: bool = key(
        True,
        boolean(),
        "Whether a partition asks the coordinator before it accepts the first batch of a transaction (KIP-890). "
        "Without it, a delayed batch may join a later transaction.",
        update_mode=CLUSTER_WIDE,
    )
    offset_metadata_max_bytes: int = key(
        4096, integer(0, MAX_INT), "Maximum length of the metadata that is committed with an offset."
    )
    offsets_commit_timeout_ms: int = key(
        5_000, integer(1, MAX_INT), "Maximum time that the coordinator waits for replicas before it refuses a commit."
    )
    offsets_retention_minutes: int = key(
        7 * 24 * 60, integer(1, MAX_INT), "How long the coordinator keeps offsets that no consumer uses any more."
    )
    offsets_retention_check_interval_ms: int = key(
        10 * MINUTE_MS, integer(1), "How often the coordinator looks for expired offsets."
    )
    group_initial_rebalance_delay_ms: int = key(
        3_000, integer(0, MAX_INT), "How long the first rebalance of an empty group waits for more members."
    )
    group_min_session_timeout_ms: int = key(
        6_000, integer(0, MAX_INT), "Minimum session timeout of members of classic groups."
    )
    group_max_session_timeout_ms: int = key(
        30 * MINUTE_MS, integer(0, MAX_INT), "Maximum session timeout of members of classic groups."
    )
    group_max_size: int = key(MAX_INT, integer(1, MAX_INT), "Maximum members of a classic group.")
    group_consumer_session_timeout_ms: int = key(
        45_000, integer(1, MAX_INT), "Session timeout of members of groups of the new protocol."
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000, integer(1, MAX_INT), "Heartbeat interval of members of groups of the new protocol."
    )
    group_consumer_max_size: int = key(MAX_INT, integer(1, MAX_INT), "Maximum members of a group of the new protocol.")
    group_consumer_assignment_interval_ms: int = key(
        1_000,
        integer(0, MAX_INT),
        "Minimum time between two assignments of a group of the new protocol; new members wait for the next one.",
    )
    group_consumer_assignors: tuple[str, ...] = key(
        ("uniform", "range"),
        some_of("uniform", "range"),
        "Assignors that members may choose; the first one is the default.",
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        one_of("bidirectional", "upgrade", "downgrade", "disabled"),
        "Whether a classic group changes to the new protocol when the first such member joins (upgrade), and back when "
        "the last one leaves (downgrade).",
    )
    telemetry_max_bytes: int = key(
        1 << 20,
        integer(0, MAX_INT),
        "Maximum bytes of the metrics that a client of Kafka's protocol pushes at once (KIP-714), compressed; four "
        "times as many when decompressed. 0: clients push none.",
    )
    metrics_listener: str = key(
        "", text(), "HOST:PORT of the broker's metrics for Prometheus, under /metrics; empty: none."
    )
    metrics_kafka_names: bool = key(
        False,
        boolean(),
        "Show metrics also under the names that the Prometheus exporters for Apache Kafka use: the JMX exporter and "
        "kafka_exporter.",
    )
    logging_format: str = log_format()
    tracing_otlp_endpoint: str = key(
        "",
        text(),
        "Where the broker sends spans of requests, by OTLP over HTTP, as http://HOST:PORT; empty: nowhere. Needs the "
        "extra otlp.",
    )
    tracing_sample_every: int = key(
        0,
        integer(0, MAX_INT),
        "One of this many requests without a trace of their own gets a span; 0: none of them.",
    )
    request_log_slow_ms: int = key(
        1_000,
        integer(-1, MAX_INT),
        "The broker logs requests that it has worked on for longer, at most ten a second. Waits for records, replicas "
        "and members of groups do not count. -1: none.",
        update_mode=CLUSTER_WIDE,
    )
    grpc_security_protocol: str = key(
        "PLAINTEXT",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        "SSL, SASL_SSL: the gRPC listener uses TLS with the keys of ssl.*. It always accepts TLSv1.2 and TLSv1.3, and "
        "asks for no client certificate if ssl.client.auth is requested. SASL_PLAINTEXT, SASL_SSL: each call needs the "
        "metadata `authorization: Basic`, with a user of SASL and the password, or `authorization: Bearer`, with a "
        "token of OAUTHBEARER.",
    )
    ssl_keystore_location: str = key("", text(), "A PEM file with the private key and the chain of certificates.")
    ssl_keystore_type: str = key("PEM", pem(), "The form of ssl.keystore.location.")
    ssl_key_password: str = key("", password(), "The password of an encrypted private key; not for gRPC.")
    ssl_truststore_location: str = key(
        "", text(), "A PEM file with the certificates of the authorities that sign client certificates."
    )
    ssl_truststore_type: str = key("PEM", pem(), "The form of ssl.truststore.location.")
    ssl_client_auth: str = key(
        "none",
        one_of("none", "requested", "required"),
        "Client certificates: none, optional (requested) or required.",
    )
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        text(),
        "Rules that make the principal of a client certificate from its subject, separated by commas: "
        "RULE:PATTERN/REPLACEMENT/[LU] or DEFAULT, the subject itself.",
    )
    ssl_enabled_protocols: tuple[str, ...] = key(
        ("TLSv1.2", "TLSv1.3"), some_of("TLSv1.2", "TLSv1.3"), "The versions of TLS that Kafka listeners accept."
    )
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"),
        some_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
        "SASL mechanisms of SASL_PLAINTEXT and SASL_SSL listeners. PLAIN needs users in plain.sasl.jaas.config, "
        "OAUTHBEARER needs sasl.oauthbearer.jwks.endpoint.url.",
    )
    plain_sasl_jaas_config: str = key(
        "",
        password(),
        "Users of PLAIN, in Kafka's form: org.apache.kafka.common.security.plain.PlainLoginModule required "
        'user_alice="her password" user_bob="his"; The broker applies a change in the file of --config without a '
        "restart.",
    )
    sasl_oauthbearer_jwks_endpoint_url: str = key(
        "",
        text(),
        "The JSON Web Key Set with the keys that sign the tokens of OAUTHBEARER, as an https, http or file URL.",
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = key(
        60 * MINUTE_MS,
        integer(1),
        "How often the broker fetches the JSON Web Key Set. It also does so when a token names an unknown key, and "
        "when a file has changed.",
    )
    sasl_oauthbearer_expected_issuer: str = key(
        "", text(), "The claim iss that a token must have; empty: any issuer whose key is in the set."
    )
    sasl_oauthbearer_expected_audience: tuple[str, ...] = key(
        (),
        words(),
        "The claim aud of a token must name one of these. Without them, tokens with an audience are refused.",
    )
    sasl_oauthbearer_sub_claim_name: str = key("sub", text(), "The claim of a token that is the name of the user.")
    sasl_oauthbearer_clock_skew_seconds: int = key(
        30,
        integer(0, MAX_INT),
        "How far the clock of a token's issuer may be ahead, for the claims iat and nbf. An expired token is refused.",
    )
    sasl_server_max_receive_size: int = key(
        512 << 10, integer(1024, MAX_INT), "Maximum bytes of a request before authentication."
    )
    connection_failed_authentication_delay_ms: int = key(
        100, integer(0, 30_000), "Delay of the response to a failed authentication."
    )
    connections_max_reauth_ms: int = key(
        0, integer(0), "A client must authenticate again within this time (KIP-368), or is disconnected; 0: never."
    )
    authorizer_class_name: str = key(
        "",
        one_of("", STANDARD_AUTHORIZER),
        "The authorizer, which enforces ACLs; empty: every client may do everything. All brokers of a cluster need the "
        "same one.",
    )
    super_users: str = key(
        "",
        principals(),
        "Principals that may do everything, separated by semicolons: User:admin;User:CN=broker,O=Example.",
    )
    allow_everyone_if_no_acl_found: bool = key(
        False, boolean(), "Whether everybody may use a resource for which there is no ACL."
    )
    authorizer_audit_log: str = key(
        "",
        text(),
        "A file to which the authorizer appends its decisions as JSON lines: a denial at most once a second, a "
        "permission at most once a minute for the same client, operation and resource; empty: none.",
    )
    topic_defaults: TopicConfig = field(default_factory=TopicConfig)


BROKER_KEYS = declared_keys(BrokerConfig)
CHANGEABLE = {
    name: key.update_mode
    for name, key in sorted({**BROKER_KEYS, **BROKER_DEFAULTS_OF_TOPICS}.items())
    if key.update_mode != READ_ONLY
}
"""The update modes of the keys that may change while a broker runs."""


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
    return _override(BrokerConfig(), settings)


def with_settings(config: BrokerConfig, settings: Mapping[str, str]) -> BrokerConfig:
    """Return the configuration with these keys changed. Raises ConfigError as `parse_broker_config` does."""
    return _override(config, (Setting(name, raw, "") for name, raw in settings.items()))


def find_broker_key(name: str, where: str = "") -> Key:
    """Return a broker's key, or its default of a topic's key, under the broker's name.

    Raises ConfigError, with `where`, for an unknown key.
    """
    if found := BROKER_KEYS.get(name) or BROKER_DEFAULTS_OF_TOPICS.get(name):
        return dataclasses.replace(found, name=name)
    raise ConfigError(where + unknown_key(name, {**BROKER_KEYS, **BROKER_DEFAULTS_OF_TOPICS}))


def _override(config: BrokerConfig, settings: Iterable[Setting]) -> BrokerConfig:
    broker: dict[str, Any] = {}
    topic: dict[str, Any] = {}
    for name, raw, where in settings:
        found = find_broker_key(name, where)
        (broker if name in BROKER_KEYS else topic)[found.field] = found.parse(raw, where)
    return dataclasses.replace(config, **broker, topic_defaults=dataclasses.replace(config.topic_defaults, **topic))
