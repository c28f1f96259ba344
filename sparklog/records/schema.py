"""Arrow columns of records: names and types of Spark's Kafka source, so that jobs can switch between the sources."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
COLUMNS = ("offset", "timestamp", "timestampType", "key", "value", "headers")

UNITS_PER_MS = {"ms": 1, "us": 1_000, "ns": 1_000_000}


def schema(columns: Sequence[str] = COLUMNS, *, timestamp_unit: str = "ms") -> pa.Schema:
    """Return the schema of `columns`, in their order; all nullable. `timestamp_unit` is ms, us or ns; the zone is UTC.

    Raises ValueError for a column or unit that does not exist.
    """
    if timestamp_unit not in UNITS_PER_MS:
        raise ValueError(f"timestamp unit {timestamp_unit!r}: one of {', '.join(UNITS_PER_MS)}")
    types = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp(timestamp_unit, "UTC"),
        "timestampType": pa.int32(),  # batch.TimestampType
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": HEADERS_TYPE,
    }
    if unknown := [name for name in columns if name not in types]:
        raise ValueError(f"no column {unknown[0]!r}: one of {', '.join(types)}")
    return pa.schema([(name, types[name]) for name in columns])
