"""Reading a partition of `__consumer_offsets` back into the shard that it is the memory of.

Offsets that were committed in a transaction (by Apache Kafka; sparklog has none) count from its commit marker on; those
of a transaction that was aborted, or that has not ended, are passed over. A record that cannot be read is reported and
passed over too: all others are worth more than it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparklog.base.errors import CorruptRecord
from sparklog.group.records import CoordinatorRecord, decode
from sparklog.log.log import Log
from sparklog.records.batch import BatchHeader, read_header
from sparklog.records.records import Record, iterate_records

CHUNK_BYTES = 1 << 20
_ABORT, _COMMIT = 0, 1
logger = logging.getLogger(__name__)


def load(log: Log, end_offset: int, replay: Callable[[CoordinatorRecord], None], is_wanted: Callable[[], bool]) -> int:
    """Blocks: replay all records below `end_offset`; their number. Ends early when `is_wanted` says no.

    Raises KafkaStorageError, or CorruptRecord for a batch that is damaged.
    """
    transactions: dict[int, list[CoordinatorRecord]] = {}
    offset, records = log.log_start_offset, 0
    while offset < end_offset and is_wanted():
        piece = log.read(offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            break
        data, position = piece.read(), 0
        while position < len(data):
            header = read_header(data, position)
            for record in iterate_records(data, position):
                records += 1
                _take(record, header, transactions, replay)
            position += header.size
        offset = piece.next_offset
    return records


def _take(
    record: Record,
    header: BatchHeader,
    transactions: dict[int, list[CoordinatorRecord]],
    replay: Callable[[CoordinatorRecord], None],
) -> None:
    if header.is_control:
        held = transactions.pop(header.producer_id, [])
        if _marker(record) == _COMMIT:
            for each in held:
                replay(each)
        return
    try:
        found = decode(record.key, record.value)
    except CorruptRecord as error:
        logger.error("offset %d is passed over: %s", record.offset, error)
        return
    if found is None:
        return
    if header.is_transactional:
        transactions.setdefault(header.producer_id, []).append(found)
    else:
        replay(found)


def _marker(record: Record) -> int:
    """The type in a control record's key: version and type, 16 bits each."""
    return int.from_bytes((record.key or b"")[2:4], "big")
