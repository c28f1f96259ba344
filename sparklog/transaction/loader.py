"""Loading of a shard from its partition of `__transaction_state`.

A record that cannot be read is logged and skipped, so that all others can be used.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from sparklog.base.errors import CorruptRecord
from sparklog.log.log import Log
from sparklog.records.batch import read_header
from sparklog.records.records import iterate_records
from sparklog.transaction.shard import TransactionShard
from sparklog.transaction_topic.records import decode

CHUNK_BYTES = 1 << 20
logger = logging.getLogger(__name__)


def load(
    log: Log, end_offset: int, make: Callable[[], TransactionShard], is_wanted: Callable[[], bool]
) -> tuple[TransactionShard, str]:
    """Return a shard with all records below `end_offset` replayed into it, and a text about them for the log. Blocks.

    Ends early if `is_wanted()` returns false. Raises KafkaStorageError, or CorruptRecord for a damaged batch.
    """
    shard = make()
    offset, records = log.log_start_offset, 0
    while offset < end_offset and is_wanted():
        piece = log.read(offset, CHUNK_BYTES, max_offset=end_offset)
        if not piece.size:
            break
        records += _replay(piece.read(), offset, shard)
        offset = piece.next_offset
    return shard, f"{records} records"


def _replay(data: bytes, offset: int, shard: TransactionShard) -> int:
    """Replay the records from `offset` on, and return their number."""
    position = records = 0
    while position < len(data):
        header = read_header(data, position)
        for record in iterate_records(data, position) if not header.is_control else ():
            if record.offset >= offset:
                records += 1
                try:
                    found = decode(record.key, record.value)
                except CorruptRecord as error:
                    logger.error("offset %d is passed over: %s", record.offset, error)
                else:
                    if found is not None:
                        shard.replay(found)
        position += header.size
    return records
