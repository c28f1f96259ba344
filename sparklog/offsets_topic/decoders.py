"""Decoders of keys and values of Kafka's internal topics to JSON, in the format of DumpLogSegments.

The layout of `__consumer_offsets` is in `schemas.py`. Bytes and ids are shown in base64.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from typing import Any
from uuid import UUID

from sparklog.base.ids import encode_id
from sparklog.base.schemas import Kinds, read_key, read_value
from sparklog.offsets_topic.schemas import ASSIGNMENT, OFFSETS_TOPIC, SUBSCRIPTION
from sparklog.records.records import Record

_CONSUMER_PROTOCOL = "consumer"

Decoded = tuple[str | None, str | None]
Decoder = Callable[[Record], Decoded]
"""A function that returns a record's key and value as text; None if there is nothing to print."""


def decode_text(record: Record) -> Decoded:
    """Return key and value as UTF-8."""
    return _text(record.key), _text(record.value)


def decode_offsets(record: Record) -> Decoded:
    """Return key and value of a record of `__consumer_offsets` as JSON; see `decode_kinds`."""
    return decode_kinds(record, OFFSETS_TOPIC)


def decode_kinds(record: Record, known: Kinds) -> Decoded:
    """Return key and value of a record as JSON; `known` has the types of the topic's keys.

    A record that cannot be read, or has an unknown type, gets a text that says so in place of the key, and no value.
    A tombstone has the value ``<DELETE>``.
    """
    if record.key is None:
        return f"Error at offset {record.offset}, skipping. the key is missing", None
    try:
        kind, key = read_key(record.key, known)
        if key is None:
            return f"Unknown record type {kind} at offset {record.offset}, skipping.", None
        key_text = _json({"type": str(kind), "data": key})
        if record.value is None:
            return key_text, "<DELETE>"
        version, value = read_value(record.value, known[kind][1])
        _open_members(value)
        return key_text, _json({"version": str(version), "data": value})
    except (ValueError, struct.error) as error:
        return f"Error at offset {record.offset}, skipping. {error}", None


def _open_members(value: dict[str, Any]) -> None:
    """Decode the subscriptions and assignments of a classic consumer group's members, if they are readable."""
    if value.get("protocolType") != _CONSUMER_PROTOCOL:
        return
    for member in value["members"]:
        for name, message in (("subscription", SUBSCRIPTION), ("assignment", ASSIGNMENT)):
            try:
                _, member[name] = read_value(member[name] or b"", message)
            except (ValueError, struct.error):
                continue  # unreadable bytes are shown in base64


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_base64)


def _base64(value: bytes | UUID) -> str:
    return encode_id(value) if isinstance(value, UUID) else base64.b64encode(value).decode()


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode("utf-8", "replace")
