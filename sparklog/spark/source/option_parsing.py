"""Parser of the data source's options into values (options.py). Names and meanings are those of Spark's Kafka source.

`option_table` lists all options; this module has the rules between options. Option names are case-insensitive, as
everywhere in Spark. The parser refuses an option that is unknown, or has no meaning for the use (``endingOffsets`` in a
stream), and names the allowed options: a misspelt name must not silently read something else. Three options say where
to begin. As in Spark, ``startingTimestamp`` overrides ``startingOffsetsByTimestamp``, which overrides
``startingOffsets``. The ending options have the same precedence.

    where     path | kafka.bootstrap.servers (or bootstrap.servers), kafka.security.protocol, kafka.sasl.…, kafka.ssl.…
    what      subscribe | subscribePattern | assign       (with `path`, the default is all topics)
    from, to  starting…, ending… (batch)                  JSON: {"topic": {"0": 23, "1": -2}}, -1 latest, -2 earliest
    how       readMode, archive (with readMode = history), minPartitions, maxRecordsPerPartition, failOnDataLoss,
              includeHeaders, filterPushdown, kafka.isolation.level
    how much  maxOffsetsPerTrigger, maxBytesPerTrigger, minOffsetsPerTrigger with maxTriggerDelay (stream)
    typed     valueFormat, keyFormat and their schemas: typed_options.py
    traces    tracing.otlp.endpoint (stream)
    group     group.id (or kafka.group.id): a stream commits its progress to it; startingOffsets = group begins there
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from sparklog.arrow.options import IsolationLevel
from sparklog.base.errors import ConfigError, InvalidTopic
from sparklog.spark.source.option_table import GROUP_NAMES, OPTIONS, SECURITY_KEYS, SELECTIONS, OptionUse, SourceOption
from sparklog.spark.source.options import (
    AllTopics,
    ApplicationTransaction,
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
    TriggerLimits,
    TypedOptions,
    WriteOptions,
)
from sparklog.spark.source.typed_options import (
    MALFORMED_OPTIONS,
    TYPED_OPTION_NAMES,
    encoding_options,
    typed_options,
)

CLIENT_ARGUMENTS = ("request_timeout_ms", "retry_backoff_ms")
TRANSACTION_TIMEOUT_MS = 300_000
"""Longer than Kafka's minute: no task renews the batch while Spark runs an earlier stage again."""


