"""Java's hash of a string, by which groups find their partition."""

from __future__ import annotations

from functools import reduce

import pytest

from sparklog.base.java_hash import java_hash, partition_for


@pytest.mark.parametrize(
    ("text", "hashed"), [("", 0), ("g", 103), ("polygenelubricants", -(1 << 31)), ("gruppe-ü-\U0001f600", -1164021466)]
)
def test_groups_are_where_java_would_look_for_them(text: str, hashed: int) -> None:
    assert java_hash(text) == hashed


@pytest.mark.parametrize("length", [199, 200, 201, 30_000])
def test_a_long_id_has_the_same_hash(length: int) -> None:
    text = "".join(chr(33 + number * number % 90) for number in range(length))
    whole = reduce(lambda value, letter: 31 * value + ord(letter), text, 0) % (1 << 32)

    assert java_hash(text) % (1 << 32) == whole


def test_the_smallest_hash_belongs_to_the_first_partition_as_in_kafka() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("gruppe-ü-\U0001f600", 50) == 16
