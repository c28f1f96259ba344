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
        "Brokers of the cluster, by their gRPC listeners; one that answers is enough."
    ),
    "bootstrap.servers": OptionDoc("The same."),
    "subscribe": OptionDoc("The topics to read. With `path`, no selection means all topics."),
    "subscribePattern": OptionDoc("Read the topics whose whole name matches; internal topics are left out."),
    "assign": OptionDoc("The partitions to read."),
    "startingOffsets": OptionDoc(
        "Where to begin. `group`: at the offsets that the consumer group `group.id` has committed, or at the earliest "
        "record of a partition without one. Default of a batch: earliest; of a stream: latest."
    ),
    "startingTimestamp": OptionDoc("Begin at the first record at or after this time. Overrides the two below."),
    "startingOffsetsByTimestamp": OptionDoc("The same for each partition. Overrides `startingOffsets`."),
    "startingOffsetsByTimestampStrategy": OptionDoc("What to do where no record is that late.", "error"),
    "endingOffsets": OptionDoc("Where to end; the offset itself is not read.", "latest"),
    "endingTimestamp": OptionDoc("End before the first record at or after this time. Overrides the two below."),
    "endingOffsetsByTimestamp": OptionDoc("The same for each partition. Overrides `endingOffsets`."),
    "maxOffsetsPerTrigger": OptionDoc("Most records of one micro-batch, shared out over partitions in proportion."),
    "maxBytesPerTrigger": OptionDoc(
        "About how many bytes of the log one micro-batch reads, shared out over partitions in proportion. At least one "
        "batch of records is read, however large it is."
    ),
    "minOffsetsPerTrigger": OptionDoc(
        "A micro-batch waits until so many records are there, or until `maxTriggerDelay` has passed."
    ),
    "maxTriggerDelay": OptionDoc(
        "With `minOffsetsPerTrigger`: the longest time from one micro-batch to the next while there are records.", "15m"
    ),
    "minPartitions": OptionDoc("Cut partitions into at least this many tasks; the default is a task per partition."),
    "maxRecordsPerPartition": OptionDoc("Cut partitions into tasks of at most about this many records."),
    "failOnDataLoss": OptionDoc(
        "Whether a read fails where records were deleted before it could read them. false: log a warning and read "
        "what is left.",
        "true",
    ),
    "includeHeaders": OptionDoc("Whether headers are read or written. Default of reads: false; of writes: true."),
    "readMode": OptionDoc(
        "segments: from files. fetch: through the broker. auto: from files where the task can see them, else through "
        "the broker. history: archive and log as one table.",
        "auto",
    ),
    "tracing.otlp.endpoint": OptionDoc(
        "Where spans of micro-batches and their tasks go, by OTLP over HTTP. They are linked to the traces of the "
        "records. Driver and executors need the extra `otlp`.",
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
        "How values are encoded. avro, protobuf, json: the column `value` has the type of the schema. string: it is "
        "text. raw: it is bytes. A write takes the column in this type, and encodes it.",
        "raw",
    ),
    "valueSchema": OptionDoc(
        "With avro and protobuf: the schema of all values, which have no frame, as `from_avro` and `from_protobuf` "
        "read them. Without it, each value names its schema in the registry, before its body or in the header "
        "`__value_schema_id`. With json: the fields, as Spark's SQL writes them; all may be missing. Of a write, with "
        "avro and protobuf: the schema to write; with json and a registry: the JSON Schema to register. Default, but "
        "for protobuf: that of the column's type, as `to_avro` derives it."
    ),
    "valueReaderSchema": OptionDoc(
        "With avro: the schema that values are read as, by Avro's rules of evolution. With protobuf and a registry: "
        "the same, a descriptor set. Default: `valueSchema`, or the latest of the subject when the DataFrame is loaded."
    ),
    "valueSubject": OptionDoc(
        "With avro, protobuf, or a write of json, and a registry: the subject of the topic's schemas.", "TOPIC-value"
    ),
    "valueMessageName": OptionDoc(
        "With protobuf: the message that values are, as `messageName` of `from_protobuf`. Default: the only one of the "
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
        "With protobuf: fields without presence that a record lacks, as writers leave zeros out, have the default of "
        "their type. false: they are null, as with `from_protobuf`.",
        "false",
    ),
    "enums.as.ints": OptionDoc("With protobuf: enums are numbers. false: the names of their symbols.", "false"),
    "upcast.unsigned.ints": OptionDoc(
        "With protobuf: uint32 and fixed32 are bigint, uint64 and fixed64 decimal(20, 0). false: int and bigint, in "
        "which large numbers are negative.",
        "false",
    ),
    "unwrap.primitive.wrapper.types": OptionDoc(
        "With protobuf: `google.protobuf.Int64Value` and the like are what they wrap. false: structs of it.", "false"
    ),
    "keySchemaId": OptionDoc("The same for keys."),
    "auto.register.schemas": OptionDoc(
        "With avro, protobuf or json and a registry: register the schema if the subject does not have it. false: the "
        "subject must have it.",
        "true, unless `use.latest.version`",
    ),
    "use.latest.version": OptionDoc(
        "With avro, protobuf or json and a registry: write the latest schema of the subject, which the column must "
        "fit; a JSON Schema is not looked at.",
        "false",
    ),
    "schema.id.serializer": OptionDoc(
        "With avro, protobuf or json and a registry, how records name their schema, as with Confluent's serializers. "
        "prefix: its number is before each body. header: its GUID is in the header `__value_schema_id` or "
        "`__key_schema_id`, which needs a registry with GUIDs.",
        "prefix",
    ),
    "mode": OptionDoc(
        "With valueFormat or keyFormat: what becomes of a record that does not follow its schema. FAILFAST: the query "
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
        "The schema registry, with Confluent's REST API; another URL is asked where one does not answer."
    ),
    "schema.registry.basic.auth.user.info": OptionDoc("Who asks the registry."),
    "schema.registry.bearer.auth.token": OptionDoc("The same, as a token."),
    "schema.registry.ssl.truststore.location": OptionDoc(
        "Certificates of the authorities that sign the registry's certificate. Default: those of the system."
    ),
    "schema.registry.ssl.keystore.location": OptionDoc("Key and certificate with which the registry is asked."),
    "filterPushdown": OptionDoc("Whether `where` on topic, partition, offset or timestamp spares the scan.", "false"),
    "group.id": OptionDoc("Streams commit their progress to this consumer group."),
    "kafka.group.id": OptionDoc("The same."),
    "groupIdPrefix": OptionDoc("Accepted, without effect."),
    "kafkaConsumer.pollTimeoutMs": OptionDoc("Time-out of every call to a broker.", "120000"),
    "fetchOffset.numRetries": OptionDoc("How often a stream asks again while a log seems to have become shorter.", "3"),
    "fetchOffset.retryIntervalMs": OptionDoc("The pause between two of these.", "1000"),
    "kafka.security.protocol": OptionDoc(
        "SSL, SASL_SSL: the broker's gRPC listener speaks TLS. SASL_PLAINTEXT, SASL_SSL: it wants a user and a "
        "password.",
        "PLAINTEXT",
    ),
    "kafka.sasl.mechanism": OptionDoc(
        "As of Kafka's clients. OAUTHBEARER sends a token; any other, over gRPC, the password.", "PLAIN"
    ),
    "kafka.sasl.jaas.config": OptionDoc("A login module with the user and the password, as of Kafka's clients."),
    "kafka.sasl.oauthbearer.token.endpoint.url": OptionDoc(
        "Where OAUTHBEARER gets its token: a file URL, or an https URL for the client credentials grant. Each Python "
        "worker asks on its own."
    ),
    "kafka.sasl.login.callback.handler.class": OptionDoc("Accepted, without effect."),
    "kafka.ssl.truststore.location": OptionDoc("Certificates of the authorities that sign the brokers' certificates."),
    "kafka.ssl.truststore.type": OptionDoc("The form of that file.", "PEM"),
    "kafka.ssl.keystore.location": OptionDoc("Key and certificate of this client."),
    "kafka.ssl.keystore.type": OptionDoc("The form of that file.", "PEM"),
    "topic": OptionDoc("Where to write all rows; overrides the column `topic`."),
    "deliveryGuarantee": OptionDoc(
        "exactly_once: readers of committed records see each batch of a stream, or a whole batch job, once or not at "
        "all. at_least_once: a task or a batch that Spark runs again writes its rows again; the default if kafka.acks "
        "or kafka.enable.idempotence rule out the other.",
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
        "With exactly_once: the batch is aborted if no task gives a sign of life for this long. Readers of committed "
        "records wait that long for a query that was killed and does not come back.",
        "300000",
    ),
    "checkpointLocation": OptionDoc("Where Spark keeps the checkpoint of a stream."),
    "queryName": OptionDoc("The name of a stream in Spark."),
    "kafka.acks": OptionDoc("When a record counts as written."),
    "kafka.compression.type": OptionDoc("How batches are compressed."),
    "kafka.linger.ms": OptionDoc("How long a batch that is not full waits for more records."),
    "kafka.batch.size": OptionDoc("Bytes at which a batch is closed."),
    "kafka.buffer.memory": OptionDoc("Bytes of records that may wait for their acknowledgement."),
    "kafka.max.block.ms": OptionDoc("How long a task waits for room in the buffer or for metadata."),
    "kafka.max.request.size": OptionDoc("Largest record, and largest request unless a batch is larger."),
    "kafka.delivery.timeout.ms": OptionDoc("How long a record is tried before the task fails."),
    "kafka.request.timeout.ms": OptionDoc("How long to wait for one answer before trying again."),
    "kafka.enable.idempotence": OptionDoc("Whether a record that is sent again is written once."),
    "kafka.retries": OptionDoc("Attempts after the first; `kafka.delivery.timeout.ms` ends them too."),
    "kafka.retry.backoff.ms": OptionDoc("The pause before the first retry."),
}

COLUMNS: Mapping[str, str] = {
    "key": "null where the record has none; of another type with `keyFormat`",
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
    "value": "must be there; null is a tombstone",
    "headers": "",
    "topic": "must be there unless the option `topic` is given",
    "partition": "null: by the key, as Kafka's default partitioner does",
    "timestamp": "null: now",
}
