"""Conversion of record batches to Arrow and back: the one module that other layers need for records.

decode(data)             bytes of any number of batches to one pa.RecordBatch
decode_batches(data)     the same to several pa.RecordBatches, one at a time, for bounded memory
AbortedRanges            aborted transactions, whose batches decode and decode_batches are to skip
encode(records, …)       rows to one record batch
encode_all(records, …)   rows to as many record batches as a size limit requires
schema(), COLUMNS        schema and columns of decoded records
warm_up()                compile the kernels ahead of the first call
"""

from __future__ import annotations

from sparklog.records.aborted import AbortedRanges
from sparklog.records.compression import LIMIT_BYTES
from sparklog.records.decoding import GROUP_BYTES, decode, decode_batches
from sparklog.records.encoding import encode, encode_all
from sparklog.records.kernels import MAX_LONG
from sparklog.records.records import Record, write_records
from sparklog.records.schema import COLUMNS, HEADERS_TYPE, schema

__all__ = [
    "COLUMNS",
    "GROUP_BYTES",
    "HEADERS_TYPE",
    "LIMIT_BYTES",
    "MAX_LONG",
    "AbortedRanges",
    "decode",
    "decode_batches",
    "encode",
    "encode_all",
    "schema",
    "warm_up",
]


def warm_up() -> None:
    """Compile the kernels, or load them from the cache, before they are first needed.

    Call it once on a machine before many processes start to decode there.
    """
    record = Record(offset=0, key=b"k", value=b"v", headers=(("k", b"v"),))
    encode(decode(write_records([record])), default_timestamp_ms=0)
