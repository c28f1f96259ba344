"""Topics as tables of a SparkSession: a temporary view of each, with the types of its schemas.

>>> tables(spark, {"kafka.bootstrap.servers": "127.0.0.1:9094", "schema.registry.url": "http://127.0.0.1:8081"})
[TopicTable(name='orders', topic='orders', formats={'value': 'avro'}, untyped={}), ...]
>>> spark.sql("SELECT value.id FROM orders")

Spark has no catalogs in Python; views take their place: SHOW TABLES lists them, DESCRIBE shows their columns. Like
every DataFrame of a Python source, a view is a snapshot from its first use; another call of `tables` renews all of
them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from sparklog.base.errors import ConfigError, RegistryError, SchemaError
from sparklog.base.ids import INTERNAL_TOPICS
from sparklog.schemas.registry import Registry, UnknownSchema
from sparklog.spark.folders import open_lookup
from sparklog.spark.source.option_parsing import parse_read_options, parse_typed_options
from sparklog.spark.source.option_table import SELECTIONS, OptionUse
from sparklog.spark.source.options import Position, SpecificOffsets, SpecificTimestamps
from sparklog.spark.source.source import SparklogDataSource
from sparklog.spark.source.typed_options import COLUMNS, MALFORMED_OPTIONS

REGISTRY = "schema.registry."
_FORMATS = {"AVRO": "avro", "PROTOBUF": "protobuf"}
"""Formats by the types of schemas in a registry."""
_NOT_IN_NAMES = str.maketrans(".-", "__")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTable:
    """A temporary view of a topic."""

    name: str
    topic: str
    formats: Mapping[str, str] = field(default_factory=dict)
    """The formats of the columns `value` and `key` that are not bytes."""
    untyped: Mapping[str, str] = field(default_factory=dict)
    """The reason why a column is bytes although the registry has a schema for it."""


def tables(spark: SparkSession, options: Mapping[str, str], *, prefix: str = "") -> list[TopicTable]:
    """Make a temporary view of each topic, or replace it; return them by name.

    options: those of a batch read. Without `subscribe` or `subscribePattern`, they select all topics except internal
        ones. With `schema.registry.url` and no format, keys and values are typed if the subject TOPIC-key or
        TOPIC-value has an Avro or Protobuf schema; all others are bytes
    prefix: the beginning of the views' names

    Raises ConfigError for options that are not allowed, and for topics whose views would have the same name;
    RegistryError if the registry does not answer.
    """
    given = {name.lower(): str(value) for name, value in options.items()}
    topics = _selected_topics(given)
    names = _view_names(topics, prefix)
    asks_registry = f"{REGISTRY}url" in given and not any(f"{column}format" in given for column in COLUMNS)
    registry = _registry(given) if asks_registry else None
    shared = {name: value for name, value in given.items() if name not in SELECTIONS}
    made = []
    for topic in topics:
        of_topic = {**shared, "subscribe": topic}
        formats, untyped = _column_formats(registry, of_topic) if registry else ({}, {})
        chosen = _typed_read_options(of_topic, formats) if registry else of_topic
        schema = SparklogDataSource(chosen).schema()
        frame = spark.read.format("sparklog").options(**chosen).schema(schema).load()
        frame.createOrReplaceTempView(f"`{names[topic]}`")
        made.append(TopicTable(name=names[topic], topic=topic, formats=formats, untyped=untyped))
    return sorted(made, key=lambda table: table.name)


def _selected_topics(given: Mapping[str, str]) -> list[str]:
    """Return the topics that the options choose."""
    if "assign" in given:
        raise ConfigError("assign chooses partitions, but a table is a whole topic: use subscribe or subscribePattern")
    selection = {name: given[name] for name in SELECTIONS if name in given} or {"subscribepattern": ".*"}
    typed = {name for name in given if name.startswith((*COLUMNS, REGISTRY)) or name in _MISTAKES}
    rest = {name: value for name, value in given.items() if name not in typed}
    parsed = parse_read_options({**rest, **selection}, OptionUse.BATCH)
    if _names_partitions(parsed.starting) or _names_partitions(parsed.ending):
        raise ConfigError("offsets and timestamps of single partitions have no meaning for tables of several topics")
    lookup = open_lookup(parsed)
    try:
        return [topic for topic in lookup.topics(parsed.selection) if topic not in INTERNAL_TOPICS]
    finally:
        lookup.close()


def _names_partitions(position: Position) -> bool:
    return isinstance(position, SpecificOffsets) or (
        isinstance(position, SpecificTimestamps) and not isinstance(position.timestamps_ms, int)
    )


def _view_names(topics: Iterable[str], prefix: str) -> dict[str, str]:
    """Return the name of each topic's view. Raises ConfigError if two names are the same for Spark."""
    names: dict[str, str] = {}
    taken: dict[str, str] = {}
    for topic in topics:
        name = f"{prefix}{topic}".translate(_NOT_IN_NAMES)
        if (other := taken.setdefault(name.lower(), topic)) != topic:
            raise ConfigError(
                f"the topics {other} and {topic} would have views of the same name, {name}: choose one of them with "
                "subscribe or subscribePattern"
            )
        names[topic] = name
    return names


def _registry(given: Mapping[str, str]) -> Registry:
    named = {name: value for name, value in given.items() if name.startswith(REGISTRY)}
    typed = parse_typed_options({**named, "valueFormat": "avro", "valueSubject": "any"})
    assert typed is not None
    assert typed.registry is not None  # Avro without a schema of its own
    return Registry(typed.registry)


def _column_formats(registry: Registry, of_topic: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the formats of columns that can be typed, and the reasons why others with a schema cannot."""
    formats, untyped = {}, {}
    for column in COLUMNS:
        subject = f"{of_topic['subscribe']}-{column}"
        try:
            kind = registry.version(subject).schema.kind
        except UnknownSchema:
            continue
        if (of := _FORMATS.get(kind)) is None:
            untyped[column] = f"the schema of {subject} is of the type {kind}"
            continue
        try:
            SparklogDataSource(_typed_read_options(of_topic, {column: of})).schema()
        except RegistryError:
            raise
        except SchemaError as wrong:
            untyped[column] = str(wrong)
        else:
            formats[column] = of
    return formats, untyped


def _typed_read_options(of_topic: Mapping[str, str], formats: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a read with these formats, without options that have no meaning for them."""
    if not formats:
        return {name: value for name, value in of_topic.items() if name not in _MISTAKES and REGISTRY not in name}
    return {**of_topic, **{f"{column}Format": each for column, each in formats.items()}}


_MISTAKES = frozenset(name.lower() for name in MALFORMED_OPTIONS)
