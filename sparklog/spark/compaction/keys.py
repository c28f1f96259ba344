"""The keys of records, and the versions that decide which record of a key is the newest (KIP-280).

    compaction.strategy   a record's version
    offset                none: the offset alone
    timestamp             its timestamp
    header                the number, 8 bytes big-endian, in its last header of that name that has 8 bytes; a record
                          without such a header is older than all records with one

Of two records of a key, the one with the greater version is newer; with equal versions, the one with the greater
offset. Records of aborted transactions do not count. Only keys, and the columns of versions, are decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sparklog.base.config_keys import MAX_LONG
from sparklog.base.fs import Buffer
from sparklog.base.topic_config import TopicConfig
from sparklog.records.aborted import NONE_ABORTED, AbortedRanges
from sparklog.records.arrow import decode_batches

NO_VERSION = -(2**63)
"""Version of a record without the header: older than any other."""
VERSION_BYTES = 8
Longs = NDArray[np.int64]


class KeyedRecords(NamedTuple):
    """Some records of a partition, in offset order."""

    keys: pa.Array
    """Binary; null if a record has no key."""
    offsets: Longs
    versions: Longs | None
    """None if offsets alone count."""


@dataclass(frozen=True, slots=True)
class CompactionStrategy:
    """How a topic decides which record of a key is newer."""

    name: str = "offset"
    header: str = ""

    @classmethod
    def of(cls, config: TopicConfig) -> CompactionStrategy:
        """Return the strategy that a topic's configuration names."""
        return cls(config.compaction_strategy, config.compaction_strategy_header)

    @property
    def is_versioned(self) -> bool:
        """Whether records have versions; otherwise the greater offset alone is newer."""
        return self.name != "offset"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns of a record to decode."""
        return {"offset": (), "timestamp": ("timestamp",), "header": ("headers",)}[self.name] + ("offset", "key")

    def read(
        self,
        data: Buffer,
        offset_from: int = 0,
        offset_to: int = MAX_LONG,
        aborted: AbortedRanges = NONE_ABORTED,
    ) -> Iterator[KeyedRecords]:
        """Yield the records of whole batches with offsets in [offset_from, offset_to). Raises CorruptRecord.

        Batches of `aborted` transactions are skipped.
        """
        for batch in decode_batches(
            data, columns=self.columns, offset_from=offset_from, offset_to=offset_to, aborted=aborted
        ):
            yield KeyedRecords(batch["key"], batch["offset"].to_numpy(), self._versions(batch))

    def _versions(self, batch: pa.RecordBatch) -> Longs | None:
        match self.name:
            case "timestamp":
                timestamps: Longs = batch["timestamp"].cast(pa.int64()).to_numpy()
                return timestamps
            case "header":
                return header_versions(batch["headers"], self.header)
        return None


def header_versions(headers: pa.ListArray, name: str) -> Longs:
    """Return the number in each record's last header of that name with 8 bytes; NO_VERSION if there is none."""
    versions = np.full(len(headers), NO_VERSION, np.int64)
    entries = headers.flatten()
    values = entries.field("value")
    fits = pc.equal(pc.binary_length(values), VERSION_BYTES)
    wanted = pc.fill_null(pc.and_(pc.equal(entries.field("key"), name), fits), False)
    records = pc.list_parent_indices(headers).filter(wanted)
    if len(records):
        numbers = np.frombuffer(values.filter(wanted).buffers()[2], ">i8", len(records))  # new array: no offset
        versions[records.to_numpy()] = numbers  # of several headers of a record, the last is assigned last
    return versions
