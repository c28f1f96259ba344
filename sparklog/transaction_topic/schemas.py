"""The layout of `__transaction_state`, as Apache Kafka's TransactionLogKey and TransactionLogValue (base/schemas.py).

sparklog adds tagged fields of its own to values. Kafka's readers skip them, so its tools show records without them.
"""

from __future__ import annotations

from sparklog.base.schemas import FieldSchema, Kinds, MessageSchema, array_of

_KEY = (FieldSchema("transactionalId", "string"),)
_VALUE = (
    FieldSchema("producerId", "int64"),
    FieldSchema("previousProducerId", "int64", since=1, tag=0, default=-1),
    FieldSchema("nextProducerId", "int64", since=1, tag=1, default=-1),
    FieldSchema("producerEpoch", "int16"),
    FieldSchema("nextProducerEpoch", "int16", since=1, tag=3, default=-1),
    FieldSchema("transactionTimeoutMs", "int32"),
    FieldSchema("transactionStatus", "int8"),
    array_of("transactionPartitions", (FieldSchema("topic", "string"), array_of("partitionIds", "int32"))),
    FieldSchema("transactionLastUpdateTimestampMs", "int64"),
    FieldSchema("transactionStartTimestampMs", "int64"),
    FieldSchema("clientTransactionVersion", "int16", since=1, tag=2, default=0),
)
_SINK = (
    FieldSchema("runId", "string"),
    array_of("formerRunIds", "string"),
    FieldSchema("batchId", "int64"),
    FieldSchema("committedRunId", "string"),
    FieldSchema("committedBatchId", "int64"),
    FieldSchema("winnerId", "int64"),
    FieldSchema("winnerEpoch", "int16"),
    FieldSchema("isOneOff", "int8"),
    FieldSchema("producerCount", "int32"),
    FieldSchema("producers", "bytes"),
)
"""The transactional id is a sink (transaction/sink_machine.py)."""
_OWN = (
    FieldSchema("lastProducerEpoch", "int16", since=1, tag=10_000, default=-1),
    FieldSchema("sink", _SINK, since=1, tag=10_001),
)
"""Fields that Kafka does not have. Their tags are far above those that Kafka may still assign."""

TRANSACTION_LOG = 0
"""The record type of all keys."""
KAFKA_TRANSACTION_TOPIC: Kinds = {TRANSACTION_LOG: (_KEY, MessageSchema(_VALUE, versions=1, flexible_since=1))}
"""The fields that Kafka knows, and its tools print."""
TRANSACTION_TOPIC: Kinds = {TRANSACTION_LOG: (_KEY, MessageSchema(_VALUE + _OWN, versions=1, flexible_since=1))}