def parse_read_options(options: Mapping[str, str], use: OptionUse) -> ReadOptions:
    """Return the options of a batch or streaming read. Raises ConfigError with the mistake and the allowed values."""
    given = _parse_values(options, use)
    path = given.get("path")
    if path is not None:
        _check_path(given)
    _check_history(given)
    return ReadOptions(
        selection=_selection(given, needed=path is None),
        starting=_starting(given, default=Edge.LATEST if use is OptionUse.STREAM else Edge.EARLIEST, use=use),
        ending=_ending(given),
        path=path,
        broker=_connection(given, use) if path is None else None,
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
    """Return how a read's keys and values are encoded; None: they are bytes.

    Reads only the options of typed columns and the selection. Raises ConfigError with the mistake and the allowed
    values.
    """
    typed = {name.lower() for name in (*TYPED_OPTION_NAMES, *MALFORMED_OPTIONS)}
    if typed.isdisjoint(name.lower() for name in options):
        return None
    names = typed | set(SELECTIONS)
    given = _parse_values({name: raw for name, raw in options.items() if name.lower() in names}, OptionUse.BATCH)
    return typed_options(given, _selection(given, needed=False))


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Return the options of a batch or streaming write. Raises ConfigError with the mistake and the allowed values."""
    given = _parse_values(options, OptionUse.WRITE)
    producer = {
        option.producer_argument: given[name]
        for name, option in OPTIONS.items()
        if option.producer_argument and name in given
    }
    connection = {"bootstrap_servers": _bootstrap_servers(given, OptionUse.WRITE), **_security(given)}
    guarantee = _guarantee(given)
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE:
        for name in ("sparksinkid", "txnappid", "txnversion", "kafka.transaction.timeout.ms"):
            if name in given:
                raise ConfigError(f"{OPTIONS[name].name} has a meaning only with deliveryGuarantee = exactly_once")
    return WriteOptions(
        topic=given.get("topic"),
        include_headers=given.get("includeheaders", True),
        producer={**connection, **producer},
        connection={**connection, **{name: producer[name] for name in CLIENT_ARGUMENTS if name in producer}},
        guarantee=guarantee,
        sink_id=given.get("sparksinkid"),
        transaction=_application_transaction(given),
        timeout_ms=given.get("kafka.transaction.timeout.ms", TRANSACTION_TIMEOUT_MS),
        typed=encoding_options(given),
    )


def _application_transaction(given: Mapping[str, Any]) -> ApplicationTransaction | None:
    if ("txnappid" in given) != ("txnversion" in given):
        raise ConfigError("txnAppId and txnVersion belong together: the application, and the number of its write")
    return ApplicationTransaction(given["txnappid"], given["txnversion"]) if "txnappid" in given else None


def _guarantee(given: Mapping[str, Any]) -> DeliveryGuarantee:
    """Return the given guarantee; by default EXACTLY_ONCE, unless other options rule it out."""
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


def _parse_values(options: Mapping[str, str], use: OptionUse) -> dict[str, Any]:
    """Return typed values by lower-case name. Raises ConfigError for the first option or value that is not allowed."""
    given = {}
    for name, raw in options.items():
        option = OPTIONS.get(name.lower())
        if option is None or use not in option.uses:
            raise ConfigError(_refusal_text(name, option, use))
        try:
            given[name.lower()] = option.parse(raw)
        except (ValueError, KeyError, TypeError, AttributeError, InvalidTopic) as wrong:
            reason = f" ({wrong})" if isinstance(wrong, InvalidTopic) else ""
            raise ConfigError(f"option {option.name} = {raw!r}: it must be {option.expects}{reason}") from None
    return given


def _refusal_text(name: str, option: SourceOption | None, use: OptionUse) -> str:
    allowed = {key: each.name for key, each in OPTIONS.items() if use in each.uses}
    near = difflib.get_close_matches(name.lower(), allowed, n=1)
    what = f"option {option.name} has no meaning for {use}" if option else f"unknown option {name}"
    hint = f"; did you mean {allowed[near[0]]}?" if near and option is None else "."
    return f"{what}{hint} Allowed: {', '.join(sorted(allowed.values(), key=str.lower))}"


def _exclusive_option(given: Mapping[str, Any], names: tuple[str, ...], *, needed: bool) -> str | None:
    """Return the name of the one exclusive option that is given; None if none is.

    Raises ConfigError if several are given, or if none is given and one is needed.
    """
    found = [name for name in names if name in given]
    if len(found) > 1 or (needed and not found):
        shown = ", ".join(OPTIONS[name].name for name in names)
        instead = " and ".join(OPTIONS[name].name for name in found) or "none"
        raise ConfigError(f"exactly one of {shown} must be given, not {instead}")
    return found[0] if found else None


def _selection(given: Mapping[str, Any], *, needed: bool) -> Selection:
    name = _exclusive_option(given, SELECTIONS, needed=needed)
    selection: Selection = given[name] if name else AllTopics()
    return selection


def _bootstrap_servers(given: Mapping[str, Any], use: OptionUse) -> str:
    names = ("kafka.bootstrap.servers", "bootstrap.servers")
    name = _exclusive_option(given, names, needed=False)
    if name is None:
        instead = "" if use is OptionUse.WRITE else ", or path for a log directory"
        raise ConfigError(f"option kafka.bootstrap.servers is missing: HOST:PORT of the broker{instead}")
    return str(given[name])


def _connection(given: Mapping[str, Any], use: OptionUse) -> ConnectionOptions:
    return ConnectionOptions(
        bootstrap_servers=_bootstrap_servers(given, use),
        timeout_ms=given.get("kafkaconsumer.polltimeoutms", 120_000),
        retries=given.get("fetchoffset.numretries", 3),
        retry_backoff_ms=given.get("fetchoffset.retryintervalms", 1_000),
        security=_security(given),
        group_id=_group_id(given),
    )


def _group_id(given: Mapping[str, Any]) -> str | None:
    name = _exclusive_option(given, GROUP_NAMES, needed=False)
    if name is None and given.get("startingoffsets") == CommittedOffsets():
        raise ConfigError("startingOffsets = group needs group.id: the group to begin at")
    return given[name] if name else None


def _security(given: Mapping[str, Any]) -> dict[str, str]:
    found = {key.replace(".", "_"): given.get(f"kafka.{key}") for key in SECURITY_KEYS}
    return {argument: value for argument, value in found.items() if value is not None}


def _check_path(given: Mapping[str, Any]) -> None:
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
