"""DuckDB, polars and pandas read topics through `sparklog.arrow`."""

from __future__ import annotations

import duckdb
import polars as pl
import pytest

from sparklog.arrow import record_batches, scan_polars
from sparklog.arrow import tables as arrow_tables
from support import GOLDEN
from support.golden import expected_rows

PATH = str(GOLDEN)
EXPECTED = expected_rows(GOLDEN / "segments-0")


def test_duckdb_queries_a_reader():
    reader = record_batches(PATH, "segments")
    [[count, last, size]] = (
        duckdb.from_arrow(reader).aggregate('count(*), max("offset"), sum(octet_length("value"))').fetchall()
    )
    assert (count, last) == (len(EXPECTED), EXPECTED[-1][4])
    assert size == sum(len(row[1] or b"") for row in EXPECTED)


def test_duckdb_joins_a_topic_with_a_table():
    connection = duckdb.connect()
    connection.execute("CREATE TABLE names AS SELECT 'segments' AS topic, 'Segments' AS title")
    connection.register("records", record_batches(PATH, "segments"))
    counted = connection.execute("SELECT title, count(*) FROM records JOIN names USING (topic) GROUP BY title")
    assert counted.fetchall() == [("Segments", len(EXPECTED))]


def test_polars_takes_a_reader():
    frame = pl.from_arrow(record_batches(PATH, "segments", columns=["offset", "value", "timestamp"]))
    assert frame.rows() == [(row[4], row[1] and bytes(row[1]), row[5]) for row in EXPECTED]


def test_a_lazy_frame_decodes_only_the_columns_that_its_query_uses(monkeypatch):
    asked = []

    def spy(*arguments, **options):
        asked.append(options["columns"])
        return arrow_tables.record_batches(*arguments, **options)

    monkeypatch.setattr("sparklog.arrow.lazy_frames.record_batches", spy)
    late = scan_polars(PATH, "segments").filter(pl.col("offset") >= 10).select(pl.col("timestamp").max())
    assert late.collect().item() == max(row[5] for row in EXPECTED if row[4] >= 10)
    assert [sorted(columns) for columns in asked] == [["offset", "timestamp"]]


@pytest.mark.parametrize("most", [0, 1, 17, 10_000])
def test_a_lazy_frame_stops_at_the_rows_that_are_asked_for(most):
    frame = scan_polars(PATH, "segments").head(most).collect()
    assert frame["offset"].to_list() == [row[4] for row in EXPECTED][:most]


def test_a_lazy_frame_is_read_anew_each_time():
    lazy = scan_polars(PATH, "segments")
    assert lazy.collect().equals(lazy.collect())
    assert lazy.collect().height == len(EXPECTED)


def test_pandas_takes_a_reader():
    frame = record_batches(PATH, "segments").read_pandas()
    assert frame["offset"].tolist() == [row[4] for row in EXPECTED]
    assert frame["timestamp"].dt.tz is not None
