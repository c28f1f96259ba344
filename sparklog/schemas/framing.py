"""Frames of records: finds the id of the schema and the beginning of the body, and writes both.

    payload   00 · id, 4 bytes big-endian · body        what Confluent's serializers write
              01 · GUID, 16 bytes · body
    header    `__value_schema_id` or `__key_schema_id`: the same bytes without a body, which is then all of the payload

With Protobuf, the *indexes* of the message follow the id, in payload and header: their count, then the index of a
message in its file, of a message within it, and so on, each a zigzag varint. A count of 0 means the first message.

A header overrides the payload, as in Confluent's deserializers. Of several headers with the name, the last counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.schemas.column_kernels import read_only
from sparklog.schemas.framing_kernels import KEY_BYTES, read_indexes

SchemaId = int | UUID
"""A schema's number in its registry, or its GUID, which is the same in all registries."""

NULL, NO_FRAME = -1, -2

Indexes = tuple[int, ...]
"""The path to a message in its file; the first message has (0,)."""

HEADERS = {"value": "__value_schema_id", "key": "__key_schema_id"}
ID_BYTES, GUID_BYTES = 5, 17

Bytes = NDArray[np.uint8]
Longs = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class FramedColumn:
    """A column of keys or values, each with the id of its schema."""

    data: Bytes
    starts: Longs
    """The begin of each body in `data`."""
    ends: Longs
    ids: list[SchemaId]
    """The different ids."""
    which: Longs
    """For each row the position of its id in `ids`; NULL for a null row, NO_FRAME without an id."""


@dataclass(frozen=True, slots=True)
class MessageColumn:
    """The message types in a column of Protobuf."""

    pairs: list[tuple[int, Indexes | None]]
    """The different messages: the position of the id, and the indexes; None: there are none, or too many."""
    which: Longs
    """As of `FramedColumn`: for each row the position in `pairs`."""


def bodies(column: pa.Array) -> tuple[Bytes, Longs, Longs]:
    """Return the bytes of a binary column, and the begin and end of each row; a null row is empty."""
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1].astype(np.int64)
    return np.frombuffer(data if data is not None else b"", np.uint8), ends[:-1], ends[1:]


def unframe(column: pa.Array, headers: pa.Array | None, header: str) -> FramedColumn:
    """Return the bodies of a binary column and their ids.

    headers: the column of headers, list<struct<key: string, value: binary>>; None: look at the payload alone
    header: the name of the header that has the id
    """
    return _unframe(column, headers, header, None)


