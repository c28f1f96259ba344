"""All options of the data source: name, parser, allowed values, and the uses in which each has a meaning.

`option_doc` has the meaning of each option, for the reference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparklog.arrow.options import IsolationLevel, ParseMode
from sparklog.spark.source.option_values import (
    parse_acks,
    parse_assignment,
    parse_boolean,
    parse_bytes,
    parse_codec,
    parse_ids_in_headers,
    parse_offsets,
    parse_pattern,
    parse_sink_id,
    parse_starting_offsets,
    parse_text,
    parse_time_ms,
    parse_timestamps,
    parse_topic,
    parse_topics,
    parse_url,
    parse_urls,
    positive,
    whole_number,
)
from sparklog.spark.source.options import ColumnFormat, DeliveryGuarantee, NoMatchStrategy, ReadMode
from sparklog.spark.source.typed_options import COLUMNS, ID_SERIALIZER, PROTOBUF_OPTIONS, REGISTRATION_OPTIONS


class OptionUse(StrEnum):
    """The operation that options are given for."""

    BATCH = "a batch read"
    STREAM = "a streaming read"
    WRITE = "a write"


READS = frozenset({OptionUse.BATCH, OptionUse.STREAM})
ALL_USES = frozenset(OptionUse)
SELECTIONS = ("subscribe", "subscribepattern", "assign")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOption:
    """One option of the data source."""

    name: str
    """Its documented name."""
    parse: Callable[[str], Any]
    """Returns the value of a text; raises as the parsers of `option_values` do."""
    expects: str
    """The allowed values in words."""
    uses: frozenset[OptionUse] = READS
    producer_argument: str = ""
    """The keyword argument of the producer that the option sets; empty: none."""


_NUMBER = "a whole number from {}"
_OFFSETS = 'earliest, latest, or JSON such as {"topic": {"0": 23, "1": -2}} (-1: latest, -2: earliest)'
_TIMES = 'JSON such as {"topic": {"0": 1700000000000}}, in ms'
_SINK_ID = "a text of 1 to 100 letters, digits, dots, dashes and underscores"
_TRUE_OR_FALSE = "true or false"


def _option(name: str, parse: Callable[[str], Any], expects: str, *uses: OptionUse) -> SourceOption:
    return SourceOption(name=name, parse=parse, expects=expects, uses=frozenset(uses) or READS)


def _producer_option(key: str, parse: Callable[[str], Any], expects: str) -> SourceOption:
    return SourceOption(
        name=f"kafka.{key}", parse=parse, expects=expects,
        uses=frozenset({OptionUse.WRITE}), producer_argument=key.replace(".", "_"),
    )  # fmt: skip


SECURITY_KEYS: Mapping[str, tuple[str, ...]] = {
    "security.protocol": ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    "sasl.mechanism": ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    "sasl.jaas.config": (),
    "sasl.oauthbearer.token.endpoint.url": (),
    "sasl.login.callback.handler.class": (),
    "ssl.truststore.location": (),
    "ssl.truststore.type": ("PEM",),
    "ssl.keystore.location": (),
    "ssl.keystore.type": ("PEM",),
}
"""Security keys of Kafka's clients, with their allowed values; empty: any text."""


_FORMATS = "raw, string, json, avro or protobuf"


def _typed_column(name: str) -> tuple[SourceOption, ...]:
    return (
        _option(f"{name}Format", lambda raw: ColumnFormat(raw.strip().lower()), _FORMATS, *ALL_USES),
        _option(
            f"{name}Schema",
            str,
            "an Avro schema, as JSON; with protobuf: the file of a descriptor set, or its base64; with json: columns "
            "such as id bigint, name string",
            *ALL_USES,
        ),
        _option(f"{name}ReaderSchema", str, f"an Avro schema, as JSON; with protobuf: as {name}Schema"),
        _option(f"{name}MessageName", parse_text, "the name of a message", *ALL_USES),
        _option(f"{name}Subject", parse_text, "a subject's name", *ALL_USES),
        _option(f"{name}SchemaId", whole_number(0), _NUMBER.format(0), OptionUse.WRITE),
    )


def _security_option(key: str, allowed: tuple[str, ...]) -> SourceOption:
    def parse(raw: str) -> str:
        if allowed and raw not in allowed:
            raise ValueError(raw)
        return raw

    texts = {
        "sasl.jaas.config": "a login module with username and password",
        "sasl.oauthbearer.token.endpoint.url": "an https URL, or the file URL of a token on every executor",
        "sasl.login.callback.handler.class": "Kafka's OAuthBearerLoginCallbackHandler",
    }
    expects = " or ".join(allowed) or texts.get(key, "a PEM file on every executor")
    return SourceOption(name=f"kafka.{key}", parse=parse, expects=expects, uses=ALL_USES)


