"""Reference of the Spark source: columns and options of reads and writes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from sparklog.client.config import ProducerConfig
from sparklog.docs.configuration import default_of
from sparklog.docs.markdown import code, line, page, table
from sparklog.spark.columns import TYPES
from sparklog.spark.source.option_doc import COLUMNS, OPTION_DOCS, WRITTEN_COLUMNS
from sparklog.spark.source.option_table import OPTIONS, READS, OptionUse, SourceOption
from sparklog.spark.source.write import WRITE_COLUMNS

PRODUCER = {item.name: item.default for item in dataclasses.fields(ProducerConfig)}
_INTRODUCTION = """\
Options and columns of `format("sparklog")`: those of Spark's Kafka source, and a few more. Names of options may
be written in any case. An option that is unknown, or has no meaning for the read or write, is an error that
lists those that have. [Topics in Spark](../guides/spark.md) says how they are used."""


def spark_page() -> str:
    """Return the whole page."""
    read = ((code(name), code(of.simpleString()), line(COLUMNS[name])) for name, of in TYPES.items())
    written = (
        (code(name), " or ".join(code(each.simpleString()) for each in types), line(WRITTEN_COLUMNS[name]))
        for name, types in WRITE_COLUMNS.items()
    )
    titles = ("column", "type", "meaning")
    return page(
        "Spark options",
        _INTRODUCTION,
        [
            f"## Columns of reads\n\n{table(titles, read)}",
            f"## Options of reads\n\n{_reads(each for each in OPTIONS.values() if each.uses & READS)}",
            f"## Columns of writes\n\n{table(titles, written)}",
            f"## Options of writes\n\n{_writes(each for each in OPTIONS.values() if OptionUse.WRITE in each.uses)}",
        ],
    )


def _reads(options: Iterable[SourceOption]) -> str:
    rows = ((cells[0], _where(option), *cells[1:]) for option in options for cells in [_cells(option)])
    return table(("option", "for", "default", "value", "meaning"), rows)


def _writes(options: Iterable[SourceOption]) -> str:
    return table(("option", "default", "value", "meaning"), map(_cells, options))


def _cells(option: SourceOption) -> tuple[str, ...]:
    doc = OPTION_DOCS[option.name]
    default = default_of(PRODUCER[option.producer_argument]) if option.producer_argument else code(doc.default)
    return code(option.name), default, line(option.expects), line(doc.meaning)


def _where(option: SourceOption) -> str:
    return ", ".join(use.name.lower() for use in (OptionUse.BATCH, OptionUse.STREAM) if use in option.uses)
