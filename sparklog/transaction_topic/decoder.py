"""Decoder of records of `__transaction_state` to JSON, in the format of DumpLogSegments."""

from __future__ import annotations

from sparklog.offsets_topic.decoders import Decoded, decode_kinds
from sparklog.records.records import Record
from sparklog.transaction_topic.schemas import KAFKA_TRANSACTION_TOPIC


def decode_transactions(record: Record) -> Decoded:
    """Return key and value of a record of `__transaction_state` as JSON; see `decode_kinds`."""
    return decode_kinds(record, KAFKA_TRANSACTION_TOPIC)
