"""The configuration of brokers as typed keyword arguments of `start_broker` and `start_cluster`.

`BrokerConfig` and `TopicConfig` define the keys: meanings, defaults and bounds. This module repeats names, with
underscores instead of dots, and types, since type checkers do not read a dataclass as keyword arguments; a test
compares the two. Values as text, as read from a file, are not in these types: pass them as
``start_broker(**settings)``, with ``settings: dict[str, Any]``.
"""

from __future__ import annotations

from typing import TypedDict


class BrokerOptions(TypedDict, total=False):
    """Keys of a broker, and its defaults for topics."""

    broker_id: int
    broker_rack: str
    log_dirs: str | tuple[str, ...]
    log_dir_min_free_bytes: int
    grpc_listener: str
    grpc_advertised_listener: str
    listeners: str | tuple[str, ...]
    advertised_listeners: str | tuple[str, ...]
    listener_security_protocol_map: str | tuple[str, ...]
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: str | tuple[str, ...]
    max_connection_creation_rate: int
    quota_window_size_seconds: int
    controller_quota_window_num: int
    controller_quota_window_size_seconds: int
    connections_max_idle_ms: int
    queued_max_requests: int
    queued_max_request_bytes: int
    cluster_store: str
    cluster_store_session_timeout_ms: int
    zookeeper_connect: str
    zookeeper_session_timeout_ms: int
    zookeeper_connection_timeout_ms: int
    zookeeper_ssl_client_enable: bool
    zookeeper_ssl_truststore_location: str
    zookeeper_ssl_keystore_location: str
    zookeeper_ssl_keystore_password: str
    zookeeper_ssl_endpoint_identification_algorithm: str
    zookeeper_sasl_jaas_config: str
    zookeeper_set_acl: bool
    num_replica_fetchers: int
    replica_fetch_min_bytes: int
    replica_fetch_wait_max_ms: int
    replica_fetch_max_bytes: int
    replica_fetch_response_max_bytes: int
    replica_fetch_backoff_ms: int
    replica_lag_time_max_ms: int
    replica_socket_timeout_ms: int
    replica_selector_class: str
    leader_replication_throttled_rate: int
    follower_replication_throttled_rate: int
    replica_alter_log_dirs_io_max_bytes_per_second: int
    cordoned_log_dirs: str
    controller_socket_timeout_ms: int
    controlled_shutdown_enable: bool
    controlled_shutdown_max_retries: int
    controlled_shutdown_retry_backoff_ms: int
    cluster_history_enable: bool
    auto_leader_rebalance_enable: bool
    leader_imbalance_check_interval_seconds: int
    leader_imbalance_per_broker_percentage: int
    num_partitions: int
    default_replication_factor: int
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    log_retention_check_interval_ms: int
    log_flush_scheduler_interval_ms: int
    log_flush_offset_checkpoint_interval_ms: int
    log_flush_start_offset_checkpoint_interval_ms: int
    producer_id_expiration_ms: int
    producer_id_expiration_check_interval_ms: int
    replica_high_watermark_checkpoint_interval_ms: int
    num_recovery_threads_per_data_dir: int
    fetch_max_bytes: int
    max_incremental_fetch_session_cache_slots: int
    socket_request_max_bytes: int
    grpc_request_max_bytes: int
    max_outstanding_produces: int
    controlled_shutdown_timeout_ms: int
    offsets_topic_num_partitions: int
    offsets_topic_replication_factor: int
    offsets_topic_segment_bytes: int
    transaction_state_log_num_partitions: int
    transaction_state_log_replication_factor: int
    transaction_state_log_min_isr: int
    transaction_state_log_segment_bytes: int
    transaction_max_timeout_ms: int
    transactional_id_expiration_ms: int
    sink_id_expiration_ms: int
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    transaction_partition_verification_enable: bool
    offset_metadata_max_bytes: int
    offsets_commit_timeout_ms: int
    offsets_retention_minutes: int
    offsets_retention_check_interval_ms: int
    group_initial_rebalance_delay_ms: int
    group_min_session_timeout_ms: int
    group_max_session_timeout_ms: int
    group_max_size: int
    group_consumer_session_timeout_ms: int
    group_consumer_heartbeat_interval_ms: int
    group_consumer_max_size: int
    group_consumer_assignment_interval_ms: int
    group_consumer_assignors: str | tuple[str, ...]
    group_consumer_migration_policy: str
    telemetry_max_bytes: int
    metrics_listener: str
    metrics_kafka_names: bool
    logging_format: str
    tracing_otlp_endpoint: str
    tracing_sample_every: int
    request_log_slow_ms: int
    grpc_security_protocol: str
    ssl_keystore_location: str
    ssl_keystore_type: str
    ssl_key_password: str
    ssl_truststore_location: str
    ssl_truststore_type: str
    ssl_client_auth: str
    ssl_principal_mapping_rules: str
    ssl_enabled_protocols: str | tuple[str, ...]
    sasl_enabled_mechanisms: str | tuple[str, ...]
    plain_sasl_jaas_config: str
    sasl_oauthbearer_jwks_endpoint_url: str
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    sasl_oauthbearer_expected_issuer: str
    sasl_oauthbearer_expected_audience: str | tuple[str, ...]
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_clock_skew_seconds: int
    sasl_server_max_receive_size: int
    connection_failed_authentication_delay_ms: int
    connections_max_reauth_ms: int
    authorizer_class_name: str
    super_users: str
    allow_everyone_if_no_acl_found: bool
    authorizer_audit_log: str

    log_cleanup_policy: str | tuple[str, ...]
    log_cleaner_compaction_strategy: str
    compression_gzip_level: int
    compression_type: str
    compression_zstd_level: int
    log_cleaner_delete_retention_ms: int
    log_segment_delete_delay_ms: int
    log_flush_interval_messages: int
    log_flush_interval_ms: int
    log_index_interval_bytes: int
    log_cleaner_max_compaction_lag_ms: int
    message_max_bytes: int
    log_message_timestamp_after_max_ms: int
    log_message_timestamp_before_max_ms: int
    log_message_timestamp_type: str
    log_cleaner_min_cleanable_ratio: float
    log_cleaner_min_compaction_lag_ms: int
    min_insync_replicas: int
    log_retention_archive: str
    log_retention_bytes: int
    log_retention_ms: int
    log_segment_bytes: int
    log_index_size_max_bytes: int
    log_roll_jitter_ms: int
    log_roll_ms: int
    unclean_leader_election_enable: bool
