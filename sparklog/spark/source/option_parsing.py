"""Parser of the data source's options into values (options.py). Names and meanings are those of Spark's Kafka source.

Option names are case-insensitive, as everywhere in Spark. An option that is unknown, or has no meaning for the use
(``endingOffsets`` in a stream), is refused with the list of allowed options: a misspelt name must not silently read
something else. Three options say where to begin; as in Spark, ``startingTimestamp`` overrides
``startingOffsetsByTimestamp``, which overrides ``startingOffsets``. The ending options have the same precedence.

    where     path | kafka.bootstrap.servers (or bootstrap.servers), kafka.security.protocol, kafka.sasl.…, kafka.ssl.…
    what      subscribe | subscribePattern | assign       (with `path`, the default is all topics)
    from, to  starting…, ending… (batch)                  JSON: {"topic": {"0": 23, "1": -2}}, -1 latest, -2 earliest
    how       readMode, archive (with readMode = history), minPartitions, maxRecordsPerPartition, failOnDataLoss,
              includeHeaders, filterPushdown, kafka.isolation.level
    how much  maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger with maxTriggerDelay (stream)
    typed     valueFormat, keyFormat and what belongs to them: typed_options.py
    traces    tracing.otlp.endpoint (stream)
    group     group.id (or kafka.group.id): a stream commits its progress to it; startingOffsets = group begins there
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sparklog.arrow.options import IsolationLevel, Mode
from sparklog.base.config_keys import MAX_LONG
from sparklog.base.errors import ConfigError, InvalidTopic
from sparklog.base.ids import TopicPartition, check_topic
from sparklog.spark.source.options import (
    EARLIEST_IN_JSON,
    AllTopics,
    ApplicationTransaction,
    Assign,
    ColumnFormat,
    CommittedOffsets,
    ConnectionOptions,
    DeliveryGuarantee,
    Edge,
    NoMatchStrategy,
    Position,
    ReadMode,
    ReadOptions,
    Selection,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    TriggerLimits,
    TypedOptions,
    WriteOptions,
)
from sparklog.spark.source.quantities import parse_bytes, parse_time_ms
from sparklog.spark.source.typed_options import (
    CHOICES,
    COLUMNS,
    ID_SERIALIZER,
    MISTAKES,
    NAMES,
    OF_PROTOBUF,
    typed_options,
    written_options,
)


class OptionUse(StrEnum):
    """The operation that options are given for."""

    BATCH = "a batch read"
    STREAM = "a streaming read"
    WRITE = "a write"


READS = frozenset({OptionUse.BATCH, OptionUse.STREAM})
ALL_USES = frozenset(OptionUse)
SELECTIONS = ("subscribe", "subscribepattern", "assign")
OF_ALL_CLIENTS = ("request_timeout_ms", "retry_backoff_ms")
TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than Kafka's minute: no task gives a sign of life while Spark runs an earlier stage again."""


def parse_read_options(options: Mapping[str, str], use: OptionUse) -> ReadOptions:
    """Return the options of a batch or streaming read. Raises ConfigError with the mistake and the allowed values."""
    given = _checked(options, use)
    path = given.get("path")
    if path is not None:
        _refuse_broker(given)
    _check_history(given)
    return ReadOptions(
        selection=_selection(given, needed=path is None),
        starting=_starting(given, default=Edge.LATEST if use is OptionUse.STREAM else Edge.EARLIEST, use=use),
        ending=_ending(given),
        path=path,
        broker=_broker(given, use) if path is None else None,
        read_mode=given.get("readmode", ReadMode.AUTO),
        fail_on_data_loss=given.get("failondataloss", True),
        include_headers=given.get("includeheaders", False),
        min_partitions=given.get("minpartitions", 0),
        max_records_per_partition=given.get("maxrecordsperpartition", 0),
        filter_pushdown=given.get("filterpushdown", False),
        trigger_limits=_trigger_limits(given),
        isolation_level=given.get("kafka.isolation.level", IsolationLevel.READ_COMMITTED),
        archive=given.get("archive"),
        tracing_endpoint=given.get("tracing.otlp.endpoint"),
    )


