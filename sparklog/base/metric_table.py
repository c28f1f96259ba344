"""The table of all metrics: the one place that names them.

    server/broker_collector.py, jobs/metrics.py    show the figures of a broker and of a job server under these names
    docs/metrics.py                                writes docs/reference/metrics.md
    docs/dashboard.py, docs/alerts.py              write conf/grafana/sparklog.json and conf/prometheus/alerts.yml

Kafka's names are those that the Prometheus JMX exporter gives the metrics of Apache Kafka with its usual rules
(lower case, `_total` for counts), and those of kafka_exporter. A broker shows them with metrics.kafka.names.
"""

from __future__ import annotations

from sparklog.base.metric_types import Alert, MetricInfo, Section, Severity, counter, gauge, histogram

_TOPICS = "kafka_server_brokertopicmetrics_"
_REPLICAS = "kafka_server_replicamanager_"
_CONTROLLER = "kafka_controller_kafkacontroller_"
GROUP_LABELS = ("consumergroup", "topic", "partition")
PARTITION_LABELS = ("topic", "partition")
CLIENT_LABELS = (
    "client_id", "client_instance_id", "client_software_name", "client_software_version", "metric", "attributes",
)  # fmt: skip
JOB_LABELS = ("schedule", "job")


def _above_zero(metric: str, name: str, for_minutes: int, severity: Severity, summary: str) -> Alert:
    return Alert(name=name, expr=f"{metric} > 0", for_minutes=for_minutes, severity=severity, summary=summary)


