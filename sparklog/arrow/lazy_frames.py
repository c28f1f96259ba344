"""A topic as a lazy frame of polars, which pushes the columns of a query down to the read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Literal

import polars as pl
from polars.io.plugins import register_io_source

from sparklog.arrow.columns import COLUMNS
from sparklog.arrow.options import CORRUPT_RECORD, ParseMode
from sparklog.arrow.tables import Path, Positions, record_batches, shape_of
from sparklog.schemas.formats import Format


def scan_polars(
    path: Path,
    topic: str,
    partitions: Iterable[int] | None = None,
    *,
    start: Positions = None,
    end: Positions = None,
    isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
    key: Format | None = None,
    value: Format | None = None,
    mode: Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"] = "FAILFAST",
) -> pl.LazyFrame:
    """Return a topic as a lazy frame with all columns; a query decodes only the columns that it uses.

    Each `collect` reads the present log. Arguments are those of `record_batches`; `collect` raises its errors, as
    polars' ComputeError.
    """
    names = (*COLUMNS, CORRUPT_RECORD) if mode == ParseMode.PERMISSIVE else COLUMNS
    shape = shape_of(names, {"key": key, "value": value}, ParseMode(mode))

    def read(
        columns: list[str] | None, predicate: pl.Expr | None, most_rows: int | None, _: int | None
    ) -> Iterator[pl.DataFrame]:
        reader = record_batches(
            path,
            topic,
            partitions,
            start=start,
            end=end,
            columns=names if columns is None else columns,
            isolation_level=isolation_level,
            key=key,
            value=value,
            mode=mode,
        )
        left = most_rows
        for batch in reader:
            frame = pl.DataFrame(batch)
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    schema = pl.DataFrame(shape.schema.empty_table()).schema
    return register_io_source(read, schema=schema)
