"""How the keys or values of a topic are encoded: descriptions that travel with a plan, and the decoders made of them.

    AvroFormat      bodies of one writer's schema, without a frame
    FramedFormat    bodies of Avro with the ids of their schemas in a registry
    JsonFormat      JSON objects
    StringFormat    UTF-8

A decoder turns a binary column into arrays of its type. A null row stays null. A malformed row becomes null too, and
has a fault, which the decoder explains in words.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.base.errors import RegistryError, SchemaError
from sparklog.schemas import avro_kernels as kernels
from sparklog.schemas.avro import parse_avro
from sparklog.schemas.avro_decoding import NULL_ENTRY, AvroDecoder
from sparklog.schemas.columns import lay_out
from sparklog.schemas.framing import HEADERS, SchemaId, bodies, unframe
from sparklog.schemas.json_decoding import JsonDecoder
from sparklog.schemas.registry import Registry, SchemaText, UnknownSchema
from sparklog.schemas.registry_options import RegistryOptions

log = logging.getLogger(__name__)

MOST_UNKNOWN = 20
"""Ids that the registry does not know before a column counts as written with another registry."""


class Piece(NamedTuple):
    """Decoded rows of a column."""

    first: int
    """How many rows of the column are before these."""
    values: pa.Array
    faults: NDArray[np.uint8]
    """0 for rows that are not malformed."""
    reasons: Mapping[int, str]
    """Of faults that more can be said of than `explain` knows, by the number of the row in the column."""

    def explain(self, row: int) -> str:
        """Return what is wrong with a malformed row, given its number in the piece."""
        return self.reasons.get(self.first + row) or kernels.FAULTS[int(self.faults[row])]

    def slice(self, start: int, rows: int) -> Piece:
        """Return some of the rows."""
        return Piece(
            self.first + start, self.values.slice(start, rows), self.faults[start : start + rows], self.reasons
        )


class Decoder(Protocol):
    """Decodes the keys or the values of a topic."""

    type: pa.DataType

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[Piece]:
        """Yield the rows of a binary column, in order, in as many pieces as memory demands."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroFormat:
    """Avro bodies without a frame, all of the writer's schema."""

    writer: SchemaText
    reader: SchemaText

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """Return a decoder for the column, `key` or `value`. Raises SchemaError if the schemas do not fit."""
        return _AvroBodies(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedFormat:
    """Avro bodies with the ids of their schemas."""

    reader: SchemaText
    writers: Mapping[SchemaId, SchemaText] = field(repr=False)
    """Schemas that the plan brings along; others are asked for."""
    registry: RegistryOptions

    reads_headers = True

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's."""
        return _FramedAvro(self, HEADERS[column])


@dataclass(frozen=True, slots=True)
class JsonFormat:
    """JSON objects."""

    type: pa.DataType
    """A struct whose fields are all nullable."""

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's; raises SchemaError for types that JSON does not have."""
        return _Json(self.type)


@dataclass(frozen=True, slots=True)
class StringFormat:
    """UTF-8 texts."""

    reads_headers = False

    def decoder(self, column: str) -> Decoder:
        """As AvroFormat's."""
        return _Strings()


Format = AvroFormat | FramedFormat | JsonFormat | StringFormat


def type_of(reader: SchemaText) -> pa.DataType:
    """Return the Arrow type of what a reader's schema reads. Raises SchemaError if it is not valid, or not Avro."""
    return lay_out(parsed(reader)).root.type


def parsed(schema: SchemaText) -> Any:
    """Return the Avro schema in a text. Raises SchemaError if it is not valid, or not Avro."""
    if schema.kind != "AVRO":
        raise SchemaError(f"the schema is {schema.kind}, not AVRO")
    return parse_avro(schema.text, schema.references)


class _AvroBodies:
    def __init__(self, of: AvroFormat) -> None:
        self._decoder = AvroDecoder(parsed(of.reader))
        self._entry = self._decoder.add_writer(parsed(of.writer))
        self.type = self._decoder.type

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[Piece]:
        data, starts, ends = bodies(column)
        entries = np.full(len(column), self._entry, np.int64)
        if column.null_count:
            entries[np.asarray(column.is_null())] = NULL_ENTRY
        faults = np.zeros(len(column), np.uint8)
        for values, first in self._decoder.decode(data, starts, ends, entries, faults):
            yield Piece(first, values, faults[first : first + len(values)], {})


class _FramedAvro:
    def __init__(self, of: FramedFormat, header: str) -> None:
        self._format = of
        self._header = header
        self._decoder = AvroDecoder(parsed(of.reader))
        self._entries: dict[SchemaId, int] = {}
        self._problems: dict[SchemaId, tuple[int, str]] = {}
        """Of each id whose bodies cannot be read, the fault and the reason."""
        self._registry: Registry | None = None
        self.type = self._decoder.type

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[Piece]:
        framed = unframe(column, headers, self._header)
        for each in framed.ids:
            self._learn(each)
        found = [self._entries.get(each, NULL_ENTRY) for each in framed.ids]
        wrong = [self._problems[each][0] if each in self._problems else 0 for each in framed.ids]
        # NO_FRAME and NULL are -2 and -1: the places behind those of the ids.
        entries = np.array([*found, NULL_ENTRY, NULL_ENTRY], np.int64)[framed.which]
        faults = np.array([*wrong, kernels.NO_FRAME, 0], np.uint8)[framed.which]
        named = np.flatnonzero(faults).tolist() if any(wrong) else []
        reasons = {row: self._problems[framed.ids[framed.which[row]]][1] for row in named if framed.which[row] >= 0}
        for values, first in self._decoder.decode(framed.data, framed.starts, framed.ends, entries, faults):
            yield Piece(first, values, faults[first : first + len(values)], reasons)

    def _learn(self, wanted: SchemaId) -> None:
        """Prepare to read bodies of a schema. Raises RegistryError, with the id, if the registry gives no answer."""
        if wanted in self._entries or wanted in self._problems:
            return
        try:
            # Confluent's serializers write the bytes of the schema `bytes` as they are.
            self._entries[wanted] = self._decoder.add_writer(parsed(self._schema(wanted)), bare_bytes=True)
        except UnknownSchema as error:
            self._problems[wanted] = kernels.UNKNOWN_SCHEMA, str(error)
            unknown = [each for each, (fault, _) in self._problems.items() if fault == kernels.UNKNOWN_SCHEMA]
            if len(unknown) > MOST_UNKNOWN:
                some = ", ".join(map(str, unknown[:5]))
                raise RegistryError(
                    f"records name schemas that the registry does not have, such as {some}: "
                    "check schema.registry.url, and whether the topic is written with ids of a registry at all"
                ) from None
        except RegistryError as error:
            raise RegistryError(f"the records of schema {wanted} cannot be read: {error}") from None
        except SchemaError as error:
            self._problems[wanted] = kernels.INCOMPATIBLE, f"schema {wanted}: {error}"
            log.warning("the records of schema %s are malformed: %s", wanted, error)

    def _schema(self, wanted: SchemaId) -> SchemaText:
        if (brought := self._format.writers.get(wanted)) is not None:
            return brought
        known = _ASKED.setdefault(self._format.registry, {})
        if wanted not in known:
            if self._registry is None:
                self._registry = Registry(self._format.registry)
            known[wanted] = self._registry.by_id(wanted)
        return known[wanted]


_ASKED: dict[RegistryOptions, dict[SchemaId, SchemaText]] = {}
"""Schemas that this process has asked for: a worker runs many tasks."""


class _Json:
    def __init__(self, of: pa.DataType) -> None:
        self._decoder = JsonDecoder(of)
        self.type = of

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[Piece]:
        return itertools.starmap(Piece, self._decoder.decode(column))


class _Strings:
    type = pa.string()

    def decode(self, column: pa.Array, headers: pa.Array | None) -> Iterator[Piece]:
        faults = np.zeros(len(column), np.uint8)
        try:
            values = column.cast(pa.string())
        except pa.ArrowInvalid:
            faults[:] = [0 if _is_text(each.as_buffer()) else kernels.NOT_UTF8 for each in column]
            good = pc.if_else(pa.array(faults == 0), column, pa.scalar(None, column.type))
            values = good.cast(pa.string())
        yield Piece(0, values, faults, {})


def _is_text(body: pa.Buffer | None) -> bool:
    try:
        str(body or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True