def unframe_messages(column: pa.Array, headers: pa.Array | None, header: str) -> tuple[FramedColumn, MessageColumn]:
    """Return the bodies of a column of Protobuf, their ids, and their messages. Parameters are as of `unframe`."""
    keys = np.zeros((len(column), KEY_BYTES), np.uint8)
    framed = _unframe(column, headers, header, keys)
    which = framed.which.copy()
    rows = np.flatnonzero(which >= 0)
    if not len(rows):
        return framed, MessageColumn([], which)
    halves = keys[rows].view(np.uint64)  # numbers are sorted ten times as fast as bytes
    firsts, places = np.zeros(1, np.int64), np.zeros(len(rows), np.int64)
    if not (halves == halves[0]).all():
        low, high = (np.unique(half, return_inverse=True)[1] for half in halves.T)
        _, firsts, places = np.unique(low * len(rows) + high, return_index=True, return_inverse=True)
    indexes = [_indexes_of(keys[rows[first]].tobytes()) for first in firsts]
    found, numbers = np.unique(which[rows] * len(indexes) + places, return_inverse=True)
    which[rows] = numbers
    return framed, MessageColumn(
        [(each // len(indexes), indexes[each % len(indexes)]) for each in found.tolist()], which
    )


def _unframe(column: pa.Array, headers: pa.Array | None, header: str, keys: Bytes | None) -> FramedColumn:
    """Return the bodies of a binary column and their ids.

    keys: gets the indexes of each row, as `read_indexes` writes them; None: there are none
    """
    data, starts, ends = bodies(column)
    which = np.full(len(column), NO_FRAME, np.int64)
    if column.null_count:
        which[np.asarray(column.is_null())] = NULL
    ids: dict[SchemaId, int] = {}
    _by_header(headers, header, which, ids, keys)
    starts = starts.copy()
    for magic, size in ((0, ID_BYTES), (1, GUID_BYTES)):
        rows = np.flatnonzero((which == NO_FRAME) & (ends - starts >= size))
        if not len(rows):
            continue
        rows = rows[data[starts[rows]] == magic]
        _give_ids(rows, data[starts[rows, None] + np.arange(size)], which, ids)
        starts[rows] += size
        if keys is not None:
            found = _read_keys(data, starts[rows], ends[rows])
            keys[rows] = found
            starts[rows] += found[:, -1]
    return FramedColumn(data=data, starts=starts, ends=ends, ids=list(ids), which=which)


def _read_keys(data: Bytes, starts: Longs, ends: Longs) -> Bytes:
    found = np.zeros((len(starts), KEY_BYTES), np.uint8)
    read_indexes(*map(read_only, (data, starts, ends)), found)
    return found


def _indexes_of(key: bytes) -> Indexes | None:
    """Return the indexes in a row of keys."""
    numbers = []
    number = shift = 0
    for byte in key[: key[-1]]:
        number |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append((number >> 1) ^ -(number & 1))
            number = shift = 0
    if not numbers:
        return None
    return tuple(numbers[1:]) or (0,)


def without_frames(data: Bytes, starts: Longs, ends: Longs) -> Longs:
    """Return the begins of the bodies, behind the frames of rows that have one."""
    starts = starts.copy()
    for magic, size in ((0, ID_BYTES), (1, GUID_BYTES)):
        rows = np.flatnonzero(ends - starts >= size)
        starts[rows[data[starts[rows]] == magic]] += size
    return starts


def _by_header(headers: pa.Array | None, name: str, which: Longs, ids: dict[SchemaId, int], keys: Bytes | None) -> None:
    if headers is None or not len(headers.flatten()):
        return
    entries = headers.flatten()
    chosen = np.flatnonzero(np.asarray(pc.fill_null(pc.equal(entries.field("key"), name), False)))
    if not len(chosen):
        return
    lengths = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    rows = np.repeat(np.arange(len(headers)), lengths)[chosen]
    is_last = np.append(rows[1:] != rows[:-1], True)
    rows, chosen = rows[is_last], chosen[is_last]
    data, starts, ends = bodies(entries.field("value").take(pa.array(chosen)))
    for magic, size in ((0, ID_BYTES), (1, GUID_BYTES)):
        sizes = ends - starts
        fits = np.flatnonzero((sizes == size if keys is None else sizes >= size) & (which[rows] == NO_FRAME))
        if not len(fits):
            continue
        fits = fits[data[starts[fits]] == magic]
        _give_ids(rows[fits], data[starts[fits, None] + np.arange(size)], which, ids)
        if keys is not None:
            found = _read_keys(data, starts[fits] + size, ends[fits])
            found[starts[fits] + size + found[:, -1] != ends[fits]] = 0  # the header has further bytes
            keys[rows[fits]] = found


def _give_ids(rows: Longs, frames: Bytes, which: Longs, ids: dict[SchemaId, int]) -> None:
    """Note the ids of rows, given their frames: a magic byte and the id, in each row of a matrix."""
    if not len(rows):
        return
    keys = np.ascontiguousarray(frames[:, 1:]).view(">u4" if frames.shape[1] == ID_BYTES else "V16")[:, 0]
    if (keys == keys[0]).all():
        which[rows] = _number(frames[0], ids)
        return
    _, firsts, places = np.unique(keys, return_index=True, return_inverse=True)
    which[rows] = np.array([_number(frames[first], ids) for first in firsts.tolist()])[places]


def _number(frame: Bytes, ids: dict[SchemaId, int]) -> int:
    """Return the number of a frame's id, a new one if it has none."""
    return ids.setdefault(_id_of(frame.tobytes()), len(ids))


def _id_of(frame: bytes) -> SchemaId:
    return UUID(bytes=frame[1:]) if frame[0] else int.from_bytes(frame[1:], "big")


def frame_of(wanted: SchemaId) -> bytes:
    """Return the bytes that name a schema, before a body or in a header."""
    return b"\x01" + wanted.bytes if isinstance(wanted, UUID) else b"\x00" + wanted.to_bytes(4, "big")


def index_bytes(indexes: Indexes) -> bytes:
    """Return the bytes that name a message behind the id of its schema, as Confluent's serializers write them."""
    if indexes == (0,):
        return b"\0"
    made = bytearray()
    for number in (len(indexes), *indexes):
        left = number << 1  # zigzag
        while left > 127:
            made.append(left & 127 | 128)
            left >>= 7
        made.append(left)
    return bytes(made)


def with_headers(own: pa.Array, added: Mapping[str, tuple[bytes, Any]]) -> pa.Array:
    """Return a column of headers with `added` ones behind the others.

    own: list<struct<key: string, value: binary>>; null is empty
    added: for each name the value, and a bool for each row: whether it gets the header
    """
    lengths = np.asarray(pc.fill_null(pc.list_value_length(own), 0)).astype(np.int64)
    counts = lengths + sum(rows.astype(np.int64) for _, rows in added.values())
    offsets = np.concatenate([[0], np.cumsum(counts)])
    entries = own.flatten()
    within = np.arange(len(entries)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    sources = np.empty(offsets[-1], np.int64)
    sources[np.repeat(offsets[:-1], lengths) + within] = np.arange(len(entries))
    ends = offsets[:-1] + lengths
    for number, (_, rows) in enumerate(added.values()):
        sources[ends[rows]] = len(entries) + number
        ends += rows
    more = pa.array([{"key": name, "value": value} for name, (value, _) in added.items()], entries.type)
    chosen = pa.concat_arrays([entries, more]).take(pa.array(sources))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), chosen, type=own.type)
