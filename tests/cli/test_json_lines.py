"""Records as JSON lines."""

from __future__ import annotations

import re
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparklog.cli.json_lines import ParsedLine, format_record, parse_line


class Consumed(NamedTuple):
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def test_a_line_gives_key_value_headers_and_time() -> None:
    line = parse_line('{"key": "a", "value": "b", "timestamp": 17, "headers": {"h": "1", "n": null, "r": ["x", "y"]}}')

    assert line == ParsedLine(b"a", b"b", [("h", b"1"), ("n", None), ("r", b"x"), ("r", b"y")], 17)


def test_every_field_may_be_left_out() -> None:
    assert parse_line("{}") == ParsedLine(None, None, [], None)


def test_an_object_is_stored_as_compact_json() -> None:
    assert parse_line('{"value": {"a": [1, 2], "b": "é"}}').value == '{"a":[1,2],"b":"é"}'.encode()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[1]", "not an object"),
        ('{"vlaue": "x"}', "unknown field 'vlaue'"),
        ('{"key": 7}', "key must be a string"),
        ('{"value": [1]}', "value must be a string, an object or null"),
        ('{"timestamp": "soon"}', "milliseconds"),
        ('{"timestamp": true}', "milliseconds"),
        ('{"headers": ["h"]}', "headers must be an object"),
        ('{"headers": {"h": 1}}', "header 'h'"),
        ('{"key_base64": "?"}', "not base64"),
        (b'{"key": "\xff"}', "not UTF-8"),
    ],
)
def test_a_wrong_line_says_what_is_wrong(text: str | bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        parse_line(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"key": {"a": 1}}', 'key must be a string or null, not {"a": 1}'),
        ('{"value": true}', "value must be a string, an object or null, not true"),
        ('{"timestamp": null, "headers": [null]}', "headers must be an object, not [null]"),
        ('{"timestamp": false}', "timestamp false: it must be milliseconds since 1970, a whole number"),
        ('{"headers": {"h": false}}', "header 'h' must be a string, null, or a list of those, not false"),
        ('{"key_base64": null}', "key_base64 is not base64: null"),
    ],
)
def test_a_wrong_value_is_shown_as_json(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(said)}$"):
        parse_line(text)


def test_a_wrong_value_that_is_long_is_shortened() -> None:
    with pytest.raises(ValueError, match=r'^headers must be an object, not "x{58}…$'):
        parse_line('{"headers": "%s"}' % ("x" * 1_000))


BYTES = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    key=BYTES,
    value=BYTES,
    headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=4, unique_by=lambda header: header[0]),
    timestamp=st.integers(0, 2**62),
)
def test_what_is_printed_can_be_produced_again(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]], timestamp: int
) -> None:
    printed = format_record(Consumed("t", 0, 7, timestamp, key, value, headers))

    assert "\n" not in printed
    assert parse_line(printed) == ParsedLine(key, value, headers, timestamp)
