"""Options of a read that the Spark source has too."""

from __future__ import annotations

from enum import StrEnum

CORRUPT_RECORD = "_corrupt_record"
"""The default name of the column of malformed records."""


class IsolationLevel(StrEnum):
    """The records of transactions that a read returns.

    READ_COMMITTED: records of committed transactions, up to the first offset of an open one. READ_UNCOMMITTED: all.
    """

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class ParseMode(StrEnum):
    """The treatment of malformed records, whose key or value does not follow its schema.

    FAILFAST: the query fails. PERMISSIVE: the column is null, and another column has the bytes. DROPMALFORMED: the
    record is omitted.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
