"""Records as JSON lines, the form of `produce --json-lines` and `consume --json`.

    {"topic": "t", "partition": 0, "offset": 7, "timestamp": 17000000, "key": "a", "value": "b", "headers": {"h": "1"}}

- `key` and `value` are text or null. A value may be written as an object: it is stored as compact JSON.
- Bytes that are not UTF-8 are written as `key_base64` or `value_base64`; in headers as {"base64": …}.
- A header that occurs several times has the list of its values.
- `topic`, `partition` and `offset` are printed, and ignored when read, so that `produce` reads what `consume` prints.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Any, NamedTuple

SHOWN = 60
"""Maximum characters of a wrong value in an error."""
KNOWN = {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "key_base64", "value_base64"}


# For performance: json.dumps makes an encoder for every call with separators, and json.loads detects the encoding.
_read = json.JSONDecoder().decode
_compact = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_one_line = json.JSONEncoder(ensure_ascii=False).encode


class ParsedLine(NamedTuple):
    """One record to write."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None


def parse_line(text: str | bytes) -> ParsedLine:
    """Return the record of a line. Raises ValueError with the reason for an invalid line."""
    try:
        fields = _read(text if isinstance(text, str) else text.decode())
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at column {error.colno}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8: {error.reason} at byte {error.start}") from None
    except RecursionError:
        raise ValueError("not JSON that can be read: nested too deeply") from None
    if not isinstance(fields, dict):
        raise ValueError('not an object such as {"key": "a", "value": "b"}')
    if unknown := fields.keys() - KNOWN:
        raise ValueError(f"unknown field {min(unknown)!r}: known are {', '.join(sorted(KNOWN))}")
    timestamp = fields.get("timestamp")
    if timestamp is not None and (type(timestamp) is not int or timestamp < 0):
        raise ValueError(f"timestamp {_shortened(timestamp)}: it must be milliseconds since 1970, a whole number")
    return ParsedLine(
        _bytes_of(fields, "key"), _bytes_of(fields, "value"), _headers_of(fields.get("headers")), timestamp
    )


def format_record(record: Any) -> str:
    """Return a consumed record as one line, without the line end."""
    fields: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    for name, value in (("key", record.key), ("value", record.value)):
        text = as_text(value)
        if value is not None and text is None:
            fields[f"{name}_base64"] = base64.b64encode(value).decode()
        else:
            fields[name] = text
    fields["headers"] = _header_fields(record.headers)
    return _one_line(fields)


def as_text(value: bytes | None) -> str | None:
    """Return `value` as text, or None for null and for bytes that are not UTF-8."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    if f"{name}_base64" in fields:
        return _from_base64(fields[f"{name}_base64"], f"{name}_base64")
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and name == "value":
        return _compact(value).encode()
    raise ValueError(
        f"{name} must be a string{', an object' if name == 'value' else ''} or null, not {_shortened(value)}"
    )


def _headers_of(headers: Any) -> list[tuple[str, bytes | None]]:
    if headers is None:
        return []
    if not isinstance(headers, dict):
        raise ValueError(f"headers must be an object, not {_shortened(headers)}")
    return [
        (name, _header_value(name, value))
        for name, values in headers.items()
        for value in (values if isinstance(values, list) else [values])
    ]


def _header_value(name: str, value: Any) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _from_base64(value["base64"], f"header {name!r}")
    raise ValueError(f"header {name!r} must be a string, null, or a list of those, not {_shortened(value)}")


def _from_base64(text: Any, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise ValueError(f"{what} is not base64: {_shortened(text)}") from None


def _shortened(value: Any) -> str:
    """Return a wrong value as JSON for an error, shortened."""
    text = _one_line(value)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _header_fields(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, Any]:
    fields: dict[str, list[Any]] = {}
    for name, value in headers:
        text = as_text(value)
        shown = {"base64": base64.b64encode(value).decode()} if value is not None and text is None else text
        fields.setdefault(name, []).append(shown)
    return {name: values if len(values) > 1 else values[0] for name, values in fields.items()}
