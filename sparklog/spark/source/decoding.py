"""Typed keys and values: planned once on the driver, decoded in each task.

The plan has the reader's schema and all versions of the subject, so tasks ask the registry only for schemas that are
newer than the plan. The reader's schema is fixed when a DataFrame is loaded: fields that writers add later appear after
the next ``load()``, or the next start of a stream.

The rows of tasks, in the order of these steps:

    binary columns ──▶ decode      keys and values, each by its format
                   ──▶ mode        FAILFAST: a malformed row is an error · DROPMALFORMED: it is left out
                                   PERMISSIVE: it is null, and `_corrupt_record` has its bytes and the reason
                   ──▶ deadLetterTopic      a copy of each malformed record goes there before the rows go on
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import DataType, StructField, StructType

from sparklog.base.errors import ConfigError, MalformedRecord, SchemaError
from sparklog.base.ids import TopicPartition
from sparklog.schemas.columns import nullable_within
from sparklog.schemas.formats import AvroFormat, Format, FramedFormat, JsonFormat, Piece, StringFormat, type_of
from sparklog.schemas.framing import SchemaId
from sparklog.schemas.json_decoding import check_readable
from sparklog.schemas.registry import Registry, SchemaText, UnknownSchema, Version
from sparklog.spark.columns import EVERYTHING, TYPES, check_columns, spark_type
from sparklog.spark.source.ddl import parse_ddl
from sparklog.spark.source.dead_letters import NEEDED, DeadLetters, DeadLetterTopic
from sparklog.spark.source.options import BrokerOptions, ColumnFormat, Mode, TypedColumn, TypedOptions

MOST_VERSIONS = 100
"""Versions of a subject, the newest, that a plan brings along."""
CORRUPT = pa.struct([("key", pa.binary()), ("value", pa.binary()), ("reason", pa.string())])


@dataclass(frozen=True, slots=True)
class Decoding:
    """The typed columns of a read, as its plan brings them to tasks."""

    formats: Mapping[str, Format]
    mode: Mode
    corrupt_column: str
    dead_letters: DeadLetterTopic | None = None
    """Where copies of malformed records go. All keys and values are decoded then, whatever columns are wanted."""

    def needs(self, columns: Sequence[str]) -> tuple[str, ...]:
        """Return the columns of records to read for these columns of the table."""
        wanted = [name for name in columns if name != self.corrupt_column]
        typed = self._typed(columns)
        if typed:
            wanted += ["offset", *typed]
        if self.corrupt_column in columns:
            wanted += ["key", "value"]
        if any(self.formats[name].reads_headers for name in typed):
            wanted.append("headers")
        if self.dead_letters is not None:
            wanted += NEEDED
        return tuple(dict.fromkeys(wanted))

    def start(self, columns: Sequence[str]) -> TypedRows:
        """Return what decodes these columns of the table in one task."""
        return TypedRows(self, self._typed(columns))

    def _typed(self, columns: Sequence[str]) -> list[str]:
        everything = self.corrupt_column in columns or self.dead_letters is not None
        return [name for name in self.formats if everything or name in columns]


class TypedRows:
    """Decodes the records of a task."""

    def __init__(self, decoding: Decoding, columns: Sequence[str]) -> None:
        self._decoders = {name: decoding.formats[name].decoder(name) for name in columns}
        self._decoding = decoding
        self._dead_letters = DeadLetters(decoding.dead_letters) if decoding.dead_letters is not None else None

    def close(self) -> None:
        """Disconnect from the topic of dead letters, if any were written."""
        if self._dead_letters is not None:
            self._dead_letters.close()

    def decode(
        self, records: pa.RecordBatch, partition: TopicPartition
    ) -> Iterator[tuple[pa.RecordBatch, Mapping[str, pa.Array]]]:
        """Yield parts of the records, each with its typed columns; its dead letters are written before.

        Raises MalformedRecord with mode = FAILFAST, and the errors of the producer of dead letters.
        """
        for part, pieces in self._pieces(records, list(self._decoders)):
            malformed = np.zeros(part.num_rows, bool)
            for piece in pieces.values():
                malformed |= piece.faults != 0
            arrays = {name: piece.values for name, piece in pieces.items()}
            if not malformed.any():
                yield part, {**arrays, self._decoding.corrupt_column: pa.nulls(part.num_rows, CORRUPT)}
                continue
            rows = np.flatnonzero(malformed)
            if self._decoding.mode is Mode.FAILFAST:
                self._fail(part, partition, pieces, int(rows[0]))
            reasons = {row: _reason(pieces, row) for row in rows.tolist()}
            if self._dead_letters is not None:
                self._dead_letters.write(part.filter(pa.array(malformed)), partition, list(reasons.values()))
            if self._decoding.mode is Mode.DROPMALFORMED:
                good = pa.array(~malformed)
                yield part.filter(good), {name: array.filter(good) for name, array in arrays.items()}
            else:
                yield part, {**arrays, self._decoding.corrupt_column: _corrupt(part, reasons, malformed)}

    def _pieces(
        self, records: pa.RecordBatch, columns: Sequence[str]
    ) -> Iterator[tuple[pa.RecordBatch, dict[str, Piece]]]:
        """Yield the records in parts so small that each typed column is decoded in one piece."""
        if not columns:
            yield records, {}
            return
        name = columns[0]
        headers = records.column("headers") if self._decoding.formats[name].reads_headers else None
        for piece in self._decoders[name].decode(records.column(name), headers):
            rows = records.slice(piece.first, len(piece.values))
            done = 0
            for part, others in self._pieces(rows, columns[1:]):
                yield part, {name: piece.slice(done, part.num_rows), **others}
                done += part.num_rows

    def _fail(self, part: pa.RecordBatch, partition: TopicPartition, pieces: Mapping[str, Piece], row: int) -> None:
        offset = part.column("offset")[row].as_py()
        raise MalformedRecord(
            f"{partition} offset {offset}: {_reason(pieces, row)}. mode = PERMISSIVE or DROPMALFORMED reads on"
        )


def _reason(pieces: Mapping[str, Piece], row: int) -> str:
    return "; ".join(f"the {name}: {piece.explain(row)}" for name, piece in pieces.items() if piece.faults[row])


def _corrupt(part: pa.RecordBatch, reasons: Mapping[int, str], malformed: NDArray[np.bool_]) -> pa.Array:
    """Return the column with the bytes of malformed records, null for the others."""
    is_bad = pa.array(malformed)
    names = set(part.schema.names)
    kept = [
        pc.if_else(is_bad, part.column(name), pa.scalar(None, pa.binary()))
        if name in names
        else pa.nulls(part.num_rows, pa.binary())
        for name in ("key", "value")
    ]
    arrays = [*kept, pa.array(map(reasons.get, range(part.num_rows)), pa.string())]
    return pa.StructArray.from_arrays(arrays, fields=list(CORRUPT), mask=pc.invert(is_bad))


def typed_schema(raw: StructType, options: TypedOptions) -> StructType:
    """Return the columns of a read: `raw` with typed keys and values. Asks the registry where that says the types.

    Raises SchemaError, and ConfigError if the column for malformed records has the name of another.
    """
    return _table(raw, {name: _type(column, options) for name, column in options.columns.items()}, options)


def _table(raw: StructType, types: Mapping[str, DataType], options: TypedOptions) -> StructType:
    fields = [StructField(each.name, types.get(each.name, each.dataType)) for each in raw.fields]
    if options.mode is Mode.PERMISSIVE:
        fields.append(StructField(options.corrupt_column, spark_type(CORRUPT)))
        if options.corrupt_column in TYPES:
            raise ConfigError(f"columnNameOfCorruptRecord = {options.corrupt_column}: there is a column of that name")
    return StructType(fields)


def plan_decoding(options: TypedOptions, schema: StructType, broker: BrokerOptions | None) -> Decoding:
    """Return how tasks decode the columns of a read.

    schema: of the read; its types choose the version of a subject that they came from
    broker: None for a read of files alone

    Raises SchemaError for schemas that are invalid or do not fit each other, ConfigError for columns that the read does
    not have, and for a topic of dead letters without a broker.
    """
    dead_letters = None
    if options.dead_letter_topic is not None:
        if broker is None:
            raise ConfigError("deadLetterTopic needs kafka.bootstrap.servers: a read of path has no broker to write to")
        dead_letters = DeadLetterTopic(options.dead_letter_topic, broker)
    formats = {name: _format(name, column, options, schema) for name, column in options.columns.items()}
    types = {name: spark_type(of.decoder(name).type) for name, of in formats.items()}
    check_columns(schema, _table(EVERYTHING, types, options))
    return Decoding(formats, options.mode, options.corrupt_column, dead_letters)


def _type(column: TypedColumn, options: TypedOptions) -> DataType:
    if column.format is ColumnFormat.STRING:
        return spark_type(pa.string())
    if column.format is ColumnFormat.JSON:
        return spark_type(_json_type(column))
    return spark_type(type_of(_reader(column) or _registry(options).version(_subject(column)).schema))


def _format(name: str, column: TypedColumn, options: TypedOptions, schema: StructType) -> Format:
    if column.format is ColumnFormat.STRING:
        return StringFormat()
    if column.format is ColumnFormat.JSON:
        return JsonFormat(_json_type(column))
    reader = _reader(column)
    if column.schema is not None:
        assert reader is not None  # the writer's, if no other is given
        return AvroFormat(writer=SchemaText("AVRO", column.schema), reader=reader)
    assert options.registry is not None  # typed_options makes sure
    versions = _versions(_registry(options), column)
    if reader is None:
        reader = _version_of(name, column, versions, schema)
    writers: dict[SchemaId, SchemaText] = {each: version.schema for version in versions for each in version.ids}
    return FramedFormat(reader=reader, writers=writers, registry=options.registry)


def _json_type(column: TypedColumn) -> pa.DataType:
    assert column.schema is not None  # typed_options makes sure
    parsed = to_arrow_schema(StructType([StructField("value", parse_ddl(column.schema))]), timezone="UTC")
    of = nullable_within(parsed.field("value").type)  # as in Spark's `from_json`, any field may be missing
    check_readable(of)
    return of


def _versions(registry: Registry, column: TypedColumn) -> list[Version]:
    if column.subject is None:
        return []
    try:
        return registry.versions(column.subject, MOST_VERSIONS)
    except UnknownSchema:
        if column.reader_schema is None:
            raise
        return []


def _version_of(name: str, column: TypedColumn, versions: Sequence[Version], schema: StructType) -> SchemaText:
    """Return the newest version of the subject whose type the column has."""
    if name not in schema.fieldNames():
        return versions[-1].schema
    wanted = schema[name].dataType.simpleString()
    for version in reversed(versions):
        try:
            if spark_type(type_of(version.schema)).simpleString() == wanted:
                return version.schema
        except SchemaError:
            continue
    raise SchemaError(
        f"no version of subject {column.subject} has the type of column {name}, {wanted}: load() again, or give "
        f"{name}ReaderSchema"
    )


def _reader(column: TypedColumn) -> SchemaText | None:
    text = column.reader_schema if column.reader_schema is not None else column.schema
    return None if text is None else SchemaText("AVRO", text)


def _registry(options: TypedOptions) -> Registry:
    assert options.registry is not None  # typed_options makes sure
    return Registry(options.registry)


def _subject(column: TypedColumn) -> str:
    assert column.subject is not None  # as above
    return column.subject