def parse_typed_options(options: Mapping[str, str]) -> TypedOptions | None:
    """Return how a read's keys and values are encoded; None: they are bytes. Looks at these options and the selection.

    Raises ConfigError with the mistake and the allowed values.
    """
    typed = {name.lower() for name in (*NAMES, *MISTAKES)}
    if typed.isdisjoint(name.lower() for name in options):
        return None
    names = typed | set(SELECTIONS)
    given = _checked({name: raw for name, raw in options.items() if name.lower() in names}, OptionUse.BATCH)
    return typed_options(given, _selection(given, needed=False))


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a batch or streaming write. Raises ConfigError with the mistake and the allowed values."""
    given = _checked(options, OptionUse.WRITE)
    producer = {
        option.producer_argument: given[name]
        for name, option in OPTIONS.items()
        if option.producer_argument and name in given
    }
    connection = {"bootstrap_servers": _bootstrap(given, OptionUse.WRITE), **_security(given)}
    guarantee = _guarantee(given)
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        for name in ("sparksinkid", "txnappid", "txnversion", "kafka.transaction.timeout.ms"):
            if name in given:
                raise ConfigError(f"{OPTIONS[name].name} has a meaning only with deliveryGuarantee = exactly_once")
    return WriteOptions(
        topic=given.get("topic"),
        include_headers=given.get("includeheaders", True),
        producer={**connection, **producer},
        connection={**connection, **{name: producer[name] for name in OF_ALL_CLIENTS if name in producer}},
        guarantee=guarantee,
        sink_id=given.get("sparksinkid"),
        transaction=_transaction(given),
        timeout_ms=given.get("kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        typed=written_options(given),
    )


def _transaction(given: Mapping[str, Any]) -> ApplicationTransaction | None:
    if ("txnappid" in given) != ("txnversion" in given):
        raise ConfigError("txnAppId and txnVersion belong together: the application, and the number of its write")
    return ApplicationTransaction(given["txnappid"], given["txnversion"]) if "txnappid" in given else None


def _guarantee(given: Mapping[str, Any]) -> DeliveryGuarantee:
    """Return the guarantee that is asked for; without one, EXACTLY_ONCE unless other options rule it out."""
    wanted: DeliveryGuarantee | None = given.get("deliveryguarantee")
    against = [
        OPTIONS[name].name
        for name, needed in (("kafka.acks", "all"), ("kafka.enable.idempotence", True))
        if given.get(name, needed) != needed
    ]
    if wanted is DeliveryGuarantee.EXACTLY_ONCE and against:
        raise ConfigError(
            f"deliveryGuarantee = exactly_once needs kafka.acks = all and idempotence: leave {against[0]}"
        )
    return wanted or (DeliveryGuarantee.AT_LEAST_ONCE if against else DeliveryGuarantee.EXACTLY_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOption:
    """One option: its documented name, the parser of its text, and the uses in which it has a meaning."""

    name: str
    parse: Callable[[str], Any]
    expects: str
    uses: frozenset[OptionUse] = READS
    producer_argument: str = ""


def _checked(options: Mapping[str, str], use: OptionUse) -> dict[str, Any]:
    """Return typed values by lower-case name. Raises ConfigError for the first option or value that is not allowed."""
    given = {}
    for name, raw in options.items():
        option = OPTIONS.get(name.lower())
        if option is None or use not in option.uses:
            raise ConfigError(_refusal(name, option, use))
        try:
            given[name.lower()] = option.parse(raw)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidTopic) as wrong:
            reason = f" ({wrong})" if isinstance(wrong, InvalidTopic) else ""
            raise ConfigError(f"option {option.name} = {raw!r}: it must be {option.expects}{reason}") from None
    return given


def _refusal(name: str, option: SourceOption | None, use: OptionUse) -> str:
    allowed = {key: each.name for key, each in OPTIONS.items() if use in each.uses}
    near = difflib.get_close_matches(name.lower(), allowed, n=1)
    what = f"option {option.name} has no meaning for {use}" if option else f"unknown option {name}"
    hint = f"; did you mean {allowed[near[0]]}?" if near and option is None else "."
    return f"{what}{hint} Allowed: {', '.join(sorted(allowed.values(), key=str.lower))}"


def _one_of(given: Mapping[str, Any], names: tuple[str, ...], *, needed: bool) -> str | None:
    """Return which of some exclusive options is given, None if none is.

    Raises ConfigError if several are given, or if none is given and one is needed.
    """
    found = [name for name in names if name in given]
    if len(found) > 1 or (needed and not found):
        shown = ", ".join(OPTIONS[name].name for name in names)
        instead = " and ".join(OPTIONS[name].name for name in found) or "none"
        raise ConfigError(f"exactly one of {shown} must be given, not {instead}")
    return found[0] if found else None


def _selection(given: Mapping[str, Any], *, needed: bool) -> Selection:
    name = _one_of(given, SELECTIONS, needed=needed)
    selection: Selection = given[name] if name else AllTopics()
    return selection


def _bootstrap(given: Mapping[str, Any], use: OptionUse) -> str:
    names = ("kafka.bootstrap.servers", "bootstrap.servers")
    name = _one_of(given, names, needed=False)
    if name is None:
        instead = "" if use is OptionUse.WRITE else ", or path for a log directory"
        raise ConfigError(f"option kafka.bootstrap.servers is missing: HOST:PORT of the broker{instead}")
    return str(given[name])


def _broker(given: Mapping[str, Any], use: OptionUse) -> ConnectionOptions:
    return ConnectionOptions(
        bootstrap_servers=_bootstrap(given, use),
        timeout_ms=given.get("kafkaconsumer.polltimeoutms", 120_000),
        retries=given.get("fetchoffset.numretries", 3),
        retry_backoff_ms=given.get("fetchoffset.retryintervalms", 1_000),
        security=_security(given),
        group_id=_group(given),
    )


def _group(given: Mapping[str, Any]) -> str | None:
    name = _one_of(given, GROUP_NAMES, needed=False)
    if name is None and given.get("startingoffsets") == CommittedOffsets():
        raise ConfigError("startingOffsets = group needs group.id: the group to begin at")
    return given[name] if name else None


def _security(given: Mapping[str, Any]) -> dict[str, str]:
    found = {key.replace(".", "_"): given.get(f"kafka.{key}") for key in SECURITY_KEYS}
    return {argument: value for argument, value in found.items() if value is not None}


def _refuse_broker(given: Mapping[str, Any]) -> None:
    needs_broker = ("kafka.bootstrap.servers", "bootstrap.servers", *(f"kafka.{key}" for key in SECURITY_KEYS))
    for name in (*needs_broker, *GROUP_NAMES):
        if name in given:
            raise ConfigError(f"path and {name} contradict each other: path reads files, without a broker")
    if given.get("readmode") is ReadMode.FETCH:
        raise ConfigError("path and readMode = fetch contradict each other: path reads files, without a broker")
    if given.get("startingoffsets") == CommittedOffsets():
        raise ConfigError("path and startingOffsets = group contradict each other: files know of no groups")


def _check_history(given: Mapping[str, Any]) -> None:
    if given.get("readmode") is not ReadMode.HISTORY:
        if "archive" in given:
            raise ConfigError("archive has a meaning only with readMode = history")
        return
    if "path" in given and "archive" not in given:
        raise ConfigError("path with readMode = history needs archive: files know of no topic's retention.archive")
    if "maxbytespertrigger" in given:
        raise ConfigError("maxBytesPerTrigger measures logs, not archives: use maxOffsetsPerTrigger with history")


def _trigger_limits(given: Mapping[str, Any]) -> TriggerLimits:
    limits = TriggerLimits(
        max_offsets=given.get("maxoffsetspertrigger", 0),
        max_bytes=given.get("maxbytespertrigger", 0),
        min_offsets=given.get("minoffsetspertrigger", 0),
        max_delay_ms=given.get("maxtriggerdelay", TriggerLimits().max_delay_ms),
    )
    if "maxtriggerdelay" in given and not limits.min_offsets:
        raise ConfigError("maxTriggerDelay has a meaning only with minOffsetsPerTrigger: the offsets to wait for")
    if limits.max_offsets and limits.min_offsets > limits.max_offsets:
        raise ConfigError(
            f"minOffsetsPerTrigger = {limits.min_offsets} is more than maxOffsetsPerTrigger = {limits.max_offsets}"
        )
    return limits


def _starting(given: Mapping[str, Any], *, default: Edge, use: OptionUse) -> Position:
    no_match = given.get("startingoffsetsbytimestampstrategy", NoMatchStrategy.ERROR)
    for name in ("startingtimestamp", "startingoffsetsbytimestamp"):
        if name in given:
            return SpecificTimestamps(given[name], no_match)
    position: Position = given.get("startingoffsets", default)
    if use is OptionUse.BATCH and _names_edge(position, Edge.LATEST):
        raise ConfigError("startingOffsets cannot be latest in a batch read: nothing would be read")
    return position


def _ending(given: Mapping[str, Any]) -> Position:
    for name in ("endingtimestamp", "endingoffsetsbytimestamp"):
        if name in given:
            return SpecificTimestamps(given[name], NoMatchStrategy.LATEST)
    position: Position = given.get("endingoffsets", Edge.LATEST)
    if _names_edge(position, Edge.EARLIEST):
        raise ConfigError("endingOffsets cannot be earliest: nothing would be read")
    return position


def _names_edge(position: Position, edge: Edge) -> bool:
    return position is edge or (isinstance(position, SpecificOffsets) and edge.value in position.offsets.values())


def _whole_number(low: int) -> Callable[[str], int]:
    def parse(raw: str) -> int:
        number = int(raw)
        if not low <= number <= MAX_LONG:
            raise ValueError
        return number

    return parse


def _quantity(parse: Callable[[str], int]) -> Callable[[str], int]:
    return lambda raw: _whole_number(1)(str(parse(raw)))


def _in_headers(raw: str) -> bool:
    return ("prefix", "header").index(raw.strip().lower()) == 1


def _boolean(raw: str) -> bool:
    return {"true": True, "false": False}[raw.strip().lower()]


def _topic(raw: str) -> str:
    return check_topic(raw.strip())


def _topics(raw: str) -> Subscribe:
    return Subscribe(tuple(dict.fromkeys(_topic(name) for name in raw.split(","))))


def _pattern(raw: str) -> SubscribePattern:
    try:
        re.compile(raw)
    except re.error as wrong:
        raise ConfigError(f"option subscribePattern = {raw!r}: it is no regular expression: {wrong}") from None
    return SubscribePattern(raw)


def _assignment(raw: str) -> Assign:
    topics: dict[str, list[int]] = json.loads(raw)
    partitions = frozenset(
        TopicPartition(check_topic(topic), _number(partition, low=0))
        for topic, numbers in topics.items()
        for partition in numbers
    )
    if not partitions:
        raise ValueError
    return Assign(partitions)


def _per_partition(raw: str, low: int) -> dict[TopicPartition, int]:
    topics: dict[str, dict[str, int]] = json.loads(raw)
    return {
        TopicPartition(check_topic(topic), int(partition)): _number(number, low=low)
        for topic, numbers in topics.items()
        for partition, number in numbers.items()
    }


def _number(value: Any, *, low: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise ValueError(value)
    return value


def _edge_or_offsets(raw: str) -> Position:
    if raw.strip().lower() in ("earliest", "latest"):
        return Edge[raw.strip().upper()]
    return SpecificOffsets(_per_partition(raw, low=EARLIEST_IN_JSON))


def _starting_offsets(raw: str) -> Position:
    return CommittedOffsets() if raw.strip().lower() == "group" else _edge_or_offsets(raw)


def _name(raw: str) -> str:
    if not raw.strip():
        raise ValueError(raw)
    return raw


def _sink_id(raw: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", raw):
        raise ValueError(raw)
    return raw


def _timestamps(raw: str) -> dict[TopicPartition, int]:
    return _per_partition(raw, low=0)


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


def _acks(raw: str) -> str | int:
    word = raw.strip().lower()
    return "all" if word in ("all", "-1") else {"1": 1, "0": 0}[word]


def _codec(raw: str) -> str:
    return {name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}[raw.strip().lower()]


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


def _url(raw: str) -> str:
    if not raw.startswith(("http://", "https://")):
        raise ValueError(raw)
    return raw


def _urls(raw: str) -> tuple[str, ...]:
    return tuple(_url(each.strip()) for each in raw.split(","))


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
        _option(f"{name}MessageName", _name, "the name of a message", *ALL_USES),
        _option(f"{name}Subject", _name, "a subject's name", *ALL_USES),
        _option(f"{name}SchemaId", _whole_number(0), _NUMBER.format(0), OptionUse.WRITE),
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
        _option("subscribe", _topics, "topics separated by commas"),
        _option("subscribePattern", _pattern, "a regular expression"),
        _option("assign", _assignment, 'JSON such as {"topic": [0, 1]}'),
        _option("startingOffsets", _starting_offsets, f"group, {_OFFSETS}"),
        _option("startingTimestamp", _whole_number(0), "a timestamp in ms"),
        _option("startingOffsetsByTimestamp", _timestamps, _TIMES),
        _option(
            "startingOffsetsByTimestampStrategy", lambda raw: NoMatchStrategy(raw.strip().lower()), "error or latest"
        ),
        _option("endingOffsets", _edge_or_offsets, _OFFSETS, OptionUse.BATCH),
        _option("endingTimestamp", _whole_number(0), "a timestamp in ms", OptionUse.BATCH),
        _option("endingOffsetsByTimestamp", _timestamps, _TIMES, OptionUse.BATCH),
        _option("maxOffsetsPerTrigger", _whole_number(1), _NUMBER.format(1), OptionUse.STREAM),
        _option(
            "maxBytesPerTrigger",
            _quantity(parse_bytes),
            "a number of bytes from 1, or with a unit: 512m, 1g",
            OptionUse.STREAM,
        ),
        _option("minOffsetsPerTrigger", _whole_number(1), _NUMBER.format(1), OptionUse.STREAM),
        _option(
            "maxTriggerDelay",
            _quantity(parse_time_ms),
            "a time such as 90s, 15m or 1h; without a unit in ms",
            OptionUse.STREAM,
        ),
        _option("minPartitions", _whole_number(1), _NUMBER.format(1)),
        _option("maxRecordsPerPartition", _whole_number(1), _NUMBER.format(1)),
        _option("failOnDataLoss", _boolean, _TRUE_OR_FALSE),
        _option("includeHeaders", _boolean, _TRUE_OR_FALSE, *ALL_USES),
        _option("readMode", lambda raw: ReadMode(raw.strip().lower()), "segments, fetch, auto or history"),
        _option("archive", str, "the path or URI of a Delta table"),
        _option(
            "kafka.isolation.level",
            lambda raw: IsolationLevel(raw.strip().lower()),
            "read_committed or read_uncommitted",
        ),
        _option("filterPushdown", _boolean, _TRUE_OR_FALSE, OptionUse.BATCH),
        _option("tracing.otlp.endpoint", _url, "http://HOST:PORT or https://HOST:PORT", OptionUse.STREAM),
        *(_option(name, _name, "a group's id") for name in GROUP_NAMES),
        _option("groupIdPrefix", str, "any text; reads join no group, so it changes nothing"),
        *(option for name in COLUMNS for option in _typed_column(name)),
        _option("mode", lambda raw: Mode(raw.strip().upper()), "FAILFAST, PERMISSIVE or DROPMALFORMED"),
        _option("columnNameOfCorruptRecord", _name, "a column's name"),
        _option("deadLetterTopic", _topic, "a topic's name"),
        _option("schema.registry.url", _urls, "http or https URLs separated by commas", *ALL_USES),
        _option("schema.registry.basic.auth.user.info", str, "USER:PASSWORD", *ALL_USES),
        _option("schema.registry.bearer.auth.token", str, "a token", *ALL_USES),
        _option("schema.registry.ssl.truststore.location", str, "a PEM file on driver and executors", *ALL_USES),
        _option("schema.registry.ssl.keystore.location", str, "a PEM file on driver and executors", *ALL_USES),
        *(_option(name, _boolean, _TRUE_OR_FALSE, OptionUse.WRITE) for name in CHOICES),
        _option(ID_SERIALIZER, _in_headers, "prefix or header", OptionUse.WRITE),
        *(_option(name, _boolean, _TRUE_OR_FALSE) for name in OF_PROTOBUF),
        _option("kafkaConsumer.pollTimeoutMs", _whole_number(1), _NUMBER.format(1)),
        _option("fetchOffset.numRetries", _whole_number(0), _NUMBER.format(0)),
        _option("fetchOffset.retryIntervalMs", _whole_number(0), _NUMBER.format(0)),
        *(_security_option(key, allowed) for key, allowed in SECURITY_KEYS.items()),
        _option("topic", _topic, "a topic's name", OptionUse.WRITE),
        _option(
            "deliveryGuarantee",
            lambda raw: DeliveryGuarantee(raw.strip().lower()),
            "exactly_once or at_least_once",
            OptionUse.WRITE,
        ),
        _option("sparkSinkId", _sink_id, _SINK_ID, OptionUse.WRITE),
        _option("txnAppId", _sink_id, _SINK_ID, OptionUse.WRITE),
        _option("txnVersion", _whole_number(0), _NUMBER.format(0), OptionUse.WRITE),
        _option("kafka.transaction.timeout.ms", _whole_number(1_000), _NUMBER.format(1_000), OptionUse.WRITE),
        _option("checkpointLocation", str, "a folder; Spark's own", OptionUse.WRITE),
        _option("queryName", str, "any text; Spark's own", OptionUse.WRITE),
        _producer_option("acks", _acks, "all, 1 or 0"),
        _producer_option("compression.type", _codec, "none, gzip, snappy, lz4 or zstd"),
        _producer_option("linger.ms", _whole_number(0), _NUMBER.format(0)),
        _producer_option("batch.size", _whole_number(0), _NUMBER.format(0)),
        _producer_option("buffer.memory", _whole_number(0), _NUMBER.format(0)),
        _producer_option("max.block.ms", _whole_number(0), _NUMBER.format(0)),
        _producer_option("max.request.size", _whole_number(0), _NUMBER.format(0)),
        _producer_option("delivery.timeout.ms", _whole_number(0), _NUMBER.format(0)),
        _producer_option("request.timeout.ms", _whole_number(0), _NUMBER.format(0)),
        _producer_option("enable.idempotence", _boolean, _TRUE_OR_FALSE),
        _producer_option("retries", _whole_number(0), _NUMBER.format(0)),
        _producer_option("retry.backoff.ms", _whole_number(0), _NUMBER.format(0)),
    )
}
