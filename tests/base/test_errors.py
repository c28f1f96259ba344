"""Errors, as clients receive them."""

from __future__ import annotations

from sparklog.base.errors import UnknownTopicOrPartition


def test_a_text_that_repeats_a_long_name_is_cut_in_its_middle() -> None:
    longest = "t" * 249
    told = str(UnknownTopicOrPartition(f"topic {longest!r} is not there, nor has it ever been"))
    assert longest in told

    told = str(UnknownTopicOrPartition(f"topic {'t' * 30_000!r} is not there"))
    assert told.startswith("topic 'ttt")
    assert told.endswith("ttt' is not there")
    assert len(told) < 500