REQUESTS = Section(
    title="Requests",
    metrics=(
        counter("sparklog_requests_total", "Requests answered or refused.", "api"),
        counter(
            "sparklog_requests_refused_total", "Requests refused as a whole, also those of clients without rights.",
            "api",
        ),
        histogram("sparklog_request_seconds", "From request to answer, waits included.", "api"),
        histogram(
            "sparklog_kafka_request_seconds", "Parts of the time of requests on Kafka's wire.", "api", "part"
        ),
        counter("sparklog_throttled_requests_total", "Requests for which a client had to wait, over a quota."),
        counter("sparklog_throttle_seconds_total", "The time that these clients had to wait."),
        gauge("sparklog_waiting_requests", "Fetches and produces that wait for records or replicas."),
        gauge("sparklog_connections", "Open connections of a Kafka listener.", "listener"),
        counter("sparklog_connections_accepted_total", "Connections accepted.", "listener"),
        counter("sparklog_connections_refused_total", "Connections closed at once, over a quota.", "listener"),
        counter("sparklog_connections_expired_total", "Connections closed after too long a silence.", "listener"),
    ),
)  # fmt: skip
TOPICS = Section(
    title="Topics",
    metrics=(
        counter(
            "sparklog_bytes_in_total", "Bytes of record batches appended.", "topic",
            kafka_name=f"{_TOPICS}bytesin_total",
        ),
        counter(
            "sparklog_records_in_total", "Records appended.", "topic", kafka_name=f"{_TOPICS}messagesin_total"
        ),
        counter(
            "sparklog_bytes_out_total", "Bytes of record batches fetched.", "topic",
            kafka_name=f"{_TOPICS}bytesout_total",
        ),
        gauge("sparklog_log_start_offset", "The first offset of a replica.", *PARTITION_LABELS),
        gauge("sparklog_high_watermark", "Records below it are committed.", *PARTITION_LABELS),
        gauge("sparklog_log_end_offset", "The offset of a replica's next record.", *PARTITION_LABELS),
        gauge("sparklog_log_size_bytes", "Bytes of a replica's segments.", *PARTITION_LABELS),
    ),
)  # fmt: skip
GROUPS = Section(
    title="Consumer groups",
    metrics=(
        gauge(
            "sparklog_consumergroup_lag", "Committed records of the partition that the group has not consumed.",
            *GROUP_LABELS, kafka_name="kafka_consumergroup_lag",
        ),
        gauge(
            "sparklog_consumergroup_lag_seconds",
            "Age of the oldest record that the group has not consumed; 0 if there is none.",
            *GROUP_LABELS,
            kafka_name="kafka_consumergroup_lag_seconds",
            alert=Alert(
                name="SparklogConsumerGroupLag",
                expr="max by (consumergroup, topic) (sparklog_consumergroup_lag_seconds) > 300",
                for_minutes=5,
                severity=Severity.WARNING,
                summary="Group {{ $labels.consumergroup }} is {{ $value | humanizeDuration }} behind topic "
                "{{ $labels.topic }}: look whether its consumers run, and whether they are too few.",
            ),
        ),
        gauge(
            "sparklog_consumergroup_current_offset", "The offset that the group has committed.", *GROUP_LABELS,
            kafka_name="kafka_consumergroup_current_offset",
        ),
        gauge(
            "sparklog_consumergroup_members", "Members of the group.", "consumergroup",
            kafka_name="kafka_consumergroup_members",
        ),
    ),
)  # fmt: skip
CLIENTS = Section(
    title="Clients",
    metrics=(
        gauge(
            "sparklog_client_metric",
            "The newest value that a client of Kafka's protocol has pushed of a metric of its own (KIP-714).",
            *CLIENT_LABELS,
        ),
        counter(
            "sparklog_client_metric_total",
            "The same for metrics that only grow, and for the count and the sum of histograms.",
            *CLIENT_LABELS,
        ),
        counter(
            "sparklog_client_metrics_dropped_total",
            "Values that were not kept: a client has more than 1,000, or all clients together more than 10,000.",
        ),
    ),
)
REPLICATION = Section(
    title="Replication",
    metrics=(
        gauge("sparklog_partitions", "Replicas of this broker.", kafka_name=f"{_REPLICAS}partitioncount"),
        gauge("sparklog_leaders", "Partitions that this broker leads.", kafka_name=f"{_REPLICAS}leadercount"),
        gauge(
            "sparklog_offline_partitions",
            "Replicas of this broker whose log has failed.",
            kafka_name=f"{_REPLICAS}offlinereplicacount",
            alert=_above_zero(
                "sparklog_offline_partitions", "SparklogOfflineReplicas", 1, Severity.CRITICAL,
                "{{ $value }} logs of broker {{ $labels.instance }} have failed: replace the disk, then restart it.",
            ),
        ),
        gauge(
            "sparklog_under_replicated_partitions",
            "Led partitions with fewer replicas in sync than they have.",
            kafka_name=f"{_REPLICAS}underreplicatedpartitions",
            alert=_above_zero(
                "sparklog_under_replicated_partitions", "SparklogUnderReplicatedPartitions", 5, Severity.WARNING,
                "{{ $value }} partitions led by {{ $labels.instance }} lack an in-sync replica: look which broker is "
                "down or slow.",
            ),
        ),
        gauge(
            "sparklog_under_min_isr_partitions",
            "Led partitions with fewer replicas in sync than min.insync.replicas.",
            kafka_name=f"{_REPLICAS}underminisrpartitioncount",
            alert=_above_zero(
                "sparklog_under_min_isr_partitions", "SparklogUnderMinIsrPartitions", 1, Severity.CRITICAL,
                "{{ $value }} partitions led by {{ $labels.instance }} refuse writes with acks=all: bring their other "
                "replicas back.",
            ),
        ),
        counter(
            "sparklog_isr_shrinks_total", "Replicas that left an ISR, as this broker wrote.",
            kafka_name=f"{_REPLICAS}isrshrinks_total",
        ),
        counter(
            "sparklog_isr_expands_total", "Replicas that joined an ISR, as this broker wrote.",
            kafka_name=f"{_REPLICAS}isrexpands_total",
        ),
        counter("sparklog_isr_update_failures_total", "ISR changes that were refused, or whose end is not known."),
        gauge("sparklog_follower_max_lag", "Records that the slowest followed partition is behind its leader."),
    ),
)  # fmt: skip
CLUSTER = Section(
    title="Cluster",
    metrics=(
        gauge(
            "sparklog_active_controller",
            "1: this broker is the controller.",
            kafka_name=f"{_CONTROLLER}activecontrollercount",
            alert=Alert(
                name="SparklogNoActiveController",
                expr="sum by (job) (sparklog_active_controller) != 1",
                for_minutes=1,
                severity=Severity.CRITICAL,
                summary="The cluster has {{ $value }} active controllers instead of one: look whether the brokers "
                "reach the cluster store.",
            ),
        ),
        gauge("sparklog_cluster_brokers", "Live brokers (controller only)."),
        gauge("sparklog_cluster_topics", "Topics (controller only)."),
        gauge("sparklog_cluster_partitions", "Partitions of all topics (controller only)."),
        gauge(
            "sparklog_cluster_leaderless_partitions",
            "Partitions that no broker leads (controller only).",
            kafka_name=f"{_CONTROLLER}offlinepartitionscount",
            alert=_above_zero(
                "sparklog_cluster_leaderless_partitions", "SparklogOfflinePartitions", 1, Severity.CRITICAL,
                "{{ $value }} partitions have no leader: bring a broker back that was in sync.",
            ),
        ),
        gauge(
            "sparklog_cluster_not_preferred_leaders",
            "Partitions that their preferred replica does not lead (controller only).",
        ),
        gauge("sparklog_cluster_reassigning_partitions", "Partitions that are being reassigned (controller only)."),
        gauge("sparklog_cluster_topics_to_delete", "Topics that are being deleted (controller only)."),
        gauge(
            "sparklog_store_connected",
            "1: the broker has a session with the cluster store.",
            alert=Alert(
                name="SparklogStoreLost",
                expr="sparklog_store_connected == 0",
                for_minutes=1,
                severity=Severity.CRITICAL,
                summary="Broker {{ $labels.instance }} cannot reach the cluster store: look whether the store runs.",
            ),
        ),
        counter("sparklog_store_sessions_expired_total", "Sessions of this broker that the cluster store has ended."),
        counter("sparklog_history_written_total", "Records of this broker in the cluster's history."),
        counter(
            "sparklog_history_dropped_total",
            "Records of the history that were lost before they were written.",
            alert=Alert(
                name="SparklogHistoryDropped",
                expr="increase(sparklog_history_dropped_total[15m]) > 0",
                for_minutes=0,
                severity=Severity.WARNING,
                summary="Broker {{ $labels.instance }} has lost records of __cluster_history: look whether its "
                "partition has a leader.",
            ),
        ),
        gauge("sparklog_history_waiting", "Records for the cluster's history, not written yet."),
    ),
)  # fmt: skip
STORAGE = Section(
    title="Storage and compaction",
    metrics=(
        gauge(
            "sparklog_failed_log_dirs",
            "Log directories that have failed.",
            alert=_above_zero(
                "sparklog_failed_log_dirs", "SparklogFailedLogDir", 0, Severity.CRITICAL,
                "{{ $value }} log directories of {{ $labels.instance }} have failed: replace the disk, then restart "
                "the broker.",
            ),
        ),
        gauge(
            "sparklog_full_log_dirs",
            "Log directories that take no records until there is room.",
            alert=_above_zero(
                "sparklog_full_log_dirs", "SparklogFullLogDir", 0, Severity.CRITICAL,
                "{{ $value }} log directories of {{ $labels.instance }} are full: make room, or shorten retention.",
            ),
        ),
        counter("sparklog_replaced_segments_total", "Segments that compaction has replaced.", "topic"),
        counter("sparklog_replaced_bytes_before_total", "Bytes of the segments that were replaced.", "topic"),
        counter("sparklog_replaced_bytes_after_total", "Bytes of the segments that took their place.", "topic"),
        counter(
            "sparklog_noted_job_runs_total",
            "Job runs reported to this broker; status: 0 ok, 1 findings, 2 could not run.",
            *JOB_LABELS, "status",
        ),
        gauge(
            "sparklog_noted_job_last_run_timestamp_seconds", "When the last such run began.", *JOB_LABELS
        ),
        gauge("sparklog_noted_job_last_run_status", "The status of the last such run.", *JOB_LABELS),
        gauge("sparklog_noted_job_last_run_findings", "The findings of the last such run.", *JOB_LABELS),
    ),
)  # fmt: skip
PROCESS = Section(
    title="Process",
    metrics=(
        gauge(
            "sparklog_event_loop_delay_seconds",
            "The longest time that the event loop kept a timer waiting since the last scrape.",
            alert=Alert(
                name="SparklogEventLoopDelay",
                expr="sparklog_event_loop_delay_seconds > 0.5",
                for_minutes=5,
                severity=Severity.WARNING,
                summary="Broker {{ $labels.instance }} answers {{ $value | humanizeDuration }} late: look for a busy "
                "machine, or move leaderships to other brokers.",
            ),
        ),
        histogram(
            "sparklog_event_loop_lag_seconds",
            "How long the event loop kept a timer waiting, measured every 20 ms; up to 1 ms means nothing.",
        ),
        gauge("process_open_fds", "Open file descriptors (Linux)."),
        gauge(
            "process_max_fds",
            "Limit of open file descriptors (Linux).",
            alert=Alert(
                name="SparklogFewFileDescriptors",
                expr="process_open_fds / process_max_fds > 0.9 and on (job, instance) sparklog_active_controller",
                for_minutes=5,
                severity=Severity.WARNING,
                summary="Broker {{ $labels.instance }} uses {{ $value | humanizePercentage }} of its file descriptors: "
                "raise the limit (ulimit -n), then restart it.",
            ),
        ),
        gauge("process_resident_memory_bytes", "Resident memory (Linux)."),
        gauge("process_virtual_memory_bytes", "Virtual memory (Linux)."),
        counter("process_cpu_seconds_total", "CPU time, user and system (Linux)."),
        gauge("process_start_time_seconds", "When the process began, as Unix time (Linux)."),
    ),
)  # fmt: skip
KAFKA_ONLY = Section(
    title="Further names of Kafka's exporters",
    metrics=(
        gauge(
            "kafka_network_requestmetrics_totaltimems",
            "Time of requests on Kafka's wire in ms: a quantile since the start, interpolated within the buckets of "
            "sparklog_kafka_request_seconds.",
            "request", "quantile",
        ),
        counter("kafka_network_requestmetrics_requests_total", "Requests on Kafka's wire.", "request"),
        gauge(
            "kafka_topic_partition_current_offset", "The high watermark (the partition's leader only).",
            *PARTITION_LABELS,
        ),
        gauge(
            "kafka_topic_partition_oldest_offset", "The log start offset (the partition's leader only).",
            *PARTITION_LABELS,
        ),
        gauge("kafka_topic_partitions", "Partitions of the topic (controller only).", "topic"),
        gauge("kafka_brokers", "Live brokers (controller only)."),
        gauge("kafka_topic_partition_leader", "The leader's broker id (controller only).", *PARTITION_LABELS),
        gauge("kafka_topic_partition_replicas", "Number of replicas (controller only).", *PARTITION_LABELS),
        gauge(
            "kafka_topic_partition_in_sync_replica", "Number of in-sync replicas (controller only).",
            *PARTITION_LABELS,
        ),
        gauge(
            "kafka_topic_partition_under_replicated_partition",
            "1: the partition has fewer in-sync replicas than replicas (controller only).",
            *PARTITION_LABELS,
        ),
    ),
)  # fmt: skip
"""Shown with metrics.kafka.names only: figures that have no metric of the same labels above."""
JOBS = Section(
    title="Job server",
    metrics=(
        counter("sparklog_job_runs_total", "Runs that this server has ended.", *JOB_LABELS, "outcome"),
        counter("sparklog_job_left_out_total", "Runs that were due and did not begin.", *JOB_LABELS),
        gauge("sparklog_job_running", "1: the job runs.", *JOB_LABELS),
        gauge("sparklog_job_next_run_timestamp_seconds", "When the next run is due.", *JOB_LABELS),
        gauge("sparklog_job_last_run_timestamp_seconds", "When the last run began.", *JOB_LABELS),
        gauge("sparklog_job_last_run_seconds", "How long the last run took.", *JOB_LABELS),
        gauge(
            "sparklog_job_last_run_status",
            "The exit status of the last run: 0 ok, 1 findings, 2 could not run.",
            *JOB_LABELS,
            alert=_above_zero(
                "sparklog_job_last_run_status", "SparklogJobFailed", 0, Severity.WARNING,
                "Schedule {{ $labels.schedule }} of job {{ $labels.job }} ended with status {{ $value }}: read the row "
                "of its run.",
            ),
        ),
        gauge("sparklog_job_last_run_findings", "The findings of the last run.", *JOB_LABELS),
    ),
)  # fmt: skip

BROKER_SECTIONS = (REQUESTS, TOPICS, GROUPS, CLIENTS, REPLICATION, CLUSTER, STORAGE, PROCESS)
"""The sections of every broker."""
JOB_SECTIONS = (JOBS,)
"""The sections of a job server."""
SECTIONS = (*BROKER_SECTIONS, *JOB_SECTIONS)


def metrics_with_alerts() -> tuple[MetricInfo, ...]:
    """Return the metrics that have an alerting rule."""
    return tuple(info for section in SECTIONS for info in section.metrics if info.alert is not None)
