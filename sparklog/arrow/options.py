"""Choices of a read that the Spark source has too."""

from __future__ import annotations

from enum import StrEnum

CORRUPT_RECORD = "_corrupt_record"
"""The default name of the column of malformed records."""


class IsolationLevel(StrEnum):
    """Which records of transactions a read returns.

    READ_COMMITTED: those of committed ones, up to the first offset whose transaction is open. READ_UNCOMMITTED: all.
    """

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class ParseMode(StrEnum):
    """What becomes of a record whose key or value does not follow its schema.

    FAILFAST: the query fails. PERMISSIVE: the column is null, and another column has the bytes. DROPMALFORMED: the
    record is left out.
    """

    FAILFAST = "FAILFAST"
    PERMISSIVE = "PERMISSIVE"
    DROPMALFORMED = "DROPMALFORMED"
