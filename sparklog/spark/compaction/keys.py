"""Which record of a key is the newest: the keys of records and what their age goes by (KIP-280).

    compaction.strategy   a record's version
    offset                none: the offset alone
    timestamp             its timestamp
    header                the number, 8 bytes big-endian, in its last header of that name that has one; a record
                          without any is older than all that have one

Of two records of a key the one with the greater version is newer; of two with the same, the one with the greater
offset. Nothing but keys is decoded, and what versions are made of.
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
from sparklog.records.arrow import decode_batches

NO_VERSION = -(2**63)
"""Of a record without the header: older than any other."""
VERSION_BYTES = 8
Longs = NDArray[np.int64]


class KeyedRecords(NamedTuple):
    """Some records of a partition, in the order of their offsets."""

    keys: pa.Array
    """Binary; null where a record has none."""
    offsets: Longs
    versions: Longs | None
    """None where offsets alone count."""


@dataclass(frozen=True, slots=True)
class Strategy:
    """What a topic counts as newer."""

    name: str = "offset"
    header: str = ""

    @classmethod
    def of(cls, config: TopicConfig) -> Strategy:
        return cls(config.compaction_strategy, config.compaction_strategy_header)

    @property
    def is_versioned(self) -> bool:
        return self.name != "offset"

    @property
    def columns(self) -> tuple[str, ...]:
        """What has to be decoded of a record."""
        return {"offset": (), "timestamp": ("timestamp",), "header": ("headers",)}[self.name] + ("offset", "key")

    def read(self, data: Buffer, offset_from: int = 0, offset_to: int = MAX_LONG) -> Iterator[KeyedRecords]:
        """The records of whole batches with offsets in [offset_from, offset_to). Raises CorruptRecord."""
        for batch in decode_batches(data, columns=self.columns, offset_from=offset_from, offset_to=offset_to):
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
    """The number in each record's last header of that name; NO_VERSION where there is none of 8 bytes."""
    versions = np.full(len(headers), NO_VERSION, np.int64)
    entries = headers.flatten()
    values = entries.field("value")
    fits = pc.equal(pc.binary_length(values), VERSION_BYTES)
    wanted = pc.fill_null(pc.and_(pc.equal(entries.field("key"), name), fits), False)
    records = pc.list_parent_indices(headers).filter(wanted)
    if len(records):
        numbers = np.frombuffer(values.filter(wanted).buffers()[2], ">i8", len(records))  # a new array: begins at 0
        versions[records.to_numpy()] = numbers  # of several headers of one record the last is written last, and stays
    return versions
