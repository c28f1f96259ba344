"""Meaning of the source's options and columns, for the reference. `sparklog.docs` prints it beside the allowed values.

Every option of `option_table.OPTIONS` and every column has an entry here; a test checks this.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class OptionDoc(NamedTuple):
    """Meaning and default of one option. Producer options have the producer's defaults."""

    meaning: str
    default: str = ""


OPTION_DOCS: Mapping[str, OptionDoc] = {
    "path": OptionDoc(
        "A log directory or the folder of one partition, written by sparklog or Apache Kafka. Read up to the "
        "checkpointed high watermark, without a broker."
    ),
    "kafka.bootstrap.servers": OptionDoc(
        "Brokers of the cluster, by their gRPC listeners; one reachable broker is enough."
    ),
    "bootstrap.servers": OptionDoc("The same."),
    "subscribe": OptionDoc("The topics to read. With `path`, the default is all topics."),
    "subscribePattern": OptionDoc("Read the topics whose whole name matches, except internal topics."),
    "assign": OptionDoc("The partitions to read."),
    "startingOffsets": OptionDoc(
        "Where to begin. `group`: at the offsets that the consumer group `group.id` has committed, or at the earliest "
        "record of a partition without one. Default of a batch: earliest; of a stream: latest."
    ),
    "startingTimestamp": OptionDoc("Begin at the first record at or after this time. Overrides the two options below."),
    "startingOffsetsByTimestamp": OptionDoc("The same for each partition. Overrides `startingOffsets`."),
    "startingOffsetsByTimestampStrategy": OptionDoc(
        "For a partition without a record that late. error: the read fails. latest: it begins at the end.", "error"
    ),
    "endingOffsets": OptionDoc("Where to end; the offset itself is not read.", "latest"),
    "endingTimestamp": OptionDoc("End before the first record at or after this time. Overrides the two options below."),
    "endingOffsetsByTimestamp": OptionDoc("The same for each partition. Overrides `endingOffsets`."),
    "maxOffsetsPerTrigger": OptionDoc("Most records of one micro-batch, shared among partitions in proportion."),
    "maxBytesPerTrigger": OptionDoc(
        "About how many bytes of the log one micro-batch reads, shared among partitions in proportion. It reads at "
        "least one batch of records, however large."
    ),
    "minOffsetsPerTrigger": OptionDoc(
        "A micro-batch waits for this many records, but no longer than `maxTriggerDelay`."
    ),
    "maxTriggerDelay": OptionDoc(
        "With `minOffsetsPerTrigger`: the longest time from one micro-batch to the next while there are records.", "15m"
    ),
    "minPartitions": OptionDoc("Cut partitions into at least this many tasks; the default is a task per partition."),
    "maxRecordsPerPartition": OptionDoc("Cut partitions into tasks of at most about this many records."),
    "failOnDataLoss": OptionDoc(
        "Whether a read fails if records were deleted before it could read them. false: log a warning and read the "
        "remaining records.",
        "true",
    ),
    "includeHeaders": OptionDoc("Whether headers are read or written. Default of reads: false; of writes: true."),
    "readMode": OptionDoc(
        "segments: from files. fetch: through the broker. auto: from files if the task can see them, else through the "
        "broker. history: archive and log as one table.",
        "auto",
    ),
    "tracing.otlp.endpoint": OptionDoc(
        "Endpoint for spans of micro-batches and their tasks, by OTLP over HTTP. The spans have links to the traces of "
        "the records. Driver and executors need the extra `otlp`.",
        "",
    ),
    "archive": OptionDoc(
        "With `readMode=history`: the Delta table of archived records. The default is `retention.archive` of the topic."
    ),
    "kafka.isolation.level": OptionDoc(
        "read_committed: records of committed transactions, and those without a transaction, up to the first record "
        "whose transaction is open. read_uncommitted: all records, as Spark's Kafka source reads by default.",
        "read_committed",
    ),
    "valueFormat": OptionDoc(
        "The encoding of values. avro, protobuf, json: the column `value` has the type of the schema. string: it is "
        "text. raw: it is bytes. A write takes the column in this type, and encodes it.",
        "raw",
    ),
    "valueSchema": OptionDoc(
        "With avro and protobuf: the schema of all values, which have no frame, as `from_avro` and `from_protobuf` "
        "read them. Without it, each value names its schema in the registry, before its body or in the header "
        "`__value_schema_id`. With json: the fields, as Spark's SQL writes them; all may be missing. In a write, "
        "with avro and protobuf: the schema to write; with json and a registry: the JSON Schema to register. Default, "
        "except with protobuf: that of the column's type, as `to_avro` derives it."
    ),
    "valueReaderSchema": OptionDoc(
        "With avro: the reader's schema, by Avro's rules of evolution. With protobuf and a registry: the reader's "
        "schema as a descriptor set. Default: `valueSchema`, or the latest of the subject when the DataFrame is loaded."
    ),
    "valueSubject": OptionDoc(
        "With avro, protobuf, or a write of json, and a registry: the subject of the topic's schemas.", "TOPIC-value"
    ),
    "valueMessageName": OptionDoc(
        "With protobuf: the message type of values, as `messageName` of `from_protobuf`. Default: the only one of the "
        "schema."
    ),
    "valueSchemaId": OptionDoc(
        "With avro, protobuf or json and a registry: the id of the schema to write; it is not registered."
    ),
    "keyFormat": OptionDoc("The same for keys.", "raw"),
    "keySchema": OptionDoc("The same for keys."),
    "keyReaderSchema": OptionDoc("The same for keys."),
    "keySubject": OptionDoc("The same for keys.", "TOPIC-key"),
    "keyMessageName": OptionDoc("The same for keys."),
    "emit.default.values": OptionDoc(
        "With protobuf: absent fields without presence have the default of their type, because writers leave out "
        "zeros. false: they are null, as with `from_protobuf`.",
        "false",
    ),
    "enums.as.ints": OptionDoc("With protobuf: enums are numbers. false: the names of their symbols.", "false"),
    "upcast.unsigned.ints": OptionDoc(
        "With protobuf: uint32 and fixed32 are bigint, uint64 and fixed64 decimal(20, 0). false: int and bigint, in "
        "which large numbers are negative.",
        "false",
    ),
    "unwrap.primitive.wrapper.types": OptionDoc(
        "With protobuf: `google.protobuf.Int64Value` and other wrappers are the values that they wrap. false: structs.",
        "false",
    ),
    "keySchemaId": OptionDoc("The same for keys."),
    "auto.register.schemas": OptionDoc(
        "With avro, protobuf or json and a registry: register the schema if the subject does not have it. false: the "
        "subject must have it.",
        "true, unless `use.latest.version`",
    ),
    "use.latest.version": OptionDoc(
        "With avro, protobuf or json and a registry: write the latest schema of the subject, which the column must "
        "fit; a JSON Schema is not checked.",
        "false",
    ),
    "schema.id.serializer": OptionDoc(
        "With avro, protobuf or json and a registry: how records name their schema, as with Confluent's serializers. "
        "prefix: its number is before each body. header: its GUID is in the header `__value_schema_id` or "
        "`__key_schema_id`, which needs a registry with GUIDs.",
        "prefix",
    ),
    "mode": OptionDoc(
        "With valueFormat or keyFormat: how to treat a record that does not follow its schema. FAILFAST: the query "
        "fails. PERMISSIVE: the column is null, and `_corrupt_record` has the bytes and the reason. DROPMALFORMED: "
        "the record is left out. A tombstone is no mistake.",
        "FAILFAST",
    ),
    "columnNameOfCorruptRecord": OptionDoc("With PERMISSIVE: the name of that column.", "_corrupt_record"),
    "deadLetterTopic": OptionDoc(
        "With PERMISSIVE or DROPMALFORMED, and a broker: the topic that gets a copy of each malformed record, with the "
        "headers of Kafka Connect's dead letter queue. At least once."
    ),
    "schema.registry.url": OptionDoc(
        "The schema registry, with Confluent's REST API. If one URL does not answer, the client tries the next."
    ),
    "schema.registry.basic.auth.user.info": OptionDoc("User and password for the registry."),
    "schema.registry.bearer.auth.token": OptionDoc("A token for the registry, instead of user and password."),
    "schema.registry.ssl.truststore.location": OptionDoc(
        "Certificates of the authorities that sign the registry's certificate. Default: those of the system."
    ),
    "schema.registry.ssl.keystore.location": OptionDoc("Key and certificate of this client for the registry."),
    "filterPushdown": OptionDoc("Whether `where` on topic, partition, offset or timestamp prunes the scan.", "false"),
    "group.id": OptionDoc("Streams commit their progress to this consumer group."),
    "kafka.group.id": OptionDoc("The same."),
    "groupIdPrefix": OptionDoc("Accepted, without effect."),
    "kafkaConsumer.pollTimeoutMs": OptionDoc("Timeout of every call to a broker.", "120000"),
    "fetchOffset.numRetries": OptionDoc("How often a stream asks again if a log seems to have become shorter.", "3"),
    "fetchOffset.retryIntervalMs": OptionDoc("The pause between two such attempts.", "1000"),
    "kafka.security.protocol": OptionDoc(
        "SSL, SASL_SSL: the broker's gRPC listener uses TLS. SASL_PLAINTEXT, SASL_SSL: it asks for a user and a "
        "password.",
        "PLAINTEXT",
    ),
    "kafka.sasl.mechanism": OptionDoc(
        "As in Kafka's clients. OAUTHBEARER sends a token; over gRPC, any other mechanism sends the password.", "PLAIN"
    ),
    "kafka.sasl.jaas.config": OptionDoc("A login module with the user and the password, as in Kafka's clients."),
    "kafka.sasl.oauthbearer.token.endpoint.url": OptionDoc(
        "The source of OAUTHBEARER's token: a file URL, or an https URL for the client credentials grant. Each Python "
        "worker gets its own token."
    ),
    "kafka.sasl.login.callback.handler.class": OptionDoc("Accepted, without effect."),
    "kafka.ssl.truststore.location": OptionDoc("Certificates of the authorities that sign the brokers' certificates."),
    "kafka.ssl.truststore.type": OptionDoc("The format of that file.", "PEM"),
    "kafka.ssl.keystore.location": OptionDoc("Key and certificate of this client."),
    "kafka.ssl.keystore.type": OptionDoc("The format of that file.", "PEM"),
    "topic": OptionDoc("The topic for all rows; overrides the column `topic`."),
    "deliveryGuarantee": OptionDoc(
        "exactly_once: readers of committed records see each batch of a stream, or a whole batch job, once or not at "
        "all. at_least_once: a task or a batch that Spark runs again writes its rows again; the default if kafka.acks "
        "or kafka.enable.idempotence rule out exactly_once.",
        "exactly_once",
    ),
    "sparkSinkId": OptionDoc(
        "With exactly_once: distinguishes writes of one query; needed if `foreachBatch` writes more than once to one "
        "topic in a batch. Keep it as long as the checkpoint."
    ),
    "txnAppId": OptionDoc(
        "With txnVersion, for `df.write` with exactly_once, as in Delta Lake: the name of the application that writes "
        "to the topic. A write whose version is not higher than the last committed one is skipped: two writes to one "
        "topic need two names."
    ),
    "txnVersion": OptionDoc("The number of the write, which increases from write to write."),
    "kafka.transaction.timeout.ms": OptionDoc(
        "With exactly_once: the batch is aborted if no task renews it for this long. Readers of committed records wait "
        "that long for a query that was killed and does not come back.",
        "300000",
    ),
    "checkpointLocation": OptionDoc("The folder of the stream's checkpoint; Spark's own option."),
    "queryName": OptionDoc("The name of the stream; Spark's own option."),
    "kafka.acks": OptionDoc("When a record counts as written."),
    "kafka.compression.type": OptionDoc("Compression of batches."),
    "kafka.linger.ms": OptionDoc("How long a batch waits for more records before it is full."),
    "kafka.batch.size": OptionDoc("Bytes at which a batch is closed."),
    "kafka.buffer.memory": OptionDoc("Bytes of records that may wait for acknowledgement."),
    "kafka.max.block.ms": OptionDoc("How long a task waits for room in the buffer or for metadata."),
    "kafka.max.request.size": OptionDoc("Largest record, and largest request unless a batch is larger."),
    "kafka.delivery.timeout.ms": OptionDoc("How long a record is retried before the task fails."),
    "kafka.request.timeout.ms": OptionDoc("How long to wait for one answer before a retry."),
    "kafka.enable.idempotence": OptionDoc("Whether a retried record is written only once."),
    "kafka.retries": OptionDoc("Attempts after the first; `kafka.delivery.timeout.ms` ends them too."),
    "kafka.retry.backoff.ms": OptionDoc("The pause before the first retry."),
}

COLUMNS: Mapping[str, str] = {
    "key": "null if the record has none; of another type with `keyFormat`",
    "value": "null in a tombstone; of another type with `valueFormat`",
    "topic": "",
    "partition": "",
    "offset": "",
    "timestamp": "the producer's, or the broker's with `message.timestamp.type=LogAppendTime`",
    "timestampType": "0: the producer's, 1: the broker's",
    "headers": "with `includeHeaders`",
}

WRITTEN_COLUMNS: Mapping[str, str] = {
    "key": "null: any partition",
    "value": "required; null is a tombstone",
    "headers": "",
    "topic": "required unless the option `topic` is given",
    "partition": "null: by the key, as Kafka's default partitioner does",
    "timestamp": "null: now",
}
