"""Decodes a column of JSON objects to an Arrow array, with Arrow's own parser.

Fields must have the types of the schema, otherwise the row is malformed: a text is no number, a number no text, and a
fraction no integer. Dates and timestamps are texts of ISO 8601; a timestamp without a zone is in UTC. Decimals are
numbers or texts. Fields that are missing or null are null; fields that the schema does not name are ignored.

The decoder skips a frame with the id of a JSON schema: no JSON begins with its magic byte. It does not need the schema.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
from numpy.typing import NDArray

from sparklog.base.errors import CorruptRecord, SchemaError
from sparklog.schemas import column_kernels as kernels
from sparklog.schemas.framing import bodies, without_frames
from sparklog.schemas.json_kernels import join_objects

PIECE_BYTES = 32 * 1024 * 1024
"""Most bytes of JSON in a piece, unless it is one row."""

_READABLE = (
    pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_string, pa.types.is_decimal,
    pa.types.is_date32, pa.types.is_timestamp,
)  # fmt: skip


def check_readable(of: pa.DataType) -> None:
    """Raise SchemaError if a type, or one within it, cannot be read from JSON."""
    if (found := without_json(of)) is not None:
        raise SchemaError(
            f"{found[0] or 'the schema'}: {found[1]} cannot be read from JSON; read this part as string, or the column "
            "as string and use from_json"
        )


def without_json(of: pa.DataType, path: str = "") -> tuple[str, pa.DataType] | None:
    """Return the first part of a type that has no counterpart in JSON, and its path; None if all have one."""
    if pa.types.is_struct(of) and len(of):
        parts = (without_json(each.type, f"{path}.{each.name}" if path else each.name) for each in of)
        return next((part for part in parts if part is not None), None)
    if pa.types.is_list(of):
        return without_json(of.value_type, f"{path}[]")
    return None if any(is_of(of) for is_of in _READABLE) else (path, of)


class JsonDecoder:
    """Reads JSON objects as structs of one type. All its fields must be nullable."""

    def __init__(self, of: pa.DataType) -> None:
        check_readable(of)
        self.type = of
        self._parsed_type = _with_texts_for_dates(of)
        self._has_decimals = _has_decimals(of)
        fields = pa.schema(list(self._parsed_type))
        self._options = pj.ParseOptions(explicit_schema=fields, unexpected_field_behavior="ignore")

    def decode(self, column: pa.Array) -> Iterator[tuple[int, pa.Array, NDArray[np.uint8], dict[int, str]]]:
        """Yield pieces of the column: the number of rows before, values, faults, and reasons by row of the column."""
        data, starts, ends = bodies(column)
        starts = without_frames(data, starts, ends)
        is_null = np.asarray(column.is_null())
        first = 0
        while first < len(column):
            fits = int(np.searchsorted(ends, starts[first] + PIECE_BYTES, "right"))
            last = max(first + 1, fits)
            part = slice(first, last)
            values, faults, reasons = self._piece(data, starts[part], ends[part], is_null[part])
            yield first, values, faults, {first + row: reason for row, reason in reasons.items()}
            first = last

    def _piece(
        self, data: NDArray[np.uint8], starts: Any, ends: Any, is_null: Any
    ) -> tuple[pa.Array, NDArray[np.uint8], dict[int, str]]:
        faults = is_null.astype(np.uint8)  # nulls are left out, too
        target = np.empty(int((ends - starts).sum()) + len(starts), np.uint8)
        lines = np.zeros(len(starts) + 1, np.int64)
        data, starts, ends = (kernels.read_only(each) for each in (data, starts, ends))
        count = join_objects(data, starts, ends, faults, target, lines)
        if count < 0:
            raise CorruptRecord("the bytes of a column changed while they were decoded")
        faults[is_null] = 0
        rows = np.flatnonzero((faults == 0) & ~is_null)
        found: list[pa.Array] = []
        places = np.full(len(starts), -1, np.int64)
        reasons: dict[int, str] = {}
        done = 0
        for low, high, values in self._parsed(pa.py_buffer(target), lines, 0, count):
            if isinstance(values, str):
                faults[rows[low]] = kernels.NOT_JSON
                reasons[int(rows[low])] = values
                continue
            places[rows[low:high]] = np.arange(done, done + high - low)
            done += high - low
            found.append(values)
        values = pa.concat_arrays(found) if found else pa.nulls(0, self.type)
        if done < len(starts):
            values = values.take(pa.array(places, mask=places < 0))
        return values, faults, reasons

    def _parsed(self, text: pa.Buffer, lines: Any, low: int, high: int) -> Iterator[tuple[int, int, pa.Array | str]]:
        """Yield ranges of lines with their values, and each line that does not have the type with the reason."""
        if low == high:
            return
        try:
            yield low, high, self._parse(text.slice(int(lines[low]), int(lines[high] - lines[low])), high - low)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as wrong:
            if high - low == 1:
                yield low, high, f"{kernels.FAULTS[kernels.NOT_JSON]}: {str(wrong).removesuffix(' in row 0')}"
                return
            middle = (low + high) // 2
            yield from self._parsed(text, lines, low, middle)
            yield from self._parsed(text, lines, middle, high)

    def _parse(self, text: pa.Buffer, rows: int) -> pa.Array:
        read = pj.ReadOptions(use_threads=False, block_size=text.size + 1)
        table = pj.read_json(pa.BufferReader(text), read_options=read, parse_options=self._options)
        if table.num_rows != rows:
            raise pa.ArrowInvalid("the parser found other lines")
        columns = [pa.concat_arrays(table.column(each.name).chunks) for each in self._parsed_type]
        values = pa.StructArray.from_arrays(columns, fields=list(self._parsed_type))
        if values.type != self.type:
            values = values.cast(self.type)
        if self._has_decimals:
            values.validate(full=True)  # the parser lets some numbers with too many digits pass
        return values


def _has_decimals(of: pa.DataType) -> bool:
    if pa.types.is_struct(of):
        return any(_has_decimals(each.type) for each in of)
    return _has_decimals(of.value_type) if pa.types.is_list(of) else bool(pa.types.is_decimal(of))


def _with_texts_for_dates(of: pa.DataType) -> pa.DataType:
    """Return the type with texts in place of dates: Arrow's parser reads dates only as days since 1970."""
    if pa.types.is_struct(of):
        return pa.struct([each.with_type(_with_texts_for_dates(each.type)) for each in of])
    if pa.types.is_list(of):
        return pa.list_(of.value_field.with_type(_with_texts_for_dates(of.value_type)))
    return pa.string() if pa.types.is_date32(of) else of