GROUP_NAMES = ("group.id", "kafka.group.id")
OPTIONS: Mapping[str, SourceOption] = {
    option.name.lower(): option
    for option in (
        _option("path", str, "a folder or a URI"),
        _option("kafka.bootstrap.servers", str, "HOST:PORT", *ALL_USES),
        _option("bootstrap.servers", str, "HOST:PORT", *ALL_USES),
        _option("subscribe", parse_topics, "topics separated by commas"),
        _option("subscribePattern", parse_pattern, "a regular expression"),
        _option("assign", parse_assignment, 'JSON such as {"topic": [0, 1]}'),
        _option("startingOffsets", parse_starting_offsets, f"group, {_OFFSETS}"),
        _option("startingTimestamp", whole_number(0), "a timestamp in ms"),
        _option("startingOffsetsByTimestamp", parse_timestamps, _TIMES),
        _option(
            "startingOffsetsByTimestampStrategy", lambda raw: NoMatchStrategy(raw.strip().lower()), "error or latest"
        ),
        _option("endingOffsets", parse_offsets, _OFFSETS, OptionUse.BATCH),
        _option("endingTimestamp", whole_number(0), "a timestamp in ms", OptionUse.BATCH),
        _option("endingOffsetsByTimestamp", parse_timestamps, _TIMES, OptionUse.BATCH),
        _option("maxOffsetsPerTrigger", whole_number(1), _NUMBER.format(1), OptionUse.STREAM),
        _option(
            "maxBytesPerTrigger",
            positive(parse_bytes),
            "a number of bytes from 1, or with a unit: 512m, 1g",
            OptionUse.STREAM,
        ),
        _option("minOffsetsPerTrigger", whole_number(1), _NUMBER.format(1), OptionUse.STREAM),
        _option(
            "maxTriggerDelay",
            positive(parse_time_ms),
            "a time such as 90s, 15m or 1h; without a unit in ms",
            OptionUse.STREAM,
        ),
        _option("minPartitions", whole_number(1), _NUMBER.format(1)),
        _option("maxRecordsPerPartition", whole_number(1), _NUMBER.format(1)),
        _option("failOnDataLoss", parse_boolean, _TRUE_OR_FALSE),
        _option("includeHeaders", parse_boolean, _TRUE_OR_FALSE, *ALL_USES),
        _option("readMode", lambda raw: ReadMode(raw.strip().lower()), "segments, fetch, auto or history"),
        _option("archive", str, "the path or URI of a Delta table"),
        _option(
            "kafka.isolation.level",
            lambda raw: IsolationLevel(raw.strip().lower()),
            "read_committed or read_uncommitted",
        ),
        _option("filterPushdown", parse_boolean, _TRUE_OR_FALSE, OptionUse.BATCH),
        _option("tracing.otlp.endpoint", parse_url, "http://HOST:PORT or https://HOST:PORT", OptionUse.STREAM),
        *(_option(name, parse_text, "a group's id") for name in GROUP_NAMES),
        _option("groupIdPrefix", str, "any text; reads join no group, so it changes nothing"),
        *(option for name in COLUMNS for option in _typed_column(name)),
        _option("mode", lambda raw: ParseMode(raw.strip().upper()), "FAILFAST, PERMISSIVE or DROPMALFORMED"),
        _option("columnNameOfCorruptRecord", parse_text, "a column's name"),
        _option("deadLetterTopic", parse_topic, "a topic's name"),
        _option("schema.registry.url", parse_urls, "http or https URLs separated by commas", *ALL_USES),
        _option("schema.registry.basic.auth.user.info", str, "USER:PASSWORD", *ALL_USES),
        _option("schema.registry.bearer.auth.token", str, "a token", *ALL_USES),
        _option("schema.registry.ssl.truststore.location", str, "a PEM file on driver and executors", *ALL_USES),
        _option("schema.registry.ssl.keystore.location", str, "a PEM file on driver and executors", *ALL_USES),
        *(_option(name, parse_boolean, _TRUE_OR_FALSE, OptionUse.WRITE) for name in REGISTRATION_OPTIONS),
        _option(ID_SERIALIZER, parse_ids_in_headers, "prefix or header", OptionUse.WRITE),
        *(_option(name, parse_boolean, _TRUE_OR_FALSE) for name in PROTOBUF_OPTIONS),
        _option("kafkaConsumer.pollTimeoutMs", whole_number(1), _NUMBER.format(1)),
        _option("fetchOffset.numRetries", whole_number(0), _NUMBER.format(0)),
        _option("fetchOffset.retryIntervalMs", whole_number(0), _NUMBER.format(0)),
        *(_security_option(key, allowed) for key, allowed in SECURITY_KEYS.items()),
        _option("topic", parse_topic, "a topic's name", OptionUse.WRITE),
        _option(
            "deliveryGuarantee",
            lambda raw: DeliveryGuarantee(raw.strip().lower()),
            "exactly_once or at_least_once",
            OptionUse.WRITE,
        ),
        _option("sparkSinkId", parse_sink_id, _SINK_ID, OptionUse.WRITE),
        _option("txnAppId", parse_sink_id, _SINK_ID, OptionUse.WRITE),
        _option("txnVersion", whole_number(0), _NUMBER.format(0), OptionUse.WRITE),
        _option("kafka.transaction.timeout.ms", whole_number(1_000), _NUMBER.format(1_000), OptionUse.WRITE),
        _option("checkpointLocation", str, "a folder; Spark's own", OptionUse.WRITE),
        _option("queryName", str, "any text; Spark's own", OptionUse.WRITE),
        _producer_option("acks", parse_acks, "all, 1 or 0"),
        _producer_option("compression.type", parse_codec, "none, gzip, snappy, lz4 or zstd"),
        _producer_option("linger.ms", whole_number(0), _NUMBER.format(0)),
        _producer_option("batch.size", whole_number(0), _NUMBER.format(0)),
        _producer_option("buffer.memory", whole_number(0), _NUMBER.format(0)),
        _producer_option("max.block.ms", whole_number(0), _NUMBER.format(0)),
        _producer_option("max.request.size", whole_number(0), _NUMBER.format(0)),
        _producer_option("delivery.timeout.ms", whole_number(0), _NUMBER.format(0)),
        _producer_option("request.timeout.ms", whole_number(0), _NUMBER.format(0)),
        _producer_option("enable.idempotence", parse_boolean, _TRUE_OR_FALSE),
        _producer_option("retries", whole_number(0), _NUMBER.format(0)),
        _producer_option("retry.backoff.ms", whole_number(0), _NUMBER.format(0)),
    )
}
